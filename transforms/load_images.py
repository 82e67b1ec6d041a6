"""Image files become pictures: bytes that are what they claim to be."""

import hashlib
import io
import struct
import warnings
import zlib
from collections.abc import Iterator

import apache_beam as beam
from PIL import Image

from schemas.images import ImageTask, Picture
from schemas.rejects import Reason, Rejected
from transforms.outputs import REJECTED, tag_by_type
from transforms.storage import storage_for

MAX_FILE_BYTES = 256_000_000
MAX_PIXELS = 178_000_000

# The size that a header claims is held against MAX_PIXELS before any pixel is decoded; Pillow's own guard would raise
# at half of that.
Image.MAX_IMAGE_PIXELS = None
# Pillow remarks on odd metadata; what decides here is whether the pixels decode.
warnings.filterwarnings("ignore", module="PIL")

_START = {"jpeg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n"}
_JPEG_END = b"\xff\xd9"
_JPEG_TRAILER_BYTES = 4096
"""Cameras and editors append bytes after the end marker; decoders ignore them."""


class _UnusableError(Exception):
    """Why a file is no picture; becomes a Rejected."""

    def __init__(self, reason: Reason, detail: str):
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class LoadImages(beam.PTransform):
    """ImageTask become (ImageTask, Picture) in the output `pictures`, and Rejected in `rejected`."""

    def __init__(self, check: str):
        super().__init__()
        self._check = check

    def expand(self, tasks):
        load = beam.FlatMap(_load, self._check).with_output_types(tuple[ImageTask, Picture])
        return tasks | "LoadImage" >> load.with_outputs(REJECTED, main="pictures")


def _load(task: ImageTask, check: str) -> Iterator[object]:
    loaded = load_image(task, check)
    return tag_by_type([loaded if isinstance(loaded, Rejected) else (task, loaded)])


def load_image(task: ImageTask, check: str) -> Picture | Rejected:
    """Read a task's image file and check it, as `check_picture` does.

    Raises:
        OSError: storage fails in another way than that the file is gone.
    """
    try:
        if task.ref.size_bytes > MAX_FILE_BYTES:
            raise _UnusableError(
                Reason.TOO_LARGE, f"{task.ref.size_bytes:,} bytes; at most {MAX_FILE_BYTES:,} are read"
            )
        data = storage_for(task.ref.path).read(task.ref.path)
        return _checked_picture(data, task.width, task.height, check)
    except FileNotFoundError:
        reason, detail = Reason.IMAGE_MISSING, "the file is gone since it was listed"
    except _UnusableError as fault:
        reason, detail = fault.reason, fault.detail
    detail = f"{task.file_name!r}: {detail}"
    return Rejected("image", task.image_id, reason, detail, annotations=len(task.annotations))


def _checked_picture(data: bytes, width: int | None, height: int | None, check: str) -> Picture:
    """`data` as a picture of the size the JSON gives, if it gives one.

    `check` is how closely it is looked at: `none` tells JPEG from PNG by the first bytes and takes the JSON's word
    for the size; `header` reads the size and asks for the end marker; `decode` also decodes every pixel.
    """
    format_ = _format(data)
    if check != "none" or width is None or height is None:
        with _opened(data, format_) as image:
            _check_size(image, width, height)
            width, height = image.size  # before _check_pixels, which may decode to a smaller one
            if check != "none":
                _check_end(data, format_)
            if check == "decode":
                _check_pixels(image, data, format_)
    return Picture(data, format_, width, height, hashlib.sha256(data).hexdigest())


def _format(data: bytes) -> str:
    for format_, start in _START.items():
        if data.startswith(start):
            return format_
    if not data:
        raise _UnusableError(Reason.IMAGE_UNREADABLE, "the file is empty")
    raise _UnusableError(Reason.UNSUPPORTED_FORMAT, f"neither JPEG nor PNG; it starts with {data[:12]!r}")


def _opened(data: bytes, format_: str) -> Image.Image:
    try:
        return Image.open(io.BytesIO(data), formats=[format_.upper()])
    except Exception as error:  # Pillow's decoders raise nearly anything on bytes made to break them
        raise _UnusableError(Reason.IMAGE_UNREADABLE, f"its header cannot be read ({_brief(error)})") from error


def _check_size(image: Image.Image, width: int | None, height: int | None) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise _UnusableError(
            Reason.TOO_LARGE, f"{image.width}x{image.height} pixels; at most {MAX_PIXELS:,} are decoded"
        )
    if width is not None and height is not None and image.size != (width, height):
        raise _UnusableError(
            Reason.SIZE_MISMATCH, f"its pixels are {image.width}x{image.height}, the JSON says {width}x{height}"
        )


def _check_end(data: bytes, format_: str) -> None:
    whole = _JPEG_END in data[-_JPEG_TRAILER_BYTES:] if format_ == "jpeg" else b"IEND" in data[-_JPEG_TRAILER_BYTES:]
    if not whole:
        raise _UnusableError(
            Reason.IMAGE_UNREADABLE, f"it has no end marker after {len(data):,} bytes; it is cut short"
        )


def _check_pixels(image: Image.Image, data: bytes, format_: str) -> None:
    try:
        if format_ == "png":
            _check_chunks(data)
        else:
            # Decoding at an eighth of the size still walks the whole stream, which is what finds a fault, in 60 % of
            # the time.
            image.draft("L", (image.width // 8, image.height // 8))
        image.load()
    except Exception as error:  # as in _opened
        raise _UnusableError(Reason.IMAGE_UNREADABLE, f"its pixels do not decode ({_brief(error)})") from error


def _check_chunks(data: bytes) -> None:
    """Every chunk of a PNG whole and with the right checksum: TensorFlow refuses files that Pillow lets pass."""
    place = len(_START["png"])
    kind = b""
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", data, place)
        body = memoryview(data)[place + 4 : place + 8 + length]
        (checksum,) = struct.unpack_from(">I", data, place + 8 + length)
        if zlib.crc32(body) != checksum:
            raise ValueError(f"chunk {kind!r} has a wrong checksum")
        place += 12 + length


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]
