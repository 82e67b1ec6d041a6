import errno
import hashlib
import io
import random
import struct
import zlib
from pathlib import Path

import msgspec
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from recordmill.schemas.inputs.annotations import NO_LABELS, Annotation, ImageLabels, TableRow
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import (
    MAX_FILE_BYTES,
    MAX_PIXELS,
    ImageRules,
    ImageTask,
    StoredImage,
    Transcoding,
)
from recordmill.schemas.rejects import Reason, Rejected, UnusableError
from recordmill.transforms.images import load_images as module
from recordmill.transforms.images.load_images import encoded_size, load_image, open_record_image
from recordmill.transforms.images.measure_pixels import measure_file
from recordmill.transforms.runtime.threads import Budget
from recordmill.transforms.sample.draw_scene import encoded
from recordmill.transforms.storage.local_storage import LocalStorage
from tests.transforms.images.test_check_formats import chunk
from tests.transforms.show.records import image_bytes

CHECKS = ["none", "header", "decode"]
NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (30, 40, 3), np.uint8))
ANNOTATION = Annotation(5, 1, (0.0, 0.0, 1.0, 1.0), 1.0, False)


JPEG = encoded(NOISE, "JPEG")
PNG = encoded(NOISE, "PNG")

BOTH = [pytest.param(JPEG, id="jpeg"), pytest.param(PNG, id="png")]
KINDS = {
    "jpeg": JPEG,
    "grey jpeg": encoded(NOISE.convert("L"), "JPEG"),
    "progressive jpeg": encoded(NOISE, "JPEG", progressive=True),
    "cmyk jpeg": encoded(NOISE.convert("CMYK"), "JPEG"),
    "multi-image jpeg": encoded(NOISE, "MPO", save_all=True, append_images=[NOISE]),
    "png": PNG,
    "grey png": encoded(NOISE.convert("L"), "PNG"),
    "palette png": encoded(NOISE.quantize(8), "PNG"),
    "black and white png": encoded(NOISE.convert("1"), "PNG"),
    "transparent png": encoded(NOISE.convert("RGBA"), "PNG"),
    "16-bit png": encoded(Image.fromarray(np.arange(1200, dtype=np.uint16).reshape(30, 40)), "PNG"),
}


def png(*chunks: tuple[bytes, bytes]) -> bytes:
    return PNG[:8] + b"".join(chunk(*each) for each in chunks)


def header(width: int, height: int, colour: int = 2, compression: int = 0, interlace: int = 0) -> tuple[bytes, bytes]:
    return b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, compression, 0, interlace)


def pixels(rows: int, row_bytes: int = 120) -> tuple[bytes, bytes]:
    return b"IDAT", zlib.compress(bytes(rows * (1 + row_bytes)))


END = b"IEND", b""


def load(folder, data: bytes, width: int | None = 40, height: int | None = 30, check="decode", name="a.jpg"):
    path = folder / "image"
    path.write_bytes(data)
    ref = ImageFile(str(path), len(data))
    return load_image(ImageTask(1, name, width, height, ref, "train", (ANNOTATION, ANNOTATION)), ImageRules(check))


def assert_rejected(loaded: StoredImage | Rejected, reason: Reason, detail: str) -> None:
    assert isinstance(loaded, Rejected)
    assert (loaded.what, loaded.id, loaded.reason, loaded.annotations) == ("image", 1, reason, 2)
    assert loaded.detail.startswith("'a.jpg': ")
    assert detail in loaded.detail


@pytest.mark.parametrize("check", ["header", "decode"])
@pytest.mark.parametrize("kind", KINDS)
def test_good_files_pass_as_they_are(tmp_path, kind, check):
    data = KINDS[kind]
    format_ = "png" if "png" in kind else "jpeg"
    stored = load(tmp_path, data, check=check)
    assert isinstance(stored, StoredImage)
    assert (stored.measures is not None) == (check == "decode")
    stored = msgspec.structs.replace(stored, measures=None)
    assert stored == StoredImage(data, format_, 40, 30, hashlib.sha256(data).hexdigest())
    assert tf.io.decode_image(data, channels=3, expand_animations=False).shape == (30, 40, 3)


@pytest.mark.parametrize("format_", ["PNG", "TIFF", "PPM"])
@pytest.mark.parametrize("wanted", ["keep", "jpeg"])
@pytest.mark.parametrize(("highest", "lowest", "is_12_bit"), [(4095, 0, True), (4096, 0, False), (9, 9, False)])
def test_samples_of_12_bits_in_16(tmp_path, format_, wanted, highest, lowest, is_12_bit):
    deep = np.full((30, 40), lowest, np.uint16)
    deep[0, 0] = highest
    task = ImageTask(1, "a", 40, 30, ImageFile("a", 1, data=encoded(Image.fromarray(deep), format_)), "train", ())
    found = load_image(task, ImageRules("decode", wanted))
    assert found.measures.is_12_bit == is_12_bit


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("data", BOTH)
@pytest.mark.parametrize("size", [(None, None), (None, 30)])
def test_size_that_json_does_not_give_is_image_s(tmp_path, data, size, check):
    stored = load(tmp_path, data, *size, check=check)
    assert (stored.width, stored.height) == (40, 30)


def test_check_none_takes_json_s_word(tmp_path):
    assert load(tmp_path, JPEG[:20], 7, 9, check="none").width == 7


@pytest.mark.parametrize("data", BOTH)
@pytest.mark.parametrize("size", [(41, 30), (30, 40)])
def test_size_not_json_s_is_rejected(tmp_path, data, size):
    detail = f"its pixels are 40x30, the annotation says {size[0]}x{size[1]}"
    assert_rejected(load(tmp_path, data, *size), Reason.SIZE_MISMATCH, detail)


def test_image_of_twice_size_has_cure(tmp_path):
    detail = "its pixels are 40x30, the annotation says 20x15. If it is the same image, scale the annotations by 2"
    assert_rejected(load(tmp_path, JPEG, 20, 15), Reason.SIZE_MISMATCH, detail)


@pytest.mark.parametrize("check", ["none", "decode"])
@pytest.mark.parametrize(
    ("data", "reason", "detail"),
    [
        (b"", Reason.IMAGE_UNREADABLE, "the file is empty"),
        (b"<html>not found</html>", Reason.UNSUPPORTED_FORMAT, "a web page. The download probably failed"),
        (encoded(NOISE, "ICO"), Reason.UNSUPPORTED_FORMAT, "not an image in a known format; it starts with b'"),
        (encoded(NOISE, "EPS"), Reason.UNSUPPORTED_FORMAT, "it starts with b'%!PS-Adobe"),
        (encoded(NOISE, "WEBP")[:-9], Reason.IMAGE_UNREADABLE, "its header cannot be read"),
        (encoded(NOISE, "GIF")[:-300], Reason.IMAGE_UNREADABLE, "its pixels do not decode"),
        (b"version https://git-lfs.github.com/spec/v1\n", Reason.UNSUPPORTED_FORMAT, "a Git LFS pointer"),
        (b"\xff\xd8", Reason.UNSUPPORTED_FORMAT, "not an image in a known format"),
    ],
    ids=["empty", "html", "ico", "eps", "cut webp", "cut gif", "pointer of git lfs", "start of a jpeg"],
)
def test_not_an_image_is_rejected_by_each_check(tmp_path, data, reason, detail, check):
    assert_rejected(load(tmp_path, data, check=check), reason, detail)


@pytest.mark.parametrize("check", ["header", "decode"])
@pytest.mark.parametrize("kind", ["jpeg", "progressive jpeg", "png"])
def test_a_file_cut_short_is_rejected(tmp_path, kind, check):
    for size in range(9, len(KINDS[kind]) - 8, 50):
        assert_rejected(load(tmp_path, KINDS[kind][:size], check=check), Reason.IMAGE_UNREADABLE, "")


@pytest.mark.parametrize("check", ["header", "decode"])
@pytest.mark.parametrize("data", BOTH)
def test_bytes_after_end_are_let_pass(tmp_path, data, check):
    assert load(tmp_path, data + b"appended" * 100, check=check).data == data + b"appended" * 100


@pytest.mark.parametrize("check", ["header", "decode"])
def test_end_of_thumbnail_is_not_image_s(tmp_path, check):
    comment = b"\xff\xfe\x00\x04\xff\xd9"
    assert isinstance(load(tmp_path, JPEG[:2] + comment + JPEG[2:], check=check), StoredImage)
    assert_rejected(
        load(tmp_path, JPEG[:2] + comment + JPEG[2:-300], check=check), Reason.IMAGE_UNREADABLE, "it is truncated"
    )


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(PNG[:60] + bytes([PNG[60] ^ 1]) + PNG[61:], id="png with a flipped bit"),
        pytest.param(
            JPEG[:-60] + b"\xff\xfe" + JPEG[-58:], id="jpeg with a comment in its scan, which Pillow forgives"
        ),
    ],
)
def test_decode_finds_more_than_header(tmp_path, data):
    assert load(tmp_path, data, check="header").data == data
    assert_rejected(load(tmp_path, data), Reason.IMAGE_UNREADABLE, "its pixels do not decode")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(png(header(40, 30), pixels(29), END), id="a row is missing"),
        pytest.param(png(header(40, 30), (b"IDAT", pixels(30)[1][:-8]), END), id="pixels cut, checksum right"),
        pytest.param(png(header(40, 30), (b"IDAT", pixels(30)[1][:-4]), END), id="pixels without their checksum"),
        pytest.param(png(header(40, 30, colour=3), pixels(30, 40), END), id="no palette"),
        pytest.param(png(header(40, 30, colour=3), (b"PLTE", b""), pixels(30, 40), END), id="empty palette"),
        pytest.param(png(header(40, 30, colour=3), (b"PLTE", b"rgbr"), pixels(30, 40), END), id="palette of a third"),
        pytest.param(png(header(40, 30, colour=3), pixels(30, 40), (b"PLTE", b"rgb"), END), id="late palette"),
        pytest.param(png(header(40, 30), header(40, 30), pixels(30), END), id="two headers"),
        pytest.param(png(header(40, 30), (b"NEED", b""), pixels(30), END), id="unknown critical chunk"),
        pytest.param(png(header(40, 30, compression=1), pixels(30), END), id="unknown compression"),
        pytest.param(png(header(40, 30), END), id="no pixels"),
        pytest.param(png(header(40, 30), pixels(30)), id="no end"),
        pytest.param(png(header(40, 30), pixels(30), END)[:-1], id="end cut"),
    ],
)
def test_png_that_tensorflow_refuses_is_rejected(tmp_path, data):
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.decode_image(data, channels=3)
    assert_rejected(load(tmp_path, data), Reason.IMAGE_UNREADABLE, "")


@pytest.mark.parametrize(("width", "height"), [(40, 30), (1, 1), (3, 2), (8, 8), (5, 1)])
def test_interlaced_png_needs_all_its_passes(tmp_path, width, height):
    starts_and_steps = [
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    ]
    whole = np.zeros((height, width, 3), np.uint8)
    passes = [whole[top::down, left::across] for left, top, across, down in starts_and_steps]
    rows = b"".join(b"\0" + row.tobytes() for pixels in passes for row in pixels if row.size)
    for data, is_good in ((rows, True), (rows[:-1], False)):
        file = png(header(width, height, interlace=1), (b"IDAT", zlib.compress(data)), END)
        assert isinstance(load(tmp_path, file, width, height), StoredImage if is_good else Rejected)
        if is_good:
            assert tf.io.decode_image(file).shape == (height, width, 3)


def test_too_many_pixels_in_header(tmp_path):
    data = png(header(20_000, 10_000), END)
    for check in ("header", "decode"):
        loaded = load(tmp_path, data, None, None, check)
        assert_rejected(loaded, Reason.TOO_LARGE, "20000x10000 pixels; the limit is 178,000,000")


def test_threads_share_pixel_budget(tmp_path, monkeypatch):
    """Or as many large images as there are threads take all the memory."""
    parts: list[int] = []

    class Noted(Budget):
        def part(self, amount):
            parts.append(amount)
            return super().part(amount)

    monkeypatch.setattr(module, "DECODING", Noted(MAX_PIXELS))
    for data in (JPEG, PNG, encoded(NOISE, "GIF")):
        assert isinstance(load(tmp_path, data), StoredImage)
    assert parts == [1200] * 3


def test_too_large_file_is_rejected_unread(tmp_path):
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    ref = ImageFile(str(tmp_path / "sparse"), 5)
    loaded = load_image(ImageTask(1, "a.jpg", 40, 30, ref, "train", (ANNOTATION,) * 2), ImageRules("none"))
    assert_rejected(loaded, Reason.TOO_LARGE, "256,000,001 bytes; the limit is 256,000,000")


def test_storage_that_fails_stops_job(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(LocalStorage, "read", fail)
    with pytest.raises(OSError, match="Input/output error"):
        load_image(ImageTask(1, "a.jpg", 40, 30, ImageFile(str(tmp_path), 5), "train", ()), ImageRules("none"))


def test_one_file_that_cannot_be_read_is_reject(tmp_path):
    """The unreadable file is a folder: root, who runs tests, can read files without permission."""
    reject = load_image(ImageTask(1, "a.jpg", 40, 30, ImageFile(str(tmp_path), 5), "train", ()), ImageRules("none"))
    assert (reject.id, reject.reason) == (1, Reason.IMAGE_INACCESSIBLE)
    assert "Is a directory" in reject.detail


def test_frame_larger_than_its_gif_says_is_rejected_undecoded(tmp_path):
    data = bytearray(encoded(NOISE, "GIF"))
    descriptor = data.index(b"\x2c\0\0\0\0") + 5
    data[descriptor : descriptor + 4] = struct.pack("<HH", 20_000, 20_000)
    assert_rejected(load(tmp_path, bytes(data), None, None), Reason.TOO_LARGE, "400000000 pixels")


@pytest.mark.parametrize("check", ["header", "decode"])
@pytest.mark.parametrize("kind", ["WEBP", "JPEG"])
def test_transcoded_image_is_measured_unchanged_in_record(tmp_path, kind, check):
    colours = random.Random(1).randbytes(3 * 6 * 3)
    drawn = Image.frombytes("RGB", (6, 3), colours).resize((60, 30))
    exif = Image.Exif()
    exif[0x0112] = 6
    size = (30, 60) if kind == "JPEG" else (60, 30)  # turned upright, as the JSON has it
    stored = load(tmp_path, encoded(drawn, kind, exif=exif), *size, check=check)
    assert isinstance(stored, StoredImage)
    assert stored.transcoding
    assert stored.measures == (measure_file(stored.data, stored.format) if check == "decode" else None)


@pytest.mark.parametrize("check", ["none", "header", "decode"])
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "JPEG"])
@pytest.mark.parametrize("orientation", range(1, 10))
def test_images_without_annotations_are_turned_upright(tmp_path, orientation, kind, check):
    drawn = Image.fromarray(np.array([[0, 90], [160, 250], [40, 200]], np.uint8)).resize((20, 30), 0)
    stream, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = orientation
    drawn.save(stream, kind, exif=exif)
    (tmp_path / "a").write_bytes(data := stream.getvalue())
    of = ImageTask(1, "a", None, None, ImageFile(str(tmp_path / "a"), len(data)), "train", ())
    image = load_image(of, ImageRules(check, upright=True))
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    found = Image.open(io.BytesIO(image.data))
    assert (found.getexif().get(0x0112, 1) in (1, 9), found.size) == (True, (image.width, image.height))
    assert found.size == upright.size
    assert np.abs(np.asarray(found, np.int16) - np.asarray(upright, np.int16)).max() < 9
    assert bool(image.transcoding and image.transcoding.turned) == (2 <= orientation <= 8)
    assert (image.data == data) == (kind != "TIFF" and not 2 <= orientation <= 8)
    unturned = load_image(msgspec.structs.replace(of, ignores_exif=True), ImageRules(check, upright=True))
    assert ((unturned.width, unturned.height), unturned.data == data) == (drawn.size, kind != "TIFF")


RAW = ImageRules("decode", raw_size=(5, 7))


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def task(data: bytes, labels: ImageLabels = NO_LABELS) -> ImageTask:
    Path("a.png").write_bytes(data)
    return ImageTask(1, "a.png", None, None, ImageFile("a.png", len(data)), "train", (), labels)


def file(format_: str, mode: str = "RGB") -> tuple[bytes, Image.Image]:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    image = Image.fromarray(pixels).convert(mode)
    return encoded(image, format_), image


def test_raw_pixels_are_rgb_by_rows_of_size_asked_for():
    for format_, mode, kind in (("PNG", "RGB", "png"), ("PNG", "L", "png"), ("BMP", "RGB", "other")):
        data, drawn = file(format_, mode)
        stored = load_image(task(data), RAW)
        expected = np.asarray(drawn.resize((7, 5), Image.Resampling.BILINEAR).convert("RGB"))
        assert (np.frombuffer(stored.data, np.uint8).reshape(5, 7, 3) == expected).all()
        assert (stored.height, stored.width) == (5, 7)
        assert stored.transcoding == Transcoding(kind, len(data))


def test_broken_image_is_reject_of_its_row():
    data, _ = file("PNG")
    row = TableRow(b"", 17, "t.csv row 17: column path")
    for rules in (RAW, ImageRules("decode")):
        reject = load_image(task(data[:-30], ImageLabels(row=row)), rules)
        detail = f"t.csv row 17: column path: 'a.png': no end marker in {len(data) - 30:,} bytes; it is truncated"
        assert reject == Rejected("row", 17, Reason.IMAGE_UNREADABLE, detail, file_name="a.png")


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "GIF", "WEBP", "TIFF"])
def test_images_are_known_by_their_bytes(format_):
    assert encoded_size(image_bytes(60, 40, format_)) == (format_.lower(), 60, 40)
    assert open_record_image(image_bytes(60, 40, format_)).size == (60, 40)


@pytest.mark.parametrize("data", [b"", b"BMW", b"RIFF\x00\x00\x00\x00WAVE", b"text"])
def test_none(data):
    assert encoded_size(data) is None


def test_a_cut_image():
    with pytest.raises(UnusableError, match="do not decode"):
        open_record_image(image_bytes(600, 400)[:-200])


def test_more_pixels_than_are_decoded():
    with pytest.raises(UnusableError, match="60000x60000"):
        open_record_image(png(header(60_000, 60_000), END))
