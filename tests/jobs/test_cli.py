"""Every flag, through the real command, by its visible effect."""

import errno
import json
import math
import os
import pty
import re
import select
import termios
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from recordmill.launch.command_line.verbs import fields_of
from tests.conftest import coco_flags, manifest_of, read_examples, shard_bytes
from tests.faults.warm_process import Command, attach_terminal


def objects(folder: Path, key: str) -> list:
    return [value for example in read_examples(folder) for value in example[f"image/object/{key}"]]


def shard_names(folder: Path) -> list[str]:
    return sorted(shard_bytes(folder))


def growth_of_rewritten(folder: Path) -> float:
    """How much larger pictures have become by being transcoded; drawings do, as JPEGs of good quality."""
    rewritten = manifest_of(folder)["splits"]["train"]["images"].get("rewritten")
    return rewritten["bytes_written"] / rewritten["bytes_read"] if rewritten else math.inf


def encoder(folder: Path) -> dict:
    """That of the captions; empty where there is none."""
    file = folder / "encoders" / "captions.json"
    return json.loads(file.read_text()) if file.exists() else {"idf": [], "vocabulary": [], "settings": {"lower": True}}


# For each flag of `coco`: what to add to a plain conversion of the sample, and what is then true of the output folder.
# Flags whose effect is not in the folder have tests of their own below.
COCO_FLAGS: dict[str, tuple[list, Callable[[Path], bool]]] = {
    "--name": (["--name", "pets"], lambda out: {name[:5] for name in shard_names(out)} == {"pets-"}),
    "--split": (["--split", "val"], lambda out: {name.split("-")[1][:4] for name in shard_names(out)} == {"val."}),
    "--layout": (["--layout", "keras"], lambda out: [path.name[:8] for path in out.glob("file_*")] == ["file_00-"]),
    "--num-shards": (["--num-shards", 4], lambda out: len(shard_names(out)) == 4),
    "--shard-size": (["--shard-size", "30kB"], lambda out: len(shard_names(out)) > 2),
    "--examples-per-shard": (["--examples-per-shard", 10], lambda out: len(shard_names(out)) == 3),
    "--gzip": (["--gzip"], lambda out: all(data[:2] == b"\x1f\x8b" for data in shard_bytes(out).values())),
    "--seed": (["--seed", 9], lambda out: read_examples(out)[0]["image/source_id"] != [FIRST_WITH_SEED_0]),
    "--writer": (
        ["--writer", "beam"],
        lambda out: manifest_of(out)["splits"]["train"]["recipe"]["options"]["writer"] == "beam",
    ),
    "--no-crowd": (["--no-crowd"], lambda out: set(objects(out, "is_crowd")) == {0}),
    "--min-area": (["--min-area", 900], lambda out: min(objects(out, "area")) >= 900),
    "--categories": (
        ["--categories", "star,circle"],
        lambda out: set(objects(out, "class/text")) == {b"star", b"circle"},
    ),
    "--masks": (["--masks", "rle"], lambda out: all("image/object/mask/rle" in e for e in read_examples(out))),
    "--keypoints": (["--keypoints", "{keypoints}"], lambda out: "image/object/keypoint/x" in read_examples(out)[0]),
    "--captions": (["--captions", "{captions}"], lambda out: "image/caption" in read_examples(out)[0]),
    "--panoptic": (
        ["--panoptic", "{panoptic}", "--panoptic-masks", "{panoptic_masks}"],
        lambda out: "image/panoptic/category_mask" in read_examples(out)[0],
    ),
    "--stuff": (
        ["--stuff", "{stuff}"],
        lambda out: "image/segmentation/class/encoded" in read_examples(out)[0],
    ),
    "--image-info": (
        ["--image-info", "{image_info}"],
        lambda out: len(manifest_of(out)["splits"]["train"]["inputs"]) == 2,
    ),
    "--format": (["--format", "png"], lambda out: {e["image/format"][0] for e in read_examples(out)} == {b"png"}),
    "--max-side": (["--max-side", 100], lambda out: max(e["image/width"][0] for e in read_examples(out)) <= 100),
    "--jpeg-quality": (
        ["--format", "jpeg", "--jpeg-quality", 10],
        lambda out: growth_of_rewritten(out) < 2,
    ),
    "--no-list": (
        ["--no-list"],
        lambda out: manifest_of(out)["splits"]["train"]["recipe"]["options"]["no_list"],
    ),
    "--workers": (["--workers", 1], lambda out: len(read_examples(out)) == 22),
    "--instances": ([], lambda out: len(read_examples(out)) == 22),
    "--images": ([], lambda out: len(read_examples(out)) == 22),
    "--output": ([], lambda out: (out / "manifest.json").exists()),
}
COCO_FLAGS |= {
    "--caption-text": (
        ["--captions", "{captions}", "--caption-text", "tfidf"],
        lambda out: max(encoder(out)["idf"], default=0) > 1,
    ),
    "--text-features": (["--text-features", 12], lambda out: len(encoder(out)["vocabulary"]) == 12),
    "--min-df": (["--min-df", "0.5"], lambda out: 0 < max(encoder(out)["idf"], default=0) < 1.7),
    "--ngrams": (["--ngrams", "1,2"], lambda out: any(" " in term for term in encoder(out)["vocabulary"])),
    "--no-lower": (["--no-lower"], lambda out: not encoder(out)["settings"]["lower"]),
    "--text-names": (["--text-names", "index=words/i,value=words/v"], lambda out: "words/v" in read_examples(out)[0]),
}
FIRST_WITH_SEED_0 = b"1035"
# Flags that leave each other's effects alone are given to one job.
TOGETHER = [
    ["--name", "--split", "--shard-size", "--gzip"],
    ["--seed", "--no-crowd", "--min-area", "--masks", "--keypoints", "--captions", "--panoptic", "--workers"],
    ["--num-shards", "--writer", "--stuff", "--categories", "--format"],
    ["--examples-per-shard", "--image-info", "--max-side", "--no-list"],
    ["--layout"],
    ["--caption-text", "--text-features", "--min-df", "--ngrams", "--no-lower", "--text-names"],
    ["--jpeg-quality"],
    ["--instances", "--images", "--output"],
]
ELSEWHERE = {
    "--duplicates",
    "--group-from",
    "--groups",
    "--split-seed",
    "--encoders",
    "--fit-split",
    "--stop-words",
    "--panoptic-masks",
    "--match",
    "--bbox-format",
    "--boxes",
    "--check",
    "--max-rejects",
    "--overwrite",
    "--dry-run",
    "--progress",
    "--debug",
}


def test_every_flag_of_coco_has_a_test():
    flags = {each.flag for each in fields_of("coco")}
    assert flags == set(COCO_FLAGS) | ELSEWHERE
    assert sorted(flag for job in TOGETHER for flag in job) == sorted(COCO_FLAGS)


@pytest.mark.parametrize("flags", TOGETHER, ids=" ".join)
def test_flags(flags, sample, tmp_path, recordmill):
    more = [str(argument).format(**sample._asdict()) for flag in flags for argument in COCO_FLAGS[flag][0]]
    assert recordmill(*coco_flags(sample, tmp_path, *more)).code == 0
    assert {flag: COCO_FLAGS[flag][1](tmp_path) for flag in flags} == dict.fromkeys(flags, True)


def test_the_plain_conversion_lacks_what_the_flags_bring(tmp_path, copy_converted):
    """Otherwise the table above could hold by itself."""
    copy_converted(tmp_path)
    assert read_examples(tmp_path)[0]["image/source_id"] == [FIRST_WITH_SEED_0]
    brings = {flag for flag, (added, _) in COCO_FLAGS.items() if added} - {"--workers"}
    assert {flag for flag in brings if COCO_FLAGS[flag][1](tmp_path)} == set()


@pytest.mark.parametrize(("policy", "xmax"), [("clip", [0.25, 1.0]), ("drop", [0.25]), ("keep", [0.25, 1.25])])
def test_boxes(policy, xmax, tmp_path, recordmill):
    from tests.conftest import CATEGORIES, annotation, convert, draw_jpeg, image_row, write_coco

    draw_jpeg(tmp_path / "images" / "a.jpg")
    boxes = [annotation(1, 1, (0, 0, 10, 10)), annotation(2, 1, (30, 0, 20, 10))]
    instances = write_coco(tmp_path, [image_row(1, "a.jpg")], boxes, CATEGORIES)
    assert convert(recordmill, tmp_path, instances, "--boxes", policy, "--max-rejects", 1).code == 0
    assert objects(tmp_path / "out", "bbox/xmax") == pytest.approx(xmax)
    counts = manifest_of(tmp_path / "out")["splits"]["train"]["annotations"]
    assert counts["boxes_clipped"] == (policy == "clip")
    assert counts["rejected"] == ({"box_outside": 1} if policy == "drop" else {})
    assert recordmill("verify", tmp_path / "out").code == 0


@pytest.mark.parametrize(("check", "written"), [("none", 3), ("header", 2), ("decode", 1)])
def test_check(check, written, tmp_path, recordmill):
    """One image is whole, one is cut, and one has an end but a hole in its middle."""
    from PIL import Image

    from tests.conftest import CATEGORIES, convert, image_row, write_coco

    images = tmp_path / "images"
    images.mkdir()
    for name in ("whole.png", "cut.png", "hole.png"):
        Image.effect_noise((40, 30), 50).save(images / name)
    data = (images / "cut.png").read_bytes()
    (images / "cut.png").write_bytes(data[:-20])
    data = (images / "hole.png").read_bytes()
    (images / "hole.png").write_bytes(data[:300] + bytes(100) + data[400:])
    rows = [image_row(number, name) for number, name in enumerate(("whole.png", "cut.png", "hole.png"))]
    instances = write_coco(tmp_path, rows, [], CATEGORIES)
    assert convert(recordmill, tmp_path, instances, "--check", check, "--max-rejects", 1).code == 0
    assert len(read_examples(tmp_path / "out")) == written


def test_dry_run_prints_the_plan_and_writes_nothing(sample, tmp_path, recordmill):
    outcome = recordmill(*coco_flags(sample, tmp_path / "out", "--examples-per-shard", 10, "--dry-run"))
    assert outcome.code == 0
    assert "images       23 (image_missing 1)" in outcome.out
    assert "shards       3" in outcome.out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("mode", "told"), [("plain", True), ("none", False)])
def test_progress(mode, told, sample, tmp_path, recordmill, monkeypatch):
    monkeypatch.setattr("recordmill.launch.terminal.progress._PLAIN_SECONDS", 0.01)
    outcome = recordmill(*coco_flags(sample, tmp_path, "--progress", mode))
    assert outcome.code == 0
    assert ("of 23 images" in outcome.err) is told


def on_a_terminal(columns: int, log: Path, *arguments: object, kind: str = "xterm") -> str:
    """What a command shows on a pseudo terminal, without what steers it."""
    person, inside = pty.openpty()
    termios.tcsetwinsize(person, (24, columns))
    command = Command(arguments, log, disturbance=partial(attach_terminal, os.ttyname(inside), kind))
    seen = b""
    with open(person, "rb", buffering=0) as screen:
        while command.code is None or select.select([screen], [], [], 0)[0]:
            if select.select([screen], [], [], 0.1)[0]:
                seen += screen.read(4096)
    os.close(inside)
    assert command.code == 0, seen
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())


def widest(shown: str) -> int:
    return max(map(len, re.split("[\r\n]+", shown)))


@pytest.mark.parametrize("columns", [40, 80])
def test_live_progress_on_a_terminal(columns, sample, tmp_path):
    """The bar comes and goes, and no line of it is wider than the terminal."""
    shown = on_a_terminal(columns, tmp_path / "log", *coco_flags(sample, tmp_path, "--num-shards", 4))
    live, summary = shown.split("coco-train is in")
    assert "━" in live
    assert "23 images" in live
    assert "of 4 shards" in live or columns == 40
    assert widest(live) <= columns
    assert str(tmp_path) in summary


def test_no_live_line_where_nothing_can_be_erased(sample, tmp_path):
    shown = on_a_terminal(80, tmp_path / "log", *coco_flags(sample, tmp_path, "--dry-run"), kind="dumb")
    assert shown.startswith("coco-train would be written to")


def test_live_progress_while_tensorflow_s_messages_are_hidden(tmp_path, copy_converted):
    copy_converted(tmp_path / "out", "--num-shards", 4)
    live, found = on_a_terminal(60, tmp_path / "log", "verify", tmp_path / "out").split("split")
    assert "starting TensorFlow" in live
    assert "22 of 22 records (100%) · 4 of 4 shards" in live
    assert widest(live) <= 60
    assert "whole" in found


def test_debug_shows_where_an_error_came_from(tmp_path, recordmill):
    flags = ["coco", "--images", tmp_path / "none", "--instances", tmp_path / "none.json", "--output", tmp_path / "out"]
    assert "Traceback" not in recordmill(*flags).err
    assert "Traceback" in recordmill(*flags, "--debug").err


# What is wrong with the command is told at once, all of it


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--ouput", "x"], "unknown flag --ouput; did you mean --output?"),
        (["stray"], "unexpected argument 'stray'"),
        (["--num-shards", "4", "--shard-size", "1MB"], "--num-shards and --shard-size contradict each other"),
        (["--num-shards", "many"], "--num-shards 'many': a whole number is expected"),
        (
            ["--boxes", "cut", "--check", "all"],
            "--check 'all' is none of none, header, decode; --boxes 'cut' is none of clip",
        ),
        (["--progress", "loud"], "--progress 'loud' is none of auto, plain, none"),
    ],
)
def test_a_wrong_command(flags, told, sample, tmp_path, recordmill):
    outcome = recordmill(*coco_flags(sample, tmp_path / "out", *flags))
    assert outcome.code == 2
    assert told in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_wrong_flag_of_beam(sample, tmp_path, recordmill):
    outcome = recordmill(*coco_flags(sample, tmp_path), "--", "--direct_num_worker=2")
    assert outcome.code == 2
    assert "--direct_num_worker=2 is no flag that Beam knows; did you mean --direct_num_workers?" in outcome.err


def test_a_full_disk_is_told_and_leaves_no_shard(sample, tmp_path, recordmill, monkeypatch):
    def full(shard, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("recordmill.transforms.shards.shard_file.ShardFile._write", full)
    outcome = recordmill(*coco_flags(sample, tmp_path))
    assert outcome.code == 1
    assert outcome.err == "recordmill: no space is left; free some, or give another place, and run the command again\n"
    assert [path.name for path in tmp_path.iterdir() if "tfrecord" in path.name] == []


def test_missing_inputs_are_all_named(tmp_path, recordmill):
    (tmp_path / "empty").mkdir()
    (tmp_path / "instances.json").write_text("{}")
    outcome = recordmill(
        *("coco", "--images", tmp_path / "imags", "--images", tmp_path / "empty", "--output", tmp_path / "out"),
        *("--instances", tmp_path / "instance.json", "--instances", tmp_path),
    )
    assert outcome.code == 2
    for told in (
        f"--images {tmp_path}/imags: no such folder",
        f"--images {tmp_path}/empty: no file in it",
        f"--instances {tmp_path}/instance.json: no such file (did you mean {tmp_path}/instances.json?)",
        f"--instances {tmp_path} is a folder",
    ):
        assert told in outcome.err
    assert not (tmp_path / "out").exists()


# The other verbs


def test_sample_writes_a_data_set_and_the_same_one_again(tmp_path, recordmill):
    for name in ("one", "two"):
        assert recordmill("sample", tmp_path / name, "--count", 13).code == 0
    files = {name: sorted(path for path in (tmp_path / name).rglob("*") if path.is_file()) for name in ("one", "two")}
    assert [path.read_bytes() for path in files["one"]] == [path.read_bytes() for path in files["two"]]
    rows = json.loads((tmp_path / "one" / "annotations" / "instances.json").read_text())["images"]
    assert len(rows) == 13
    assert [row["file_name"] for row in rows if not (tmp_path / "one" / "images" / row["file_name"]).exists()] != []


def test_sample_leaves_a_folder_with_files_alone(tmp_path, recordmill):
    (tmp_path / "mine").write_text("")
    outcome = recordmill("sample", tmp_path)
    assert outcome.code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_runs_no_pipeline_takes_no_flags_of_beam_s(tmp_path, recordmill):
    outcome = recordmill("sample", tmp_path / "new", "--", "--runner=FlinkRunner")
    assert outcome.code == 2
    assert "--runner=FlinkRunner would do nothing" in outcome.err
    assert not (tmp_path / "new").exists()
