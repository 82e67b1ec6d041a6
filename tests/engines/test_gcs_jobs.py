"""Whole jobs with gs:// on every side: the same bytes as of local folders, few requests, and plain words when it fails.

What goes wrong on the way is in test_gcs_faults.
"""

import contextlib
import csv
import gzip
import io
import json
import os
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
import tensorflow as tf
from apache_beam.internal.gcp import auth

from recordmill.launch.cli import main
from recordmill.transforms.storage import gcs_client, zip_storage
from recordmill.transforms.storage import resolve as storage
from recordmill.transforms.storage.gcs_storage import GcsStorage
from tests.conftest import (
    CATEGORIES,
    SHARED_DATA,
    annotation,
    coco_flags,
    draw_jpeg,
    every_kind,
    image_row,
    manifest_of,
    write_coco,
)
from tests.engines import servers
from tests.gcs_stand_in import ACCOUNT, BUCKET, REQUESTER_PAYS, Fault, GcsStandIn, Kind, running

ROOT = f"gs://{BUCKET}"
OUT = f"{ROOT}/out"
ALWAYS = float("inf")
STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
KIT = SHARED_DATA.parent / "kit"


@pytest.fixture(scope="module")
def server():
    with running() as stand_in:
        yield stand_in


@pytest.fixture
def gcs(server, monkeypatch) -> GcsStandIn:
    return emptied(server, monkeypatch)


def emptied(server: GcsStandIn, monkeypatch) -> GcsStandIn:
    """A stand-in without objects, asked by clients without patience who remember no archive."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    monkeypatch.setattr(auth._Credentials, "_credentials_init", True)  # Beam's own would be searched for 20 s
    monkeypatch.setattr(gcs_client, "FIRST_WAIT_S", 0.005)
    monkeypatch.setattr(gcs_client, "LONGEST_WAIT_S", 0.02)
    storage._is_remote_file.cache_clear()
    zip_storage._opened.clear()
    server.reset()
    return server


def upload(gcs: GcsStandIn, folder: Path, prefix: str) -> None:
    """All files of a local folder become objects."""
    for name, data in files_of(folder).items():
        gcs.put(f"{prefix}/{name}", data)


def files_of(folder: Path) -> dict[str, bytes]:
    """The files below a folder by name, without links."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def objects_of(gcs: GcsStandIn, prefix: str) -> dict[str, bytes]:
    """The objects below a prefix by name."""
    below = f"{prefix}/"
    return {name.removeprefix(below): data for name, data in gcs.objects().items() if name.startswith(below)}


def shards_of(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if ".tfrec" in name and not name.startswith(".")}


def zipped(files: dict[str, bytes], method: int = STORED) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", method) as file:
        for name, data in sorted(files.items()):
            file.writestr(name, data)
    return archive.getvalue()


def in_bucket(flags: Iterable[object], folder: Path, prefix: str) -> list[str]:
    """The same flags for what was uploaded from `folder` to `prefix`."""
    return [str(flag).replace(str(folder), f"{ROOT}/{prefix}") for flag in flags]


def shown(gcs: GcsStandIn, prefix: str = "out") -> dict:
    return json.loads(gcs.objects()[f"{prefix}/manifest.json"])


def check_all_accounted(manifest: dict) -> None:
    """Every row of the input is a record or is counted as none."""
    for split in manifest["splits"].values():
        images = split["images"]
        assert images["rows"] == images["written"] + images["without_record"] + sum(images["rejected"].values())
        assert sum(shard["examples"] for shard in split["shards"]) > 0


def is_one_line(text: str) -> bool:
    return text.startswith("recordmill: ") and text.count("\n") == 1


# The same bytes

LAYOUTS = ("detection", "keras", "tfds")
COMPANIONS = ("rejects-train.jsonl", "labels.csv", "label_map.json", "label_map.pbtxt")


def layout_flags(sample, layout: str, gzip: bool) -> list[str]:
    """As much of the sample as a layout has room for."""
    inputs = [*every_kind(sample), "--masks", "both"] if layout == "detection" else coco_flags(sample, Path())[1:5]
    more = ["--layout", layout, "--num-shards", "3", "--max-rejects", "0.2", *(["--gzip"] if gzip else [])]
    return ["coco", *inputs, *more]


@pytest.fixture(scope="module")
def local_run(sample, tmp_path_factory):
    """What a local run writes, in each layout with and without gzip."""

    @cache
    def run(layout: str = "detection", gzip: bool = False) -> Path:
        folder = tmp_path_factory.mktemp(layout)
        assert main([*layout_flags(sample, layout, gzip), "--output", str(folder)]) == 0
        return folder

    return run


@pytest.mark.parametrize(
    ("layout", "gzip"), [("detection", False), ("detection", True), ("keras", False), ("tfds", False)]
)
def test_the_sample(gcs, sample, local_run, recordmill, layout, gzip):
    """From folders, and from archives of images and masks."""
    source = Path(sample.images).parent
    upload(gcs, source, "sample")
    flags = in_bucket(layout_flags(sample, layout, gzip), source, "sample")
    local = files_of(local_run(layout, gzip))
    assert recordmill(*flags, "--output", OUT).code == 0
    written = objects_of(gcs, "out")
    assert shards_of(written) == shards_of(local)
    assert len(shards_of(written)) == 3
    assert {name: written[name] for name in COMPANIONS} == {name: local[name] for name in COMPANIONS}
    if layout != "keras":  # whose shards TFDS would need links to
        assert set(written) == set(local)
    there = written["manifest.json"].decode().replace(f"{ROOT}/sample", str(source))
    assert {**json.loads(there), "sha256": ""} == {**json.loads(local["manifest.json"]), "sha256": ""}
    check_all_accounted(shown(gcs))
    archives = {}
    for name in ("images", "panoptic"):
        gcs.put(f"zips/{name}.zip", zipped(files_of(source / name), DEFLATED if gzip else STORED))
        archives[f"{ROOT}/sample/{name}"] = f"{ROOT}/zips/{name}.zip"
    assert recordmill(*(archives.get(flag, flag) for flag in flags), "--output", f"{OUT}-zip").code == 0
    assert shards_of(objects_of(gcs, "out-zip")) == shards_of(local)
    check_all_accounted(shown(gcs, "out-zip"))


REAL = {
    "coco_mini train": (
        "coco_mini",
        "train2017",
        ("--instances", "annotations/instances_train2017.json"),
        ("--keypoints", "annotations/person_keypoints_train2017.json"),
        ("--captions", "annotations/captions_train2017.json"),
    ),
    "facemask val": ("facemask", "val2017", ("--instances", "annotations/custom_val.json")),
}


@pytest.mark.skipif(not SHARED_DATA.exists(), reason="the real data sets are not on this machine")
@pytest.mark.parametrize("name", REAL)
def test_real_data(gcs, tmp_path, recordmill, name):
    data_set, images, *files = REAL[name]
    source = SHARED_DATA / data_set
    upload(gcs, source / images, images)
    upload(gcs, source / "annotations", "annotations")
    gcs.put("images.zip", zipped(files_of(source / images)))

    def convert(root: object, folder: str, out: object) -> int:
        flags = [item for flag, file in files for item in (flag, f"{root}/{file}")]
        return recordmill("coco", "--images", f"{root}/{folder}", *flags, "--num-shards", 4, "--output", out).code

    assert [convert(source, images, tmp_path), convert(ROOT, images, OUT)] == [0, 0]
    local = shards_of(files_of(tmp_path))
    assert shards_of(objects_of(gcs, "out")) == local
    assert shown(gcs)["splits"]["train"]["images"] == manifest_of(tmp_path)["splits"]["train"]["images"]
    check_all_accounted(shown(gcs))
    if "val" in name:
        assert convert(ROOT, "images.zip", f"{OUT}-zip") == 0
        assert shards_of(objects_of(gcs, "out-zip")) == local


@pytest.fixture(scope="module")
def classes(tmp_path_factory) -> Path:
    """Class folders in `images`, and tables of them: one with names, one with whole paths and splits."""
    folder = tmp_path_factory.mktemp("classes")
    rows = []
    for number in range(24):
        label = ("cat", "dog", "Öl")[number % 3]
        name = f"{label}/{number} #%?.jpg" if number % 5 == 0 else f"{label}/in/{number}.jpg"
        draw_jpeg(folder / "images" / name, colour=(number * 10, 0, 0))
        rows.append((name, label, ("train", "val")[number % 4 == 3]))
    write_table(folder / "names.csv", [("path", "label"), *(row[:2] for row in rows)])
    whole = [(f"{folder}/images/{name}", label, split) for name, label, split in rows]
    write_table(folder / "whole.csv", [("path", "label", "split"), *whole])
    return folder


def write_table(path: Path, rows: Iterable[Iterable[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


@pytest.mark.parametrize(
    "flags",
    [
        ("--split", "train=0.5,val=0.5", "--stratify"),
        ("--labels", "{}/whole.csv"),
    ],
    ids=["folders", "whole paths"],
)
def test_a_folder_of_classes(gcs, classes, tmp_path, recordmill, flags):
    upload(gcs, classes, "classes")
    there = f"{ROOT}/classes"
    gcs.put("classes/whole.csv", (classes / "whole.csv").read_bytes().replace(str(classes).encode(), there.encode()))
    gcs.put("images.zip", zipped(files_of(classes / "images"), DEFLATED))

    def convert(root: object, images: object, out: object) -> int:
        named = [flag.format(root) for flag in flags]
        return recordmill("folder", "--images", images, *named, "--num-shards", 2, "--output", out).code

    assert convert(classes, classes / "images", tmp_path) == 0
    assert convert(there, f"{there}/images", OUT) == 0
    written, local = objects_of(gcs, "out"), files_of(tmp_path)
    assert shards_of(written) == shards_of(local)
    assert len(shards_of(written)) == 4
    assert set(written) == set(local)
    if "whole.csv" not in flags[1]:  # which is another file there
        manifest = json.loads(written["manifest.json"].decode().replace(there, str(classes)))
        assert {**manifest, "sha256": ""} == {**manifest_of(tmp_path), "sha256": ""}
    check_all_accounted(shown(gcs))
    if "whole.csv" not in flags[1]:
        assert convert(there, f"{ROOT}/images.zip", f"{OUT}-zip") == 0
        assert shards_of(objects_of(gcs, "out-zip")) == shards_of(local)


def test_beam_s_own_sink_writes_the_same_records(gcs, sample, local_run, tmp_path, recordmill):
    source = Path(sample.images).parent
    upload(gcs, source, "sample")
    flags = in_bucket(layout_flags(sample, "detection", False), source, "sample")
    assert recordmill(*flags, "--output", OUT, "--writer", "beam").code == 0
    expected = Counter(read_records(shards_of(files_of(local_run())), tmp_path))
    assert Counter(read_records(shards_of(objects_of(gcs, "out")), tmp_path)) == expected
    assert sum(expected.values()) == 22
    check_all_accounted(shown(gcs))
    assert [name for name in gcs.objects() if "temp" in name] == []


def read_records(shards: dict[str, bytes], scratch: Path) -> list[bytes]:
    """All records, as TensorFlow reads them."""
    found = []
    for number, data in enumerate(shards.values()):
        path = scratch / f"{number}.tfrecord"
        path.write_bytes(data)
        found += tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    return found


# Once more


@pytest.fixture
def converted(gcs, sample, recordmill) -> list[str]:
    """The flags of a job whose data set is in OUT."""
    source = Path(sample.images).parent
    upload(gcs, source, "sample")
    flags = [*in_bucket(layout_flags(sample, "detection", False), source, "sample"), "--output", OUT]
    assert recordmill(*flags).code == 0
    gcs.log.clear()
    return flags


def writes(gcs: GcsStandIn) -> list[str]:
    return [call.name for call in gcs.calls("upload", "start", "chunk", "delete", "copy")]


def test_a_job_that_is_done_writes_nothing(gcs, converted, recordmill):
    outcome = recordmill(*converted)
    assert outcome.code == 0
    assert f"{OUT} holds the whole split already" in outcome.out
    assert writes(gcs) == []
    assert [call.name for call in gcs.calls("read")] == ["out/manifest.json"] * 2
    gcs.put("out/" + min(shards_of(objects_of(gcs, "out"))), b"short")
    assert recordmill(*converted).code == 0
    assert recordmill("verify", OUT).code == 0


def test_a_dry_run_writes_nothing(gcs, converted, recordmill):
    before = gcs.objects()
    outcome = recordmill(*converted[:-1], f"{ROOT}/new", "--dry-run")
    assert outcome.code == 0
    assert "images       23 (image_missing 1)" in outcome.out
    assert gcs.objects() == before
    assert writes(gcs) == []
    assert [call for call in gcs.calls("read") if call.name.startswith("sample/images")] == []


def test_another_split_joins_the_folder(gcs, converted, recordmill):
    train = shards_of(objects_of(gcs, "out"))
    assert recordmill(*converted, "--split", "val", "--seed", 1).code == 0
    both = shards_of(objects_of(gcs, "out"))
    assert both.items() > train.items()
    assert len(both) == 6
    assert set(shown(gcs)["splits"]) == {"train", "val"}
    check_all_accounted(shown(gcs))
    for split in ("train", "val"):
        lines = gcs.objects()[f"out/rejects-{split}.jsonl"].splitlines()
        assert {json.loads(line)["split"] for line in lines} == {split}
    assert recordmill("verify", OUT).code == 0


def test_overwrite(gcs, converted, recordmill):
    refused = recordmill(*converted, "--num-shards", 2)
    assert refused.code == 2
    assert "num-shards was 3, now 2" in refused.err
    assert writes(gcs) == []
    assert recordmill(*converted, "--num-shards", 2, "--overwrite").code == 0
    assert [name[-14:] for name in sorted(shards_of(objects_of(gcs, "out")))] == ["00000-of-00002", "00001-of-00002"]
    assert [name for name in objects_of(gcs, "out") if name.startswith(".")] == []
    assert recordmill("verify", OUT).code == 0


def test_a_bucket_itself_can_be_the_output(gcs, converted, recordmill):
    """With what else is in it left alone."""
    before = gcs.objects()
    out = [*converted[:-1], ROOT, "--name", "top"]
    assert recordmill(*out).code == 0
    assert recordmill(*out, "--overwrite", "--num-shards", 1).code == 0
    after = gcs.objects()
    assert {name: after[name] for name in before} == before
    assert {name for name in after.keys() - before.keys() if "/" in name} == set()
    assert recordmill("verify", ROOT).code == 0


# Back again


def test_extract_gives_the_images_back(gcs, converted, sample, local_run, tmp_path, recordmill):
    assert recordmill("extract", local_run(), tmp_path / "local").code == 0
    local = files_of(tmp_path / "local")
    assert recordmill("extract", OUT, f"{ROOT}/back").code == 0
    assert recordmill("extract", OUT, tmp_path / "back").code == 0
    assert objects_of(gcs, "back") == files_of(tmp_path / "back") == local
    images = {name.removeprefix("images/train/"): data for name, data in local.items() if name.startswith("images/")}
    assert len(images) == 22
    assert images.items() < files_of(Path(sample.images)).items()
    again = recordmill("extract", OUT, f"{ROOT}/back")
    assert (again.code, is_one_line(again.err)) == (2, True)
    assert "is there already" in again.err


# verify

SHARD = "out/coco-train.tfrecord-00001-of-00003"


def cut(gcs: GcsStandIn) -> None:
    gcs.put(SHARD, gcs.objects()[SHARD][:-100])


def remove(gcs: GcsStandIn) -> None:
    GcsStorage().delete(f"{ROOT}/{SHARD}")


HARMS = {
    cut: "coco-train.tfrecord-00001-of-00003 record 6: truncated",
    remove: "coco-train.tfrecord-00001-of-00003: missing",
}


def test_verify_finds_harm(gcs, converted, recordmill):
    assert recordmill("verify", OUT).code == 0
    whole = gcs.objects()
    for harm, found in HARMS.items():
        gcs.reset()
        for name, data in whole.items():
            gcs.put(name, data)
        harm(gcs)
        outcome = recordmill("verify", OUT)
        assert outcome.code == 1
        assert found in outcome.out


# Requests


def test_an_image_is_one_request(gcs, converted, sample):
    gcs.page_size = 7
    assert main([*converted, "--overwrite"]) == 0
    images = Counter(call.name for call in gcs.calls("read") if call.name.startswith("sample/images/"))
    assert set(images) == {f"sample/images/{name}" for name in files_of(Path(sample.images))}
    assert set(images.values()) == {1}
    assert [call.name for call in gcs.calls("stat") if call.name.startswith("sample/images/")] == []
    assert {call.query.get("fields", "all") for call in gcs.calls("list")} <= {
        "items(name,size,generation),nextPageToken",
        "items(name),nextPageToken",
    }
    pages = [call for call in gcs.calls("list") if call.query.get("prefix") == "sample/images/"]
    assert sum("pageToken" in call.query for call in pages) in (3, 6)  # 23 names, listed for the plan and for the job
    assert gcs.calls("bucket") == []


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """A thousand images of 8x8."""
    folder = tmp_path_factory.mktemp("tiny")
    for number in range(1000):
        draw_jpeg(folder / "images" / f"{number}.jpg", 8, 8, (number % 256, number // 256 * 60, 0))
    rows = [image_row(number, f"{number}.jpg", 8, 8) for number in range(1000)]
    write_coco(folder, rows, [annotation(number, number, (1, 1, 4, 4)) for number in range(1000)], CATEGORIES)
    return folder


@pytest.mark.parametrize("method", [STORED, DEFLATED])
def test_members_of_an_archive_come_together(gcs, tiny, tmp_path, recordmill, method):
    gcs.put("tiny.zip", zipped(files_of(tiny / "images"), method))
    gcs.put("tiny.json", (tiny / "instances.json").read_bytes())
    flags = ["--images", f"{ROOT}/tiny.zip", "--instances", f"{ROOT}/tiny.json", "--num-shards", 1, "--output", OUT]
    assert recordmill("coco", *flags).code == 0
    assert shown(gcs)["splits"]["train"]["images"]["written"] == 1000
    reads = [call for call in gcs.calls("read", "stat", "list") if call.name == "tiny.zip"]
    assert len(reads) <= 20
    assert gcs.calls("bucket") == []


# In plain words


def refuse(operation: str, name: str, **answer: object):
    def harm(gcs: GcsStandIn) -> None:
        gcs.faults.append(Fault(Kind.STATUS, operation, name, times=ALWAYS, **{"status": 403, **answer}))

    return harm


def nothing(gcs: GcsStandIn) -> None:
    pass


IMAGES, INSTANCES = f"{ROOT}/in/images", f"{ROOT}/in/annotations/instances.json"
DENIED = f"{ACCOUNT} does not have storage.objects"
# What is done to the server; flags that differ; exit code; what is told.
FAILURES = {
    "no bucket of images": (nothing, {"images": "gs://typo/images"}, 2, ["gs://typo/images", "no bucket typo"]),
    "no bucket of output": (nothing, {"output": "gs://typo/out"}, 2, ["gs://typo/out", "no bucket typo"]),
    "no such file": (
        nothing,
        {"instances": f"{ROOT}/in/annotations/instanses.json"},
        2,
        [f"--instances {ROOT}/in/annotations/instanses.json: no such file"],
    ),
    "a folder for a file": (nothing, {"instances": f"{ROOT}/in/annotations"}, 2, ["is a folder; give the file"]),
    "no bucket named": (nothing, {"images": "gs://"}, 2, ["'gs://' is no path of Google Cloud Storage", "gs://bucket"]),
    "no right to list": (refuse("list", "*"), {}, 2, [OUT, f"{DENIED}.list access"]),
    "no right to read annotations": (refuse("read", "*.json"), {}, 1, [INSTANCES, f"{DENIED}.get access"]),
    "no right to write": (refuse("upload", "*"), {}, 2, [f"{OUT}/", f"{DENIED}.create access"]),
    "readers pay": (
        refuse("*", "*", status=400, message=REQUESTER_PAYS),
        {},
        2,
        ["whoever reads the bucket bucket pays for it", "--billing-project"],
    ),
    "bad credentials": (refuse("*", "*", status=401, message="Invalid Credentials"), {}, 2, ["gcloud auth"]),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_are_told_in_one_line(gcs, sample, recordmill, name):
    harm, others, code, told = FAILURES[name]
    upload(gcs, Path(sample.images).parent, "in")
    harm(gcs)
    paths = {"images": IMAGES, "instances": INSTANCES, "output": OUT} | others
    began_s = time.monotonic()
    outcome = recordmill("coco", *(item for flag, path in paths.items() for item in (f"--{flag}", path)))
    assert (outcome.code, is_one_line(outcome.err)) == (code, True), outcome
    assert [part for part in told if part not in outcome.err] == []
    assert outcome.out == ""
    assert time.monotonic() - began_s < 60  # not the five minutes of what may pass
    assert shards_of(objects_of(gcs, "out")) == {}


@pytest.mark.parametrize("verb", ["verify", "extract"])
def test_failures_of_reading_a_data_set_are_told_in_one_line(gcs, recordmill, verb):
    more = [f"{ROOT}/back"] if verb == "extract" else []
    for folder, told in {
        "gs://typo/out": "there is no bucket typo",
        f"{ROOT}/nothing": "no such folder",
        "gs://": "'gs://' is no path",
    }.items():
        outcome = recordmill(verb, folder, *more)
        assert (outcome.code, is_one_line(outcome.err)) == (2, True), outcome
        assert told in outcome.err


def test_without_credentials_it_ends_soon(tmp_path):
    """A machine whose metadata server takes the connection and says nothing; in a process of its own, with all of its
    usual waits."""
    asked: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        threading.Thread(target=take_connections, args=(silent, asked), daemon=True).start()
        hidden = ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "NO_GCE_CHECK")
        environment = {name: value for name, value in os.environ.items() if name not in hidden}
        environment |= {"CLOUDSDK_CONFIG": str(tmp_path), "GCE_METADATA_IP": f"127.0.0.1:{silent.getsockname()[1]}"}
        command = [sys.executable, "-m", "recordmill.launch.cli", "coco", "--images", f"{ROOT}/images"]
        command += ["--instances", f"{ROOT}/a.json", "--output", OUT]
        run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert len(asked) == 1  # and waited for two seconds; Beam's own client asks fifteen times
    assert run.returncode == 2
    assert is_one_line(run.stderr), run.stderr
    assert "there are no credentials for Google Cloud Storage" in run.stderr
    assert "gcloud auth application-default login" in run.stderr


def take_connections(server: socket.socket, taken: list[socket.socket]) -> None:
    with contextlib.suppress(OSError):  # it is closed
        while True:
            taken.append(server.accept()[0])


# Training


@pytest.mark.skipif(not KIT.exists(), reason="the proxy that leads TensorFlow to the stand-in is not on this machine")
def test_tensorflow_reads_it_where_it_is(gcs, converted, sample, tmp_path):
    """TensorFlow's own client knows no emulator: a proxy of https takes it there."""
    ports = {"9104": gcs.url.rpartition(":")[2], "9106": str(servers.free_port())}
    program = (KIT / "tls_proxy.py").read_text()
    for known, port in ports.items():
        program = program.replace(known, port)
    (tmp_path / "proxy.py").write_text(program)
    (tmp_path / "read.py").write_text(
        "import json, sys\n"
        "from recordmill.tensorflow_dataset import dataset\n"
        "for example in dataset(sys.argv[1]).as_numpy_iterator():\n"
        "    print(json.dumps([int(example['image_id']), example['image'].shape, len(example['boxes'])]))\n"
    )
    environment = os.environ | {
        "CURL_CA_BUNDLE": "lab-cert.pem",
        "NO_GCE_CHECK": "true",
        "https_proxy": f"http://127.0.0.1:{ports['9106']}",
    }
    with subprocess.Popen([sys.executable, "proxy.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout.readline() == "ready\n"
            command = [sys.executable, "read.py", OUT]
            read = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        finally:
            proxy.kill()
    assert read.returncode == 0, read.stderr
    found = {id_: (*shape[:2], boxes) for id_, shape, boxes in map(json.loads, read.stdout.splitlines())}
    coco = json.loads(Path(sample.instances).read_text())
    boxes = Counter(row["image_id"] for row in coco["annotations"])
    rows = {row["id"]: (row["height"], row["width"], boxes[row["id"]]) for row in coco["images"]}
    assert len(found) == 22
    assert found.items() < rows.items()


def test_rows_of_a_table_in_a_bucket(gcs, sample, tmp_path):
    """Of several objects, one of them compressed: the same bytes as of one local file, and verify reads them there."""
    head, *rows = Path(sample.objects).read_bytes().splitlines(keepends=True)
    gcs.put("rows/part-0.csv.gz", gzip.compress(head + b"".join(rows[:20])))
    gcs.put("rows/part-1.csv", head + b"".join(rows[20:]))
    flags = ["--label", "shape", "--split", "train=0.7,val=0.3", "--num-shards", "2"]
    assert main(["table", "--rows", f"{ROOT}/rows/part-*", *flags, "--output", OUT]) == 0
    assert main(["table", "--rows", sample.objects, *flags, "--output", str(tmp_path / "out")]) == 0
    local = {name: data for name, data in files_of(tmp_path / "out").items() if "tfrecord" in name}
    assert len(local) == 4
    assert {name: gcs.objects()[f"out/{name}"] for name in local} == local
    assert not [name for name in gcs.objects() if ".recordmill" in name]
    assert main(["verify", OUT]) == 0
