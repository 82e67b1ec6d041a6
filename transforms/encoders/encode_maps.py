"""Semantic masks and depth maps beside images: PNGs with a value per pixel, read when their image is encoded."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.inputs.annotations import MapFile
from recordmill.schemas.inputs.files import File
from recordmill.schemas.inputs.images import StoredImage
from recordmill.schemas.inputs.labels import SEMANTIC_IGNORE, LabelMap
from recordmill.schemas.inputs.maps import MAP_NAMES
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.schemas.sizes import first_texts
from recordmill.transforms.images.check_formats import PNG_START, check_png
from recordmill.transforms.images.colours import find_colours
from recordmill.transforms.images.load_images import describe_pillow_error, fetch_file
from recordmill.transforms.images.masks import grey16_png, grey_png, resize_nearest
from recordmill.transforms.images.open_image import image_kind, open_image
from recordmill.transforms.insight.count_maps import count_numbers, count_values, measure_depth
from recordmill.transforms.storage.interface import ChangedFileError, UnreadableFileError

_DEEP = ("I;16", "I;16B", "I")
_DEEPEST = 65_535
"""Value of pixels of 32 bits that do not fit 16: no class has it."""
_COLOUR_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX")
"""Modes of pixels with 8 bits. Pillow cuts off the numbers of others at 0 and 255 to make colours of them."""
_BIT_DEPTH = 24
"""Place of the bit depth in a PNG."""
_GREY_OF_BITS = {2: 85, 4: 17}
"""Pillow multiplies grey values of 2 or 4 bits by this."""
_LOSSLESS = ("PNG", "BMP", "GIF", "TIFF")
_SHOWN = 10


class ReadMap(NamedTuple):
    """Pixels of a map.

    Attributes:
        pixels: uint8 [height, width] of a mask, uint16 of a depth map.
        data: The file, if a record can store it unchanged; else empty.
    """

    pixels: np.ndarray
    data: bytes = b""


class MapEncoder:
    """Encoder of the maps of a data set's images.

    Args:
        labels: Label map; the ids of its `segments` are the values of masks.
        table: The layout, with the requested parts.
    """

    def __init__(self, labels: LabelMap, table: FeatureTable):
        self._metres_per_unit = table.depth_scale or 1.0
        is_stored = {Part.SEMANTIC: labels.has_pixel_ids, Part.DEPTH: True}
        self.parts = tuple(part for part in table.parts if is_stored.get(part))
        self._index = np.full(SEMANTIC_IGNORE + 1, -1)
        for index, category in enumerate(labels.segments if labels.has_pixel_ids else ()):
            self._index[category.id] = index

    def read(self, maps: Iterable[MapFile], width: int, height: int) -> dict[Part, ReadMap]:
        """Read the maps of an image of `width` x `height` pixels. The caller holds the image's part of the budget for
        decoded images.

        Raises:
            UnusableError: A map is missing, broken or of another kind or size, or has values without a name.
            OSError: Storage fails.
        """
        read = {}
        for file in maps:
            if file.part in self.parts:
                try:
                    read[file.part] = self._read_map(file, width, height)
                except UnusableError as fault:
                    detail = f"its {MAP_NAMES[file.part]} {file.file_name!r}: {fault.detail}"
                    raise UnusableError(fault.reason, detail) from fault
        return read

    def _read_map(self, file: MapFile, width: int, height: int) -> ReadMap:
        data = fetch_map(file.file)
        if file.part is Part.DEPTH:
            return ReadMap(read_depth(data, width, height), data)
        return ReadMap(self._check_values(read_mask(data, width, height, file.colours), file.changes))

    def _check_values(self, pixels: np.ndarray, changes: Sequence[tuple[int, int]]) -> np.ndarray:
        """Return the pixels of a mask with other values.

        Raises:
            UnusableError: A value has no name.
        """
        numbers = count_numbers(pixels, self._index.size)
        new_values = np.arange(len(numbers))
        for value, new_value in changes:
            new_values[value : value + 1] = new_value  # no-op beyond the values of the mask
        is_known = (new_values == SEMANTIC_IGNORE) | (self._index[new_values.clip(max=SEMANTIC_IGNORE)] >= 0)
        if len(unknown := np.flatnonzero((numbers > 0) & ~is_known)):
            values = first_texts(map(str, unknown.tolist()), _SHOWN)
            detail = f"{int(numbers[unknown].sum()):,} of its pixels have a value without a name: {values}"
            raise UnusableError(Reason.UNNAMED_VALUE, detail)
        return new_values.astype(np.uint8)[pixels] if changes else pixels.astype(np.uint8)

    def encode(self, maps: Mapping[Part, ReadMap], image: StoredImage, place: tuple[int, int] | None) -> dict[str, Any]:
        """Return the values of an image's maps, by source; void for a map that it does not have.

        Args:
            maps: Result of `read`, in the frame of the annotations or of the whole image.
            image: Image, or a tile of it.
            place: Left and top of a tile; None for a whole image.
        """
        values: dict[str, Any] = {}
        width, height = image.width, image.height
        for part in self.parts:
            read = maps.get(part)
            if read is None:
                void = SEMANTIC_IGNORE if part is Part.SEMANTIC else 0
                pixels, data = np.full((height, width), void, np.uint8 if void else np.uint16), b""
            elif place is not None:
                pixels, data = read.pixels[place[1] : place[1] + height, place[0] : place[0] + width], b""
            elif read.pixels.shape != (height, width):
                pixels, data = resize_nearest(read.pixels, width, height), b""
            else:
                pixels, data = read
            if part is Part.DEPTH:
                values["depth.png"] = data or grey16_png(pixels)
                values["depth.metres"] = measure_depth(pixels, self._metres_per_unit)
            else:
                values["semantic.png"] = data or grey_png(np.ascontiguousarray(pixels))
                values["semantic.pixels"] = counts = count_values(pixels)
                indices = self._index[list(counts)]
                values["segments.class_index"] = indices[indices >= 0].tolist()
        return values


def fetch_map(file: File, missing: str = "it was deleted after it was listed") -> bytes:
    """Return the bytes of a mask or depth map.

    Args:
        missing: Text of the error of a missing file.

    Raises:
        UnusableError: The file is missing, was replaced after it was listed, or cannot be read.
        OSError: Storage fails.
    """
    try:
        return fetch_file(file)
    except ChangedFileError as error:
        raise UnusableError(Reason.MASK_MISSING, "the file was replaced after it was listed") from error
    except FileNotFoundError as error:
        raise UnusableError(Reason.MASK_MISSING, missing) from error
    except UnreadableFileError as error:
        raise UnusableError(Reason.MASK_UNREADABLE, str(error.strerror)) from error


def read_mask(data: bytes, width: int, height: int, colours: bytes = b"") -> np.ndarray:
    """Return the values of the pixels of a mask: uint8 or uint16 [height, width].

    Args:
        data: Grey or palette image of a format without loss; with `colours` any image of such a format.
        colours: Red, green and blue of the values from 0 on; empty if pixels are values.

    Raises:
        UnusableError: The file is not such an image of `width` x `height` pixels, or has an unknown colour.
    """
    image = _open_map(data, width, height)
    if colours:
        if (colour_image := mask_colours(image)) is None:
            raise UnusableError(Reason.MASK_KIND, f"its pixels are not colours of 8 bits (mode {image.mode})")
        return _values_of_colours(colour_image, colours)
    pixels = mask_numbers(image, data)
    if pixels is None:
        raise UnusableError(
            Reason.MASK_KIND, f"its pixels are colours (mode {image.mode}), and no table says what the colours mean"
        )
    return pixels


def mask_numbers(image: Image.Image, data: bytes) -> np.ndarray | None:
    """Return the pixels of a grey image, or the indices of an image with a palette: uint8 or uint16 [height, width];
    None of an image whose pixels are colours.

    Args:
        data: The file.
    """
    if image.mode in _DEEP:
        pixels = np.asarray(image)
        return np.where((pixels < 0) | (pixels > _DEEPEST), _DEEPEST, pixels).astype(np.uint16)
    if image.mode not in ("1", "L", "P"):
        return None
    pixels = np.asarray(image).astype(np.uint8)
    bits = data[_BIT_DEPTH] if data.startswith(PNG_START) and image.mode == "L" else 8
    return pixels // _GREY_OF_BITS[bits] if bits in _GREY_OF_BITS else pixels


def mask_colours(image: Image.Image) -> Image.Image | None:
    """Return an image whose pixels have colours of 8 bits; None of one with other pixels."""
    if image.mode in _COLOUR_MODES:
        return image
    pixels = np.asarray(image)
    is_narrow = image.mode in _DEEP and pixels.min() >= 0 and pixels.max() <= SEMANTIC_IGNORE
    return Image.fromarray(pixels.astype(np.uint8)) if is_narrow else None


def read_depth(data: bytes, width: int, height: int) -> np.ndarray:
    """Return the pixels of a depth map: uint16 [height, width].

    Raises:
        UnusableError: The file is not a grey PNG of 16 bits, of `width` x `height` pixels.
    """
    image = _open_map(data, width, height)
    if image.mode not in _DEEP or not data.startswith(PNG_START):
        kind = f"{image.format} of mode {image.mode}"
        raise UnusableError(Reason.MASK_KIND, f"a {kind}; depth maps are grey PNGs of 16 bits")
    return np.asarray(image).astype(np.uint16)


def _open_map(data: bytes, width: int, height: int) -> Image.Image:
    """Return a decoded image without loss. Its size is compared before it is decoded."""
    if not data:
        raise UnusableError(Reason.MASK_UNREADABLE, "the file is empty")
    try:
        with open_image(data, image_kind(data)) as image:
            sizes = [image.size]
            if image.format not in _LOSSLESS:
                lossy = f"{image.format} changes values at edges. Save masks and depth maps as PNG"
                raise UnusableError(Reason.MASK_KIND, lossy)
            if image.size == (width, height):
                if image.format == "PNG":
                    check_png(data)
                image.load()
                sizes.append(image.size)  # Pillow turns a TIFF
    except UnusableError:
        raise
    except Exception as error:  # Pillow's decoders raise nearly any exception on bytes made to break them
        detail = f"it does not decode ({describe_pillow_error(error)})"
        raise UnusableError(Reason.MASK_UNREADABLE, detail) from error
    if sizes[-1] != (width, height):
        turned = ". One of the two is turned, by EXIF perhaps" if sizes[-1] == (height, width) else ""
        detail = f"it is {sizes[-1][0]}x{sizes[-1][1]}, its image is {width}x{height}{turned}"
        raise UnusableError(Reason.MASK_SIZE_MISMATCH, detail)
    return image


def _values_of_colours(image: Image.Image, colours: bytes) -> np.ndarray:
    """Return the index of each pixel's colour: uint8 [height, width].

    Raises:
        UnusableError: A colour is not in the table.
    """
    values = np.empty((image.height, image.width), np.uint8)
    unknown, number = set[int](), 0
    for rows, indices, pixels in find_colours(image, np.frombuffer(colours, np.uint8).reshape(-1, 3)):
        unknown_pixels = pixels[indices < 0]
        unknown.update(np.unique(unknown_pixels)[:_SHOWN].tolist())
        number += len(unknown_pixels)
        values[rows] = indices
    if unknown:
        shown = first_texts((f"#{colour:06x}" for colour in sorted(unknown)), _SHOWN)
        detail = f"{number:,} of its pixels have a colour that the table of colours lacks: {shown}"
        raise UnusableError(Reason.UNNAMED_VALUE, detail)
    return values
