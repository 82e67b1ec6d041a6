"""Jobs that are to be disturbed, the places that they write to, and what must be true after each."""

import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import signal
import struct
import tarfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import google_crc32c
import msgspec
import pyarrow.parquet as pq

from recordmill.schemas.dataset.dataset_files import state_folder
from recordmill.schemas.dataset.manifest import FORMAT
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageRules, ImageTask
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import DETECTION
from recordmill.schemas.shards import ShardKey, ShardResult
from recordmill.transforms.records.shard_index import INDEX, index_file
from recordmill.transforms.shards.encode_images import EncodeImages
from recordmill.transforms.shards.shard_file import Note, ShardRecipe, WrittenShard
from recordmill.transforms.shards.write_shards import write_shard
from tests.conftest import CATEGORIES, draw_jpeg, write_coco
from tests.faults import warm_process
from tests.faults.warm_process import Command
from tests.gcs_stand_in import Call, Fault, GcsStandIn, Kind
from tests.transforms.blocks.of_tasks import pack_tasks

if TYPE_CHECKING:
    from tests.s3_stand_in import S3StandIn

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
        below = ((folder, name) for folder, *names in os.walk(output) for name in (*names[0], *names[1]))
        for path in sorted(Path(folder, name) for folder, name in below):
            name = str(path.relative_to(output))
            with contextlib.suppress(FileNotFoundError):  # a job at work renames its temporary files
                found[f"{name}/" if path.is_dir() else name] = b"" if path.is_dir() else path.read_bytes()
        return found

    def settle(self) -> None:
        """Nothing is under way when a process has ended."""

    def versions(self, output: str) -> dict[str, int]:
        """Version of each file by name without folders: a write changes it, a move does not."""
        return {path.name: path.stat().st_mtime_ns for path in Path(output).rglob("*") if path.is_file()}

    def copy(self, output: str, target: str) -> None:
        shutil.copytree(output, target, symlinks=True, dirs_exist_ok=True)


class BucketPlace:
    """Folders of a stand-in's bucket."""

    def __init__(self, server: "GcsStandIn | S3StandIn"):
        self.images = self.root = server.root
        self.server = server
        self.environment = server.environment

    def files(self, output: str) -> Files:
        prefix = self._prefix(output)
        objects = self.server.objects().items()
        return {name[len(prefix) :]: data for name, data in objects if name.startswith(prefix)}

    def settle(self) -> None:
        """Wait until what ended processes have sent is carried out."""
        self.server.wait_until_all_hung_up()

    def versions(self, output: str) -> dict[str, int]:
        prefix = self._prefix(output)
        uploads = [call.name for call in self.server.calls("start", "upload") if call.name.startswith(prefix)]
        return Counter(name.rpartition("/")[2] for name in uploads)

    def copy(self, output: str, target: str) -> None:
        for name, data in self.files(output).items():
            self.server.put(self._prefix(target) + name, data)

    def _prefix(self, output: str) -> str:
        return output.removeprefix(f"{self.root}/") + "/"


Place = LocalPlace | BucketPlace


def place_called(name: str, tmp_path: Path, server: "GcsStandIn | S3StandIn") -> Place:
    return LocalPlace(tmp_path) if name == "local" else BucketPlace(server)


# Jobs

SHARDS = 8
IMAGES = 240


def coco(pictures: Path, output: str, *more: object) -> list[object]:
    inputs = ["--images", pictures / "images", "--instances", pictures / "instances.json"]
    return ["convert", *inputs, "--output", output, "--num-shards", SHARDS, *more]


def coco_tiles(pictures: Path, output: str) -> list[object]:
    """Shards begin within an image."""
    return coco(pictures, output, "--tile", 40, "--keep-empty", 1)


def coco_tars(pictures: Path, output: str) -> list[object]:
    return coco(pictures, output, "--container", "webdataset")


def coco_parquet(pictures: Path, output: str) -> list[object]:
    return coco(pictures, output, "--container", "parquet")


def coco_repacked(pictures: Path, output: str) -> list[object]:
    """The source is written once."""
    source = pictures / "repacked"
    if not source.exists():
        assert Command(coco(pictures, str(source)), pictures / "log").end().code == 0
    return ["repack", source, output, "--container", "webdataset"]


def coco_replanned(pictures: Path, output: str) -> list[object]:
    return [*coco_repacked(pictures, output), "--replan"]


def rows_parquet(pictures: Path, output: str) -> list[object]:
    return rows(pictures, output, "--container", "parquet", "--num-shards", SHARDS // 2)


def folder_splits(pictures: Path, output: str, *more: object) -> list[object]:
    flags = ["--split", "train=0.7,val=0.3", "--num-shards", SHARDS // 2]
    return ["convert", pictures / "images", "--format", "folder", "--output", output, *flags, *more]


def rows(pictures: Path, output: str, *more: object) -> list[object]:
    flags = ["--label", "kind", "--key", "id", "--split", "train=0.7,val=0.3", "--stratify"]
    sizes = more or ["--num-shards", SHARDS // 2]
    return ["convert", pictures / "rows-*.csv", "--format", "table", "--output", output, *flags, *sizes]


def array_records(pictures: Path, output: str) -> list[object]:
    return coco(pictures, output, "--container", "arrayrecord")


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
        """Files of an output after a complete run."""
        output = self.new_output()
        self.run(output)
        files = self.place.files(output)
        assert_whole(files)
        return files


# What must be true


def assert_whole(files: Files) -> None:
    """A finished data set and nothing besides."""
    shards = listed_shards(files)
    assert shards == {name for name in files if is_shard(name)}
    indexes = {index_file(name) for name in shards if ".tfrec" in name or name.endswith(".tar")}
    indexes -= {name for name in indexes if name.endswith(".gz.idx")}
    hidden = {name for name in files if name.startswith(".") or name.endswith(("/", ".tmp"))}
    assert hidden - {f"{INDEX}/"} == indexes
    assert_consistent(files, files)


def assert_consistent(files: Files, *wholes: Files) -> None:
    """Assert that each visible file equals the file of one of the finished data sets.

    Shards have right checksums, and those that the manifest lists are there.
    """
    for name, data in files.items():
        if name.startswith("."):
            continue
        assert data in [whole.get(name) for whole in wholes], f"{name} is neither old nor new"
        if name.endswith(".tar"):
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                assert all(len(archive.extractfile(member).read()) == member.size for member in archive)
        elif name.endswith(".parquet"):
            assert pq.read_table(io.BytesIO(data), page_checksum_verification=True).num_rows
        elif ".tfrec" in name:
            count_records(gzip.decompress(data) if name.endswith(".gz") else data)
    listed_shards(files)


def is_shard(name: str) -> bool:
    return re.search(r"^[^.].*\.(tfrec(ord)?|array_record-|(tar|parquet)$)", name) is not None


def listed_shards(files: Files) -> set[str]:
    """Shards that the manifest lists, if there is one; each exists and equals its entry."""
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


def finished_shards(files: Files) -> dict[str, str]:
    """The shards that a run has left behind as finished, and where in the output they are; the notes it has left of
    them must be whole."""
    notes = [
        data
        for name, data in files.items()
        if re.fullmatch(r"\.recordmill-\w+/[^.]\S*(-of-\d+|\.tar|\.parquet)\.json", name)
    ]
    found = {}
    of_notes = (msgspec.json.decode(note, type=Note).result for note in notes)
    for result in (msgspec.json.decode(result, type=ShardResult) for result in of_notes):
        for place in (f"{state_folder(result.key.split)}/{result.info.file}", result.info.file):
            if len(files.get(place, b"")) == result.info.bytes:
                found.setdefault(result.info.file, place)
    return found


def zipped(command: Callable[..., list[object]]) -> Callable[..., list[object]]:
    return lambda pictures, output: command(pictures, output, "--gzip")


class Left:
    """Files that a run left for the next run.

    Attributes:
        is_noted: whether there is a note of what the run was to write.
        is_logged: whether there is a log of the commit of --add, which the next run completes first.
    """

    def __init__(self, place: Place, output: str):
        self._place, self._output = place, output
        files = place.files(output)
        self.is_noted = any(name.endswith("/recipe.json") for name in files)
        self.is_logged = any(name.endswith("/commit.json") for name in files)
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
    """`convert` on four images, with two shards; it can be sent signals at given places.

    Attributes:
        local_changes: changes of local files until both shards are noted: folders and the recipe; of each shard its
            index, the shard itself and its note.
    """

    local_changes = 3 + 1 + 2 * 3

    def signalled(self, output: str, number: int, signal_number: int, with_reads: bool = False) -> Command:
        """A run that is sent a signal before its `number`th change of the output's files. With `with_reads`, opening
        one counts, too.

        In a bucket, requests are counted. One that comes when the process is killed is not carried out any more."""
        if isinstance(self.place, LocalPlace):
            return self.start(output, partial(warm_process.signal_before, number, output, signal_number, with_reads))
        seen: list[Call] = []
        started: list[Command] = []

        def send(call: Call) -> bool:
            if with_reads or call.operation in ("upload", "chunk", "complete", "copy", "delete"):
                seen.append(call)
                if len(seen) == number:
                    os.kill(started[0].process.pid, signal_number)
                    return signal_number == signal.SIGKILL
            return False

        with self.place.server.lock:  # no request is answered before the process is known
            self.place.server.faults = [Fault(Kind.RESET, when=send)]
            started.append(self.start(output, warm_process.in_one_process))
        return started[0]

    def all_but_the_end(self) -> str:
        """An output that a run has left which was killed when all shards were finished and noted."""
        output = self.new_output()
        changes = self.local_changes if isinstance(self.place, LocalPlace) else 1 + 2 * 3
        assert self.signalled(output, changes + 1, signal.SIGKILL).end().was_killed
        self.place.settle()
        assert len(finished_shards(self.place.files(output))) == 2
        return output


def small_coco(pictures: Path, folder: Path, *more: object) -> Callable[[str], list[object]]:
    document = json.loads((pictures / "instances.json").read_text())
    annotations = [row for row in document["annotations"] if row["image_id"] < 4]
    write_coco(folder, document["images"][:4], annotations, CATEGORIES)
    inputs = ["--images", pictures / "images", "--instances", folder / "instances.json"]
    return lambda output: ["convert", *inputs, "--output", output, "--num-shards", 2, *more]


class Shard:
    """A bundle's work: one shard of 20 images, which is written image by image."""

    KEY = ShardKey("train", 0, 1)
    CONTEXT = LabelMap((Category(1, "cat"),)), DETECTION.with_parts(())

    def __init__(self, place: Place, folder: Path):
        self.output = f"{place.root}/out"
        self._place = place
        self.tasks = []
        for number in range(20):
            path = folder / "images" / f"{number}.jpg"
            draw_jpeg(path, colour=(number, 0, 0))
            ref = ImageFile(str(path), path.stat().st_size, str(path.stat().st_mtime_ns))
            self.tasks.append(ImageTask(number, path.name, 40, 30, ref, "train", ()))

    def recipe(self, gzip: bool, output: str = "") -> ShardRecipe:
        return ShardRecipe(
            output or self.output, "coco", "detection", gzip, 0, EncodeImages("clip", ImageRules("decode")), FORMAT
        )

    def finish(
        self, gzip: bool = False, output: str = "", key: ShardKey = KEY, within: slice = slice(None)
    ) -> WrittenShard:
        recipe = self.recipe(gzip, output)
        with ThreadPoolExecutor(2) as pool:
            return write_shard(recipe, *self.CONTEXT, key, pack_tasks(self.tasks[within]), pool, 2)

    def files(self, output: str = "") -> Files:
        return {name: data for name, data in self._place.files(output or self.output).items() if name[-1] != "/"}

    def undisturbed(self, gzip: bool = False) -> Files:
        output = f"{self._place.root}/undisturbed"
        self.finish(gzip, output)
        return self.files(output)


class SampleJob:
    """`convert` on the sample, in this process."""

    def __init__(self, place: Place, sample):
        self.place = place
        self.images = Path(sample.images)
        self._sample = sample

    def flags(self, *more: object, output: str = "out") -> list[object]:
        inputs = ["--images", self._sample.images, "--instances", self._sample.instances, "--max-rejects", 0.2]
        return ["convert", *inputs, "--output", f"{self.place.root}/{output}", "--num-shards", 4, *more]

    def files(self, output: str = "out") -> Files:
        return self.place.files(f"{self.place.root}/{output}")

    def visible(self) -> Files:
        return {name: data for name, data in self.files().items() if not name.startswith(".")}

    def undisturbed(self, recordmill) -> Files:
        assert recordmill(*self.flags(output="whole")).code == 0
        return self.files("whole")


def convert_folder_and_zip(recordmill: Callable, root: str, output: str, *more: object):
    """Run `convert` on the folder `even` and the archive `odd.zip` of a bucket."""
    images = [f"--images={root}/even", f"--images={root}/odd.zip", "--workers=8", "--num-shards=2"]
    return recordmill("convert", *images, f"--instances={root}/instances.json", f"--output={output}", *more)
