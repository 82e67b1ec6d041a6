import json
from math import inf, nan
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import FeatureKind, FeatureTable, Part
from recordmill.schemas.field_features import RAGGED, FieldColumn, add_fields
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import CLASSIFICATION, DETECTION, change_keys_and_types
from recordmill.transforms.containers.sample_json import SampleJson
from recordmill.transforms.containers.sample_values import SampleCodec
from recordmill.transforms.records.example import ExampleWriter
from tests.transforms.encoders import drawn_tasks

BYTES, FLOAT, INT64 = FeatureKind.BYTES, FeatureKind.FLOAT, FeatureKind.INT64
LABELS = LabelMap((Category(1, "cat", keypoints=("nose", "tail")), Category(3, "dög"), Category(1 << 40, "dög")))
PLAIN = DETECTION.with_parts(())
TABLES = {
    "plain": PLAIN,
    "lists": DETECTION.with_parts((Part.LVIS, Part.CATEGORY_ID, Part.TAGS)),
    "masks": DETECTION.with_parts((Part.MASK_RLE, Part.KEYPOINTS)),
    "captions": DETECTION.with_parts((Part.CAPTIONS, Part.CAPTION_TERMS, Part.SEMANTIC)),
    "tokens": DETECTION.with_parts((Part.CAPTIONS, Part.CAPTION_TOKENS)),
    "classification": CLASSIFICATION.with_parts(()),
    "other types": change_keys_and_types(
        PLAIN,
        {"image/height": "h", "image/object/class/text": "a name"},
        {"h": FLOAT, "image/object/area": FLOAT, "image/object/is_crowd": FLOAT},
        label_as_text=True,
    ),
    "classes as texts": change_keys_and_types(
        CLASSIFICATION.with_parts(()), {}, {"image/width": FLOAT}, label_as_text=True
    ),
}

IMAGE = {
    "image.encoded": b"\xff\xd8 an image",
    "image.file_name": "été/1.jpg".encode(),
    "image.format": b"jpeg",
    "image.height": 30,
    "image.id": b"9223372036854775807",
    "image.sha256": b"5ha",
    "image.width": 40,
}
OBJECTS = {
    "objects.area": [0.1, nan],
    "objects.category_name": ["dög".encode(), b"cat"],
    "objects.class_index": [1, 0],
    "objects.id": [-(1 << 63), (1 << 63) - 1],
    "objects.is_crowd": [0, 1],
    "objects.label": [3, 1],
    "objects.xmax": [0.5, 1.0],
    "objects.xmin": [-0.0, 0.1],
    "objects.ymax": [1e-44, 1.5],
    "objects.ymin": [1e-45, 0.25],
}


def fields(*columns: FieldColumn) -> FeatureTable:
    return add_fields(PLAIN, columns).table


def write(table: FeatureTable, values: dict[str, Any] = MappingProxyType({})) -> bytes:
    return ExampleWriter(table).write(IMAGE | OBJECTS | values)


def assert_returns(table: FeatureTable, labels: LabelMap, records: list[bytes]) -> list[dict]:
    """Samples and their JSON give the records back. Return the JSON."""
    codec = SampleCodec(table, labels)
    samples = codec.samples(records)
    assert list(codec.records(samples)) == records
    omitted = [key for key in ("label", "sha256") if key in samples.images]
    converter = SampleJson(codec, omitted)
    texts = converter.encode(samples)
    read = converter.decode(texts, {key: samples.images[key] for key in omitted}, samples.files)
    assert list(codec.records(read)) == records
    return [json.loads(text) for text in texts]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("policy", ["clip", "drop", "keep"])
@pytest.mark.parametrize("labels", [drawn_tasks.LABELS, drawn_tasks.SHIFTED], ids=["labels", "shifted"])
@pytest.mark.parametrize("table", TABLES)
def test_drawn_records_come_back(table, labels, policy, seed):
    if table == "other types":
        labels = LabelMap(labels.categories)  # names of classes only
    tasks = drawn_tasks.draw_tasks(seed, labels)
    records = list(map(b"".join, drawn_tasks.encode_tasks(labels, TABLES[table], policy, tasks).records))
    keys = {tuple(sample) for sample in assert_returns(TABLES[table], labels, records)}
    assert len(keys) == 1


def test_sample_is_row_of_coco():
    (sample,) = assert_returns(PLAIN, LABELS, [write(PLAIN)])
    one, other = sample.pop("annotations")
    assert sample == {
        "image_id": (1 << 63) - 1,
        "file_name": "été/1.jpg",
        "width": 40,
        "height": 30,
    }
    assert list(one) == ["id", "category_id", "bbox", "area", "iscrowd"]
    assert one == {"id": -(1 << 63), "category_id": 3, "bbox": [-0.0, *one["bbox"][1:]], "area": 0.1, "iscrowd": 0}
    assert other == {"id": (1 << 63) - 1, "category_id": 1, "bbox": [4.0, 7.5, 36.0, 37.5], "area": None, "iscrowd": 1}


FIELDS = (
    FieldColumn("image", "when", BYTES),
    FieldColumn("image", "label", INT64),  # the name of another value
    FieldColumn("image", "seen", INT64, 0, True),
    FieldColumn("image", "words", BYTES, 2),
    FieldColumn("image", "list", FLOAT, RAGGED),
    FieldColumn("object", "score", FLOAT),
    FieldColumn("object", "a.b", BYTES),
    FieldColumn("object", "bbox", INT64, 2),
    FieldColumn("object", "pair", BYTES, 2),
    FieldColumn("object", "flags", INT64, 2, True),
    FieldColumn("object", "texts", BYTES, RAGGED),
    FieldColumn("object", "numbers", INT64, RAGGED),
    FieldColumn("object", "truths", INT64, RAGGED, True),
)
FIELD_VALUES = {
    "image.field:when": "été".encode(),
    "image.field:label": -1,
    "image.field:seen": 1,
    "image.field:words": [b"", b"a"],
    "image.field:list": [0.1, nan],
    "objects.field:score": [0.25, nan],
    "objects.field:a.b": [b"", b"x"],
    "objects.field:bbox": [-1, -1, -1, 5],
    "objects.field:pair": [b"", b"", b"", b"b"],
    "objects.field:flags": [-1, 1, 0, 1],
    "objects.field:texts/ragged_flat_values": [b"", b"one"],
    "objects.field:texts/ragged_row_lengths_0": [0, 2],
    "objects.field:numbers/ragged_flat_values": [7],
    "objects.field:numbers/ragged_row_lengths_0": [1, 0],
    "objects.field:truths/ragged_flat_values": [1, -1, 0],
    "objects.field:truths/ragged_row_lengths_0": [3, 0],
}


def test_fields_have_values_of_source_and_null_where_missing():
    table = fields(*FIELDS)
    (sample,) = assert_returns(table, LABELS, [write(table, FIELD_VALUES)])
    objects = [
        {key: value for key, value in row.items() if key not in ("id", "iscrowd")} for row in sample["annotations"]
    ]
    assert sample["when"] == "été"
    assert (sample["image/label"], sample["seen"], sample["words"], sample["list"]) == (
        None,
        True,
        ["", "a"],
        [0.1, None],
    )
    one, other = ({key: row[key] for key in row if key not in ("category_id", "area")} for row in objects)
    assert {**one, "bbox": 0} == {
        "bbox": 0,
        "score": 0.25,
        "a.b": None,
        "image/object/bbox": None,
        "pair": None,
        "flags": [None, True],
        "texts": [],
        "numbers": [7],
        "truths": [True, None, False],
    }
    assert (other["score"], other["image/object/bbox"], other["pair"]) == (None, [-1, 5], ["", "b"])
    assert other["texts"] == ["", "one"]


ALL = DETECTION.with_parts(
    (Part.FLAGS, Part.TRACKS, Part.ORIENTED, Part.PANOPTIC, Part.SEMANTIC, Part.DEPTH, Part.MASK_RLE)
)
MAPS = {"semantic.png": b"s", "panoptic.category_png": b"", "panoptic.instance_png": b"i" * 5000, "depth.png": b"d"}


def test_maps_flags_tracks_and_corners():
    corners = [0.1, -0.0, 0.9, 0.1, 0.8, 0.9, 1e-45, 2.5] * 2
    own = {
        "objects.difficult": [0, 1],
        "objects.truncated": [1, 0],
        "objects.view": [b"", b"left"],
        "objects.track_id": [-1, 7],
        "objects.corners": corners,
        "objects.mask_rle": [b"0\\`", b""],
    }
    record = write(ALL, MAPS | own)
    (sample,) = assert_returns(ALL, LABELS, [record])
    one, other = sample["annotations"]
    assert one["corners"][:4] == [4.0, -0.0, 36.0, 3.0]
    assert (one["track_id"], other["track_id"], one["view"], other["view"]) == (None, 7, None, "left")
    assert (one["difficult"], one["segmentation"]) == (0, {"size": [30, 40], "counts": "0\\`"})
    files = SampleCodec(ALL, LABELS).samples([record]).files
    assert {name: bytes(data) for name, (data,) in files.items()} == {
        "image": IMAGE["image.encoded"],
        "semantic": b"s",
        "category": b"",
        "instance": b"i" * 5000,
        "depth": b"d",
    }


def test_records_without_objects():
    empty = {source: [] for source in OBJECTS}
    assert [sample["annotations"] for sample in assert_returns(PLAIN, LABELS, [write(PLAIN, empty)] * 2)] == [
        [],
        [],
    ]


_LIST = "objects.field:numbers/ragged_row_lengths_0"


@pytest.mark.parametrize(
    ("columns", "values", "said"),
    [
        ((), {"image.format": b"png"}, "image/format"),
        ((), {"image.id": b"007"}, "image/source_id"),
        ((), {"image.file_name": b"\xff"}, "utf-8"),
        ((), {"objects.label": [3, 3]}, "image/object/class/label"),
        ((), {"objects.category_name": [b"cat", b"cat"]}, "image/object/class/text"),
        ((), {"objects.class_index": [1, 9]}, "class 9"),
        ((), {"objects.area": [1.0]}, "differ in length"),
        (FIELDS[2:3], {"image.field:seen": 2}, "image/seen"),
        (FIELDS[11:12], {"objects.field:numbers/ragged_flat_values": [7], _LIST: [2, -1]}, "lengths"),
    ],
)
def test_record_that_would_change_is_error(columns, values, said):
    table = fields(*columns)
    good, bad = write(table, FIELD_VALUES), write(table, FIELD_VALUES | values)
    with pytest.raises(ConfigError, match=f"record 12 .*{said}"):
        SampleCodec(table, LABELS).samples([good, good, bad], 10)


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record[:-1],
        lambda record: record + b"\0",
        lambda record: record.replace(b"image/width", b"image/widht"),
        lambda record: b"",
        lambda record: ExampleWriter(CLASSIFICATION.with_parts(())).write(
            IMAGE | {"image.channels": 3, "image.class_index": 0, "image.class_name": b"cat"}
        ),
    ],
)
def test_bytes_of_other_writers_are_errors(change):
    with pytest.raises(ConfigError, match="record 0 would not come back"):
        SampleCodec(PLAIN, LABELS).samples([change(write(PLAIN))])


def test_infinite_numbers_are_errors_in_json_alone():
    codec = SampleCodec(PLAIN, LABELS)
    samples = codec.samples([write(PLAIN, {"objects.area": [inf, 1.0]})])
    with pytest.raises(ConfigError, match="area is infinite"):
        SampleJson(codec).encode(samples)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b'"image_id"', b'"image_ie"', "image_id"),
        (b'"width":40', b'"width":4.5', "width"),
        (b'"width":40', b'"width":"4"', "width"),
        (b'"iscrowd":1', b'"iscrowd":9223372036854775808', "int"),
        (b'"area":0.1', b'"area":1e300', "overflow"),
        (b"7.5,36.0,", b"7.5,", "bbox"),
        (b"{", b"[", "object"),
        (b"}]}", b"}]},1", "object"),
    ],
)
def test_damaged_json_is_value_error(old, new, said):
    codec = SampleCodec(PLAIN, LABELS)
    converter, samples = SampleJson(codec), codec.samples([write(PLAIN)])
    (text,) = converter.encode(samples)
    with pytest.raises(ValueError, match=said):
        converter.decode([text.replace(old, new, 1)], {}, samples.files)


def test_samples_refer_to_image_in_record():
    record = write(PLAIN, {"image.encoded": bytes(100_000), "image.format": b"jpeg"})
    samples = SampleCodec(PLAIN, LABELS).samples([record])
    assert samples.files["image"][0].obj is record


def test_boxes_have_float32_edges():
    random = np.random.default_rng(0)
    edges = random.normal(0.5, 1, (20_000, 4)).astype(np.float32)
    edges[:100] = random.integers(0, 1 << 23, (100, 4), np.uint32).view(np.float32)  # subnormal
    columns = dict(zip(("objects.ymin", "objects.xmin", "objects.ymax", "objects.xmax"), edges.T, strict=True))
    number = len(edges)
    others = {
        "objects.area": np.zeros(number, np.float32),
        "objects.category_name": [b"cat"] * number,
        "objects.class_index": [0] * number,
        "objects.id": [1] * number,
        "objects.is_crowd": [0] * number,
        "objects.label": [1] * number,
    }
    assert_returns(PLAIN, LABELS, [write(PLAIN, columns | others)])


def test_two_values_of_one_key_are_error():
    """A field whose name is a key of samples has the key of its feature, which may be the name of another field."""
    table = add_fields(
        PLAIN, (FieldColumn("image", "label", INT64), FieldColumn("image", "x", INT64)), {"image/label": "x"}
    ).table
    with pytest.raises(ConfigError, match="two values of a sample have the key 'x'"):
        SampleCodec(table, LABELS)
