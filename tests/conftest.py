"""What several test files share: a drawn data set, the command in this process, and readers that are not ours."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

from launch.cli import main
from transforms.write_sample import SampleFiles, write_sample

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
"""Real data sets, where the machine has them; they are not part of the project."""


@pytest.fixture(scope="session")
def sample(tmp_path_factory) -> SampleFiles:
    """A drawn data set of 24 image rows, one without a file and one with half of one."""
    return write_sample(str(tmp_path_factory.mktemp("sample")), count=24, seed=0)


@pytest.fixture
def recordmill(capfd) -> Callable[..., "Outcome"]:
    """Runs a command in this process, quietly."""

    def run(*arguments: object) -> Outcome:
        code = main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


class Outcome:
    """Exit code and what was printed."""

    def __init__(self, code: int, out: str, err: str):
        self.code, self.out, self.err = code, out, err

    def __repr__(self) -> str:
        return f"exit code {self.code}\n{self.out}\n{self.err}"


def coco_flags(files: SampleFiles, output: Path, *more: object) -> list[str]:
    """`coco`, with all of the sample as input; its two bad images are accepted."""
    flags = ["--images", files.images, "--instances", files.instances, "--output", output, "--max-rejects", 0.2]
    return ["coco", *map(str, flags), *map(str, more)]


def shard_bytes(folder: Path) -> dict[str, bytes]:
    """The shards of a folder, by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("[!.]*.tfrecord-*"))}


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


def manifest_of(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def rejects_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "rejects.jsonl").read_text().splitlines()]


def write_coco(folder: Path, images: list[dict], annotations: list[dict], categories: list[dict]) -> Path:
    """A COCO file in `folder`."""
    path = folder / "instances.json"
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return path


def draw_jpeg(path: Path, width: int = 40, height: int = 30, colour: tuple[int, int, int] = (200, 60, 50)) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (width, height), colour).save(path, "JPEG")
