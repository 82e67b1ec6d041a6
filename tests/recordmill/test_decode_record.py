import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recordmill._decode_record import RecordDecoder
from recordmill._split_records import READINGS, table_readings, type_text
from recordmill.schemas.errors import RecordError
from recordmill.schemas.features import FeatureKind
from recordmill.schemas.layouts import LAYOUTS, TFDS, change_keys_and_types
from recordmill.transforms.records.example import ExampleWriter
from tests.recordmill.splits import CONTENTS, KEYPOINTS, draw


def decoded(name: str, values: dict, table=None) -> dict:
    table, labels, shape = CONTENTS[name] if table is None else (table, CONTENTS[name].labels, ())
    decode = RecordDecoder(table, table_readings(table, shape), labels.keypoints)
    return decode(ExampleWriter(table).write(values))


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("number", [0, 3])
def test_types_and_shapes_are_table(name, number):
    record = decoded(name, draw(CONTENTS[name], number).values)
    table, _, shape = CONTENTS[name]
    readings = table_readings(table, shape)
    assert list(record) == list(readings)
    sizes: dict[str, int] = {"N": number, "K": KEYPOINTS}
    for key, reading in readings.items():
        value = record[key]
        if not reading.shape:
            assert isinstance(value, bytes if reading.dtype == "bytes" else np.dtype(reading.dtype).type), key
            continue
        assert value.dtype == (object if reading.dtype == "bytes" else reading.dtype), key
        assert all(isinstance(item, bytes) for item in value.ravel()) or reading.dtype != "bytes"
        known = {size: int(size) if size.isdecimal() else sizes.setdefault(size, length) for size, length in
                 zip(reading.shape, value.shape, strict=True)}  # fmt: skip
        assert value.shape == tuple(known[size] for size in reading.shape), key
        assert value.flags.writeable, key


def test_record_of_layout_detection():
    values, expected = draw(CONTENTS["detection"], 3)
    record = decoded("detection", values)
    with Image.open(io.BytesIO(values["image.encoded"])) as picture:
        assert (record["image"] == np.asarray(picture)).all()
    assert (record["image_id"], record["whole_image_id"]) == (3, 1003)
    edges = np.array([values[f"objects.{edge}"] for edge in ("ymin", "xmin", "ymax", "xmax")], np.float32)
    assert (record["boxes"] == edges.T).all()
    assert record["labels"].tolist() == values["objects.class_index"]
    assert record["category_ids"].tolist() == values["objects.category_id"]
    xyv = np.array([values[f"objects.keypoint_{part}"] for part in ("x", "y", "visibility")], np.float32)
    assert (record["keypoints"] == xyv.T.reshape(3, KEYPOINTS, 3)).all()
    assert record["captions"].tolist() == values["captions.text"]
    for name in ("masks", "semantic", "depth", "categories", "instances"):
        assert (record[name] == expected[name]).all(), name


def test_labels_stored_as_text():
    table = change_keys_and_types(
        TFDS.with_parts(()), {"objects/label": "label"}, {"objects/id": FeatureKind.FLOAT}, True
    )
    readings = table_readings(table)
    assert (readings["labels"].dtype, readings["labels"].meaning) == ("bytes", "class name")
    assert (readings["annotation_ids"].dtype, readings["image_id"].dtype) == ("float32", "int64")
    values = draw(CONTENTS["tfds"], 2).values
    record = decoded("tfds", values | {"objects.class_index": [b"cat", b"dog"]}, table)
    assert record["labels"].tolist() == [b"cat", b"dog"]
    assert record["annotation_ids"].tolist() == values["objects.id"]


def test_masks_alone_decode_no_picture(monkeypatch):
    monkeypatch.setattr("recordmill._decode_record.decode_rgb", None)
    values, expected = draw(CONTENTS["detection"], 3)
    table, labels, _ = CONTENTS["detection"]
    decode = RecordDecoder(table, {"masks": table_readings(table)["masks"]}, labels.keypoints)
    assert (decode(ExampleWriter(table).write(values))["masks"] == expected["masks"]).all()


def test_masks_as_run_lengths():
    table = LAYOUTS["detection"]
    left_out = {"objects.mask_png", "objects.category_id"}
    table = type(table)("detection", tuple(feature for feature in table.features if feature.source not in left_out))
    values, expected = draw(CONTENTS["detection"], 3)
    record = decoded("detection", values, table)
    assert (record["masks"] == expected["masks"]).all()
    assert record["category_ids"].tolist() == values["objects.label"]


def test_segments_of_the_layout_tfds():
    values, expected = draw(CONTENTS["tfds"], 2)
    record = decoded("tfds", values)
    assert (record["segment_map"] == expected["segment_map"]).all()
    assert record["segment_boxes"].ravel().tolist() == np.float32(values["segments.bbox_yxyx"]).tolist()
    assert record["boxes"].ravel().tolist() == np.float32(values["objects.bbox_yxyx"]).tolist()
    assert record["segment_labels"].tolist() == values["segments.class_index"]


def test_features_and_rows():
    values = draw(CONTENTS["float16"], 1).values
    assert decoded("float16", values)["feature"].tobytes() == values["feature.bytes"]
    values = draw(CONTENTS["pixels"], 1).values
    record = decoded("pixels", values)
    assert record["image"].tobytes() == values["image.pixels"]
    assert (record["kind"], record["note"].tolist()) == (values["row.class_index/kind"], values["row.note"])


def test_undecodable():
    values = draw(CONTENTS["classification"], 0).values
    with pytest.raises(RecordError, match="cannot be decoded"):
        decoded("classification", values | {"image.encoded": values["image.encoded"][:-300]})
    values = draw(CONTENTS["detection"], 1).values
    with pytest.raises(RecordError, match="cannot be decoded"):
        decoded("detection", values | {"objects.mask_png": [draw(CONTENTS["detection"], 2).values["semantic.png"]]})
    table, _, shape = CONTENTS["keras"]
    with pytest.raises(RecordError, match=r"not a tf\.train\.Example"):
        RecordDecoder(table, table_readings(table, shape), 0)(b"\x0a\xff")


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16"])
def test_pictures_of_any_kind_are_red_green_and_blue(mode):
    pixels = np.arange(30, dtype=np.uint8).reshape(5, 6) * 8
    image = Image.fromarray(pixels.astype(np.uint16) * 257) if mode == "I;16" else Image.fromarray(pixels).convert(mode)
    stream = io.BytesIO()
    image.save(stream, "PNG")
    values = draw(CONTENTS["classification"], 0).values | {"image.encoded": stream.getvalue()}
    decoded_pixels = decoded("classification", values)["image"]
    expected = np.asarray(Image.fromarray(pixels).convert("1").convert("L")) if mode == "1" else pixels
    assert (decoded_pixels == expected[..., None]).all()
    assert decoded_pixels.shape == (5, 6, 3)


def test_the_page_shows_the_table():
    rows = dict.fromkeys(f"| {reading.name} | {type_text(reading)} | {reading.meaning} |" for reading in READINGS)
    assert (
        "\n".join(["| key | type | meaning |", "|---|---|---|", *rows])
        in (Path(__file__).parents[2] / "docs" / "reading.md").read_text()
    )
