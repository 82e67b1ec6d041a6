"""Jobs whose bucket misbehaves: what passes is not seen in the result, and what stays is never silent."""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recordmill.launch.cli import main
from recordmill.schemas.containers import CONTAINERS, TFRECORD
from recordmill.transforms.storage import gcs_client, gcs_requests
from tests.conftest import CATEGORIES, annotation, image_row, write_coco
from tests.engines.buckets.jobs import (
    ALWAYS,
    OUT,
    ROOT,
    check_all_accounted,
    emptied,
    files_of,
    is_one_line,
    objects_of,
    shards_of,
    shown,
    zipped,
)
from tests.faults.jobs import convert_folder_and_zip
from tests.gcs_stand_in import ACCOUNT, Call, Fault, GcsStandIn, Kind, running

COUNT = 40
"""Images; those with an even number are in a folder, the others in an archive."""
OTHER_CONTAINERS = [name for name in CONTAINERS if name != TFRECORD]
SHARE = 0.15
"""Share of failed requests in the faults `some`."""


@pytest.fixture(scope="module")
def server():
    with running() as stand_in:
        yield stand_in


@pytest.fixture(scope="module")
def noise(tmp_path_factory) -> Path:
    """JPEGs of some 30 kB, so that a shard is sent in several chunks, and their instances."""
    folder = tmp_path_factory.mktemp("noise")
    for name in ("even", "odd"):
        (folder / name).mkdir()
    rng = np.random.default_rng(0)
    for number in range(COUNT):
        pixels = rng.integers(0, 255, (100, 140, 3), np.uint8)
        Image.fromarray(pixels).save(folder / ("even", "odd")[number % 2] / f"{number}.jpg", quality=98)
    rows = [image_row(number, f"{number}.jpg", 140, 100) for number in range(COUNT)]
    write_coco(folder, rows, [annotation(number, number) for number in range(COUNT)], CATEGORIES)
    return folder


@pytest.fixture(scope="module")
def expected(noise, tmp_path_factory) -> dict[str, bytes]:
    return converted_locally(noise, tmp_path_factory.mktemp("expected"))


def converted_locally(noise: Path, folder: Path, *more: str) -> dict[str, bytes]:
    """The shards of a local run."""
    inputs = [f"--images={noise}/even", f"--images={noise}/odd", f"--instances={noise}/instances.json"]
    assert main(["convert", *inputs, "--num-shards=2", f"--output={folder}", *more]) == 0
    return shards_of(files_of(folder))


@pytest.fixture
def gcs(server, noise, monkeypatch) -> GcsStandIn:
    """The images and instances in a bucket, and clients who send small chunks."""
    gcs = emptied(server, monkeypatch)
    monkeypatch.setattr(gcs_requests, "CHUNK_BYTES", 256 * 1024)
    for name, data in files_of(noise / "even").items():
        gcs.put(f"even/{name}", data)
    gcs.put("odd.zip", zipped(files_of(noise / "odd")))
    gcs.put("instances.json", (noise / "instances.json").read_bytes())
    return gcs


@pytest.fixture
def job(recordmill) -> Callable:
    return partial(
        convert_folder_and_zip, recordmill, ROOT, OUT, "--progress=none"
    )  # errors are one line if it is slow


def some(kind: Kind, probability: float = SHARE, operation: str = "*", **more: object) -> Fault:
    """A fault of a share of the requests."""
    seed = more.get("status", 0) + list(Kind).index(kind)
    return Fault(kind, operation, **{"probability": probability, "times": ALWAYS, "seed": seed, **more})


def first_of_each(kind: Kind, operation: str, **more: object) -> Fault:
    """A fault of every object's first request, or of every range's."""
    seen: set[tuple[str, str]] = set()

    def is_first(call: Call) -> bool:
        request = call.name, call.range if operation == "read" else ""
        is_new = request not in seen
        seen.add(request)
        return is_new

    return Fault(kind, operation, when=is_first, times=ALWAYS, **more)


# What passes

PASSING: dict[str, Callable[[], list[Fault]]] = {
    "each object damaged once": lambda: [
        first_of_each(Kind.CORRUPTED, "read"),
        first_of_each(Kind.CORRUPTED, "chunk"),
    ],
    "some of all": lambda: [
        *(some(Kind.STATUS, 0.04, status=code) for code in (408, 429, 500, 503)),
        *(some(kind, 0.04) for kind in (Kind.RESET, Kind.LOST, Kind.TRUNCATED, Kind.CORRUPTED)),
        some(Kind.STATUS, 0.04, "chunk", status=410),
    ],
}
"""Each kind of fault of each request is in tests/transforms/storage."""


@pytest.mark.parametrize("name", PASSING)
def test_passing_fault_changes_nothing(gcs, monkeypatch, expected, job, name):
    monkeypatch.setattr(gcs_requests, "CHUNK_BYTES", 8 << 20)  # files of one chunk are kept until they are there
    gcs.faults = PASSING[name]()
    outcome = job("--max-rejects", 0)
    assert outcome.code == 0, outcome
    assert sum(fault._matched for fault in gcs.faults) > 0
    gcs.faults = []
    assert shards_of(objects_of(gcs, "out")) == expected
    check_all_accounted(shown(gcs))
    assert shown(gcs)["splits"]["train"]["images"]["written"] == COUNT
    assert [name for name in objects_of(gcs, "out") if name.startswith(".recordmill")] == []


# What stays


def refusal(operation: str, name: str, code: int = 403, **more: object) -> Fault:
    return Fault(Kind.STATUS, operation, name, status=code, times=ALWAYS, **more)


def damaged(operation: str, name: str) -> Fault:
    return Fault(Kind.CORRUPTED, operation, name, times=ALWAYS)


STATE = ".recordmill-train"
SHARD = "coco-train.tfrecord-00001-of-00002"
STAYING = [
    # The fault; what is named.
    (refusal("read", "even/8.jpg"), [f"{ROOT}/even/8.jpg", ACCOUNT]),
    (refusal("read", "odd.zip", first=2), [f"{ROOT}/odd.zip", ACCOUNT]),
    (refusal("read", "even/8.jpg", 503, message="try later"), [f"{ROOT}/even/8.jpg", "gave up", "try later"]),
    *(
        (refusal("chunk", f"out/{name}", code, message="not here"), [f"{OUT}/{name}", "not here"])
        for name, code in ((f"{STATE}/{SHARD}", 503), (f"{STATE}/{SHARD}.json", 403), ("manifest.json", 403))
    ),
    (refusal("copy", f"out/{STATE}/{SHARD}", message="not here"), [f"{OUT}/{STATE}/{SHARD}", "not here"]),
    (damaged("read", "instances.json"), [f"{ROOT}/instances.json", "checksum"]),
    (damaged("chunk", f"out/*{SHARD}"), [f"{OUT}/{STATE}/{SHARD}", "checksum"]),
    (
        Fault(Kind.STATUS, "chunk", f"out/*{SHARD}", status=410),
        [f"{OUT}/{STATE}/{SHARD}", "lost", "Run the same command"],
    ),
]


@pytest.mark.parametrize(("fault", "words"), STAYING)
def test_staying_fault_ends_in_one_line(gcs, monkeypatch, expected, job, fault, words):
    """Complete shards stay, without a manifest."""
    monkeypatch.setattr(gcs_client, "RETRY_S", 0.2)
    gcs.faults = [fault]
    outcome = job()
    assert (outcome.code, is_one_line(outcome.err)) == (1, True), outcome
    assert [word for word in words if word not in outcome.err] == []
    left = objects_of(gcs, "out")
    assert "manifest.json" not in left
    finished = {name.rpartition("/")[2]: data for name, data in left.items() if re.search(r"-of-\d+$", name)}
    assert finished.items() <= expected.items()
    check_goes_on(gcs, expected, job)


def check_goes_on(gcs: GcsStandIn, expected: dict[str, bytes], job) -> None:
    gcs.faults = []
    assert job().code == 0
    assert shards_of(objects_of(gcs, "out")) == expected
    check_all_accounted(shown(gcs))


@pytest.mark.parametrize("container", OTHER_CONTAINERS)
def test_faults_of_container(gcs, monkeypatch, noise, tmp_path, job, container):
    """A staying fault ends in one line, and the same command continues in spite of passing faults."""
    expected = converted_locally(noise, tmp_path, "--container", container)
    gcs.faults = [refusal("chunk", f"out/{STATE}/coco-train*1*", 503, message="not here")]
    with monkeypatch.context() as patch:
        patch.setattr(gcs_client, "RETRY_S", 0.2)
        outcome = job("--container", container)
    assert (outcome.code, is_one_line(outcome.err), "not here" in outcome.err) == (1, True, True), outcome
    assert "manifest.json" not in objects_of(gcs, "out")
    monkeypatch.setattr(gcs_requests, "CHUNK_BYTES", 8 << 20)
    gcs.faults = PASSING["some of all"]()
    outcome = job("--max-rejects", 0, "--container", container)
    assert outcome.code == 0, outcome
    assert sum(fault._matched for fault in gcs.faults) > 0
    gcs.faults = []
    assert shards_of(objects_of(gcs, "out")) == expected
    check_all_accounted(shown(gcs))


def test_state_of_shards_cannot_be_deleted(gcs, expected, job):
    gcs.faults = [refusal("delete", "out/.*")]
    outcome = job()
    assert (outcome.code, is_one_line(outcome.err)) == (1, True), outcome
    check_goes_on(gcs, expected, job)


REJECTED = [
    # The fault; how many images are rejected, and why.
    (refusal("read", "even/8.jpg", 404, message="No such object: bucket/even/8.jpg"), 1, "image_missing"),
    (Fault(Kind.REPLACED, "read", "even/8.jpg", data=b"another"), 1, "image_missing"),
    (Fault(Kind.REPLACED, "read", "odd.zip", first=2, data=b"another archive"), COUNT // 2, "image_missing"),
    (damaged("read", "even/8.jpg"), 1, "image_inaccessible"),
    (damaged("read", "odd.zip"), 1, "image_inaccessible"),
]


@pytest.mark.parametrize(("fault", "number", "reason"), REJECTED)
def test_images_rejected_are_counted_and_named(gcs, monkeypatch, expected, job, fault, number, reason):
    gcs.faults = [fault]
    outcome = job("--max-rejects", 1)
    assert outcome.code == 0, outcome
    images = shown(gcs)["splits"]["train"]["images"]
    assert (images["rejected"], images["written"]) == ({reason: number}, COUNT - number)
    check_all_accounted(shown(gcs))
    rows = [json.loads(line) for line in gcs.objects()["out/rejects-train.jsonl"].splitlines()]
    assert [row["reason"] for row in rows] == [reason] * number
    assert shards_of(objects_of(gcs, "out")) != expected


@pytest.mark.parametrize("times", [1, ALWAYS])
def test_table_damaged_on_its_way(gcs, recordmill, times):
    """A damaged table is read again, and its rows are not used."""
    rows = ["path,label", *(f"{number}.jpg,{('cat', 'dog')[number % 4 // 2]}" for number in range(0, COUNT, 2))]
    gcs.put("labels.csv", "\n".join(rows).encode())
    gcs.faults = [Fault(Kind.CORRUPTED, "read", "labels.csv", first=2, times=times)]  # its header is read first
    flags = ["--labels", f"{ROOT}/labels.csv", "--output", OUT, "--progress", "none"]
    outcome = recordmill("convert", f"{ROOT}/even", *flags)
    if times == 1:
        assert outcome.code == 0
        assert [category["name"] for category in shown(gcs)["categories"]] == ["cat", "dog"]
        assert shown(gcs)["splits"]["train"]["images"]["written"] == COUNT // 2
    else:
        assert (outcome.code, is_one_line(outcome.err)) == (1, True), outcome
        assert f"{ROOT}/labels.csv" in outcome.err
        assert "checksum" in outcome.err
