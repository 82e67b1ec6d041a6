"""Read a sample of the masks of a data set, whose values or colours decide what pixels mean."""

import posixpath
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.images import MAX_FILE_BYTES, MAX_PIXELS
from recordmill.transforms.encoders.encode_maps import mask_colours, mask_numbers
from recordmill.transforms.images.colours import colour_numbers
from recordmill.transforms.images.open_image import image_kind, open_image
from recordmill.transforms.storage.interface import UnreadableFileError
from recordmill.transforms.storage.resolve import storage_for

GREY = 0x010101
"""Factor of a number, and its grey as a colour."""
_SAMPLED = 16


class MaskPixels(NamedTuple):
    """Number of pixels of a mask.

    Attributes:
        numbers: By value, of grey pixels and indices of a palette; None if the pixels are RGB.
        colours: By colour, 0xRRGGBB; of a palette, its colours; of grey pixels with more than 8 bits, their value times
            GREY.
    """

    numbers: Counter[int] | None
    colours: Counter[int]


class MaskSample(NamedTuple):
    """Pixels of some masks of a data set, by path."""

    masks: Mapping[str, MaskPixels]

    @property
    def has_numbers(self) -> bool:
        """True if no mask has RGB pixels."""
        return all(mask.numbers is not None for mask in self.masks.values())

    @property
    def numbers(self) -> Counter[int]:
        return sum((mask.numbers or Counter() for mask in self.masks.values()), Counter[int]())

    @property
    def colours(self) -> Counter[int]:
        return sum((mask.colours for mask in self.masks.values()), Counter[int]())


def sample_masks(paths: Sequence[str]) -> MaskSample:
    """Return the pixels of some masks, evenly spaced among `paths`. Masks that cannot be read are skipped: they become
    rejects.

    Raises:
        ConfigError: A mask is a JPEG.
    """
    ordered = sorted(paths)
    chosen = ordered[:: max(1, len(ordered) // _SAMPLED)][:_SAMPLED]
    pixels = {path: _read_pixels(path) for path in chosen}
    return MaskSample({path: mask for path, mask in pixels.items() if mask})


def _count(pixels: np.ndarray) -> Counter[int]:
    values, counts = np.unique(pixels, return_counts=True)
    return Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def _read_pixels(path: str) -> MaskPixels | None:
    """Return the pixels of a mask; None of one that cannot be read.

    Raises:
        ConfigError: It is a JPEG.
    """
    try:
        data = storage_for(path).read(path, "", MAX_FILE_BYTES)
    except (FileNotFoundError, UnreadableFileError):
        return None
    kind = image_kind(data)
    if kind == "jpeg":
        folder = posixpath.dirname(path) or "."
        raise ConfigError(
            f"{path} is a JPEG, and its compression changes pixels, so that they are not the classes that were drawn. "
            "Get the masks as PNG. Masks of two classes, black and white, can be restored, for example by ImageMagick: "
            f"mogrify -format png -threshold 50% {shlex.quote(folder)}/*{posixpath.splitext(path)[1]}"
        )
    try:
        with open_image(data, kind) as image:
            if image.width * image.height > MAX_PIXELS:
                return None
            image.load()
            numbers, colour_image = mask_numbers(image, data), mask_colours(image)
            if colour_image is not None:
                colours = _count(colour_numbers(np.asarray(colour_image.convert("RGB"))))
    except Exception:  # Pillow's decoders raise nearly anything on damaged bytes
        return None
    values = None if numbers is None else _count(numbers)
    if colour_image is None:
        colours = Counter({value * GREY: number for value, number in (values or {}).items()})
    return MaskPixels(values, colours) if colours else None
