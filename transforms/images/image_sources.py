"""Image files of labels without records: inspected at their ends, and read again only if they cannot be linked."""

import hashlib
from enum import Enum

import msgspec

from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageRules, ImageTask, StoredImage
from recordmill.schemas.rejects import Reason, Rejected, UnusableError
from recordmill.transforms.images.check_formats import png_may_have_exif
from recordmill.transforms.images.load_images import (
    check_end,
    check_pixel_count,
    convert_decode_errors,
    is_annotated_upright,
    is_rotated,
    load_image,
    open_usable_image,
    read_or_reject,
    require_kind,
    store_image,
)
from recordmill.transforms.images.open_image import stored_size
from recordmill.transforms.storage.resolve import find_archive, storage_for

READABLE = ("bmp", "jpeg", "png", "tiff", "webp")
"""Formats that readers of label files decode."""
_END_BYTES = 1 << 16
_WHOLE_BYTES = 1 << 19
"""Size in bytes above which a file is read at both ends only."""


class Use(str, Enum):
    """How an image file is used beside labels."""

    LINK = "link"  # a link to the file
    COPY = "copy"  # a file of its bytes, which are a part of a file or were transcoded
    WITHOUT_EXIF = "without_exif"  # a copy without EXIF, which would turn the pixels but not the labels


class ImageSource(msgspec.Struct, frozen=True, array_like=True):
    """An image file, how it is used, and its format in lower case."""

    file: ImageFile
    use: Use
    format: str


_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(ImageSource)


def decode_source(value: bytes) -> ImageSource:
    """Return the ImageSource in a record's value `image.file`."""
    return _DECODER.decode(value)


def inspect_image_file(task: ImageTask, rules: ImageRules) -> StoredImage | Rejected:
    """Return the image of a task, with its ImageSource as `data`. Without `decode`, a large file is read at its ends.

    Raises:
        OSError: Storage fails. A missing or unreadable file is a Rejected.
    """
    rules = rules.of_image(task)
    if rules.check == "decode":
        decoded = load_image(task, rules)
        if isinstance(decoded, Rejected):
            return decoded
    else:
        decoded = None
        ends = _read_ends(task.ref)
        if ends:
            try:
                return _describe(task, rules, ends, task.ref.size_bytes)
            except UnusableError:
                pass  # perhaps of the bytes that were not read: read all
    described = read_or_reject(task, lambda data: _describe(task, rules, data, len(data)))
    if decoded is None or isinstance(described, Rejected):
        return described
    return msgspec.structs.replace(described, sha256=decoded.sha256, measures=decoded.measures)


def _read_ends(file: ImageFile) -> bytes:
    """Return the start and the end of a large JPEG or PNG; nothing of others."""
    if file.data or file.offset >= 0 or file.size_bytes <= _WHOLE_BYTES or find_archive(file.path):
        return b""
    storage = storage_for(file.path)
    try:
        start = storage.read_range(file.path, 0, _END_BYTES, file.version)
        kind = require_kind(start)
        if not kind:
            return b""
        end = storage.read_range(file.path, file.size_bytes - _END_BYTES, _END_BYTES, file.version)
    except (OSError, UnusableError):  # the read of the whole file reports it
        return b""
    return b"" if kind == "png" and png_may_have_exif(start) else start + end


def _describe(task: ImageTask, rules: ImageRules, data: bytes, num_bytes: int) -> StoredImage:
    """Return the image of a file.

    Args:
        data: Bytes of the image, or its ends.
        num_bytes: Size of the image in bytes.

    Raises:
        UnusableError: The image is damaged, or its size differs from that of the labels.
    """
    kind = require_kind(data)
    with open_usable_image(data, kind) as image:
        check_pixel_count(image)
        is_stated = None not in (task.width, task.height)
        with convert_decode_errors():
            may_turn = is_rotated(image, data, kind)
        turn = is_annotated_upright(image, task.width, task.height) if is_stated else rules.upright and may_turn
        size, format_ = stored_size(image), kind or str(image.format).lower()
    if kind and rules.check != "none":
        check_end(data, kind)
    transcoding = None
    if turn or format_ not in READABLE or (may_turn and not kind):
        if len(data) < num_bytes:
            raise UnusableError(Reason.IMAGE_UNREADABLE, "only its ends were read")
        stored = store_image(data, ImageRules(rules.check, upright=turn))
        data, format_, size, transcoding = stored.data, stored.format, (stored.width, stored.height), stored.transcoding
    file, use = task.ref, Use.WITHOUT_EXIF if may_turn and not transcoding else Use.LINK
    # A file of many images may be a temporary one, which the job deletes at its end: keep the bytes.
    if transcoding or file.offset >= 0:
        file = ImageFile(file.path, len(data), data=data)
    if use is Use.LINK and (file.data or num_bytes != file.size_bytes):
        use = Use.COPY
    # Of the reference, not the bytes, because nothing searches for equal images.
    digest = hashlib.sha256(msgspec.msgpack.encode(task.ref)).hexdigest()
    source = _ENCODER.encode(ImageSource(file, use, format_))
    return StoredImage(source, format_, *size, digest, transcoding=transcoding)
