"""Images and a COCO data set whose bytes are the same on every machine, and the hash of files."""

import base64
import gzip
import hashlib
import json
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from recordmill.transforms.records.parse_record import _example_class
from recordmill.transforms.records.tfrecord import frame
from tests.conftest import CATEGORIES, SKELETON, annotation, image_row, write_coco

GREY = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAACgAAAAeCAAAAAB7tgMBAAAAGElEQVQY02OIIhIwjCocVTiqcFThYFYIAL1JpfAl/mSxAAAAAElFTkSuQmCC"
)
"""A grey PNG of 40x30 pixels."""
_JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDACgcHiMeGSgjISMtKygwPGRBPDc3PHtYXUlkkYCZlo+AjIqgtObDoKrarYqMyP/L2u71////m8H////6"
    "/+b9//j/wAALCAAeACgBAREA/8QAFQABAQAAAAAAAAAAAAAAAAAABgX/xAAUEAEAAAAAAAAAAAAAAAAAAAAA/9oACAEBAAA/AIpQLlAuUC5QLlAu"
    "UC5QLlAuUC5Q/9k="
)


def jpeg(number: int) -> bytes:
    """Return a grey JPEG of 40x30 pixels with a comment that holds the number."""
    comment = str(number).encode()
    return _JPEG[:2] + b"\xff\xfe" + struct.pack(">H", 2 + len(comment)) + comment + _JPEG[2:]


def png(pixels: np.ndarray, palette: bytes = b"") -> bytes:
    """Encode uint8 [height, width] or [height, width, 3] as a PNG without compression: zlib's versions compress
    differently.

    Args:
        palette: Red, green and blue of each index that `pixels` has; empty if they are grey or RGB.
    """
    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    stored = b"\x78\x01\x01" + struct.pack("<HH", len(rows), 0xFFFF - len(rows)) + rows
    header = struct.pack(">IIBBBBB", width, height, 8, 3 if palette else (pixels.ndim - 2) * 2, 0, 0, 0)
    colours = [(b"PLTE", palette)] if palette else []
    data = stored + struct.pack(">I", zlib.adler32(rows))
    chunks = [(b"IHDR", header), *colours, (b"IDAT", data), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


def write_files(folder: Path, files: dict[str, bytes | str]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)


def write_coco_set(folder: Path) -> list[str]:
    """Write 12 images below images/, instances.json of 80 objects, and points.json of every fourth of them.

    Returns:
        Names of the images below images/, without their ending.
    """
    names = [f"{'cat' if number % 3 else 'dög'}/{number}" for number in range(12)]
    write_files(folder, {f"images/{name}.png": GREY for name in names})
    objects = []
    for id_ in range(80):
        x, bottom = id_ % 37, 10.5 + id_ % 7  # some boxes cross the edge
        polygons, runs = [[x, 1.5, x + 9.25, 1.5, x + 9.25, bottom, x, bottom - 1]], [id_, 30, 1170 - id_]
        mask = polygons if id_ % 9 else {"counts": runs, "size": [30, 40]}
        of_object = id_, id_ * id_ % 12, (x, 1.5, 9.25, bottom - 1.5), 1 + id_ % 2 * 2
        objects.append(annotation(*of_object, segmentation=mask, iscrowd=int(id_ % 9 == 0), area=id_ / 7))
    points = [row | {"keypoints": [3, 4.5, 2, 0, 0, 0]} for row in objects[::4]]
    images = [image_row(number, f"{name}.png") for number, name in enumerate(names)]
    write_coco(folder, images, points, [CATEGORIES[0] | SKELETON]).rename(folder / "points.json")
    write_coco(folder, images, objects, CATEGORIES)
    return names


def write_yolo_labels(folder: Path, names: Iterable[str]) -> None:
    """Write data.yaml, and a box for each of the images that `write_coco_set` wrote."""
    for number, name in enumerate(names):
        write_files(folder, {f"labels/{name}.txt": f"{number % 2} 0.5 0.5 0.{number + 1} 0.125"})
    write_files(folder, {"data.yaml": json.dumps({"train": "images", "names": ["cat", "dog"]})})


def csv_rows() -> str:
    """Return a table of 40 rows: id, part, text, class."""
    rows = (f'{number},{number / 7},"say ""{number}""",c{number % 3}\n' for number in range(40))
    return "id,part,text,class\n" + "".join(rows)


def hash_files(paths: Iterable[Path]) -> str:
    """Return 32 hexadecimal digits of the SHA-256 of the names and bytes of files, those of .gz decompressed."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        data = path.read_bytes()
        digest.update(path.name.encode() + (gzip.decompress(data) if path.suffix == ".gz" else data))
    return digest.hexdigest()[:32]


def example(**features: list | bytes) -> bytes:
    """Return a tf.train.Example. `__` in names stands for `/`; the kind of a list is that of its first value."""
    message = _example_class()()
    for name, given in features.items():
        values = [given] if isinstance(given, bytes) else given
        kind = {bytes: "bytes", float: "float", int: "int64"}[type(values[0]) if values else float]
        values_of_kind = getattr(message.features.feature[name.replace("__", "/")], kind)
        values_of_kind.SetInParent()
        values_of_kind.value.extend(values)
    return message.SerializeToString(deterministic=True)


def tfrecord(*records: bytes) -> bytes:
    """Return a TFRecord file."""
    return b"".join(part for record in records for part in (frame(record)[0], record, frame(record)[1]))


def old_record(number: int = 0, **more: list | bytes) -> bytes:
    """Return a record of the Object Detection API: an image of 40x30 pixels with a cat from (10, 6) to (20, 24).

    Args:
        number: Number of the image; its name and its bytes have it.
        more: Further features, or others in place of the usual ones; see `example`.
    """
    usual: dict[str, list | bytes] = {
        "image__encoded": jpeg(number),
        "image__filename": f"{number}.jpg".encode(),
        "image__width": [40],
        "image__height": [30],
        "image__object__bbox__xmin": [0.25],
        "image__object__bbox__xmax": [0.5],
        "image__object__bbox__ymin": [0.2],
        "image__object__bbox__ymax": [0.8],
        "image__object__class__text": b"cat",
        "image__object__class__label": [1],
    }
    return example(**usual | more)
