import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recordmill.schemas.annotations import NO_LABELS, ImageLabels, TableRow
from recordmill.schemas.images import ImageRef, ImageTask, PictureRules, Transcoding
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.images.load_picture import load_picture

RAW = PictureRules("decode", raw_size=(5, 7))


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def task(data: bytes, labels: ImageLabels = NO_LABELS) -> ImageTask:
    Path("a.png").write_bytes(data)
    return ImageTask(1, "a.png", None, None, ImageRef("a.png", len(data)), "train", (), labels)


def file(format_: str, mode: str = "RGB") -> tuple[bytes, Image.Image]:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    picture, stream = Image.fromarray(pixels).convert(mode), io.BytesIO()
    picture.save(stream, format_)
    return stream.getvalue(), picture


def test_files_are_checked_and_written_as_they_are():
    data, _ = file("PNG")
    picture = load_picture(task(data), PictureRules("decode"))
    assert (picture.data, picture.format, picture.width, picture.height) == (data, "png", 30, 20)


def test_raw_pixels_are_rgb_by_rows_of_the_size_that_is_asked_for():
    for format_, mode, kind in (("PNG", "RGB", "png"), ("PNG", "L", "png"), ("BMP", "RGB", "other")):
        data, drawn = file(format_, mode)
        picture = load_picture(task(data), RAW)
        expected = np.asarray(drawn.resize((7, 5), Image.Resampling.BILINEAR).convert("RGB"))
        assert (np.frombuffer(picture.data, np.uint8).reshape(5, 7, 3) == expected).all()
        assert (picture.height, picture.width) == (5, 7)
        assert picture.transcoding == Transcoding(kind, len(data))


def test_a_broken_picture_is_a_reject_of_its_row():
    data, _ = file("PNG")
    row = TableRow(b"", 17, "t.csv row 17: column path")
    for rules in (RAW, PictureRules("decode")):
        reject = load_picture(task(data[:-30], ImageLabels(row=row)), rules)
        detail = f"t.csv row 17: column path: 'a.png': no end marker in {len(data) - 30:,} bytes; it is cut short"
        assert reject == Rejected("row", 17, Reason.IMAGE_UNREADABLE, detail)
