"""Flags by their effect, through the real command; and what it shows meanwhile."""

import os
import pty
import re
import select
import termios
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from recordmill.launch import flat
from tests.conftest import coco_flags, manifest_of, read_examples, shard_bytes
from tests.faults.warm_process import Command, attach_terminal


def objects(folder: Path, key: str) -> list:
    return [value for example in read_examples(folder) for value in example[f"image/object/{key}"]]


def shard_names(folder: Path) -> list[str]:
    return sorted(shard_bytes(folder))


def rewritten(folder: Path) -> dict:
    return manifest_of(folder)["splits"]["train"]["images"].get("rewritten", {"bytes_read": 0, "bytes_written": 1})


def options(folder: Path) -> dict:
    return manifest_of(folder)["splits"]["train"]["recipe"]["options"]


# For each flag: what to add to a plain conversion of the sample, and what is then true of the output folder.
# Other tests of jobs hold the effects of the other flags.
FIRST_WITH_SEED_0 = b"1035"
COCO_FLAGS: dict[str, tuple[list, Callable[[Path], bool]]] = {
    "--name": (["--name", "pets"], lambda out: {name[:5] for name in shard_names(out)} == {"pets-"}),
    "--split": (["--split", "val"], lambda out: {name.split("-")[1][:4] for name in shard_names(out)} == {"val."}),
    "--num-shards": (["--num-shards", 4], lambda out: len(shard_names(out)) == 4),
    "--examples-per-shard": (["--examples-per-shard", 10], lambda out: len(shard_names(out)) == 3),
    "--gzip": (["--gzip"], lambda out: all(data[:2] == b"\x1f\x8b" for data in shard_bytes(out).values())),
    "--seed": (["--seed", 9], lambda out: read_examples(out)[0]["image/source_id"] != [FIRST_WITH_SEED_0]),
    "--no-crowd": (["--no-crowd"], lambda out: set(objects(out, "is_crowd")) == {0}),
    "--min-area": (["--min-area", 900], lambda out: min(objects(out, "area")) >= 900),
    "--categories": (["--categories", "star"], lambda out: set(objects(out, "class/text")) == {b"star"}),
    "--image-info": (
        ["--image-info", "{image_info}"],
        lambda out: len(manifest_of(out)["splits"]["train"]["inputs"]) == 2,
    ),
    "--stuff": (["--stuff", "{stuff}"], lambda out: "image/segmentation/class/encoded" in read_examples(out)[0]),
    "--image-format": (
        ["--image-format", "png"],
        lambda out: {e["image/format"][0] for e in read_examples(out)} == {b"png"},
    ),
    "--max-side": (["--max-side", 100], lambda out: max(e["image/width"][0] for e in read_examples(out)) <= 100),
    "--jpeg-quality": (
        ["--image-format", "jpeg", "--jpeg-quality", 10],
        lambda out: rewritten(out)["bytes_written"] < 2 * rewritten(out)["bytes_read"],
    ),
    "--no-list": (["--no-list"], lambda out: options(out).get("no_list")),
}
# Flags that leave each other's effects alone are given to one job.
TOGETHER = [
    ["--name", "--split", "--examples-per-shard", "--gzip"],
    ["--seed", "--no-crowd", "--min-area", "--stuff", "--image-format"],
    ["--num-shards", "--categories", "--max-side", "--no-list", "--image-info"],
    ["--jpeg-quality"],
]


@pytest.mark.parametrize("flags", TOGETHER, ids=" ".join)
def test_flags_have_their_effect(flags, sample, tmp_path, recordmill):
    more = [str(argument).format(**sample._asdict()) for flag in flags for argument in COCO_FLAGS[flag][0]]
    assert recordmill(*coco_flags(sample, tmp_path, *more)).code == 0
    assert {flag: COCO_FLAGS[flag][1](tmp_path) for flag in flags} == dict.fromkeys(flags, True)


def test_fields_of_flags_are_absent_without_flags(tmp_path, copy_converted):
    """Otherwise the table above could hold by itself."""
    copy_converted(tmp_path)
    assert read_examples(tmp_path)[0]["image/source_id"] == [FIRST_WITH_SEED_0]
    assert {flag for flag, (_, is_true) in COCO_FLAGS.items() if is_true(tmp_path)} == set()


def on_a_terminal(columns: int, log: Path, *arguments: object) -> str:
    """Text that a command shows on a pseudo terminal, without control sequences."""
    person, inside = pty.openpty()
    termios.tcsetwinsize(person, (24, columns))
    command = Command(arguments, log, disturbance=partial(attach_terminal, os.ttyname(inside), "xterm"))
    seen = b""
    with open(person, "rb", buffering=0) as screen:
        while command.code is None or select.select([screen], [], [], 0)[0]:
            if select.select([screen], [], [], 0.1)[0]:
                seen += screen.read(4096)
    os.close(inside)
    assert command.code == 0, seen
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())


def test_live_progress_on_a_terminal(sample, tmp_path):
    """The bar comes and goes, and no line of it is wider than the terminal."""
    shown = on_a_terminal(80, tmp_path / "log", *coco_flags(sample, tmp_path, "--num-shards", 4))
    live, summary = shown.split("coco-train is in")
    assert [part for part in ("━", "23 images", "of 4 shards") if part not in live] == []
    assert max(map(len, re.split("[\r\n]+", live))) <= 80
    assert str(tmp_path) in summary


# The other verbs


def test_flat_flags_write_same_bytes(sample, tmp_path, copy_converted):
    """Template launchers and Airflow pass our flags and Beam's in one list."""
    copy_converted(tmp_path / "typed", "--num-shards", 2)
    arguments = [
        *("--command=convert", "--runner=DirectRunner", "--labels=airflow-version=v3-3-2"),
        *(f"--images={sample.images}", f"--instances={sample.instances}", "--max_rejects=0.2", "--num_shards=2"),
        f"--output={tmp_path / 'flat'}",
    ]
    assert flat.main(arguments) == 0
    assert shard_bytes(tmp_path / "flat") == shard_bytes(tmp_path / "typed") != {}
