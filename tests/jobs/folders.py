"""Class folders that are drawn, tables, and the files of an output."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from PIL import Image


def draw(path: Path, number: int, mode: str = "RGB") -> None:
    """An image whose size and colour are of its number, in the format that the file's ending names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = (number * 5 % 256, 90, 200, 255)[: len(mode)]
    format_ = "PNG" if path.suffix.lower() == ".png" else "JPEG"
    Image.new(mode, (20 + number, 60 - number), colour if len(mode) > 1 else colour[0]).save(path, format_)


def draw_all(folder: Path, names: Iterable[str]) -> Path:
    for number, name in enumerate(names):
        draw(folder / name, number % 50)
    return folder


def write_table(path: Path, rows: Iterable[Iterable[object]]) -> Path:
    table = io.StringIO(newline="")
    csv.writer(table).writerows(rows)
    path.write_bytes(table.getvalue().encode())
    return path


def whole_folder(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def differing_files(one: Path, other: Path) -> list[str]:
    """Names of the files that two folders do not share, with the same bytes."""
    first, second = whole_folder(one), whole_folder(other)
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
