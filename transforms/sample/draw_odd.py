"""Odd pictures, as data sets have them, each with what becomes of it: for `recordmill sample --odd`.

All show the same scene, so that a transcoded picture can be compared with what it should look like.
"""

import io
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from PIL import Image

from recordmill.schemas.rejects import Reason

PASSED = "as it is"


class OddPicture(NamedTuple):
    """A file and what becomes of it.

    Attributes:
        name: of the file.
        becomes: PASSED, `jpeg` or `png` where it is transcoded, or the reason for which it is rejected.
        width, height: pixels, as the JSON gives them.
    """

    name: str
    data: bytes
    becomes: str
    width: int
    height: int


def draw_odd(scene: Image.Image) -> Iterator[OddPicture]:  # long, as one table of all forms is read more easily
    """`scene` (RGB, wider than high) in every odd form."""
    width, height = scene.size
    grey = np.asarray(scene.convert("L"))
    deep = Image.fromarray(grey.astype(np.uint16) * 257)
    veil = np.dstack([np.asarray(scene), grey // 2 + 60])
    jpeg = encoded(scene, "JPEG", quality=90)
    png = encoded(scene, "PNG")
    for name, data, becomes in (
        ("progressive.jpg", encoded(scene, "JPEG", progressive=True), PASSED),
        ("cmyk.jpg", encoded(scene.convert("CMYK"), "JPEG"), PASSED),
        ("several.mpo", encoded(scene, "MPO", save_all=True, append_images=[scene]), PASSED),
        ("exif-not-meant.jpg", encoded(scene, "JPEG", exif=_exif(6)), PASSED),
        ("film-after-its-end.jpg", jpeg + b"\x00\x00\x00\x18ftypmp42", PASSED),
        ("a-png-really.jpg", png, PASSED),
        ("a-jpeg-really.png", jpeg, PASSED),
        ("palette.png", encoded(scene.quantize(16), "PNG"), PASSED),
        ("see-through.png", encoded(Image.fromarray(veil), "PNG"), PASSED),
        ("sixteen-bits.png", encoded(deep, "PNG"), PASSED),
        ("one-bit.png", encoded(scene.convert("1"), "PNG"), PASSED),
        ("moving.png", encoded(scene, "PNG", save_all=True, append_images=[scene.rotate(9)]), PASSED),
        ("picture.webp", encoded(scene, "WEBP", quality=95), "jpeg"),
        ("see-through.webp", encoded(Image.fromarray(veil), "WEBP", lossless=True), "png"),
        ("moving.webp", encoded(scene, "WEBP", save_all=True, append_images=[scene.rotate(9)]), "jpeg"),
        ("picture.gif", encoded(scene, "GIF"), "jpeg"),
        ("moving.gif", encoded(scene, "GIF", save_all=True, append_images=[scene.rotate(9)]), "jpeg"),
        ("picture.bmp", encoded(scene, "BMP"), "jpeg"),
        ("one-bit.bmp", encoded(scene.convert("1"), "BMP"), "jpeg"),
        ("picture.tif", encoded(scene, "TIFF"), "jpeg"),
        ("cmyk.tif", encoded(scene.convert("CMYK"), "TIFF"), "jpeg"),
        ("sixteen-bits.tif", encoded(deep, "TIFF"), "png"),
        ("picture.ppm", encoded(scene, "PPM"), "jpeg"),
        ("picture.jp2", encoded(scene, "JPEG2000"), "jpeg"),
        ("floats.tif", encoded(Image.fromarray(grey.astype(np.float32)), "TIFF"), Reason.UNSUPPORTED_FORMAT.value),
        ("icon.ico", encoded(scene, "ICO"), Reason.UNSUPPORTED_FORMAT.value),
        ("page.jpg", b"<!doctype html><title>404</title><script>alert(1)</script>", Reason.UNSUPPORTED_FORMAT.value),
        ("nothing.jpg", b"", Reason.IMAGE_UNREADABLE.value),
        ("cut.jpg", jpeg[: len(jpeg) // 2], Reason.IMAGE_UNREADABLE.value),
        ("cut.png", png[: len(png) // 2], Reason.IMAGE_UNREADABLE.value),
        ("flipped.png", _with_flipped_bit(png, b"IDAT", 40), Reason.IMAGE_UNREADABLE.value),
        ("twelve-bits.jpg", _with_flipped_bit(jpeg, b"\xff\xc0", 4), Reason.IMAGE_UNREADABLE.value),
        ("marker-in-the-scan.jpg", _with_marker_in_scan(jpeg), Reason.IMAGE_UNREADABLE.value),
    ):
        yield OddPicture(name, data, becomes, width, height)
    # Stored lying, as cameras do; the JSON has the picture upright, as viewers show it.
    lying = scene.transpose(Image.Transpose.ROTATE_90)
    yield OddPicture("upright.jpg", encoded(lying, "JPEG", exif=_exif(6)), "jpeg", width, height)
    yield OddPicture("smaller.jpg", jpeg, Reason.SIZE_MISMATCH.value, width // 2, height // 2)


def encoded(image: Image.Image, format_: str, **how) -> bytes:
    """The bytes of a picture in one of Pillow's formats."""
    stream = io.BytesIO()
    image.save(stream, format_, **how)
    return stream.getvalue()


def _exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


def _with_flipped_bit(data: bytes, mark: bytes, offset: int) -> bytes:
    """Within the compressed pixels of a PNG; in the precision of a JPEG it makes 12 bits of 8."""
    offset += data.index(mark)
    return data[:offset] + bytes((data[offset] ^ 4,)) + data[offset + 1 :]


def _with_marker_in_scan(jpeg: bytes) -> bytes:
    offset = jpeg.index(b"\xff\xda") + 100
    return jpeg[:offset] + b"\xff\x30" + jpeg[offset + 2 :]
