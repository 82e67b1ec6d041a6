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
    jpeg = _encoded(scene, "JPEG", quality=90)
    png = _encoded(scene, "PNG")
    for name, data, becomes in (
        ("progressive.jpg", _encoded(scene, "JPEG", progressive=True), PASSED),
        ("cmyk.jpg", _encoded(scene.convert("CMYK"), "JPEG"), PASSED),
        ("several.mpo", _encoded(scene, "MPO", save_all=True, append_images=[scene]), PASSED),
        ("exif-not-meant.jpg", _encoded(scene, "JPEG", exif=_exif(6)), PASSED),
        ("film-after-its-end.jpg", jpeg + b"\x00\x00\x00\x18ftypmp42", PASSED),
        ("a-png-really.jpg", png, PASSED),
        ("a-jpeg-really.png", jpeg, PASSED),
        ("palette.png", _encoded(scene.quantize(16), "PNG"), PASSED),
        ("see-through.png", _encoded(Image.fromarray(veil), "PNG"), PASSED),
        ("sixteen-bits.png", _encoded(deep, "PNG"), PASSED),
        ("one-bit.png", _encoded(scene.convert("1"), "PNG"), PASSED),
        ("moving.png", _encoded(scene, "PNG", save_all=True, append_images=[scene.rotate(9)]), PASSED),
        ("picture.webp", _encoded(scene, "WEBP", quality=95), "jpeg"),
        ("see-through.webp", _encoded(Image.fromarray(veil), "WEBP", lossless=True), "png"),
        ("moving.webp", _encoded(scene, "WEBP", save_all=True, append_images=[scene.rotate(9)]), "jpeg"),
        ("picture.gif", _encoded(scene, "GIF"), "jpeg"),
        ("moving.gif", _encoded(scene, "GIF", save_all=True, append_images=[scene.rotate(9)]), "jpeg"),
        ("picture.bmp", _encoded(scene, "BMP"), "jpeg"),
        ("one-bit.bmp", _encoded(scene.convert("1"), "BMP"), "jpeg"),
        ("picture.tif", _encoded(scene, "TIFF"), "jpeg"),
        ("cmyk.tif", _encoded(scene.convert("CMYK"), "TIFF"), "jpeg"),
        ("sixteen-bits.tif", _encoded(deep, "TIFF"), "png"),
        ("picture.ppm", _encoded(scene, "PPM"), "jpeg"),
        ("picture.jp2", _encoded(scene, "JPEG2000"), "jpeg"),
        ("floats.tif", _encoded(Image.fromarray(grey.astype(np.float32)), "TIFF"), Reason.UNSUPPORTED_FORMAT.value),
        ("icon.ico", _encoded(scene, "ICO"), Reason.UNSUPPORTED_FORMAT.value),
        ("page.jpg", b"<!doctype html><title>404</title><script>alert(1)</script>", Reason.UNSUPPORTED_FORMAT.value),
        ("nothing.jpg", b"", Reason.IMAGE_UNREADABLE.value),
        ("cut.jpg", jpeg[: len(jpeg) // 2], Reason.IMAGE_UNREADABLE.value),
        ("cut.png", png[: len(png) // 2], Reason.IMAGE_UNREADABLE.value),
        ("flipped.png", _with_flipped_bit(png), Reason.IMAGE_UNREADABLE.value),
        ("twelve-bits.jpg", _with_precision(jpeg, 12), Reason.IMAGE_UNREADABLE.value),
        ("marker-in-the-scan.jpg", _with_marker_in_scan(jpeg), Reason.IMAGE_UNREADABLE.value),
    ):
        yield OddPicture(name, data, becomes, width, height)
    # Stored lying, as cameras do; the JSON has the picture upright, as viewers show it.
    lying = scene.transpose(Image.Transpose.ROTATE_90)
    yield OddPicture("upright.jpg", _encoded(lying, "JPEG", exif=_exif(6)), "jpeg", width, height)
    yield OddPicture("smaller.jpg", jpeg, Reason.SIZE_MISMATCH.value, width // 2, height // 2)


def _encoded(image: Image.Image, format_: str, **how) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format_, **how)
    return stream.getvalue()


def _exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


def _with_flipped_bit(png: bytes) -> bytes:
    """Within the compressed pixels."""
    offset = png.index(b"IDAT") + 40
    return png[:offset] + bytes((png[offset] ^ 4,)) + png[offset + 1 :]


def _with_precision(jpeg: bytes, bits: int) -> bytes:
    offset = jpeg.index(b"\xff\xc0") + 4
    return jpeg[:offset] + bytes((bits,)) + jpeg[offset + 1 :]


def _with_marker_in_scan(jpeg: bytes) -> bytes:
    offset = jpeg.index(b"\xff\xda") + 100
    return jpeg[:offset] + b"\xff\x30" + jpeg[offset + 2 :]
