"""Images that are in a data set more than once, of whole jobs."""

import contextlib
import io
import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from recordmill.launch.cli import main
from tests.conftest import manifest_of, rejects_of
from tests.jobs.folders import whole_folder
from tests.transforms.images.test_measure_pixels import scene


def jpeg(picture: Image.Image, quality: int = 90) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def groups(folder) -> list[tuple[str, str, list[str]]]:
    lines = (folder / "duplicates.jsonl").read_text().splitlines()
    found = map(json.loads, lines)
    return [
        (each["kind"], each["labels"], [f"{image['split']}/{image['file_name']}" for image in each["images"]])
        for each in found
    ]


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Drawn scenes in folders of two splits; of some there are copies."""
    folder = tmp_path_factory.mktemp("planted")
    first = scene(0)
    files = {
        "train/cat/0.jpg": jpeg(first),
        "train/cat/1.jpg": jpeg(scene(1)),
        "train/cat/2.jpg": jpeg(scene(2)),
        "train/dog/2.jpg": jpeg(scene(2)),
        "val/cat/half.jpg": jpeg(first.resize((160, 120)), 60),
        "val/dog/1.jpg": jpeg(scene(1)),
        "val/dog/3.jpg": jpeg(scene(3)),
    }
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


LEAKS = [
    ("exact", "differ", ["train/cat/1.jpg", "val/dog/1.jpg"]),
    ("near", "same", ["train/cat/0.jpg", "val/cat/half.jpg"]),
]
WITHIN = ("exact", "differ", ["train/cat/2.jpg", "train/dog/2.jpg"])


def flags(planted, out, split: str, *more: object) -> list[object]:
    return ["convert", planted / split, "--format", "folder", "--output", out, "--split", split, *more]


@pytest.fixture(scope="module")
def written(planted, tmp_path_factory) -> tuple[Path, list[str]]:
    """Both splits, by a job each, and what these print."""
    out, printed = tmp_path_factory.mktemp("written"), []
    for split in ("train", "val"):
        with contextlib.redirect_stdout(io.StringIO()) as text:
            assert main(list(map(str, flags(planted, out, split)))) == 0
        printed.append(text.getvalue())
    return out, printed


def test_second_job_keeps_output_of_first(planted, written, recordmill):
    out, printed = written
    assert ["LEAKAGE" in text for text in printed] == [False, True]
    problems = (f"--exclude {out}/problems-{split}.jsonl" for split in ("train", "val"))
    assert f"Convert again with {' '.join(problems)} --exclude-kinds leakage and another" in printed[1]
    assert groups(out) == [*LEAKS, WITHIN]
    found = manifest_of(out)["duplicates"]
    assert (found["groups"], found["leaks"]) == (3, 2)
    assert found["splits"]["val"] == {"exact": 1, "near": 1, "leaked": 2, "labels_differ": 1, "conflicting": 1}
    assert recordmill("verify", out, "--check", "hashes").code == 0
    image = json.loads((out / "duplicates.jsonl").read_text().splitlines()[0])["images"][1]
    data = (out / image["shard"]).read_bytes()[image["offset"] : image["offset"] + image["bytes"]]
    assert (planted / "val/dog/1.jpg").read_bytes() in data
    assert b"dog/1.jpg" in data


def test_refused_split_is_hidden_until_accepted(planted, written, tmp_path, recordmill):
    out = tmp_path / "out"
    refused = recordmill(*flags(planted, out, "train", "--duplicates", "fail"))
    assert (refused.code, groups(out / ".recordmill-train")) == (1, [WITHIN])
    assert not (out / "manifest.json").exists()
    assert recordmill(*flags(planted, out, "train", "--duplicates", "leakage")).code == 0
    before = sorted(path.name for path in out.iterdir())
    assert recordmill(*flags(planted, out, "val", "--duplicates", "leakage")).code == 1
    assert sorted(path.name for path in out.iterdir() if path.name != ".recordmill-val") == before
    assert groups(out / ".recordmill-val") == LEAKS
    assert list(manifest_of(out)["splits"]) == ["train"]
    complete = whole_folder(written[0])
    assert recordmill(*flags(planted, written[0], "val", "--duplicates", "leakage")).code == 1
    assert whole_folder(written[0]) == complete


def test_problems_of_folder_are_left_out_by_next_job(planted, written, tmp_path, recordmill):
    problems = {split: tmp_path / f"problems-{split}.jsonl" for split in ("train", "val")}
    for path in problems.values():
        shutil.copy(written[0] / path.name, path)
    lines = [json.loads(line) for path in problems.values() for line in path.read_text().splitlines()]
    assert [(each["kind"], each["split"], each["file_name"]) for each in lines] == [
        ("leakage", "train", "cat/1.jpg"),
        ("leakage", "train", "cat/0.jpg"),
        ("exact_duplicates", "train", "dog/2.jpg"),
    ]
    assert manifest_of(written[0])["problems"]["train"]["numbers"] == {"leakage": 2, "exact_duplicates": 1}
    out, more = tmp_path / "out", ("--exclude", problems["train"], "--max-rejects", 0, "--duplicates", "fail")
    assert recordmill(*flags(planted, out, "train", *more)).code == 0
    assert recordmill(*flags(planted, out, "val", "--duplicates", "fail")).code == 0
    assert [(each["id"] is None, each["reason"]) for each in rejects_of(out)] == [(False, "excluded")] * 3
    assert manifest_of(out)["splits"]["train"]["images"]["rejected"] == {"excluded": 3}
    problems["train"].write_text("cat/2.jpg")
    changed = recordmill(*flags(planted, out, "train", *more))
    assert (changed.code, "exclude" in changed.err) == (2, True)


def test_copies_are_dropped(planted, tmp_path, recordmill):
    rows = ["path,label,split"]
    for path in sorted(planted.rglob("*.jpg")):
        split, label, _ = path.relative_to(planted).parts
        rows.append(f"{path.relative_to(planted)},{label},{split}")
    labels = tmp_path / "labels.csv"
    labels.write_text("\n".join(rows))
    out, flags_ = tmp_path / "out", ("--duplicates", "drop", "--max-rejects", 0)
    result = recordmill("convert", planted, "--format", "folder", "--labels", labels, "--output", out, *flags_)
    assert result.code == 0
    details = sorted(line["detail"] for line in rejects_of(out))
    assert details == [
        "'train/cat/1.jpg': the same bytes as 'val/dog/1.jpg' of val, which is kept, with other labels",
        "'train/dog/2.jpg': the same bytes as 'train/cat/2.jpg' of train, which is kept, with other labels",
    ]
    assert manifest_of(out)["splits"]["train"]["images"]["rejected"] == {"duplicate": 2}
    assert groups(out) == [("near", "same", ["train/train/cat/0.jpg", "val/val/cat/half.jpg"])]
    assert "2 of the dropped images have other labels" in result.out
    again = recordmill("convert", planted, "--format", "folder", "--labels", labels, "--output", out)
    assert again.code == 2, "the option is part of the recipe"
