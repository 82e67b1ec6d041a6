"""Load image files: check them, and return bytes that training can decode, or pixels."""

import base64
import binascii
import hashlib
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import msgspec
import numpy as np
from PIL import Image, UnidentifiedImageError

from recordmill.schemas.block import starts_of
from recordmill.schemas.inputs.file_kinds import describe_image
from recordmill.schemas.inputs.files import File, ImageFile
from recordmill.schemas.inputs.images import (
    MAX_FILE_BYTES,
    MAX_PIXELS,
    ImageRules,
    ImageTask,
    StoredImage,
    Transcoding,
)
from recordmill.schemas.rejects import Reason, Rejected, UnusableError
from recordmill.schemas.statistics import PixelMeasures
from recordmill.transforms.images import check_formats
from recordmill.transforms.images.decode_jpeg import decode_jpeg, reduction
from recordmill.transforms.images.measure_pixels import measure_file, measure_pixels
from recordmill.transforms.images.open_image import (
    LIES_ON_ITS_SIDE,
    TURNS,
    convert_for_jpeg,
    decode_image,
    encode_image,
    exif_orientation,
    image_kind,
    is_12_bit,
    load_small,
    open_image,
    shrunk_size,
    stored_size,
)
from recordmill.transforms.records.example import Buffer
from recordmill.transforms.runtime.threads import Budget
from recordmill.transforms.storage.interface import ChangedFileError, FileTooLargeError, UnreadableFileError
from recordmill.transforms.storage.resolve import storage_for

_ROUNDING = 0.1
"""Maximum difference of the factor from 1 that is taken for rounding or cropping."""

KEPT_BYTES = 16 << 20
"""Approximate size of a file from `keep_files`."""

_CHECK_STRUCTURE = {"jpeg": check_formats.check_jpeg, "png": check_formats.check_png}


def fetch_file(file: File) -> bytes:
    """Return the bytes of an image file from `data` of an ImageFile, else by one request."""
    storage, data = storage_for(file.path), b""
    if isinstance(file, ImageFile):
        if file.offset >= 0:
            return storage.read_range(file.path, file.offset, file.size_bytes)
        data = file.data
    data = data or storage.read(file.path, file.version, MAX_FILE_BYTES)
    return decode_labelme_image(data) if data.startswith(b"{") else data


def keep_files(path: str, files: Sequence[bytes]) -> np.ndarray:
    """Write image files into one file, and return their offsets in it: int64 [N]. Bytes of images are too large for
    shuffles."""
    storage_for(path).write(path, b"".join(files))
    return starts_of(np.array(list(map(len, files)), np.int64))[:-1]


class _LabelFile(msgspec.Struct):
    image: str = msgspec.field(name="imageData")


def decode_labelme_image(data: bytes) -> bytes:
    """Return the image in a JSON file of LabelMe. Bytes without an image are returned unchanged.

    >>> decode_labelme_image(b'{"imageData": "/9j/"}')
    b'\\xff\\xd8\\xff'
    """
    try:
        return base64.b64decode(msgspec.json.decode(data, type=_LabelFile).image)
    except (msgspec.DecodeError, binascii.Error, UnicodeDecodeError):
        return data


DECODING = Budget(MAX_PIXELS)

Loaded = TypeVar("Loaded")


def load_image(task: ImageTask, rules: ImageRules) -> StoredImage | Rejected:
    """Read and check the image file of a task. Transcode it if needed, or decode it to raw pixels.

    Raises:
        OSError: Storage fails. A missing or unreadable file is a Rejected.
    """
    if rules.raw_size is None:
        size = (None, None) if task.tile and task.tile.is_measured else (task.width, task.height)
        return read_or_reject(task, lambda data: _check_or_transcode(data, *size, rules.of_image(task)))
    height, width = rules.raw_size
    return read_or_reject(task, lambda data: _decode_raw(data, height, width))


def read_or_reject(task: ImageTask, read: Callable[[bytes], Loaded]) -> Loaded | Rejected:
    """Return `read` of the bytes of a task's image file. Errors of the file become a Rejected.

    Raises:
        OSError: See `load_image`.
    """
    try:
        return read(fetch_file(task.ref))
    except ChangedFileError:
        reason, detail = Reason.IMAGE_MISSING, "the file was replaced after it was listed"
    except FileNotFoundError:
        reason, detail = Reason.IMAGE_MISSING, "the file was deleted after it was listed"
    except FileTooLargeError as error:
        reason, detail = Reason.TOO_LARGE, str(error.strerror)
    except UnreadableFileError as error:
        reason, detail = Reason.IMAGE_INACCESSIBLE, f"the file cannot be read ({error.strerror})"
    except UnusableError as fault:
        reason, detail = fault.reason, fault.detail
    return task.rejected(reason, detail)


def store_image(data: bytes, rules: ImageRules) -> StoredImage:
    """Return the image that records store of a file whose labels state no size.

    Raises:
        UnusableError: The image is damaged.
    """
    return _check_or_transcode(data, None, None, rules)


def _check_or_transcode(data: bytes, width: int | None, height: int | None, rules: ImageRules) -> StoredImage:
    """Check or transcode `data`. `width` and `height` are the size in the JSON in pixels; None if unknown."""
    if width and height and not rules.max_side:
        stored = _accept_by_header(data, (width, height), rules)
        if stored:
            return stored
    with _open_in_budget(data) as (image, kind):
        return _check_or_transcode_pixels(image, data, kind, (width, height), rules)


@contextmanager
def _open_in_budget(data: bytes) -> Iterator[tuple[Image.Image, str]]:
    """Yield an opened image and its `require_kind`. The image reserves its pixels in the budget DECODING."""
    kind = require_kind(data)
    image = open_usable_image(data, kind)
    check_pixel_count(image)
    with DECODING.part(image.width * image.height), image:
        yield image, kind


def _accept_by_header(data: bytes, size: tuple[int, int], rules: ImageRules) -> StoredImage | None:
    """Return `data` unchanged if its header is enough to accept it. `size` is the size in the JSON."""
    kind = require_kind(data)
    if not kind or rules.format not in ("keep", kind):
        return None
    if rules.check == "none":
        return _store_unchanged(data, kind, size)
    if rules.check == "header" and kind == "jpeg" and _is_decodable_of_size(data, *size):
        check_end(data, kind)
        return _store_unchanged(data, kind, size)
    return None


def _check_or_transcode_pixels(
    image: Image.Image, data: bytes, kind: str, json_size: tuple[int | None, int | None], rules: ImageRules
) -> StoredImage:
    """Check an opened image, and transcode it if needed. `json_size` is its width and height in the JSON."""
    original = kind or str(image.format).lower()
    turn = (
        is_annotated_upright(image, *json_size)
        if None not in json_size
        else rules.upright and is_rotated(image, data, kind)
    )
    size = stored_size(image)
    if turn and exif_orientation(image) in LIES_ON_ITS_SIDE:
        size = size[::-1]
    if kind:
        _check_image_file(image, data, kind, rules.check)
    target = shrunk_size(*size, rules.max_side)
    if kind and rules.format in ("keep", kind) and not turn and target == size and _is_decodable(data, kind):
        return _store_unchanged(data, kind, size, measure_pixels(image, *size) if rules.check == "decode" else None)
    image.close()
    with convert_decode_errors(), open_usable_image(data, kind) as again:
        pixels = decode_image(again, turn)
    data_, format_ = encode_image(pixels, original, target, rules)
    measures = measure_file(data_, format_) if rules.check == "decode" else None
    if measures and is_12_bit(pixels):  # a JPEG has no such samples
        measures = msgspec.structs.replace(measures, is_12_bit=True)
    return StoredImage(
        data_,
        format_,
        *target,
        hashlib.sha256(data_).hexdigest(),
        size if size != target else None,
        Transcoding(original, len(data), turn, target != size),
        measures,
    )


def _store_unchanged(
    data: bytes, kind: str, size: tuple[int, int], measures: PixelMeasures | None = None
) -> StoredImage:
    return StoredImage(data, kind, *size, hashlib.sha256(data).hexdigest(), measures=measures)


def inspect_image(data: bytes, check: str) -> tuple[str, int, int]:
    """Return format, width and height of a JPEG or PNG in a record, after a check of the level `check`.

    Raises:
        UnusableError: The image is damaged, has another format, or TensorFlow does not decode it.
    """
    with _open_in_budget(data) as (image, kind):
        size = stored_size(image)
        if not kind:
            raise UnusableError(Reason.UNSUPPORTED_FORMAT, f"a {image.format} file; records must have JPEG or PNG")
        if not _is_decodable(data, kind):
            raise UnusableError(Reason.UNSUPPORTED_FORMAT, "a kind of JPEG that TensorFlow does not decode")
        _check_image_file(image, data, kind, check)
    return kind, *size


def require_kind(data: bytes) -> str:
    """Return `jpeg` or `png`, by the first bytes; "" for any other format. An empty file raises UnusableError."""
    if not data:
        raise UnusableError(Reason.IMAGE_UNREADABLE, "the file is empty")
    return image_kind(data)


def open_usable_image(data: bytes, kind: str) -> Image.Image:
    try:
        return open_image(data, kind)
    except Image.DecompressionBombError as error:  # a frame is larger than the size in the header
        raise UnusableError(Reason.TOO_LARGE, str(error)) from error
    except UnidentifiedImageError as error:
        unknown = f"not an image in a known format; it starts with {data[:12]!r}"
        raise UnusableError(Reason.UNSUPPORTED_FORMAT, describe_image(data) or unknown) from error
    except Exception as error:  # Pillow's decoders raise nearly any exception on malicious bytes
        raise UnusableError(
            Reason.IMAGE_UNREADABLE, f"its header cannot be read ({describe_pillow_error(error)})"
        ) from error


def check_pixel_count(image: Image.Image) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise UnusableError(Reason.TOO_LARGE, f"{image.width}x{image.height} pixels; the limit is {MAX_PIXELS:,}")


def is_rotated(image: Image.Image, data: bytes, kind: str) -> bool:
    """Return True if EXIF rotates or mirrors an image."""
    if kind == "png" and not check_formats.png_may_have_exif(data):
        return False  # Pillow would decode all pixels to look for a chunk after them
    return exif_orientation(image) in TURNS


def is_annotated_upright(image: Image.Image, width: int | None, height: int | None) -> bool:
    """Return True if the annotation has the size of the image after EXIF rotation, False for the size of the stored
    pixels (as in COCO). Raise UnusableError for any other size."""
    size = stored_size(image)
    if size == (width, height):
        return False
    if size == (height, width) and exif_orientation(image) in LIES_ON_ITS_SIDE:
        return True
    detail = f"its pixels are {size[0]}x{size[1]}, the annotation says {width}x{height}"
    factor = size[0] / width if width and height else 1.0
    if height and abs(factor - 1) > _ROUNDING and abs(factor * height - size[1]) <= max(1, factor):
        detail += f". If it is the same image, scale the annotations by {factor:.3g}"
    raise UnusableError(Reason.SIZE_MISMATCH, detail)


def _check_image_file(image: Image.Image, data: bytes, kind: str, check: str) -> None:
    """Raise UnusableError if a JPEG or PNG is damaged, by a check of the level `check`."""
    if check != "none":
        check_end(data, kind)
    if check == "decode":
        with convert_decode_errors():
            _CHECK_STRUCTURE[kind](data)
            load_small(image)


def check_end(data: bytes, kind: str) -> None:
    whole = check_formats.jpeg_ends(data) if kind == "jpeg" else check_formats.PNG_END in data
    if not whole:
        raise UnusableError(Reason.IMAGE_UNREADABLE, f"no end marker in {len(data):,} bytes; it is truncated")


def _is_decodable_of_size(data: bytes, width: int, height: int) -> bool:
    """Return True if TensorFlow decodes a JPEG of the expected size. Its frame header is read in a fifth of the time in
    which Pillow opens the file."""
    try:
        frame = check_formats.jpeg_frame(data)
    except check_formats.JpegError:
        return False
    return frame.is_tf_decodable and (frame.width, frame.height) == (width, height) and width * height <= MAX_PIXELS


def _is_decodable(data: bytes, kind: str) -> bool:
    """Return True if TensorFlow decodes a file of this kind when it is undamaged."""
    if kind == "png":
        return True
    with convert_decode_errors():
        return check_formats.jpeg_frame(data).is_tf_decodable


@contextmanager
def convert_decode_errors() -> Iterator[None]:
    """Convert any error in the block to UnusableError. Pillow's decoders raise nearly any exception on bad bytes."""
    try:
        yield
    except UnusableError:
        raise
    except Exception as error:
        raise UnusableError(
            Reason.IMAGE_UNREADABLE, f"its pixels do not decode ({describe_pillow_error(error)})"
        ) from error


def describe_pillow_error(error: Exception) -> str:
    """Return Pillow's message about a file, for a reject's detail."""
    if isinstance(error, struct.error):
        return "it is truncated"
    # Drop addresses of objects, so that rejects.jsonl is reproducible.
    return re.sub(r" ?<[^<>]* object at 0x[0-9a-f]+>", "", f"{type(error).__name__}: {error}")[:200]


def _decode_raw(data: bytes, height: int, width: int) -> StoredImage:
    pixels = decode_pixels(data, (height, width), "bilinear").tobytes()
    return StoredImage(pixels, "raw", width, height, "", None, Transcoding(require_kind(data) or "other", len(data)))


def load_pixels(task: ImageTask, size: tuple[int, int], resize: str) -> np.ndarray | Rejected:
    """Read, check and decode the image file of a task, and resize it to `size` (height, width).

    Returns:
        uint8 [height, width, 3], RGB; or a Rejected.

    Raises:
        OSError: See `load_image`.
    """
    return read_or_reject(task, lambda data: decode_pixels(data, size, resize))


def decode_pixels(data: bytes, size: tuple[int, int], resize: str) -> np.ndarray:
    """Return the pixels of an image file: uint8 [height, width, 3], first frame, stored orientation, no transparency.

    Args:
        size: Height and width of the result.
        resize: Name of a filter of Pillow, such as `bilinear`.

    Raises:
        UnusableError: The file is not an image, or is damaged.
    """
    with _open_in_budget(data) as (image, kind):
        if kind:
            check_end(data, kind)
        with convert_decode_errors():
            if kind:
                _CHECK_STRUCTURE[kind](data)
            array = decode_jpeg(data)
            pixels = _rgb_image(image) if array is None else Image.fromarray(array)
        height, width = size
        return np.asarray(pixels.resize((width, height), Image.Resampling[resize.upper()]))


def _rgb_image(image: Image.Image) -> Image.Image:
    """Return the pixels of an opened image as RGB."""
    pixels = decode_image(image, turn=False)
    # A conversion to the same mode would copy the image.
    return pixels if pixels.mode == "RGB" else convert_for_jpeg(pixels).convert("RGB")


def decode_rgb(data: Buffer, min_size: tuple[int, int] = (0, 0)) -> np.ndarray:
    """Return the pixels of an encoded image: uint8 [height, width, 3], first frame, stored orientation.

    Args:
        min_size: See `decode_jpeg`. Images of other formats have their full size.

    Raises:
        UnusableError: See `open_record_image`.
    """
    array = decode_jpeg(data, min_size)
    if array is not None:
        return array
    image = _open_record_image(bytes(data))
    with convert_decode_errors(), image:
        if (factor := reduction((image.height, image.width), min_size)) > 1:
            image.draft(None, (max(1, image.width // factor), max(1, image.height // factor)))  # of JPEGs only
        return np.array(_rgb_image(image))


_OTHERS = (b"GIF8", b"II*\0", b"MM\0*")
"""First bytes of GIF and TIFF, which records of other tools contain. BMP's `BM` is omitted, because texts start so."""


def open_record_image(data: bytes) -> Image.Image:
    """Return an image's pixels: first frame, stored orientation.

    Raises:
        UnusableError: The bytes are not an image, do not decode, or have too many pixels.
    """
    image = _open_record_image(data)
    with convert_decode_errors(), image:
        return decode_image(image, turn=False)


def _open_record_image(data: bytes) -> Image.Image:
    image = open_usable_image(data, require_kind(data))
    check_pixel_count(image)
    return image


def encoded_size(data: bytes) -> tuple[str, int, int] | None:
    """Return format, width and height of an encoded image; None if the first bytes are not those of an image.

    Raises:
        UnusableError: The first bytes are those of an image, but it cannot be opened.
    """
    kind = image_kind(data)
    is_webp = data.startswith(b"RIFF") and data[8:12] == b"WEBP"
    if not kind and not is_webp and not data.startswith(_OTHERS):
        return None
    with open_usable_image(data, kind) as image:
        return str(image.format).lower(), *image.size
