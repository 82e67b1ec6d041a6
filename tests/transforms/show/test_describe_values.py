import json

import numpy as np
import pytest

from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.encoders import TextEncoder, TextForm, TextSettings, encode_encoder
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import DETECTION, TFDS
from recordmill.transforms.images.masks import grey_png
from recordmill.transforms.records.parse_record import parse_example
from recordmill.transforms.show.choose_records import json_values
from recordmill.transforms.show.describe_values import describe_record, describe_values, list_meanings, read_terms
from recordmill.transforms.show.find_shards import recognise_features
from tests.conftest import CATEGORIES
from tests.transforms.show.records import example, image_bytes


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (image_bytes(640, 480), "JPEG 640x480, "),
        (image_bytes(7, 5, "PNG"), "PNG 7x5, "),
        (image_bytes(7, 5, "GIF"), "GIF 7x5, "),
        (image_bytes(7, 5, "WEBP"), "WEBP 7x5, "),
        (image_bytes()[:30], "30 bytes: an image that cannot be opened: "),
        (b"RIFF\x00\x00\x00\x00WAVEfmt ", "16 bytes: 52 49 46 46 00"),
        (b"caf\xc3\xa9", "café"),
        (b"", '""'),
        (b"a\tb", "a\tb"),
        (b"a\x00b", "3 bytes: 61 00 62"),
        (bytes(range(128, 148)), "20 bytes: 80 81 82 83 84 85 86 87 …"),
    ],
)
def test_bytes(value, text):
    assert describe_values([value]).startswith(text)
    assert len(describe_values([value])) <= len(text) + 120


@pytest.mark.parametrize(
    ("values", "shape", "names", "text"),
    [
        (np.array([1 / 3], np.float32), (), (), "0.33333"),
        (np.array([], np.int64), (), (), "[0] "),
        (np.arange(3), (), (), "[3] 0, 1, 2"),
        (np.arange(100), (), (), "[100] 0 to 99"),
        (np.arange(100, dtype=np.float32), ("N", "4"), (), "[25, 4] 0 to 99, mean 49.5"),
        (np.arange(7), ("N", "4"), (), "[7] 0, 1, 2, 3, 4, 5, 6"),  # damaged: not of four each
        (np.array([5]), ("N",), (), "[1] 5"),
        (np.array([0, 9, -1]), (), ("cat", "dog"), "[3] 0 cat, 9, -1"),
        (np.array([np.nan, 1.0] * 20, np.float32), (), (), "[40] 1 to 1, mean 1, 20 not finite"),
        (np.array([np.nan] * 40, np.float32), (), (), "[40] no finite values"),
        ([b"a", b"b"], ("N",), (), "[2] a, b"),
        (np.array([1, 0.5], np.float32), (), ("cat", "dog"), "[2] 1, 0.5"),
        ([b"a"] * 30, (), (), "[30] " + ", ".join("a" * 24)),
    ],
)
def test_lists(values, shape, names, text):
    assert describe_values(values, shape, names) == text


def test_pixels_of_a_semantic_mask():
    """A name, no name, a value behind the names, unknown."""
    table = DETECTION.with_parts((Part.SEMANTIC,))
    (key,) = (feature.name for feature in table.features if feature.source == "semantic.png")
    pixels = np.array([[0, 0, 0, 0, 1, 1, 1, 2, 2, 255]], np.uint8)
    features = parse_example(example(**{key.replace("/", "__"): [grey_png(pixels)]}))
    (row,) = describe_record(features, table, {key: ("sky", "")})
    assert row[2] == "10x1: sky 40%, value 1 30%, value 2 20%, unknown 10%"


def test_a_record():
    record = example(
        image=[image_bytes()],
        image__filename=[b"a.jpg"],
        image__id=[7],
        objects__bbox=[0.5] * 8,
        objects__label=[1, 0],
        other=[3],
    )
    features = parse_example(record)
    rows = list(describe_record(features, recognise_features(features), {"objects/label": ("cat", "dog")}))
    assert rows[1:] == [
        ("image/filename", "bytes", "a.jpg"),
        ("image/id", "int64", "7"),
        ("objects/bbox", "float [N, 4]", "[2, 4] 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5"),
        ("objects/label", "int64 [N]", "[2] 1 dog, 0 cat"),
        ("other", "int64", "3"),
    ]


def test_json_is_strict_and_loses_no_number():
    floats = np.array([0.1, np.nan, np.inf, -np.inf, 1e-38], np.float32)
    values = [
        *json_values(floats),
        *json_values(np.array([1 << 62])),
        *json_values([b"\xff\xfe", b"text", image_bytes(6, 4)]),
    ]
    text = json.dumps(values, allow_nan=False)
    assert json.loads(text)[:6] == [0.1, "nan", "inf", "-inf", 1e-38, 1 << 62]
    assert np.float32(json.loads(text)[0]) == floats[0]
    assert values[6:8] == [{"bytes": 2, "start": "fffe"}, "text"]
    assert {**values[8], "bytes": 0} == {"bytes": 0, "format": "jpeg", "width": 6, "height": 4}
    assert next(json_values([image_bytes()[:30]])).keys() == {"bytes", "fault"}


def test_class_indices_and_segments():
    labels = LabelMap(tuple(Category(**row) for row in CATEGORIES), (Category(92, "sky"),))
    assert list_meanings(TFDS, labels) == {"objects/label": ("cat", "dog"), "panoptic_objects/label": ("sky",)}
    assert list_meanings(DETECTION, labels) == {
        "image/object/class/index": ("cat", "dog"),
        "image/segmentation/class/encoded": ("", "things", "sky"),
    }


@pytest.mark.parametrize(
    ("form", "feature", "before"),
    [(TextForm.COUNTS, "captions/index", ()), (TextForm.TOKENS, "captions/tokens", ("(padding)", "(unknown)"))],
)
def test_terms_and_tokens(form, feature, before, tmp_path):
    encoder = TextEncoder(1, "captions", TextSettings(form), "train", 2, ("a", "cat"))
    parts = (Part.CAPTION_TOKENS if form is TextForm.TOKENS else Part.CAPTION_TERMS,)
    manifest = Manifest(4, "coco", "detection", parts, (), (), {}, encoders=(encoder.info,))
    assert read_terms(str(tmp_path), manifest) == {}
    path = tmp_path / encoder.info.file
    path.parent.mkdir()
    path.write_bytes(encode_encoder(encoder))
    assert read_terms(str(tmp_path), manifest) == {feature: (*before, "a", "cat")}
