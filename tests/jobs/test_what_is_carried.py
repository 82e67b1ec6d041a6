"""What of an annotation file is in the records, what is not, and which files are refused: from end to end."""

import gzip
import json
from pathlib import Path

import pytest

from tests.conftest import (
    CATEGORIES,
    SQUARE,
    annotation,
    every_kind,
    manifest_of,
    read_examples,
    rejects_of,
    shard_bytes,
)

CAPTION = {"id": 1, "image_id": 1, "caption": "a dog"}
UNNAMED = [{**CATEGORIES[0], "keypoints": []}, *CATEGORIES[1:]]


def uncarried(folder: Path) -> list[dict]:
    return [file.get("uncarried", {}) for file in manifest_of(folder)["splits"]["train"]["inputs"]]


def test_what_no_record_carries_is_in_plan_summary_and_manifest_and_extract_says_it(inputs, tmp_path, recordmill):
    row = {**annotation(1, 1), "segmentation": SQUARE, "score": 0.5, "keypoints": [0, 0, 0], "attributes": {}}
    path = inputs.file("instances.json", [row, {**row, "id": 2, "segmentation": []}])
    path.write_text(json.dumps({**json.loads(path.read_text()), "info": {"year": 2017}}))
    lines = ["of annotations: segmentation 1 (--masks png), score 2", "of every COCO file: info"]
    for more in (["--dry-run"], []):
        outcome = recordmill(*inputs.flags("--instances", path, *more))
        assert outcome.code == 0
        shown = outcome.out.splitlines()
        first = shown.index(f"  not carried  {lines[0]}")
        assert shown[first + 1] == f"               {lines[1]}"
    assert uncarried(inputs.out) == [{"annotations": {"score": 2, "segmentation": 1}, "file": {"info": 1}}]
    extracted = recordmill("extract", inputs.out, tmp_path / "dir")
    assert [f"not in the records, and so not here: {line}" for line in lines] == extracted.out.splitlines()[2:]


def test_what_another_flag_carries_is_carried(inputs, recordmill):
    row = {**annotation(1, 1), "segmentation": SQUARE, "keypoints": [1, 2, 2], "num_keypoints": 1}
    path = inputs.file("instances.json", [row])
    assert recordmill(*inputs.flags("--instances", path, "--keypoints", path, "--masks", "rle")).code == 0
    assert uncarried(inputs.out) == [{}, {}]
    assert recordmill(*inputs.flags("--instances", path, "--layout", "keras", "--overwrite")).code == 0
    assert uncarried(inputs.out) == [{"annotations": {"keypoints": 1, "num_keypoints": 1, "segmentation": 1}}]


@pytest.mark.parametrize(
    ("flag", "row", "told"),
    [
        ("--keypoints", annotation(1, 1), "give the file to --instances"),
        ("--instances", CAPTION, "give the file to --captions"),
        ("--captions", annotation(1, 1), "give the file to --instances"),
        ("--image-info", CAPTION, "give it to --captions"),
    ],
)
def test_a_file_of_another_kind_is_refused(inputs, recordmill, flag, row, told):
    outcome = recordmill(*inputs.flags(flag, inputs.file("a.json", [row])))
    assert outcome.code == 2
    assert told in outcome.err
    assert not inputs.out.exists()


def test_a_list_that_is_there_twice_is_refused(inputs, recordmill):
    path = inputs.file("a.json", [annotation(1, 1)])
    path.write_text(path.read_text()[:-1] + ', "annotations": []}')
    outcome = recordmill(*inputs.flags("--instances", path))
    assert (outcome.code, "two lists 'annotations'" in outcome.err) == (1, True)
    assert not inputs.out.exists()


def test_keypoints_of_a_category_that_names_none(inputs, recordmill):
    rows = [{**annotation(id_, 1), "keypoints": [4, 3, 2, 8, 6, 0] * (1 + id_ // 3)} for id_ in (1, 2, 3)]
    outcome = recordmill(*inputs.flags("--keypoints", inputs.file("keypoints.json", rows, UNNAMED)))
    assert outcome.code == 0
    assert "keypoints    2 of " in outcome.out
    (example,) = read_examples(inputs.out)
    assert example["image/object/id"] == [1, 2]
    assert example["image/object/keypoint/text"] == [b"keypoint_1", b"keypoint_2"] * 2
    assert example["image/object/keypoint/x"] == pytest.approx([0.1, 0] * 2)
    assert example["image/object/keypoint/num"] == [1, 1]
    assert [(reject["id"], reject["reason"]) for reject in rejects_of(inputs.out)] == [(3, "malformed_keypoints")]


def test_compressed_files_by_every_flag_give_the_same_shards(sample, tmp_path, recordmill):
    flags = [str(flag) for flag in every_kind(sample)]
    packed = []
    for flag in flags:
        if flag.endswith(".json"):
            (tmp_path / Path(flag).name).write_bytes(gzip.compress(Path(flag).read_bytes()))
        packed.append(str(tmp_path / Path(flag).name) if flag.endswith(".json") else flag)
    for given, out in ((flags, "plain"), (packed, "packed")):
        assert recordmill("coco", *given, "--output", tmp_path / out).code == 0
    assert shard_bytes(tmp_path / "packed") == shard_bytes(tmp_path / "plain")
