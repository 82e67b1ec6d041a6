"""Nothing is lost and nothing is half-written, whatever a run is interrupted by.

Processes are killed, and killed again while they go on; two do the same at once; bundles are done twice; encoders,
disks and folders fail. What counts is always the same: no shard is ever visible that is not whole, no manifest lists
what is not there, and when the command has ended well the folder holds the bytes of an undisturbed run and nothing
else.
"""

import contextlib
import errno
import gc
import gzip
import hashlib
import io
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import google_crc32c
import msgspec
import numpy as np
import pytest
from PIL import Image

from schemas.coco import Category
from schemas.images import ImageRef, ImageTask, PictureRules
from schemas.labels import LabelMap
from schemas.layouts import DETECTION
from schemas.manifest import FORMAT
from schemas.shards import ShardKey, ShardResult
from tests.conftest import CATEGORIES, annotation, draw_jpeg, image_row, write_coco
from tests.faults import warm_process
from tests.faults.warm_process import Command
from tests.gcs_stand_in import BUCKET, Call, Fault, GcsStandIn, Kind, running
from transforms import local_storage, write_shards
from transforms.encode_examples import ExampleEncoder
from transforms.storage import storage_for
from transforms.write_sample import write_sample
from transforms.write_shards import ShardFile, ShardRecipe, finish_shard

Files = dict[str, bytes]

# Where data sets are written


class LocalPlace:
    """Folders below a folder."""

    environment: dict[str, str] = {}

    def __init__(self, folder: Path):
        self.images = self.root = str(folder)

    def files(self, output: str) -> Files:
        """All that is below an output by name, hidden files too; folders have a `/` at their end, and no bytes."""
        found = {}
        for path in sorted(Path(output).rglob("*")):
            name = str(path.relative_to(output))
            found[f"{name}/" if path.is_dir() else name] = b"" if path.is_dir() else path.read_bytes()
        return found

    def versions(self, output: str) -> dict[str, int]:
        """What changes when a file does."""
        return {path.name: path.stat().st_mtime_ns for path in Path(output).glob("*") if path.is_file()}

    def copy(self, output: str, target: str) -> None:
        shutil.copytree(output, target, symlinks=True, dirs_exist_ok=True)


class BucketPlace:
    """Folders of the stand-in's bucket."""

    def __init__(self, server: GcsStandIn):
        self.images = self.root = f"gs://{BUCKET}"
        self.server = server
        self.environment = {"STORAGE_EMULATOR_HOST": server.url}

    def files(self, output: str) -> Files:
        prefix = self._prefix(output)
        objects = self.server.objects().items()
        return {name[len(prefix) :]: data for name, data in objects if name.startswith(prefix)}

    def versions(self, output: str) -> dict[str, int]:
        prefix = self._prefix(output)
        return {name: self.server.generation(prefix + name) for name in self.files(output)}

    def copy(self, output: str, target: str) -> None:
        for name, data in self.files(output).items():
            self.server.put(self._prefix(target) + name, data)

    def _prefix(self, output: str) -> str:
        return output.removeprefix(f"gs://{BUCKET}/") + "/"


Place = LocalPlace | BucketPlace


@pytest.fixture
def server(monkeypatch) -> Iterator[GcsStandIn]:
    with running() as stand_in:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", stand_in.url)
        yield stand_in


@pytest.fixture(params=["local", "gs"])
def place(request, tmp_path, server) -> Place:
    return place_called(request.param, tmp_path, server)


def place_called(name: str, tmp_path: Path, server: GcsStandIn) -> Place:
    return LocalPlace(tmp_path) if name == "local" else BucketPlace(server)


# Jobs

SHARDS = 8
IMAGES = 240


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """A folder of 240 JPEGs of 45 kB in three class folders, and `instances.json` of them."""
    Command(["--help"], tmp_path_factory.mktemp("warm") / "up").end()
    folder = tmp_path_factory.mktemp("pictures")
    noise = np.random.default_rng(0)
    drawn = []
    for _ in range(8):
        data = io.BytesIO()
        Image.fromarray(noise.integers(0, 255, (200, 240, 3), np.uint8)).save(data, "JPEG", quality=75)
        drawn.append(data.getvalue())
    rows = []
    for number in range(IMAGES):
        name = f"{('cat', 'dog', 'owl')[number % 3]}/{number:03}.jpg"
        (folder / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "images" / name).write_bytes(drawn[number % len(drawn)])
        rows.append(image_row(number, name, 240, 200))
    write_coco(folder, rows, [annotation(number, number % IMAGES) for number in range(3 * IMAGES)], CATEGORIES)
    return folder


def coco(pictures: Path, output: str, *more: object) -> list[object]:
    inputs = ["--images", pictures / "images", "--instances", pictures / "instances.json"]
    return ["coco", *inputs, "--output", output, "--num-shards", SHARDS, *more]


def folder_splits(pictures: Path, output: str, *more: object) -> list[object]:
    flags = ["--split", "train=0.7,val=0.3", "--num-shards", SHARDS // 2]
    return ["folder", "--images", pictures / "images", "--output", output, *flags, *more]


class Job:
    """A command on one output after another, in processes of their own.

    Attributes:
        command: by output.
        before: an output that new ones are copies of.
        disturbance: of each run that has no other.
        seconds: that the last run took that nothing disturbed.
    """

    def __init__(self, place: Place, log: Path, command: Callable[[str], list[object]], before: str = ""):
        self.before = before
        self.disturbance: warm_process.Disturbance | None = None
        self.place = place
        self.command = command
        self.seconds = 0.0
        self._log = log
        self._runs = 0
        self._outputs = 0

    def new_output(self) -> str:
        """A place for an output, which is empty, or a copy of `before`."""
        self._outputs += 1
        output = f"{self.place.root}/out{self._outputs}"
        if self.before:
            self.place.copy(self.before, output)
        return output

    def start(self, output: str, disturbance: warm_process.Disturbance | None = None) -> Command:
        self._runs += 1
        log = self._log / f"run{self._runs}"
        return Command(self.command(output), log, self.place.environment, disturbance or self.disturbance)

    def run(self, output: str) -> Command:
        """To its end, which must be a good one."""
        begun = time.monotonic()
        ended = self.start(output).end()
        self.seconds = time.monotonic() - begun
        assert ended.code == 0, ended
        return ended

    def undisturbed(self) -> Files:
        """What an output holds after a run."""
        output = self.new_output()
        self.run(output)
        files = self.place.files(output)
        assert_whole(files)
        return files


# What must be true


def assert_whole(files: Files) -> None:
    """A finished data set and nothing besides."""
    assert listed_shards(files) == {name for name in files if is_shard(name)}
    assert [name for name in files if name.startswith(".") or name.endswith(("/", ".tmp"))] == []
    assert_consistent(files, files)


def assert_consistent(files: Files, *wholes: Files) -> None:
    """What is visible may be used: each file is as it is in one of the finished data sets.

    Shards have right checksums, and those that the manifest lists are there.
    """
    for name, data in files.items():
        if name.startswith("."):
            continue
        assert data in [whole.get(name) for whole in wholes], f"{name} is neither old nor new"
        if is_shard(name):
            count_records(gzip.decompress(data) if name.endswith(".gz") else data)
    listed_shards(files)


def is_shard(name: str) -> bool:
    return re.search(r"^[^.].*\.tfrec(ord)?", name) is not None


def listed_shards(files: Files) -> set[str]:
    """The shards that the manifest lists, if there is one; they must be there, each as it is listed."""
    splits = json.loads(files["manifest.json"])["splits"] if "manifest.json" in files else {}
    shards = [shard for split in splits.values() for shard in split["shards"]]
    for shard in shards:
        data = files[shard["file"]]
        assert (len(data), hashlib.sha256(data).hexdigest()) == (shard["bytes"], shard["sha256"])
    return {shard["file"] for shard in shards}


def count_records(data: bytes) -> int:
    """How many records a TFRecord file has that must be whole to its last byte."""
    place = count = 0
    while place < len(data):
        length, length_crc = struct.unpack_from("<QI", data, place)
        record = data[place + 12 : place + 12 + length]
        (record_crc,) = struct.unpack_from("<I", data, place + 12 + length)
        assert (length_crc, record_crc) == (masked(data[place : place + 8]), masked(record))
        place += 16 + length
        count += 1
    return count


def masked(data: bytes) -> int:
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32


def finished_shards(files: Files) -> set[str]:
    """The shards that a run has left behind as finished; the notes it has left of them must be whole."""
    notes = [data for name, data in files.items() if re.fullmatch(r"\.recordmill-\w+/[^.]\S*-of-\d+\.json", name)]
    found = {result.info.file: result.info for result in (msgspec.json.decode(n, type=ShardResult) for n in notes)}
    return {name for name, info in found.items() if len(files.get(name, b"")) == info.bytes}


def assert_ended(command: Command, files: Files, whole: Files) -> None:
    """After a run to its end, the output is what an undisturbed run makes."""
    assert files == whole, command


# kill -9

KILLS = 4
"""In each round."""


def zipped(command: Callable[..., list[object]]) -> Callable[..., list[object]]:
    return lambda pictures, output: command(pictures, output, "--gzip")


@pytest.mark.parametrize(
    ("where", "command"),
    [
        pytest.param("local", coco, id="local"),
        pytest.param("local", zipped(coco), id="local gzip"),
        pytest.param("local", zipped(folder_splits), id="local folder"),
        pytest.param("gs", coco, id="gs"),
        pytest.param("gs", zipped(coco), id="gs gzip"),
        pytest.param("gs", folder_splits, id="gs folder"),
    ],
)
def test_killed_at_random_moments(where, command, pictures, tmp_path, server, request):
    job = Job(place_called(where, tmp_path, server), tmp_path, partial(command, pictures))
    if request.node.callspec.id == "gs":  # shards of a bucket go in four pieces there, and in one in other rounds
        job.disturbance = partial(warm_process.upload_in_chunks, 256 * 1024)
    kill_at_random(job, {}, request.node.callspec.id)


def coco_with_another_seed(pictures: Path, output: str) -> list[object]:
    return coco(pictures, output, "--seed", 1, "--overwrite")


def coco_val(pictures: Path, output: str) -> list[object]:
    return coco(pictures, output, "--split", "val")


@pytest.mark.parametrize("command", [coco_with_another_seed, coco_val])
def test_killed_at_random_moments_where_a_data_set_is_already(command, pictures, tmp_path, request):
    """--overwrite, and a second split: until the new data set is whole, what the manifest lists is of the old one."""
    first = Job(LocalPlace(tmp_path / "first"), tmp_path, partial(coco, pictures))
    old = first.undisturbed()
    job = Job(LocalPlace(tmp_path), tmp_path, partial(command, pictures), f"{first.place.root}/out1")
    kill_at_random(job, old, request.node.callspec.id)


def kill_at_random(job: Job, old: Files, seed: str) -> None:
    """Kills at moments of a seeded random generator, within the time that the run takes; every second one in its second
    half, where shards are written. The same command is run again and may be killed again, twice; then it ends with the
    bytes of an undisturbed run."""
    whole = job.undisturbed()
    seconds = job.seconds
    moments = random.Random(seed)
    visible: list[int] = []  # shards after each kill
    while len(visible) < KILLS:
        output = job.new_output()
        for in_a_row in range(4):
            before = Left(job.place, output)
            process = job.start(output)
            if in_a_row < 3 and len(visible) < KILLS:
                process.process.join(moments.uniform(len(visible) % 2 * seconds / 2, seconds))
                process.kill()
            process.end()
            files = job.place.files(output)
            assert_consistent(files, old, whole)
            if "--overwrite" not in job.command(output):
                before.assert_kept()
            if not process.was_killed:
                break
            visible.append(sum(name not in old and is_shard(name) for name in files))
        assert process.code == 0, process
        assert_ended(process, files, whole)
        if "--overwrite" not in job.command(output):
            goes_on = before.is_noted and before.manifest != whole["manifest.json"]
            assert ("Going on with an unfinished run" in process.out) == goes_on, process
    print(f"KILLS {len(visible)} within {seconds:.2f} s; shards visible after each: {visible}")


class Left:
    """What a run has left, and another will find.

    Attributes:
        is_noted: whether there is a note of what the run was to write.
    """

    def __init__(self, place: Place, output: str):
        self._place, self._output = place, output
        files = place.files(output)
        self.is_noted = any(name.endswith("/recipe.json") for name in files)
        self.manifest = files.get("manifest.json")
        self._finished = finished_shards(files)
        self._versions = place.versions(output)

    def assert_kept(self) -> None:
        """The shards that were finished have not been written again."""
        versions = self._place.versions(self._output)
        assert {name: versions[name] for name in self._finished} == {
            name: self._versions[name] for name in self._finished
        }


# kill -9 before each change that the end of a run makes


class SmallJob(Job):
    """`coco` on four pictures, with two shards; it can be sent signals at given places."""

    def signalled(self, output: str, number: int, signal_number: int, with_reads: bool = False) -> Command:
        """A run that is sent a signal before its `number`th change of the output's files. With `with_reads`, opening
        one counts, too.

        In a bucket, requests are counted. One that comes when the process is killed is not carried out any more."""
        if isinstance(self.place, LocalPlace):
            return self.start(output, partial(warm_process.signal_before, number, output, signal_number, with_reads))
        seen: list[Call] = []
        started: list[Command] = []

        def send(call: Call) -> bool:
            if with_reads or call.operation in ("upload", "delete"):
                seen.append(call)
                if len(seen) == number:
                    os.kill(started[0].process.pid, signal_number)
                    return signal_number == signal.SIGKILL
            return False

        with self.place.server._lock:  # no request is answered before the process is known
            self.place.server.faults = [Fault(Kind.RESET, when=send)]
            started.append(self.start(output))
        return started[0]

    def all_but_the_end(self) -> str:
        """An output that a run has left which was killed when all shards were finished and noted."""
        output = self.new_output()
        changes = 2 + 1 + 2 * 2 if isinstance(self.place, LocalPlace) else 1 + 2 * 2
        assert self.signalled(output, changes + 1, signal.SIGKILL).end().was_killed
        assert len(finished_shards(self.place.files(output))) == 2
        return output


def small_coco(pictures: Path, folder: Path) -> Callable[[str], list[object]]:
    document = json.loads((pictures / "instances.json").read_text())
    annotations = [row for row in document["annotations"] if row["image_id"] < 4]
    write_coco(folder, document["images"][:4], annotations, CATEGORIES)
    inputs = ["--images", pictures / "images", "--instances", folder / "instances.json"]
    return lambda output: ["coco", *inputs, "--output", output, "--num-shards", 2]


@pytest.fixture
def small_job(place, pictures, tmp_path) -> SmallJob:
    return SmallJob(place, tmp_path, small_coco(pictures, tmp_path))


def test_killed_before_a_change_at_the_end(small_job):
    """Every third one."""
    whole = small_job.undisturbed()
    small_job.before = small_job.all_but_the_end()
    kills = 0
    for number in range(1, 100, 3):
        output = small_job.new_output()
        killed = small_job.signalled(output, number, signal.SIGKILL).end()
        assert_consistent(small_job.place.files(output), whole)
        ended = small_job.run(output) if killed.was_killed else killed
        assert_ended(ended, small_job.place.files(output), whole)
        if not killed.was_killed:
            break
        kills += 1
    assert kills >= 3
    print(f"KILLS {kills}, each before a change at the end")


def test_a_kill_in_the_middle_of_rejects_jsonl_leaves_nothing(pictures, tmp_path):
    job = SmallJob(LocalPlace(tmp_path), tmp_path, small_coco(pictures, tmp_path))
    whole = job.undisturbed()
    output = job.all_but_the_end()
    assert [name for name in job.place.files(output) if name.startswith(".rejects")] != []
    job.run(output)
    assert job.place.files(output) == whole


def test_a_kill_between_the_manifest_and_the_tidying_leaves_nothing(small_job):
    whole = small_job.undisturbed()
    output = small_job.all_but_the_end()
    small_job.place.copy(f"{small_job.place.root}/out1", output)
    assert set(small_job.place.files(output)) > set(whole)
    small_job.run(output)
    assert small_job.place.files(output) == whole


# Two at once


@pytest.mark.parametrize(
    ("where", "command"), [("local", coco), ("local", zipped(folder_splits)), ("gs", coco), ("gs", folder_splits)]
)
def test_two_at_once(where, command, pictures, tmp_path, server, request, recordmill):
    """Started together, within some milliseconds, and at random within the time that a run takes."""
    job = Job(place_called(where, tmp_path, server), tmp_path, partial(command, pictures))
    whole = job.undisturbed()
    offsets = random.Random(request.node.callspec.id)
    for longest in (0, 0.01, job.seconds):
        output = job.new_output()
        one = job.start(output)
        time.sleep(offsets.uniform(0, longest))
        other = job.start(output)
        assert_done_or_refused(one.end(), other.end())
        assert_ended(other, job.place.files(output), whole)
    assert recordmill("verify", output).code == 0


@pytest.mark.parametrize("begin", ["anew", "all but the end"])
def test_one_pauses_while_another_does_it_all(small_job, begin):
    """Whatever a run has seen so far may be out of date when it takes its next step."""
    whole = small_job.undisturbed()
    if begin == "all but the end":
        small_job.before = small_job.all_but_the_end()
    is_local = isinstance(small_job.place, LocalPlace)
    steps = [2, 3, 8, 20] if is_local else [5, 13, 21]
    for step in steps:
        pause(small_job, step, whole)


def test_a_run_pauses_before_it_reads_the_note_of_what_another_is_about_to_finish(pictures, tmp_path):
    job = SmallJob(LocalPlace(tmp_path), tmp_path, small_coco(pictures, tmp_path))
    whole = job.undisturbed()
    job.before = job.all_but_the_end()
    pause(job, 1, whole)


def pause(job: SmallJob, step: int, whole: Files) -> None:
    output = job.new_output()
    paused = job.signalled(output, step, signal.SIGSTOP, with_reads=True)
    assert wait_until_stopped(paused)
    job.run(output)
    os.kill(paused.process.pid, signal.SIGCONT)
    assert_done_or_refused(paused.end())
    assert_ended(paused, job.place.files(output), whole)
    print(f"PAUSE before step {step}")


def wait_until_stopped(command: Command) -> bool:
    """False where it ends without being stopped."""
    while command.process.exitcode is None:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            status = Path(f"/proc/{command.process.pid}/stat").read_text()
            if status.rpartition(")")[2].split()[0] == "T":
                return True
        time.sleep(0.005)
    return False


def assert_done_or_refused(*commands: Command) -> None:
    """Of several that do the same at once, one at least is done."""
    for command in commands:
        assert command.code in (0, 2), command
        if command.code == 2:
            assert re.fullmatch(r"recordmill: .+\n", command.err), command
    assert len(commands) == 1 or 0 in [command.code for command in commands]


# Bundles that are done again


@pytest.fixture
def shard(place, tmp_path) -> "Shard":
    return Shard(place, tmp_path)


class Shard:
    """A bundle's work: one shard of 20 pictures, which is written picture by picture."""

    KEY = ShardKey("train", 0, 1)

    def __init__(self, place: Place, folder: Path):
        self.output = f"{place.root}/out"
        self._place = place
        self.tasks = []
        for number in range(20):
            path = folder / "images" / f"{number}.jpg"
            draw_jpeg(path, colour=(number, 0, 0))
            ref = ImageRef(str(path), path.stat().st_size, str(path.stat().st_mtime_ns))
            self.tasks.append(ImageTask(number, path.name, 40, 30, ref, "train", ()))

    def recipe(self, gzip: bool, output: str = "") -> ShardRecipe:
        return ShardRecipe(output or self.output, "coco", 0, "detection", gzip, "clip", PictureRules("decode"), FORMAT)

    def finish(self, gzip: bool = False, output: str = "") -> ShardResult:
        recipe = self.recipe(gzip, output)
        with ThreadPoolExecutor(2) as pool:
            labels, table = LabelMap((Category(1, "cat"),)), DETECTION.with_parts(())
            return finish_shard(self.KEY, self.tasks, recipe, labels, table, pool, 2)

    def files(self, output: str = "") -> Files:
        return {name: data for name, data in self._place.files(output or self.output).items() if name[-1] != "/"}

    def undisturbed(self, gzip: bool = False) -> Files:
        output = f"{self._place.root}/undisturbed"
        self.finish(gzip, output)
        return self.files(output)


@pytest.fixture(params=["plain", "gzip"])
def is_gzip(request) -> bool:
    return request.param == "gzip"


@pytest.fixture
def small_writes(monkeypatch):
    """Each record goes to the file at once."""
    monkeypatch.setattr(write_shards, "_WRITE_BYTES", 1)


def fail_once(monkeypatch, owner: type, method: str, at: int, error: BaseException) -> None:
    """Let the `at`th call of a method (from 1) raise."""
    original = getattr(owner, method)
    calls = []

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == at:
            raise error
        return original(*arguments)

    monkeypatch.setattr(owner, method, failing)


@pytest.mark.usefixtures("small_writes")
@pytest.mark.parametrize("where", ["a record", "the file's end", "the note of it"])
def test_a_bundle_that_failed_is_done_again(shard, place, is_gzip, where, monkeypatch):
    whole = shard.undisturbed(is_gzip)
    storage = storage_for(shard.output)
    match where:
        case "a record":
            fail_once(monkeypatch, ShardFile, "append", 10, RuntimeError("once"))
        case "the file's end":
            fail_once(monkeypatch, type(storage.create(f"{place.root}/other/x")), "commit", 1, RuntimeError("once"))
        case "the note of it":
            fail_once(monkeypatch, type(storage), "write", 1, RuntimeError("once"))
    with pytest.raises(RuntimeError, match="once"):
        shard.finish(is_gzip)
    assert shard.files().items() <= whole.items()
    assert len(shard.files()) == (1 if where == "the note of it" else 0)
    shard.finish(is_gzip)
    assert shard.files() == whole


def test_a_bundle_that_is_done_twice_is_written_once(shard, is_gzip):
    whole = shard.undisturbed(is_gzip)
    results = [shard.finish(is_gzip) for _ in range(2)]
    assert results[0] == results[1]
    assert shard.files() == whole


@pytest.mark.usefixtures("small_writes")
def test_a_bundle_that_two_workers_do_at_once(shard, is_gzip):
    whole = shard.undisturbed(is_gzip)
    for number in range(10):
        output = f"{shard.output}{number}"
        together = threading.Barrier(2)

        def work(output: str = output, together: threading.Barrier = together) -> ShardResult:
            together.wait()
            return shard.finish(is_gzip, output)

        with ThreadPoolExecutor(2) as workers:
            one, other = [future.result() for future in [workers.submit(work) for _ in range(2)]]
        assert one == other
        assert shard.files(output) == whole


def test_a_job_whose_writing_fails_ends_and_goes_on(sample_job, recordmill, monkeypatch):
    """The local runner does a bundle once."""
    whole = sample_job.undisturbed(recordmill)
    with monkeypatch.context() as patch:
        fail_once(patch, ShardFile, "append", 20, RuntimeError("once"))
        outcome = recordmill(*sample_job.flags())
    assert outcome.code == 1
    assert re.fullmatch(r"recordmill: the job failed in step \S+: once .*\n", outcome.err)
    assert sample_job.visible().items() <= whole.items()
    assert "manifest.json" not in sample_job.visible()
    assert recordmill(*sample_job.flags()).code == 0
    assert sample_job.files() == whole


class SampleJob:
    """`coco` on the sample, in this process."""

    def __init__(self, place: Place, sample):
        self.place = place
        self.images = Path(sample.images)
        self._sample = sample

    def flags(self, *more: object, output: str = "out") -> list[object]:
        inputs = ["--images", self._sample.images, "--instances", self._sample.instances, "--max-rejects", 0.2]
        return ["coco", *inputs, "--output", f"{self.place.root}/{output}", "--num-shards", 4, *more]

    def files(self, output: str = "out") -> Files:
        return self.place.files(f"{self.place.root}/{output}")

    def visible(self) -> Files:
        return {name: data for name, data in self.files().items() if not name.startswith(".")}

    def undisturbed(self, recordmill) -> Files:
        assert recordmill(*self.flags(output="whole")).code == 0
        return self.files("whole")


@pytest.fixture
def sample_job(place, tmp_path) -> SampleJob:
    """A sample of its own, which may be changed."""
    return SampleJob(place, write_sample(str(tmp_path / "sample"), count=24, seed=0))


# Exceptions within a shard


@pytest.mark.usefixtures("small_writes")
@pytest.mark.parametrize("error", [ValueError("of the encoder"), KeyboardInterrupt(), SystemExit(3)])
def test_what_breaks_off_a_shard_leaves_nothing(shard, is_gzip, error, monkeypatch):
    """Beam's own writers publish what has been written so far when they are closed, or collected."""
    fail_once(monkeypatch, ExampleEncoder, "encode", 12, error)
    with pytest.raises(type(error)):
        shard.finish(is_gzip)
    assert shard.files() == {}
    gc.collect()
    assert shard.files() == {}


@pytest.mark.usefixtures("small_writes")
def test_a_shard_that_nobody_ends_is_never_visible(shard, is_gzip):
    """Neither by `with` nor in another way."""
    begun = ShardFile(shard.recipe(is_gzip), shard.KEY)
    begun.append(bytes(100_000))
    del begun
    gc.collect()
    assert [name for name in shard.files() if not re.fullmatch(r"\..+\.tmp", name)] == []


# Disks


@pytest.mark.usefixtures("small_writes")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("stage", ["write", "flush", "fsync", "close"])
def test_a_disk_that_takes_no_more(tmp_path, stage, number, monkeypatch):
    """The error says where; nothing is left; a rerun writes what the first would have written."""
    shard = Shard(LocalPlace(tmp_path), tmp_path)
    whole = shard.undisturbed()
    error = OSError(number, os.strerror(number))
    with monkeypatch.context() as patch:
        if stage == "fsync":
            patch.setattr(os, "fsync", lambda _: raise_(error))
        else:
            patch.setattr(local_storage, "open", partial(open_failing, "xb", "", stage, error), raising=False)
        with pytest.raises(OSError, match=re.escape(os.strerror(number))) as told:
            shard.finish()
    assert "coco-train.tfrecord-00000-of-00001" in str(told.value)
    assert shard.files() == {}
    shard.finish()
    assert shard.files() == whole


def raise_(error: BaseException) -> None:
    raise error


def open_failing(
    mode: str, ending: str, stage: str, error: OSError, path: str, wanted: str, buffering: int = -1
) -> io.IOBase:
    """`open`, but files that are opened in one mode, and whose name ends so, are failing ones."""
    fails = wanted == mode and path.endswith(ending)
    return FailingFile(stage, error, path, mode) if fails else open(path, wanted, buffering)


class FailingFile(io.FileIO):
    """A file whose last part the disk does not take, or that is not read to its end."""

    def __init__(self, stage: str, error: OSError, path: str, mode: str):
        super().__init__(path, mode)
        self._stage, self._error, self._taken = stage, error, 0

    def write(self, data) -> int:
        self._taken += 1
        if self._stage == "write" and self._taken > 5:
            raise self._error
        return super().write(data)

    def read(self, size: int = -1) -> bytes:
        raise_(self._error) if self._stage == "read" else None
        return super().read(size)

    def flush(self) -> None:
        raise_(self._error) if self._stage == "flush" else super().flush()

    def close(self) -> None:
        fails = self._stage == "close" and not self.closed
        super().close()
        if fails:
            raise self._error


def test_a_full_disk(pictures, tmp_path):
    """A file system of 4 MB; then it gets larger."""
    job = Job(LocalPlace(tmp_path), tmp_path, partial(coco, pictures))
    whole = job.undisturbed()
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("no file system may be mounted here; test_a_disk_that_takes_no_more does without")
    try:
        output = f"{disk}/out"
        failed = job.start(output).end()
        assert failed.code == 1
        assert re.fullmatch(rf"recordmill: .*No space left on device: '{output}/\S+-of-00008'.*\n", failed.err), failed
        left = job.place.files(output)
        assert_consistent(left, whole)
        assert 0 < sum(map(is_shard, left)) < SHARDS
        assert "manifest.json" not in left
        assert [name for name in left if name.endswith(".tmp")] == []
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        again = job.run(output)
        assert "Going on with an unfinished run" in again.out
        assert job.place.files(output) == whole
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_disk_that_is_full_before_anything_is_written(pictures, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("no file system may be mounted here")
    try:
        (disk / "others").write_bytes(bytes(4096))
        failed = Command(coco(pictures, f"{disk}/out"), tmp_path / "run").end()
        assert failed.code == 1
        assert re.fullmatch(rf"recordmill: .*No space left on device: '{disk}/out/.*'\n", failed.err), failed
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("where", ["local", "gs"])
def test_files_that_may_not_grow(where, pictures, tmp_path, server):
    """`ulimit -f`. An upload to a bucket begins as a temporary file of this machine."""
    job = Job(place_called(where, tmp_path, server), tmp_path, partial(coco, pictures))
    output = job.new_output()
    failed = job.start(output, partial(warm_process.limit_file_size, 400_000)).end()
    assert failed.code == 1
    left = job.place.files(output)
    assert [name for name in left if is_shard(name) or name.endswith((".tmp", "manifest.json"))] == []
    shown = f"{output}/\\S+-of-00008" if where == "local" else tempfile.gettempdir()
    assert re.fullmatch(rf"recordmill: .*File too large: '{shown}.*'.*\n", failed.err), failed
    job.run(output)
    assert_whole(job.place.files(output))


def test_an_output_that_may_not_be_written(pictures):
    """By a user who is not its owner; everything else he may read."""
    if os.getuid():
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        draw_jpeg(folder / "images" / "a.jpg")
        instances = write_coco(folder, [image_row(1, "a.jpg")], [], CATEGORIES)
        (folder / "out").mkdir()
        for output in (folder / "out", folder / "new"):
            flags = ["--images", folder / "images", "--instances", instances, "--output", output]
            refused = Command(["coco", *flags], folder / "log", disturbance=warm_process.become_nobody).end()
            assert refused.code == 1
            assert re.fullmatch(rf"recordmill: \[Errno 13\] Permission denied: '{output}.*'\n", refused.err), refused
        assert list((folder / "out").iterdir()) == []
        assert not (folder / "new").exists()


def test_an_image_that_the_disk_does_not_give(sample_job, recordmill, monkeypatch):
    """It is no reason to leave it out: the disk may be well again."""
    whole = sample_job.undisturbed(recordmill)
    error = OSError(errno.EIO, os.strerror(errno.EIO))
    with monkeypatch.context() as patch:
        patch.setattr(local_storage, "open", partial(open_failing, "rb", "5.jpg", "read", error), raising=False)
        outcome = recordmill(*sample_job.flags())
    assert outcome.code == 1
    assert re.fullmatch(rf"recordmill: .*Input/output error: '{sample_job.images}/\S+5\.jpg'.*\n", outcome.err), outcome
    assert sample_job.visible().items() <= whole.items()
    assert "manifest.json" not in sample_job.visible()
    assert recordmill(*sample_job.flags()).code == 0
    assert sample_job.files() == whole


# Images that change while a job runs


@contextlib.contextmanager
def when_writing_begins(monkeypatch, change: Callable[[], object]) -> Iterator[None]:
    """Do something once, after all images have been listed and before any is read."""
    original, done = write_shards._write_shard, []

    def write_shard(*arguments):
        if not done:
            done.append(change())
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(write_shards, "_write_shard", write_shard)
        yield
    assert done


def rejects_by_name(files: Files) -> dict[str, str]:
    """Why images were left out that are there when they are listed."""
    rows = map(json.loads, files["rejects.jsonl"].splitlines())
    found = (re.fullmatch(r"'(.+)': (.+ since it was listed)", row["detail"]) for row in rows)
    return {match[1]: match[2] for match in found if match}


def test_an_image_that_is_deleted_and_one_that_is_replaced(sample_job, recordmill, monkeypatch):
    gone, new = sorted(path for path in sample_job.images.iterdir() if path.suffix == ".jpg")[:2]
    kept = gone.rename(gone.with_suffix(".kept"))
    shutil.copy2(kept, gone)

    def change() -> None:
        gone.unlink()
        new.write_bytes(new.read_bytes())

    with when_writing_begins(monkeypatch, change):
        outcome = recordmill(*sample_job.flags("--max-rejects", 0.5))
    assert outcome.code == 0
    assert "image_missing 3" in outcome.out
    assert rejects_by_name(sample_job.files()) == {
        gone.name: "the file is gone since it was listed",
        new.name: "the file has been replaced since it was listed",
    }
    assert_whole(sample_job.files())


def test_images_that_were_out_of_reach_for_a_while_are_there_in_the_next_run(sample_job, recordmill, monkeypatch):
    """A network drive that comes and goes: too many rejects, and the same command goes on."""
    whole = sample_job.undisturbed(recordmill)
    away = sample_job.images.with_name("away")
    with when_writing_begins(monkeypatch, lambda: sample_job.images.rename(away)):
        outcome = recordmill(*sample_job.flags())
    assert outcome.code == 1
    assert "images (100.0%) are rejected" in outcome.err, outcome
    away.rename(sample_job.images)
    assert recordmill(*sample_job.flags()).code == 0
    assert sample_job.files() == whole


def test_images_that_might_not_be_read_for_a_while_are_there_in_the_next_run(sample_job, recordmill, monkeypatch):
    """Permissions that were wrong, and are put right: no file has changed."""
    whole = sample_job.undisturbed(recordmill)
    error = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    with monkeypatch.context() as patch:
        patch.setattr(local_storage, "open", partial(open_failing, "rb", ".jpg", "read", error), raising=False)
        assert recordmill(*sample_job.flags()).code == 1
    assert recordmill(*sample_job.flags("--max-rejects", 1)).code == 0
    assert sample_job.files() == whole
