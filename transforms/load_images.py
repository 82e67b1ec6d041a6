"""Image files become pictures: bytes that are what they claim to be."""

import hashlib
import io
import re
import struct
import warnings
import zlib
from collections.abc import Iterator

import apache_beam as beam
from PIL import Image

from schemas.images import ImageTask, Picture
from schemas.rejects import Reason, Rejected
from transforms.outputs import REJECTED, tag_by_type
from transforms.storage import UnreadableFileError, storage_for

MAX_FILE_BYTES = 256_000_000
MAX_PIXELS = 178_000_000

# The size that a header claims is held against MAX_PIXELS before any pixel is decoded; Pillow's own guard would raise
# at half of that.
Image.MAX_IMAGE_PIXELS = None
# Pillow remarks on odd metadata; what decides here is whether the pixels decode.
warnings.filterwarnings("ignore", module="PIL")

_START = {"jpeg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n"}
_JPEG_END = b"\xff\xd9"
_SCAN = 0xDA  # the marker that begins a JPEG's compressed pixels
_PNG_END = b"IEND\xaeB`\x82"


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
    except UnreadableFileError as error:
        reason, detail = Reason.IMAGE_UNREADABLE, f"the file cannot be read ({error.strerror})"
    except _UnusableError as fault:
        reason, detail = fault.reason, fault.detail
    detail = f"{task.file_name!r}: {detail}"
    return Rejected("image", task.image_id, reason, detail, annotations=task.annotation_rows)


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
        raise _UnusableError(Reason.IMAGE_UNREADABLE, f"its header cannot be read ({brief(error)})") from error


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
    whole = _jpeg_ends(data) if format_ == "jpeg" else _PNG_END in data
    if not whole:
        raise _UnusableError(Reason.IMAGE_UNREADABLE, f"no end marker in {len(data):,} bytes; it is cut short")


def _jpeg_ends(data: bytes) -> bool:
    """Whether the scan of a JPEG ends. Cameras append what they like, even films: its end need not be the file's."""
    if data.endswith(_JPEG_END):
        return True
    # In a scan, 0xff is followed by zero or a restart number; the segments before it (a thumbnail) are passed over.
    place = 2
    while place + 4 <= len(data) and data[place] == 0xFF:
        if data[place + 1] == 0xFF:  # any number of these may come before a marker
            place += 1
            continue
        if data[place + 1] == _SCAN:
            return data.find(_JPEG_END, place) >= 0
        place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    return False


def _check_pixels(image: Image.Image, data: bytes, format_: str) -> None:
    try:
        if format_ == "png":
            check_png(data)
        else:
            # Decoding at an eighth of the size still walks the whole stream, which is what finds a fault, in 60 % of
            # the time.
            image.draft("L", (max(1, image.width // 8), max(1, image.height // 8)))
        image.load()
    except Exception as error:  # as in _opened
        raise _UnusableError(Reason.IMAGE_UNREADABLE, f"its pixels do not decode ({brief(error)})") from error


def check_png(data: bytes) -> None:
    """What TensorFlow's libpng asks for and Pillow does not: every chunk whole and with the right checksum, a palette
    where pixels refer to one, and compressed pixels for every row.

    Raises:
        ValueError, struct.error, zlib.error: what is wrong.
    """
    place = len(_START["png"])
    kinds: list[bytes] = []
    pixels = _Inflated()
    while not kinds or kinds[-1] != b"IEND":
        length, kind = struct.unpack_from(">I4s", data, place)
        body = memoryview(data)[place + 8 : place + 8 + length]
        (checksum,) = struct.unpack_from(">I", data, place + 8 + length)
        if zlib.crc32(body, zlib.crc32(kind)) != checksum:
            raise ValueError(f"chunk {kind!r} has a wrong checksum")
        if (kind == b"IHDR") != (not kinds):
            raise ValueError("its header is not the first chunk, and only that")
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", body)
        elif kind == b"PLTE" and ({b"IDAT", b"PLTE"} & set(kinds) or not 0 < length <= 768 or length % 3):
            raise ValueError(f"its palette of {length} bytes is none, or comes too late")
        elif kind == b"IDAT":
            if b"IDAT" in kinds and kinds[-1] != b"IDAT":
                raise ValueError("its compressed pixels are not in one piece")
            pixels.add(body)
        elif kind[:1].isupper() and kind not in (b"PLTE", b"IEND"):
            raise ValueError(f"chunk {kind!r} is unknown and said to be needed")
        kinds.append(kind)
        place += 12 + length
    width, height, depth, colour, compression, filter_, interlace = header
    if max(width, height) > _PNG_MAX_SIDE:
        raise ValueError(f"{width}x{height}: libpng reads sides up to {_PNG_MAX_SIDE:,}")
    if compression or filter_ or interlace > 1:
        raise ValueError(f"unknown compression {compression}, filter {filter_} or interlace {interlace}")
    if colour == _PALETTE and b"PLTE" not in kinds:
        raise ValueError("its palette is missing")
    expected = _png_bytes(width, height, depth * _CHANNELS[colour], interlace)
    if pixels.size < expected or not pixels.ended:
        raise ValueError(f"{pixels.size:,} bytes of pixels where {expected:,} and a checksum are expected")


_PNG_MAX_SIDE = 1_000_000
_PALETTE = 3
_CHANNELS = {0: 1, 2: 3, _PALETTE: 1, 4: 2, 6: 4}
# First column, first row, column step, row step of the seven passes of an interlaced PNG.
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def _png_bytes(width: int, height: int, bits: int, interlace: int) -> int:
    """How many bytes the rows of a PNG have before compression: a filter byte and the pixels of each."""
    total = 0
    for left, top, across, down in _PASSES if interlace else ((0, 0, 1, 1),):
        columns, rows = -(-(width - left) // across), -(-(height - top) // down)
        if columns > 0 and rows > 0:
            total += rows * (1 + (columns * bits + 7) // 8)
    return total


class _Inflated:
    """Counts the bytes of a zlib stream that comes in pieces, in constant memory."""

    _PIECE = 1 << 16

    def __init__(self):
        self._zlib = zlib.decompressobj()
        self.size = 0

    @property
    def ended(self) -> bool:
        """Whether the stream's end has come, with the right checksum."""
        return self._zlib.eof

    def add(self, data: memoryview) -> None:
        left: bytes | memoryview = data
        while len(left) and not self._zlib.eof:
            self.size += len(self._zlib.decompress(left, self._PIECE))
            left = self._zlib.unconsumed_tail


def brief(error: Exception) -> str:
    """What Pillow says of a broken file, for a reject's detail."""
    # Without the address of an object, so that rejects.jsonl is the same every time.
    return re.sub(r" ?<[^<>]* object at 0x[0-9a-f]+>", "", f"{type(error).__name__}: {error}")[:200]
