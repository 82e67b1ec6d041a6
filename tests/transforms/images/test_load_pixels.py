import keras
import numpy as np
import pytest
from PIL import Image

from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageTask
from recordmill.schemas.rejects import Reason, Rejected, UnusableError
from recordmill.transforms.images.load_images import decode_pixels, load_pixels
from recordmill.transforms.sample.draw_scene import encoded


def noise(mode: str, size: tuple[int, int] = (50, 40)) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 4), np.uint8)
    return Image.fromarray(pixels, "RGBA").convert(mode)


@pytest.mark.parametrize("resize", ["nearest", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize(
    ("mode", "format_"),
    [
        *(("RGB", "JPEG"), ("L", "JPEG"), ("CMYK", "JPEG")),
        *((mode, "PNG") for mode in ("1", "L", "LA", "P", "RGB", "RGBA")),
        *(("RGB", "WEBP"), ("P", "GIF"), ("RGB", "BMP"), ("RGB", "TIFF")),
    ],
)
def test_pixels_are_those_of_load_img(tmp_path, mode, format_, resize):
    data = encoded(noise(mode), format_)
    (tmp_path / "image").write_bytes(data)
    expected = keras.utils.load_img(tmp_path / "image", target_size=(32, 24), interpolation=resize)
    found = decode_pixels(data, (32, 24), resize)
    assert (found.dtype, found.shape) == (np.uint8, (32, 24, 3))
    np.testing.assert_array_equal(found, np.asarray(expected))


def test_of_16_bits_upper_8_are_taken():
    deep = np.random.default_rng(0).integers(0, 1 << 16, (24, 32), np.uint16)
    found = decode_pixels(encoded(Image.fromarray(deep), "PNG"), (24, 32), "nearest")
    np.testing.assert_array_equal(found, np.repeat((deep >> 8)[..., None], 3, axis=-1))


def test_image_on_its_side_stays_so_as_load_img_has_it():
    exif = Image.Exif()
    exif[0x0112] = 6
    plain, turned = encoded(noise("RGB"), "JPEG"), encoded(noise("RGB"), "JPEG", exif=exif)
    np.testing.assert_array_equal(decode_pixels(turned, (9, 9), "bilinear"), decode_pixels(plain, (9, 9), "bilinear"))


def broken(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes(8) + data[middle + 8 :]


PNG, JPEG = encoded(noise("RGB"), "PNG"), encoded(noise("RGB"), "JPEG")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (PNG[:-12], Reason.IMAGE_UNREADABLE),
        (broken(PNG), Reason.IMAGE_UNREADABLE),
        (JPEG.replace(b"\xff\xda", b"\xff\xd8", 1), Reason.IMAGE_UNREADABLE),
        (encoded(Image.new("F", (8, 8)), "TIFF"), Reason.UNSUPPORTED_FORMAT),
    ],
)
def test_incomplete_image_is_unusable(data, reason):
    with pytest.raises(UnusableError) as raised:
        decode_pixels(data, (16, 16), "bilinear")
    assert raised.value.reason is reason, raised.value


def test_file_gone_is_reject(tmp_path):
    task = ImageTask(7, "gone.png", None, None, ImageFile(str(tmp_path / "gone.png"), 3), "train", ())
    reject = load_pixels(task, (8, 8), "bilinear")
    assert isinstance(reject, Rejected)
    assert (reject.id, reject.reason) == (7, Reason.IMAGE_MISSING)
