"""Every kind of annotation, from end to end through the command, against an independent reading of the same files."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import manifest_of, read_examples, rejects_of


def by_image(folder: Path) -> dict[int, dict[str, list]]:
    return {int(example["image/source_id"][0]): example for example in read_examples(folder)}


# All kinds of the sample in one record


def test_nothing_is_lost(of_every_kind, sample, recordmill):
    split = manifest_of(of_every_kind)["splits"]["train"]
    counts = split["annotations"]
    rows = {Path(path).name: len(json.loads(Path(path).read_text())["annotations"]) for path in (
        sample.instances, sample.keypoints, sample.captions, sample.panoptic)}  # fmt: skip
    assert {Path(file["path"]).name: file["annotations"] for file in split["inputs"]} == rows
    assert counts["rows"] == sum(rows.values())
    assert counts["joined"] == rows["person_keypoints.json"]
    assert (counts["captions"], counts["panoptic"]) == (2 * 22, 22)
    assert counts["rejected"] == counts["filtered"] == {}
    bad = {row["id"] for row in rejects_of(of_every_kind)}
    lost = sum(
        row["image_id"] in bad
        for path in (sample.instances, sample.captions, sample.panoptic)
        for row in json.loads(Path(path).read_text())["annotations"]
    )
    assert counts["of_rejected_images"] == lost
    assert recordmill("verify", of_every_kind).code == 0


def test_keypoints_captions_and_their_order(of_every_kind, sample):
    figures = {row["id"]: row for row in json.loads(Path(sample.keypoints).read_text())["annotations"]}
    captions: dict[int, list] = {}
    for row in json.loads(Path(sample.captions).read_text())["annotations"]:
        captions.setdefault(row["image_id"], []).append((row["id"], row["caption"].encode()))
    seen = 0
    for image_id, example in by_image(of_every_kind).items():
        assert example["image/caption"] == [text for _, text in sorted(captions[image_id])]
        width, height = example["image/width"][0], example["image/height"][0]
        xyv = np.zeros((len(example["image/object/id"]), 5, 3))
        for place, id_ in enumerate(example["image/object/id"]):
            if id_ in figures:
                xyv[place] = np.reshape(figures[id_]["keypoints"], (5, 3))
                seen += 1
        assert example["image/object/keypoint/x"] == pytest.approx((xyv[:, :, 0] / width).ravel().tolist())
        assert example["image/object/keypoint/y"] == pytest.approx((xyv[:, :, 1] / height).ravel().tolist())
        assert example["image/object/keypoint/visibility"] == xyv[:, :, 2].ravel().tolist()
        assert example["image/object/keypoint/num"] == (xyv[:, :, 2] > 0).sum(1).tolist()
        named = dict(
            zip(example["image/object/id"], np.reshape(example["image/object/keypoint/text"], (-1, 5)), strict=True)
        )
        for id_, names in named.items():
            figure = [b"head", b"left_hand", b"right_hand", b"left_foot", b"right_foot"]
            assert names.tolist() == (figure if id_ in figures else [b""] * 5)
    assert seen > 5
