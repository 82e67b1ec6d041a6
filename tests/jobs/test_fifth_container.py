"""A fifth container is a module and a row, those of tests/transforms/containers/toy.py, in the table of a process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import recordmill
from recordmill.transforms.containers.tfrecord import TFRecordReader
from tests.conftest import coco_flags

ROOT = Path(__file__).resolve().parents[2]

STEPS = """
import contextlib, io, json, pickle, sys
from pathlib import Path
from recordmill.schemas.containers import CONTAINERS
from tests.transforms.containers.toy import ROW
CONTAINERS[ROW.name] = ROW
import recordmill
from recordmill.launch.cli import main

def run(*flags):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*map(str, flags), "--progress", "none"] if flags[0] in ("convert", "verify") else [*flags])
    return code, out.getvalue() + err.getvalue()

convert = json.loads(sys.argv[1])
shards = lambda: {path.name: path.read_bytes() for path in sorted(Path("out").glob("coco-*"))}
steps = {}
steps["convert"] = run(*convert)
first = shards()
steps["names"] = [*first, *sorted(path.name for path in Path("out/.index").iterdir())]
steps["verify"] = run("verify", "out", "--check", "decode")
steps["show"] = run("show", "out", "--index", "3", "--json")
split = pickle.loads(pickle.dumps(recordmill.open("out")["train"]))
numbers = [4, 0, len(split) - 1, 0]
steps["by number"] = [record.hex() for record in split.read(numbers)]
steps["in order"] = [record["image_id"].tolist() for record in split.numpy(keys=["image_id"])]
steps["tensorflow"] = [record["image_id"].numpy().tolist() for record in split.tensorflow(keys=["image_id"])]
steps["tensorflow"] += [record["image_id"].numpy().tolist() for record in split[5:8].tensorflow(keys=["image_id"])]
steps["extract"] = run("extract", "out", "extracted")
steps["page"] = run("report", "out")
Path("out/.index/coco-train-00000-of-00003.jsonl.idx").unlink()
steps["index"] = run("index", "out")
steps["verify the index"] = run("verify", "out")
Path("out/coco-train-00001-of-00003.jsonl").unlink()
steps["verify without a shard"] = run("verify", "out")
steps["resume"] = run(*convert)
steps["same"] = shards() == first
flipped = bytearray(first["coco-train-00002-of-00003.jsonl"])
flipped[100] ^= 1
Path("out/coco-train-00002-of-00003.jsonl").write_bytes(flipped)
steps["verify a flip"] = run("verify", "out")
Path("out/toy.txt").write_text("edited")
steps["verify an edit"] = run("verify", "out")
steps["dry run"] = run(*convert, "--output", "dry", "--dry-run")
steps["refused"] = run(*convert, "--output", "dry", "--gzip", "--layout", "keras", "--writer", "beam")
steps["left"] = Path("dry").exists()
steps["tfrecord"] = run(*convert, "--output", "both", "--container", "tfrecord")
steps["without overwrite"] = run(*convert, "--output", "both")
steps["overwrite"] = run(*convert, "--output", "both", "--overwrite")
steps["replaced"] = sorted(path.name for path in Path("both").rglob("*coco-*"))
steps["verify the new ones"] = run("verify", "both")
steps["beside"] = Path("both/toy.txt").read_text().split()
steps["add a split"] = run(*convert[:-1], "val", "--output", "both", "--container", "tfrecord")
steps["back"] = run(*convert, "--output", "both", "--container", "tfrecord", "--overwrite")
steps["left beside"] = Path("both/toy.txt").exists()
print(json.dumps(steps))
"""


@pytest.fixture(scope="module")
def steps(sample, tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("toy")
    convert = coco_flags(sample, "out", "--container", "toy", "--num-shards", "3", "--split", "train")
    arguments = [sys.executable, "-c", STEPS, json.dumps(list(map(str, convert)))]
    done = subprocess.run(
        arguments, cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]) | {"folder": folder}


@pytest.fixture(scope="module")
def records(copy_converted, tmp_path_factory) -> list[bytes]:
    """The records of the same job as TFRecord files."""
    folder = tmp_path_factory.mktemp("tfrecords")
    copy_converted(folder, "--num-shards", "3")
    shards = recordmill.open(folder)["train"].shards
    return [record for shard in shards for record in TFRecordReader(f"{folder}/{shard.file}").records()]


def test_converted(steps):
    assert steps["convert"][0] == 0, steps["convert"][1]
    names = [f"coco-train-0000{number}-of-00003.jsonl" for number in range(3)]
    assert steps["names"] == [*names, *(f"{name}.idx" for name in names)]
    manifest = json.loads(Path(steps["folder"], "out/manifest.json").read_text())
    assert (manifest["container"], manifest["splits"]["train"]["recipe"]["options"]["container"]) == ("toy", "toy")


@pytest.mark.parametrize("step", ["verify", "show", "extract", "page", "index", "verify the index", "resume"])
def test_verbs(steps, step):
    code, text = steps[step]
    assert code == 0, text


def test_read_by_number_and_in_order(steps, records):
    assert [bytes.fromhex(record) for record in steps["by number"]] == [records[n] for n in (4, 0, len(records) - 1, 0)]
    assert len(steps["in order"]) == len(records)
    assert steps["tensorflow"] == [*steps["in order"], *steps["in order"][5:8]]


def test_shown_by_number_without_an_offset(steps):
    shown = json.loads(steps["show"][1])["records"][0]
    assert (shown["record"], shown["offset"], Path(shown["file"]).suffix) == (3, None, ".jsonl")


def test_examples_and_duplicates_have_numbers_and_no_byte_range(steps):
    statistics = json.loads(Path(steps["folder"], "out/statistics.json").read_text())
    example = statistics["splits"]["train"]["examples"]["sample"][0]
    assert example.keys() == {"rank", "key", "shard", "record"}
    page = Path(steps["folder"], "out/report.html").read_text()
    assert page.count("data:image/jpeg") > 3
    assert "missing" not in steps["page"][1]


def test_damage_is_found_and_a_deleted_shard_is_written_again(steps):
    assert steps["verify without a shard"][0] == 1
    assert "coco-train-00001-of-00003.jsonl" in steps["verify without a shard"][1]
    assert steps["same"]
    assert steps["verify a flip"][0] == 1
    assert "toy.txt" not in steps["verify a flip"][1]
    assert "toy.txt" in steps["verify an edit"][1]


def test_container_is_replaced_as_a_whole(steps):
    assert [steps[step][0] for step in ("tfrecord", "without overwrite", "overwrite")] == [0, 2, 0]
    assert "as tfrecord files" in steps["without overwrite"][1]
    names = [f"coco-train-0000{number}-of-00003.jsonl" for number in range(3)]
    assert steps["replaced"] == sorted([*names, *(f"{name}.idx" for name in names)])
    assert steps["verify the new ones"][0] == 0, steps["verify the new ones"][1]
    assert steps["beside"] == names
    assert (steps["back"][0], steps["left beside"]) == (0, False)
    assert steps["add a split"][0] == 2
    assert "as toy files" in steps["add a split"][1]


def test_plan_has_files(steps):
    assert "toy: coco-train-00000-of-00003.jsonl to coco-train-00002-of-00003.jsonl" in steps["dry run"][1]


def test_refusals_name_what_can(steps):
    code, text = steps["refused"]
    assert (code, steps["left"]) == (2, False)
    for part in ("--container toy stores layout detection", "--gzip does not compress", "--writer beam cannot write"):
        assert part in text
