"""What tests of `recordmill folder` share: class folders that are drawn, and what came of them."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from PIL import Image

from tests.conftest import manifest_of, read_examples

SPLITS = ("train", "val", "test")
THREE = ("--split", "train=0.5,val=0.25,test=0.25")
NOT_IMAGES = (".git/1.jpg", "Cat/._1.jpg", "Cat/.DS_Store", "big dog/Thumbs.db", "notes.txt")
CLASSES = ["Cat", "big dog", "Öl"]
"""Of `pictures`, by index: upper case sorts before lower case, and both before what is not ASCII."""


def draw(path: Path, number: int, mode: str = "RGB") -> None:
    """A picture whose size and colour are of its number, in the format that the file's ending names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = (number * 5 % 256, 90, 200, 255)[: len(mode)]
    format_ = "PNG" if path.suffix.lower() == ".png" else "WEBP" if path.suffix == ".webp" else "JPEG"
    Image.new(mode, (20 + number, 60 - number), colour if len(mode) > 1 else colour[0]).save(path, format_)


def draw_all(folder: Path, names: Iterable[str]) -> Path:
    for number, name in enumerate(names):
        draw(folder / name, number % 50)
    return folder


def image_files(folder: Path) -> dict[str, Path]:
    """The images of `pictures`, or of one that is like it, by name."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path for name, path in files.items() if name not in NOT_IMAGES}


def three_splits(images: Path, out: Path) -> list[object]:
    return ["--images", images, "--output", out, *THREE, "--num-shards", 2]


def examples_of(out: Path) -> dict[str, dict[str, list]]:
    """Every record of every split by file name, and its split under `split`."""
    found = {}
    for split in manifest_of(out)["splits"]:
        for example in read_examples(out, split):
            name = example["image/filename"][0].decode()
            assert name not in found
            found[name] = example | {"split": split}
    return found


def splits_of(out: Path) -> dict[str, str]:
    return {name: example["split"] for name, example in examples_of(out).items()}


def classes_of(out: Path) -> dict[str, str]:
    return {name: example["image/class/text"][0].decode() for name, example in examples_of(out).items()}


def class_list(out: Path) -> list[str]:
    return [category["name"] for category in manifest_of(out)["categories"]]


def counts(out: Path, split: str = "train") -> dict:
    return manifest_of(out)["splits"][split]["images"]


def write_table(path: Path, rows: Iterable[Iterable[object]]) -> Path:
    table = io.StringIO(newline="")
    csv.writer(table).writerows(rows)
    path.write_bytes(table.getvalue().encode())
    return path


def divided(recordmill, images: Path, out: Path, *flags: object) -> dict[str, str]:
    assert recordmill("folder", "--images", images, "--output", out, *THREE, *flags).code == 0
    return splits_of(out)


def whole_folder(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}
