"""`recordmill show` as a person calls it."""

import json
import re

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.insight.overlay import class_colour
from tests.transforms.show.records import example, image_bytes, write


@pytest.fixture
def out(tmp_path, copy_converted):
    copy_converted(tmp_path / "out")
    return tmp_path / "out"


def test_images_are_saved(out, recordmill, tmp_path):
    assert recordmill("show", out, "--find", "category=star", "--save", tmp_path / "a.png").code == 0
    with Image.open(tmp_path / "a.png") as image:
        assert image.format == "PNG"
        drawn = {tuple(pixel) for pixel in np.asarray(image).reshape(-1, 3).tolist()}
    assert class_colour(3) in drawn
    assert recordmill("show", out, "--save", tmp_path / "a.jpg").code == 0
    assert Image.open(tmp_path / "a.jpg").format == "JPEG"
    assert recordmill("show", out, "--save", tmp_path / "new", "--count", 3).code == 0
    assert len(list((tmp_path / "new").iterdir())) == 3
    refused = recordmill("show", out, "--save", tmp_path / "a.png" / "new")
    assert (refused.code, "--save: " in refused.err) == (2, True)


def test_json_is_of_one_record(out, recordmill):
    assert len(json.loads(recordmill("show", out, "--json").out)["records"]) == 1
    assert len(json.loads(recordmill("show", out, "--json", "--count", 3).out)["records"]) == 3


def test_records_without_image_are_counted(recordmill, tmp_path):
    has_image = {"image__encoded": [image_bytes()], "image__format": [b"jpeg"]}
    records = example(**has_image), example(image__encoded=[b"?"], image__format=[b"jpeg"]), example(**has_image)
    path = write(tmp_path / "x.tfrecord", *records)
    outcome = recordmill("show", path, "--save", tmp_path / "saved")
    assert (outcome.code, len(list((tmp_path / "saved").iterdir()))) == (0, 2)
    assert "1 record without an image" in outcome.out
    path = write(tmp_path / "y.tfrecord", records[1])
    assert recordmill("show", path, "--save", tmp_path / "none").code == 2


def test_names_of_records_are_harmless(tmp_path, recordmill):
    names = ["../../x", "/etc/x", "..", ".", "\x1b]0;owned\x07\u202e", "n" * 300, "<script>alert(1)</script>", "שלום"]
    more = {"image__encoded": [image_bytes()], "image__format": [b"jpeg"]}
    records = [example(image__source_id=[name.encode()], **more) for name in names]
    for file in ("x.tfrecord", "y.tfrecord"):
        write(tmp_path / "data" / file, *records)
    path = tmp_path / "data"
    outcome = recordmill("show", path, "--save", tmp_path / "a" / "b" / "saved")
    assert outcome.code == 0
    assert all(char.isprintable() or char == "\n" for char in outcome.out)
    saved = list((tmp_path / "a" / "b" / "saved").rglob("*"))
    assert len(saved) == 2 * len(names)
    assert all(path.is_file() and re.fullmatch(r"[A-Za-z0-9_-]+\.png", path.name) for path in saved)
    assert {path.name for path in tmp_path.iterdir()} == {"data", "a"}
    outcome = recordmill("show", path, "--count", 8)
    assert outcome.code == 0
    assert all(char.isprintable() or char == "\n" for char in outcome.out)
