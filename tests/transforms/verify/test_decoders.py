import io

import numpy as np
import pytest
from PIL import Image

from recordmill.schemas.dataset.checks import Check
from recordmill.schemas.rejects import UnusableError
from recordmill.transforms.verify.check_records import OPENERS
from tests.transforms.images.test_check_formats import with_frame


def encoded(format_: str, mode: str = "RGB", **how) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, len(Image.new(mode, (1, 1)).getbands())), np.uint8)
    stream = io.BytesIO()
    Image.frombytes(mode, (40, 30), pixels.tobytes()).save(stream, format_, **how)
    return stream.getvalue()


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :]


@pytest.mark.parametrize("check", Check)
@pytest.mark.parametrize(
    ("data", "channels"),
    [
        (encoded("JPEG"), 3),
        (encoded("JPEG", "L"), 1),
        (encoded("JPEG", "CMYK"), 3),
        (encoded("PNG", "RGBA"), 4),
        (encoded("PNG", "LA"), 2),
    ],
)
def test_whole_images(data, channels, check):
    assert OPENERS[check](data, 0) == (40, 30, channels)
    assert OPENERS[check](data, 3) == (40, 30, 3)


@pytest.mark.parametrize(
    ("data", "finds"),
    [
        (flipped(encoded("PNG"), 600), {Check.DECODE, Check.TENSORFLOW}),
        (encoded("JPEG")[:-400], set(Check)),
        (b"", set(Check)),
        (b"no image", set(Check)),
        # Which some builds of TensorFlow decode.
        (encoded("WEBP"), {Check.HASHES, Check.DECODE}),
        (with_frame(marker=0xC9), {Check.HASHES, Check.DECODE}),
    ],
    ids=["a bit", "cut", "empty", "text", "webp", "arithmetic"],
)
def test_images_that_training_could_not_decode(data, finds):
    checks = set()
    for check, open_ in OPENERS.items():
        try:
            open_(data, 3)
        except UnusableError as error:
            checks.add(check if str(error) else None)
    assert checks == finds
