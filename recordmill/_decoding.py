"""Sizes of decoded values: resize images, masks and maps, and pad lists, so that all records have the same shapes."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Form, Reading
from recordmill.schemas.layouts import BOX_CODINGS
from recordmill.transforms.dataset.dataset_folder import read_statistics

Example = dict[str, Any]

COLOURED = {Form.IMAGE, Form.PIXELS}
IMAGE_SIZED = {*COLOURED, Form.GREY, Form.DEPTH, Form.SEGMENT_IDS, Form.PNG_MASKS, Form.RLE_MASKS}
"""Forms with the height and width of the record's image."""
_NOT_PADDED = {"height", "width", "channels", "K"}
"""Dimensions that are not lists of a record."""


class Decoding(msgspec.Struct, frozen=True):
    """Arguments of the readers that return NumPy arrays, see `recordmill._data_set.Split`."""

    threads: int = 1
    resize: tuple[int, int] | None = None
    draft: bool = False
    pad: int | None = None

    def faults(self, readings: Mapping[str, Reading]) -> Iterator[str]:
        """Yield the faults of arguments that are out of range, or contradict themselves or the values to decode."""
        if self.threads < 1:
            yield f"threads={self.threads}. Give 1 or more"
        if self.pad is not None and self.pad < 1:
            yield f"pad={self.pad}. Give 1 or more"
        if self.draft and self.resize is None:
            yield "draft=True needs resize=(height, width)"
        if self.resize is not None and min(self.resize) < 1:
            yield f"resize={self.resize}. Give (height, width), 1 or more each"
        if self.resize is not None and not any(reading.form in IMAGE_SIZED for reading in readings.values()):
            yield f"resize={self.resize}: the records, or keys, have no image, mask or map"


def check_pad(pad: int, folder: str, split: str, readings: Mapping[str, Reading]) -> None:
    """Raise ConfigError if an image of the split has more objects or captions than `pad`, by the statistics."""
    statistics = read_statistics(folder, [split])
    sizes = {reading.shape[0] for reading in readings.values() if reading.shape}
    for size, lists in (("N", "objects"), ("C", "captions")):
        numbers = statistics[split].histograms.get(f"{lists}_an_image") if statistics and size in sizes else None
        if numbers and numbers.largest > pad:
            raise ConfigError(
                f"{folder}, split {split}: pad={pad} is too small: an image has "
                f"{numbers.largest:,.0f} {lists}. Give pad={numbers.largest:.0f} or more"
            )


def resize_value(value: Any, reading: Reading, old_size: tuple[int, int], size: tuple[int, int]) -> Any:
    """Return a value for an image of another size: pixels, or a box in pixels. Other values are returned unchanged.

    Args:
        old_size: Height and width of the stored image in pixels.
        size: Height and width of the new image in pixels.
    """
    if reading.form in COLOURED:
        return _resize_bilinear(value, size)
    if reading.form in IMAGE_SIZED:
        return _resize_nearest(value, size)
    if axes := box_axes(reading):
        height, width = np.divide(size, old_size, dtype=np.float32)
        return value * np.array([width if axis == "x" else height for axis in axes], np.float32)
    return value


def box_axes(reading: Reading) -> str:
    """Return `x` or `y` for each number of a box in pixels; empty for other values."""
    return "".join(coding.axes for coding in BOX_CODINGS if coding.sources[0] == reading.source)


def _resize_bilinear(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return pixels, uint8 [height, width, 3], in another size, with antialiasing, as Pillow and torchvision do."""
    from PIL import Image

    if pixels.shape[:2] == size:
        return pixels
    return np.array(Image.fromarray(pixels).resize(size[::-1], Image.Resampling.BILINEAR))


def _resize_nearest(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return pixels, [..., height, width], in another size, equal to those of tf.image.resize with method nearest."""
    rows, columns = (
        ((np.arange(new, dtype=np.float32) + np.float32(0.5)) * (np.float32(old) / np.float32(new))).astype(np.int64)
        for old, new in zip(pixels.shape[-2:], size, strict=True)
    )
    return pixels.take(rows, -2, mode="clip").take(columns, -1, mode="clip")


def pad_value(name: str, value: Any, reading: Reading, pad: int) -> Any:
    """Return a value with its lists padded to the length `pad`.

    Raises:
        ConfigError: A list is longer.
    """
    if reading.form is Form.RAGGED:
        lists = [_pad_axes(name, items, (0,), reading, pad) for items in value]
        dtype = object if reading.dtype == "bytes" else reading.dtype
        value = np.array(lists, dtype).reshape(len(lists), pad)
    is_list = [not (size.isdecimal() or size in _NOT_PADDED) for size in reading.shape]
    return _pad_axes(name, value, tuple(np.flatnonzero(is_list).tolist()), reading, pad) if any(is_list) else value


def _pad_axes(name: str, value: np.ndarray, axes: tuple[int, ...], reading: Reading, pad: int) -> np.ndarray:
    longest = max(value.shape[axis] for axis in axes)
    if longest > pad:
        raise ConfigError(f"pad={pad} is too small: {name} has {longest} values. Give pad={longest} or more")
    shape = [pad if axis in axes else size for axis, size in enumerate(value.shape)]
    padded = np.full(shape, b"" if reading.dtype == "bytes" else reading.padding, value.dtype)
    padded[tuple(map(slice, value.shape))] = value
    return padded
