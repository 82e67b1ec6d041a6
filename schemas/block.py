"""Block: some images and their objects as NumPy columns, the only element between the steps of a conversion."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np

from recordmill.schemas.block_columns import RAGGED, BlockColumn
from recordmill.schemas.errors import StepError

_TAKEN_AT_ONCE = 1 << 18
"""Values that are indexed at a time."""


class Ragged(NamedTuple):
    """BlockColumn of several values per row, as Arrow's list arrays."""

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


def are_among(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return True for the values that are in `known`, which is ascending: bool [N].

    >>> are_among(np.array([5, 2]), np.array([1, 2])).tolist()
    [False, True]
    """
    if not len(known):
        return np.zeros(len(values), bool)
    return known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values


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


_XYWH = (-math.inf, -math.inf, 0, 0)
"""Minimum of left, top, width and height."""


@dataclass(frozen=True, eq=False)
class Block:
    """Columns of N images and their M objects. A step adds or drops columns; a column that is absent is None.

    The objects of image i are the rows first_object_of_image[i] to first_object_of_image[i + 1], exclusive. A partial
    Block has rows of one part of the input, in the order of the file. Its columns `source` and `part` identify that
    part. The Block of a shard of a table has sorted files (`file_name`) in place of images.

    The fields are the only table of columns. COLUMNS is made of them, and joins, packing, conversions, `check` and
    docs/architecture.md follow from it. Digests of shards' plans depend on the order.
    """

    image_id: Annotated[Any, BlockColumn("N", "int64", "id", "as in the source")] = None
    id_text: Annotated[
        Any,
        BlockColumn(
            "N", "text", "UTF-8", "the source's id if image_id is its hash; empty if the source's id is a number", ""
        ),
    ] = None
    source: Annotated[Any, BlockColumn("N", "int64", "index", "input file among the job's sources", minimum=0)] = None
    part: Annotated[Any, BlockColumn("N", "int64", "index", "part of that file", minimum=0)] = None
    label_file: Annotated[Any, BlockColumn("N", "text", "UTF-8", "label file of the row of a partial Block", "")] = None
    label_entry: Annotated[
        Any, BlockColumn("N", "text", "UTF-8", "entry of the label file with all objects of the image", "")
    ] = None
    image_url: Annotated[
        Any, BlockColumn("N", "text", "UTF-8", "URL of the image, for the reject of a missing file", "")
    ] = None
    file_name: Annotated[
        Any, BlockColumn("N", "text", "UTF-8", "path relative to the image folder; stored in records", "")
    ] = None
    image_size_px: Annotated[
        Any, BlockColumn("N", "int64", "px", "width and height according to the source; 0, 0 without", (0, 0), 2, 0)
    ] = None
    ignores_exif: Annotated[
        Any, BlockColumn("N", "bool", "", "EXIF does not turn the image, although it turns others of the job", False)
    ] = None
    tile_xy_px: Annotated[
        Any,
        BlockColumn(
            "N",
            "int64",
            "px",
            "left and top of a tile in its whole image; -1, -1 if the image is whole",
            (-1, -1),
            2,
            -1,
        ),
    ] = None
    whole_size_px: Annotated[
        Any,
        BlockColumn(
            "N", "int64", "px", "width and height of a tile's whole image; 0, 0 if the image is whole", (0, 0), 2, 0
        ),
    ] = None
    whole_name: Annotated[
        Any, BlockColumn("N", "text", "UTF-8", "`file_name` of a tile's whole image; empty if the image is whole", "")
    ] = None
    whole_id: Annotated[Any, BlockColumn("N", "int64", "id", "`image_id` of a tile's whole image")] = None
    whole_labels: Annotated[
        Any, BlockColumn("N", "int64", "hash", "labels of a tile's whole image, see `digest_labels`; 0 without", 0)
    ] = None
    is_first_tile: Annotated[
        Any, BlockColumn("N", "bool", "", "first tile of its image, with which the image is counted", False)
    ] = None
    is_measured: Annotated[
        Any, BlockColumn("N", "bool", "", "`whole_size_px` is of the file, because the source states none", False)
    ] = None
    split: Annotated[Any, BlockColumn("N", "int64", "index", "split; -1 until it is known", -1, minimum=-1)] = None
    file_folder: Annotated[
        Any,
        BlockColumn("N", "text", "UTF-8", "folder of `file_name` if it ends with `/`; else the path of the file", ""),
    ] = None
    file_bytes: Annotated[Any, BlockColumn("N", "int64", "bytes", "size of the image file", minimum=0)] = None
    file_offset: Annotated[
        Any,
        BlockColumn("N", "int64", "bytes", "offset in a file with many images; -1 if the file is the image", -1, 0, -1),
    ] = None
    image_data: Annotated[
        Any, BlockColumn("N", "bytes", "JPEG, PNG, …", "encoded image; empty if the image is in a file", b"")
    ] = None
    file_version: Annotated[
        Any, BlockColumn("N", "text", "UTF-8", "modification time of the file, or its generation in a bucket", "")
    ] = None
    state: Annotated[
        Any, BlockColumn("N", "int64", "enum", "a `recordmill.transforms.join.match_blocks.FileState`", minimum=0)
    ] = None
    is_shared: Annotated[Any, BlockColumn("N", "bool", "", "rows of other image ids have the same file", False)] = None
    class_name: Annotated[Any, BlockColumn("N", "text", "UTF-8", "class of the whole image", "")] = None
    labels: Annotated[Any, BlockColumn("N", "bytes", "MessagePack", "`ImageLabels`; empty without any", b"")] = None
    image_fields: Annotated[
        Any, BlockColumn("N", "bytes", "JSON", "requested open fields of the image by path; empty without any", b"")
    ] = None
    rejected: Annotated[
        Any, BlockColumn("N", "bytes", "MessagePack", "list of `Rejected`: unusable annotations of the image", b"")
    ] = None
    joined_rows: Annotated[
        Any, BlockColumn("N", "int64", "", "keypoint rows that were joined with objects of the image", minimum=0)
    ] = None
    is_continuation: Annotated[
        Any, BlockColumn("N", "bool", "", "an earlier shard has the same image with other objects", False)
    ] = None
    rows: Annotated[
        Any,
        BlockColumn(
            "N", "int64", "", "per sorted file: first row, rows, offset and bytes of their records", (0,) * 4, 4, 0
        ),
    ] = None
    ranks: Annotated[
        Any, BlockColumn("N", "int64", "index", "start and end of the shard among all sorted rows", (0, 0), 2, 0)
    ] = None
    first_object_of_image: Annotated[
        Any, BlockColumn("N + 1", "int64", "index", "first object of each image; ascending, from 0 to M")
    ] = None
    object_id: Annotated[Any, BlockColumn("M", "int64", "id", "as in the source")] = None
    object_id_text: Annotated[Any, BlockColumn("M", "text", "UTF-8", "as id_text", "")] = None
    whole_object_id: Annotated[
        Any, BlockColumn("M", "int64", "id", "`object_id` in a tile's whole image; 0 if the image is whole", 0)
    ] = None
    category_id: Annotated[Any, BlockColumn("M", "int64", "id", "as in the source")] = None
    boxes_xywh_px: Annotated[
        Any,
        BlockColumn("M", "float64", "px", "left, top, width, height; a box may cross the edge", (0.0,) * 4, 4, _XYWH),
    ] = None
    area_px2: Annotated[Any, BlockColumn("M", "float64", "px²", "as in the source, or that of the box", 0.0)] = None
    is_crowd: Annotated[Any, BlockColumn("M", "bool", "", "the object is a group", False)] = None
    segmentation: Annotated[Any, BlockColumn("M", "bytes", "JSON", "mask; empty if the object has none", b"")] = None
    keypoints_xyv: Annotated[
        Any, BlockColumn("M", "float64 list", "px", "x, y and visibility (0, 1, 2) per keypoint", (), 3)
    ] = None
    corners_px: Annotated[
        Any, BlockColumn("M", "float64", "px", "corners x, y of an oriented box; zeros for other boxes", (), 8)
    ] = None
    object_fields: Annotated[
        Any, BlockColumn("M", "bytes", "JSON", "requested open fields of the object by path; empty without any", b"")
    ] = None
    # Until `recordmill.transforms.encoders.encode_objects.scale_to_pixels`.
    in_fractions: Annotated[
        Any,
        BlockColumn(
            "M", "bool", "", "box, corners, mask, keypoints and area are fractions of the image, not pixels", False
        ),
    ] = None

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
        columns = {name: take_rows(column, images) for name, column in self.image_columns()}
        if self.first_object_of_image is None:
            return Block(**columns)
        lengths = self.objects_per_image[images]
        objects = spans(self.first_object_of_image[images], lengths)
        columns |= {name: take_rows(column, objects) for name, column in self.object_columns()}
        return Block(**columns, first_object_of_image=starts_of(lengths))

    def take_objects(self, objects: np.ndarray) -> "Block":
        """Return all images with the selected objects: bool [M]."""
        numbers = np.bincount(self.image_of_object[objects], minlength=len(self))
        columns = {name: take_rows(column, np.flatnonzero(objects)) for name, column in self.object_columns()}
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

    def list_rows(self, name: str) -> list[Any]:
        """Return a value per row of a column, see `decode_rows`; fill values if the Block lacks the column."""
        column, values = COLUMNS[name], getattr(self, name)
        if values is None:
            return [column.fill] * (self.num_objects if column.axis == "M" else len(self))
        return decode_rows(name, values)

    def check(self, step: str) -> None:
        """Check each column against its declaration. Numbers of objects in a partial Block may be any.

        Args:
            step: Name of the step that made the Block.

        Raises:
            StepError: A column is wrong. The error names the step, the column and the first image that is wrong.
        """
        starts = self.first_object_of_image
        images, objects = [rows_of(column) for _, column in self.image_columns()], []
        if starts is not None:
            images.append(len(starts) - 1)
            objects = [*starts[-1:].tolist(), *(rows_of(column) for _, column in self.object_columns())]
        # The number that most columns have, so that the error names the odd one.
        num_images, num_objects = (max(numbers, key=numbers.count, default=0) for numbers in (images, objects))
        rows = {"N": num_images, "N + 1": num_images + 1, "M": num_objects}
        for column in COLUMNS.values():
            values = getattr(self, column.name)
            if values is None:
                continue
            # Boxes in other formats, areas and keypoints of partial Blocks are converted and checked by the join.
            has_unit = column.axis != "M" or self.part is None
            if fault := column.find_fault(values, rows[column.axis], num_objects, has_unit):
                text, row = fault
                named = "; ".join((f"column {column.name} {text}", *self._name_row(column.axis, row, num_images)))
                raise StepError(
                    f"step {step!r} made a wrong Block: {named}. This is a fault of Recordmill: please report it"
                )

    def _name_row(self, axis: str, row: int, images: int) -> Iterator[str]:
        """Yield the id and the name of a row's image, and the id of its object. Rows beyond the end are of the last
        image."""
        image = row
        if axis == "M":
            starts = np.zeros(1, np.int64) if self.first_object_of_image is None else self.first_object_of_image
            image = int(np.searchsorted(starts[1:], row, side="right"))
        image = min(image, images - 1)
        if self.image_id is not None and 0 <= image < len(self.image_id):
            yield f"image {self.image_id[image]}"
        if self.file_name is not None and 0 <= image < rows_of(self.file_name):
            yield f"file name {self.file_name.cut(image, image + 1).rows()[0].decode(errors='backslashreplace')!r}"
        if axis == "M" and self.object_id is not None and row < len(self.object_id):
            yield f"annotation {self.object_id[row]}"


COLUMNS = {name: hint.__metadata__[0]._replace(name=name) for name, hint in Block.__annotations__.items()}
IMAGE_COLUMNS, OBJECT_COLUMNS = (
    tuple(name for name, column in COLUMNS.items() if column.axis == axis) for axis in ("N", "M")
)


_ENCODERS: dict[str, Callable[[Any], Ragged]] = {
    "text": ragged_texts,
    "bytes": ragged_bytes,
    "float64 list": ragged_numbers,
}


def encode_rows(name: str, rows: Sequence[Any]) -> Any:
    """Convert values, as of `decode_rows`, to the column `name`."""
    column = COLUMNS[name]
    if column.dtype in RAGGED:
        return _ENCODERS[column.dtype](rows)
    if not column.width:
        return np.array(rows, column.dtype)
    return np.array([row or (0,) * column.width for row in rows], column.dtype).reshape(-1, column.width)


def decode_rows(name: str, values: Any) -> list[Any]:
    """Return a value per row of the column `name`: a number, bool, text, bytes, or a tuple of numbers."""
    column = COLUMNS[name]
    if column.dtype == "text":
        return values.texts()
    if column.dtype == "bytes":
        return values.rows()
    if column.dtype in RAGGED:
        numbers = values.values.tolist()
        return [tuple(numbers[start:end]) for start, end in itertools.pairwise(values.starts.tolist())]
    rows = values.tolist()
    return [tuple(row) if column.fill or any(row) else () for row in rows] if column.width else rows


def empty_block(*names: str) -> Block:
    """Return a Block without images that has some columns."""
    return Block(**{name: encode_rows(name, []) for name in names})


def rows_of(column: Any) -> int:
    return len(column.starts) - 1 if isinstance(column, Ragged) else len(column)


def take_rows(column: Any, rows: np.ndarray) -> Any:
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
            if any(part is not None for part in parts):
                columns[name] = _join_parts(COLUMNS[name], parts, numbers)
    if any(block.first_object_of_image is not None for block in blocks):
        columns["first_object_of_image"] = starts_of(np.concatenate([block.objects_per_image for block in blocks]))
    return Block(**columns)


def _join_parts(column: BlockColumn, parts: Sequence[Any], numbers: Sequence[int]) -> Any:
    filled = [_fill(column, number) if part is None else part for part, number in zip(parts, numbers, strict=True)]
    if column.dtype not in RAGGED:
        return np.concatenate(filled)
    values = np.concatenate([part.values for part in filled])
    return Ragged(values, starts_of(np.concatenate([part.lengths for part in filled])))


def _fill(column: BlockColumn, number: int) -> Any:
    if column.dtype in RAGGED:
        return Ragged(np.zeros(0, RAGGED[column.dtype]), np.zeros(number + 1, np.int64))
    return np.full((number, column.width) if column.width else number, column.fill or 0, column.dtype)
