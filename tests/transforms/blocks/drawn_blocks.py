"""Blocks that tests draw."""

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from recordmill.schemas.block import Block, Ragged, ragged_bytes, ragged_numbers, ragged_texts, starts_of
from recordmill.schemas.inputs.annotations import (
    NO_LABELS,
    Annotation,
    Caption,
    ImageLabels,
    PanopticAnnotation,
    Segment,
    StuffAnnotation,
    TableRow,
)
from recordmill.schemas.inputs.files import File, ImageFile
from recordmill.schemas.inputs.images import ImageTask

IDS = (
    st.integers(-5, 300) | st.integers(-(1 << 62), 1 << 62) | st.sampled_from([1 << 31, (1 << 32) - 1, -(1 << 31) - 1])
)
NUMBERS = (
    st.integers(-(10**6), 10**6).map(lambda number: number / 100)
    | st.floats(-1e18, 1e18)
    | st.sampled_from([-0.0, math.nan, math.inf, 2.0**31, 2147483647.5, 2147483648 / 100, 0.005, 1e18])
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
SPLITS = ("train", "val", "test")


@st.composite
def blocks(draw: st.DrawFn, max_images: int = 6, least_columns: int = 0) -> Block:
    """A partial Block with any numbers in some of the columns. All columns of a Block are like those of any other."""
    images = draw(st.integers(0, max_images))
    number = [draw(st.integers(0, 3)) for _ in range(images)]
    objects = sum(number)
    plain: dict[str, Any] = {
        "image_id": (images, IDS, np.int64),
        "source": (images, st.integers(0, 2), np.int64),
        "part": (images, IDS.map(abs), np.int64),
        "image_size_px": (2 * images, IDS.map(abs), np.int64),
        "split": (images, st.integers(-1, 2), np.int64),
        "is_shared": (images, st.booleans(), bool),
        "object_id": (objects, IDS, np.int64),
        "boxes_xywh_px": (4 * objects, NUMBERS, np.float64),
        "area_px2": (objects, NUMBERS, np.float64),
        "is_crowd": (objects, st.booleans(), bool),
    }
    ragged: dict[str, Any] = {
        "file_name": (images, NAMES, ragged_texts),
        "labels": (images, st.binary(max_size=5), ragged_bytes),
        "segmentation": (objects, st.binary(max_size=5), ragged_bytes),
        "keypoints_xyv": (objects, st.lists(NUMBERS, max_size=4), ragged_numbers),
    }
    has_objects = draw(st.booleans())
    optional = st.sets(st.sampled_from(sorted([*plain, *ragged])), min_size=least_columns)
    wanted = draw(optional) | {"image_id", "part"}
    columns: dict[str, Any] = {"first_object_of_image": starts_of(np.array(number, np.int64))} if has_objects else {}
    for name in sorted(wanted):
        size, values, make = (plain | ragged)[name]
        if name in _OF_OBJECTS and not has_objects:
            continue
        drawn = draw(st.lists(values, min_size=size, max_size=size))
        columns[name] = np.array(drawn, make) if name in plain else make(drawn)
        if name in _WIDTHS:
            columns[name] = columns[name].reshape(-1, _WIDTHS[name])
    return Block(**columns)


_WIDTHS = {"image_size_px": 2, "boxes_xywh_px": 4}
_OF_OBJECTS = {"object_id", "boxes_xywh_px", "area_px2", "is_crowd", "segmentation", "keypoints_xyv"}


def contents(block: Block) -> dict[str, Any]:
    """Each column with its dtype and the bytes of its values, so that -0.0 is not 0.0, and NaN is NaN."""
    block.check("test")
    columns = dict([*block.image_columns(), *block.object_columns()])
    if block.first_object_of_image is not None:
        columns["first_object_of_image"] = block.first_object_of_image
    return {
        name: (*map(_content, column),) if isinstance(column, Ragged) else _content(column)
        for name, column in columns.items()
    }


def _content(values: np.ndarray) -> tuple:
    return values.dtype.str, values.shape, values.tobytes()


# Whole Blocks

_BOXES = st.tuples(*[st.integers(0, 99).map(float)] * 4)
OBJECTS = st.builds(
    Annotation,
    IDS,
    st.sampled_from([1, 2, 3, 1 << 40]),
    _BOXES,
    st.sampled_from([-1.0, 0.0, 2.5, 1e9]),
    st.booleans(),
    st.sampled_from([b"", b"[[1, 2, 3]]"]),
    st.sampled_from([(), (1.0, 2.5, 2.0), (0.0,) * 6]),
)
_SEGMENTS = st.tuples(st.builds(Segment, st.integers(1, 9), st.sampled_from([1, 92, 93]), st.booleans()))
LABELS = st.just(NO_LABELS) | st.builds(
    ImageLabels,
    st.lists(st.builds(Caption, st.integers(0, 9), NAMES), max_size=2).map(tuple),
    st.lists(st.builds(StuffAnnotation, st.integers(0, 9), st.sampled_from([92, 93]), st.just(b"[]")), max_size=2).map(
        tuple
    ),
    st.lists(st.builds(PanopticAnnotation, st.just(File("p/1.png")), st.just("1.png"), _SEGMENTS), max_size=1).map(
        tuple
    ),
    caption_index=st.sampled_from([(), (1, 2, 3)]),
    caption_value=st.sampled_from([(), (0.5,)]),
    class_name=st.sampled_from([None, "cat"]),
    row=st.none() | st.builds(TableRow, st.sampled_from([b"", b"a", b"ab"]), st.just(1), st.sampled_from("xy")),
)
_SIZES = st.sampled_from([(None, None), (40, 30), (30, 40), (13_000, 13_000), (1, 3)])


@st.composite
def tasks(
    draw: st.DrawFn, max_images: int = 8, splits: tuple[str, ...] = SPLITS, unique: bool = True
) -> list[ImageTask]:
    """Images of any kind, in any order."""
    ids = draw(st.lists(IDS if unique else st.integers(0, 2), max_size=max_images, unique=unique))
    return [_task(draw, id_, splits) for id_ in ids]


def _task(draw: st.DrawFn, id_: int, splits: tuple[str, ...]) -> ImageTask:
    name = draw(NAMES)
    path = draw(st.sampled_from(["gs://b/x/", "", "é/"])) + draw(st.sampled_from([name, "other.jpg"]))
    path = "other.jpg" if path.endswith("/") else path  # no file is called so
    ref = ImageFile(path, draw(st.integers(0, 10**9)), draw(st.sampled_from(["", "v1"])))
    objects = tuple(draw(st.lists(OBJECTS, max_size=4)))
    return ImageTask(id_, name, *draw(_SIZES), ref, draw(st.sampled_from(splits)), objects, draw(LABELS))
