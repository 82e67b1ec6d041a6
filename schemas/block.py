"""Block: some images and their objects as NumPy columns, the only element between the steps of a conversion."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

_TAKEN_AT_ONCE = 1 << 18
"""Values that are indexed at a time."""


class Ragged(NamedTuple):
    """Column of several values per row, as Arrow's list arrays."""

    values: np.ndarray  # of all rows, one after the other
    starts: np.ndarray  # int64 [rows + 1]; row i has values[starts[i] : starts[i + 1]]

    @property
    def lengths(self) -> np.ndarray:
        """Number of values in each row: int64 [rows]."""
        return np.diff(self.starts)

    def texts(self) -> list[str]:
        """Return the rows, decoded from UTF-8."""
        return [row.decode() for row in self.rows()]

    def rows(self) -> list[bytes]:
        """Return the rows of a column of bytes."""
        data, starts = self.values.tobytes(), self.starts.tolist()
        return [data[start:end] for start, end in itertools.pairwise(starts)]

    def take(self, rows: np.ndarray) -> "Ragged":
        """Return the rows with the given indices, in the order of `rows`: int64."""
        first, lengths = self.starts[rows], self.lengths[rows]
        starts = starts_of(lengths)
        values = np.empty(starts[-1], self.values.dtype)
        borders = [0, *np.searchsorted(starts, np.arange(_TAKEN_AT_ONCE, starts[-1], _TAKEN_AT_ONCE)), len(rows)]
        for start, end in itertools.pairwise(borders):  # an index of 8 bytes for each value
            values[starts[start] : starts[end]] = self.values[spans(first[start:end], lengths[start:end])]
        return Ragged(values, starts)

    def cut(self, start: int, end: int) -> "Ragged":
        """Return the rows from `start` up to `end`."""
        starts = self.starts[start : end + 1]
        return Ragged(self.values[starts[0] : starts[-1]], starts - starts[0])


def starts_of(lengths: np.ndarray) -> np.ndarray:
    """Return the start of each row, given the rows' lengths, and the end of the last row: int64 [rows + 1]."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def spans(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the integers of spans, one after the other: int64.

    >>> spans(np.array([7, 2]), np.array([2, 3])).tolist()
    [7, 8, 2, 3, 4]
    """
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)


def ragged_bytes(rows: Sequence[bytes]) -> Ragged:
    """Return a column of bytes: uint8 values."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return Ragged(np.frombuffer(b"".join(rows), np.uint8), starts_of(lengths))


def ragged_texts(texts: Sequence[str]) -> Ragged:
    """Return a column of strings, encoded as UTF-8."""
    data = "".join(texts)
    if data.isascii():
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        return Ragged(np.frombuffer(data.encode(), np.uint8), starts_of(lengths))
    return ragged_bytes([text.encode() for text in texts])


def ragged_numbers(rows: Sequence[Sequence[float]]) -> Ragged:
    """Return a column of lists of float64."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return Ragged(np.array([number for row in rows for number in row], np.float64), starts_of(lengths))


@dataclass(frozen=True, eq=False)
class Block:
    """Columns of N images and their M objects. A step adds or drops columns; a column that is absent is None.

    The objects of image i are the rows first_object_of_image[i] to first_object_of_image[i + 1], exclusive. A partial
    Block has rows of one part of the input, in the order of the file. Its columns `source` and `part` identify that
    part.
    """

    image_id: Any = None  # int64 [N], as in the source
    id_text: Any = None  # texts [N], the source's id if image_id is its hash; empty if the source's id is a number
    source: Any = None  # int64 [N], index of the input file among the sources of the job
    part: Any = None  # int64 [N], number of the part of that file
    file_name: Any = None  # texts [N], relative to the image folder; stored in records
    image_size_px: Any = None  # int64 [N, 2], width and height according to the source; 0, 0 if the source has none
    split: Any = None  # int64 [N], index of the split; -1 until it is known
    file_folder: Any = None  # texts [N], the folder of `file_name` if it ends with `/`; else the whole path of the file
    file_bytes: Any = None  # int64 [N], size of the image file
    file_offset: Any = None  # int64 [N], of the image in a file of several images; -1 if it is the whole file
    image_data: Any = None  # bytes [N], the encoded image; empty if the image is in a file
    file_version: Any = None  # texts [N], modification time of the file, or its generation in a bucket
    state: Any = None  # int64 [N], a `recordmill.transforms.join.match_blocks.FileState`
    is_shared: Any = None  # bool [N], True if rows of other image ids have the same file
    class_name: Any = None  # texts [N], class of the whole image
    labels: Any = None  # bytes [N], packed `ImageLabels`; empty if the image has none
    rejected: Any = None  # bytes [N], packed list of `Rejected`: unusable annotations of the image
    is_continuation: Any = None  # bool [N], True if an earlier shard has the same image with other objects
    # The Block of a shard of a table has sorted files (`file_name`) in place of images.
    rows: Any = None  # int64 [N, 4] per file: first row, number of rows, offset and size of their records in bytes
    ranks: Any = None  # int64 [N, 2], start and end of the shard among all sorted rows
    first_object_of_image: Any = None  # int64 [N + 1], ascending, from 0 to M
    object_id: Any = None  # int64 [M], as in the source
    object_id_text: Any = None  # texts [M], as id_text
    category_id: Any = None  # int64 [M], as in the source
    boxes_xywh_px: Any = None  # float64 [M, 4], left, top, width >= 0, height >= 0; a box may cross the edge
    area_px2: Any = None  # float64 [M]
    is_crowd: Any = None  # bool [M]
    segmentation: Any = None  # bytes [M], JSON text of the mask; empty if the object has none
    keypoints_xyv: Any = None  # float64 lists [M], x and y in pixels, and visibility, per keypoint
    difficult: Any = None  # bool [M], as the source says
    truncated: Any = None  # bool [M], as the source says
    view: Any = None  # texts [M], visible side of the object, in the source's words
    track_id: Any = None  # int64 [M]; -1 if the object has no track
    corners_px: Any = None  # float64 [M, 8], corners x, y of an oriented box; zeros for other boxes
    # bool [M], True until `recordmill.transforms.encoders.encode_objects.scale_to_pixels` converts the object: box,
    # corners, segmentation and keypoints are fractions of the image's width and height, and the area is one of the
    # image's area.
    in_fractions: Any = None

    def __len__(self) -> int:
        """Number of images."""
        return rows_of(next(column for _, column in self.image_columns()))

    @property
    def num_objects(self) -> int:
        return int(self.first_object_of_image[-1]) if self.first_object_of_image is not None else 0

    @property
    def objects_per_image(self) -> np.ndarray:
        """Number of objects of each image: int64 [N]."""
        if self.first_object_of_image is None:
            return np.zeros(len(self), np.int64)
        return np.diff(self.first_object_of_image)

    @property
    def image_of_object(self) -> np.ndarray:
        """Row of each object's image: int64 [M]."""
        return np.repeat(np.arange(len(self)), self.objects_per_image)

    def image_columns(self) -> Iterator[tuple[str, Any]]:
        """Yield the name and values of each column with one row per image."""
        return ((name, column) for name in IMAGE_COLUMNS if (column := getattr(self, name)) is not None)

    def object_columns(self) -> Iterator[tuple[str, Any]]:
        """Yield the name and values of each column with one row per object."""
        return ((name, column) for name in OBJECT_COLUMNS if (column := getattr(self, name)) is not None)

    def replace(self, **columns: Any) -> "Block":
        """Return a copy with replaced columns. None drops a column."""
        return replace(self, **columns)

    def take(self, images: np.ndarray) -> "Block":
        """Return some images with their objects, in the order of `images`: int64 indices, or bool [N]."""
        if images.dtype == bool:
            images = np.flatnonzero(images)
        columns = {name: taken(column, images) for name, column in self.image_columns()}
        if self.first_object_of_image is None:
            return Block(**columns)
        lengths = self.objects_per_image[images]
        objects = spans(self.first_object_of_image[images], lengths)
        columns |= {name: taken(column, objects) for name, column in self.object_columns()}
        return Block(**columns, first_object_of_image=starts_of(lengths))

    def take_objects(self, objects: np.ndarray) -> "Block":
        """Return all images with the selected objects: bool [M]."""
        numbers = np.bincount(self.image_of_object[objects], minlength=len(self))
        columns = {name: taken(column, np.flatnonzero(objects)) for name, column in self.object_columns()}
        return self.replace(**columns, first_object_of_image=starts_of(numbers))

    def cut(self, start: int, end: int) -> "Block":
        """Return the images from `start` up to `end`, as views."""
        columns = {name: cut_column(column, start, end) for name, column in self.image_columns()}
        if self.first_object_of_image is None:
            return Block(**columns)
        firsts = self.first_object_of_image[start : end + 1]
        first, last = int(firsts[0]), int(firsts[-1])
        columns |= {name: cut_column(column, first, last) for name, column in self.object_columns()}
        return Block(**columns, first_object_of_image=firsts - first)

    def check(self) -> None:
        """Check the lengths and starts of all columns.

        Raises:
            ValueError: Columns differ in length, or starts do not ascend from 0 to the number of rows.
        """
        for axis, number, columns in (
            ("images", len(self), self.image_columns()),
            ("objects", self.num_objects, self.object_columns()),
        ):
            for name, column in columns:
                if rows_of(column) != number:
                    raise ValueError(f"column {name} has {rows_of(column)} rows for {number} {axis}")
                if isinstance(column, Ragged):
                    _check_starts(name, column.starts, len(column.values))
        if self.first_object_of_image is not None:
            if len(self.first_object_of_image) != len(self) + 1:
                raise ValueError(f"first_object_of_image has {len(self.first_object_of_image)} rows")
            _check_starts("first_object_of_image", self.first_object_of_image, self.num_objects)


def _check_starts(name: str, starts: np.ndarray, values: int) -> None:
    if starts[0] != 0 or starts[-1] != values or (np.diff(starts) < 0).any():
        raise ValueError(f"starts of {name} do not ascend from 0 to {values}")


COLUMNS = tuple(field.name for field in fields(Block))
IMAGE_COLUMNS = COLUMNS[: COLUMNS.index("first_object_of_image")]
OBJECT_COLUMNS = COLUMNS[COLUMNS.index("first_object_of_image") + 1 :]
_ABSENT = {"split": -1, "track_id": -1}
"""Fill values of columns that some Blocks lack. The fill value of any other column is 0, False or empty."""


def rows_of(column: Any) -> int:
    return len(column.starts) - 1 if isinstance(column, Ragged) else len(column)


def taken(column: Any, rows: np.ndarray) -> Any:
    return column.take(rows) if isinstance(column, Ragged) else column[rows]


def cut_column(column: Any, start: int, end: int) -> Any:
    return column.cut(start, end) if isinstance(column, Ragged) else column[start:end]


def join_blocks(blocks: Sequence[Block]) -> Block:
    """Return all images of several Blocks as one Block. A column that some Blocks lack gets fill values."""
    if len(blocks) == 1:
        return blocks[0]
    images, objects = [len(block) for block in blocks], [block.num_objects for block in blocks]
    columns: dict[str, Any] = {}
    for names, numbers in ((IMAGE_COLUMNS, images), (OBJECT_COLUMNS, objects)):
        for name in names:
            parts = [getattr(block, name) for block in blocks]
            if known := [part for part in parts if part is not None]:
                columns[name] = _joined(name, parts, numbers, known[0])
    if any(block.first_object_of_image is not None for block in blocks):
        columns["first_object_of_image"] = starts_of(np.concatenate([block.objects_per_image for block in blocks]))
    return Block(**columns)


def _joined(name: str, parts: Sequence[Any], numbers: Sequence[int], like: Any) -> Any:
    if isinstance(like, Ragged):
        values = np.concatenate([like.values[:0], *(part.values for part in parts if part is not None)])
        empty = (np.zeros(number, np.int64) for number in numbers)
        lengths = [zeros if part is None else part.lengths for part, zeros in zip(parts, empty, strict=True)]
        return Ragged(values, starts_of(np.concatenate(lengths)))
    fill = _ABSENT.get(name, 0)
    filled = (
        np.full((number, *like.shape[1:]), fill, like.dtype) if part is None else part
        for part, number in zip(parts, numbers, strict=True)
    )
    return np.concatenate(list(filled))
