"""Shared fixtures: a drawn data set, the command in this process, and independent readers."""

import contextlib
import gc
import io
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from PIL import Image

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ["RECORDMILL_CHECK_BLOCKS"] = "1"  # in each step, also of processes that tests start

from recordmill.launch.cli import main
from recordmill.transforms.sample.write_sample import SampleFiles, write_sample

# A shell that starts the tests in the background has them ignore SIGINT, and their child processes inherit this.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes is the machine's matter.
settings.register_profile("recordmill", deadline=None)
settings.load_profile("recordmill")

# Python's 700 new objects are a few elements of a pipeline, and looking through all there is takes a fifth of a job.
gc.set_threshold(50_000)

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
"""Real data sets, where the machine has them; they are not part of the project."""


def pytest_collection_finish() -> None:
    if "apache_beam.runners.worker" in sys.modules:
        from apache_beam.runners.worker import statecache
        from apache_beam.transforms import userstate

        # Side inputs are weighed, to keep no more than 100 MB of them: after a walk through all modules, each time.
        statecache.get_deep_size = sys.getsizeof
        # No DoFn here has state or timers. To find that out, Beam reads the signatures of all methods of a DoFn, eight
        # times in each job: a third of a small job's processor time.
        userstate.get_dofn_specs = lambda do_fn: (set(), set())
    os.fsync = lambda descriptor: None  # nothing in tests outlives the machine, so nothing waits for its disk
    gc.freeze()  # a walk through all that was imported takes half a second, each time


@pytest.fixture(scope="session")
def sample(tmp_path_factory) -> SampleFiles:
    """A drawn data set of 24 image rows, one without a file and one with half of one."""
    return write_sample(str(tmp_path_factory.mktemp("sample")), count=24, seed=0)


@pytest.fixture(scope="session")
def copy_converted(sample, tmp_path_factory) -> Callable[..., None]:
    """Fills a folder with what `convert` makes of the sample, with these flags; each such data set is made once."""
    made: dict[tuple, Path] = {}

    def copy(folder: Path, *more: object) -> None:
        if more not in made:
            made[more] = tmp_path_factory.mktemp("converted")
            with contextlib.redirect_stdout(io.StringIO()), pytest.MonkeyPatch.context() as patch:
                leave_pages_empty(patch)
                assert main(coco_flags(sample, made[more], *more, "--progress", "none")) == 0
        shutil.copytree(made[more], folder, dirs_exist_ok=True)

    return copy


def leave_pages_empty(patch: pytest.MonkeyPatch) -> None:
    """Each job of this process writes an empty report.html: to draw it takes a fifth of a small job."""
    for module in ("pipelines.convert", "pipelines.repack", "launch.verbs.convert", "launch.verbs.repack"):
        patch.setattr(f"recordmill.{module}.try_to_report", _empty_page)


def _empty_page(output: str) -> None:
    if os.path.isdir(output):
        Path(output, "report.html").touch()


@pytest.fixture
def empty_pages(monkeypatch) -> None:
    leave_pages_empty(monkeypatch)


@pytest.fixture
def recordmill(capfd, empty_pages) -> Callable[..., "Outcome"]:
    """Runs a command in this process, quietly; a job's page is empty."""

    def run(*arguments: object) -> Outcome:
        code = main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="module")
def gcs_server():
    from tests.gcs_stand_in import running

    with running() as server:
        yield server


@pytest.fixture
def gcs(gcs_server, monkeypatch):
    """A stand-in for Google Cloud Storage without objects, asked by clients without patience."""
    from recordmill.transforms.storage import gcs_client

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.url)
    monkeypatch.setattr(gcs_client, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(gcs_client, "LONGEST_WAIT_S", 0.02)
    gcs_server.reset()
    return gcs_server


class Outcome:
    """Exit code and what was printed."""

    def __init__(self, code: int, out: str, err: str):
        self.code, self.out, self.err = code, out, err

    def __repr__(self) -> str:
        return f"exit code {self.code}\n{self.out}\n{self.err}"


def coco_flags(files: SampleFiles, output: Path, *more: object) -> list[str]:
    """`convert`, with all of the sample as input; its two bad images are accepted."""
    flags = ["--images", files.images, "--instances", files.instances, "--output", output, "--max-rejects", 0.2]
    return ["convert", *map(str, flags), *map(str, more)]


def every_kind(sample) -> list[str]:
    """Flags that read all of the sample."""
    return [
        *("--images", sample.images, "--instances", sample.instances, "--keypoints", sample.keypoints),
        *("--captions", sample.captions, "--panoptic", sample.panoptic, "--panoptic-masks", sample.panoptic_masks),
        *("--max-rejects", "0.2"),
    ]


def shard_bytes(folder: Path) -> dict[str, bytes]:
    """The shards of a folder, by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("[!.]*.tfrecord-*"))}


def staged_shards(folder: Path) -> dict[str, Path]:
    """Shards that an unfinished run has finished, by name."""
    found = folder.glob(".recordmill-*/[!.]*.tfrec*")
    return {path.name: path for path in found if path.suffix not in (".json", ".idx")}


def read_examples(folder: Path, split: str = "train") -> list[dict[str, list]]:
    """Every record of a split as TensorFlow reads it, by feature name."""
    import tensorflow as tf

    examples = []
    for path in sorted(folder.glob(f"*-{split}.tfrecord-*")):
        compression = "GZIP" if path.suffix == ".gz" else ""
        for record in tf.data.TFRecordDataset(str(path), compression).as_numpy_iterator():
            features = tf.train.Example.FromString(record).features.feature
            examples.append({name: list(getattr(f, f.WhichOneof("kind")).value) for name, f in features.items()})
    return examples


def examples_by_name(folder: Path, split: str = "train") -> dict[str, dict[str, list]]:
    """Every record of a split by the name of its image."""
    return {example["image/filename"][0].decode(): example for example in read_examples(folder, split)}


def manifest_of(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def rejects_of(folder: Path) -> list[dict]:
    """Rejects of a data set, or of the run that failed to make one."""
    files = sorted(folder.glob("rejects-*.jsonl")) or sorted(folder.glob(".recordmill-*/rejects.jsonl"))
    assert files
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def write_coco(folder: Path, images: list[dict], annotations: list[dict], categories: list[dict]) -> Path:
    """A COCO file in `folder`."""
    path = folder / "instances.json"
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return path


def draw_jpeg(path: Path, width: int = 40, height: int = 30, colour: tuple[int, int, int] = (200, 60, 50)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (width, height), colour).save(path, "JPEG")


CATEGORIES = [{"id": 1, "name": "cat"}, {"id": 3, "name": "dog"}]


def annotation(id_: int, image_id: int, bbox=(5, 5, 10, 10), category_id: int = 1, **more) -> dict:
    row = {"id": id_, "image_id": image_id, "category_id": category_id, "bbox": list(bbox), "area": 90, "iscrowd": 0}
    return row | more


def image_row(id_: int, file_name: str, width: int | None = 40, height: int | None = 30) -> dict:
    return {"id": id_, "file_name": file_name, "width": width, "height": height}


def convert(recordmill, folder: Path, instances: Path, *more: object):
    """Run the job with `folder`/images as input and `folder`/out as output."""
    flags = ["--images", folder / "images", "--instances", instances, "--output", folder / "out", *more]
    return recordmill("convert", *flags)


SQUARE = [[10, 5, 20, 5, 20, 15, 10, 15]]
"""A polygon of 10x10 pixels."""
SKELETON = {"keypoints": ["nose", "tail"], "skeleton": [[1, 2]]}


def grey(png: bytes) -> np.ndarray:
    image = Image.open(io.BytesIO(png))
    assert (image.format, image.mode) == ("PNG", "L")
    return np.asarray(image)


class Inputs:
    """A folder with one JPEG of 40x30 called a.jpg, whose id is 1; and files to write beside it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.out = folder / "out"
        draw_jpeg(folder / "images" / "a.jpg")

    def file(self, name: str, annotations: list, categories=CATEGORIES, images=None) -> Path:
        images = [image_row(1, "a.jpg")] if images is None else images
        path = self.folder / name
        path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
        return path

    def flags(self, *more: object) -> list:
        return ["convert", "--images", self.folder / "images", "--output", self.out, "--max-rejects", 1, *more]


@pytest.fixture
def inputs(tmp_path) -> Inputs:
    return Inputs(tmp_path)
