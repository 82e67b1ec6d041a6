"""TFRecord files of any features."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from recordmill.schemas.features import Feature, FeatureKind, FeatureTable
from recordmill.transforms.records.example import ExampleWriter
from recordmill.transforms.records.tfrecord import frame
from recordmill.transforms.sample.draw_scene import encoded

KINDS = {bytes: FeatureKind.BYTES, float: FeatureKind.FLOAT, int: FeatureKind.INT64}


def example(**features: list[Any]) -> bytes:
    """A serialised tf.Example; `__` in a name stands for `/`."""
    values = {name.replace("__", "/"): listed for name, listed in features.items()}
    kinds = {name: KINDS[type(listed[0])] if listed else FeatureKind.INT64 for name, listed in values.items()}
    table = FeatureTable("any", tuple(Feature(name, name, kinds[name], ("N",), "", "") for name in sorted(values)))
    return ExampleWriter(table).write(values)


def framed(*records: bytes) -> bytes:
    return b"".join(piece for record in records for piece in (frame(record)[0], record, frame(record)[1]))


def write(path: Path, *records: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(framed(*records))
    return str(path)


def image_bytes(width: int = 60, height: int = 40, format_: str = "JPEG") -> bytes:
    return encoded(Image.new("RGB", (width, height), (128, 128, 128)), format_)


def label_map(pixels: Any) -> bytes:
    """A PNG of numbers."""
    return encoded(Image.fromarray(np.asarray(pixels, np.uint8)), "PNG")
