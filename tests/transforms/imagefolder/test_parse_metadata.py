"""Rows of metadata become images, objects, captions and faults."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.schemas.inputs.coco import BoxFormat
from recordmill.schemas.rejects import Reason
from recordmill.transforms.imagefolder import parse_metadata as module
from recordmill.transforms.imagefolder.parse_metadata import MetadataFormat, _held_image, parse_metadata

NAMED = MetadataFormat(("cat", "dog"))
BOX = [1, 2, 3, 4]


def parsed(row: dict | bytes, metadata_format: MetadataFormat = NAMED, file: str = "metadata.jsonl") -> list:
    data = row if isinstance(row, bytes) else json.dumps({"file_name": "1.jpg", **row}).encode()
    return [*parse_metadata(io.BytesIO(data), file, metadata_format)]


@pytest.mark.parametrize(
    ("objects", "metadata_format", "expected"),
    [
        ({"bbox": [BOX], "category": [1]}, NAMED, ("dog", (1, 2, 3, 4), "px")),
        ({"bbox": [BOX], "label": [1.0]}, NAMED, ("dog", (1, 2, 3, 4), "px")),
        ({"bbox": [BOX], "categories": ["1"]}, NAMED, ("dog", (1, 2, 3, 4), "px")),
        ([{"bbox": BOX, "label": "dog"}], NAMED, ("dog", (1, 2, 3, 4), "px")),
        ([{"bbox": BOX, "label": "cow"}], MetadataFormat(), ("cow", (1, 2, 3, 4), "px")),
        ({"bbox": [BOX]}, MetadataFormat(("thing",)), ("thing", (1, 2, 3, 4), "px")),
        ([{"bbox": BOX, "label": "cow "}], MetadataFormat(), ("cow ", (1, 2, 3, 4), "px")),
        ({"bbox": [BOX], "label": ["a"]}, MetadataFormat(box_format=BoxFormat.XYXY), ("a", (1, 2, 2, 2), "px")),
        ({"bbox": [BOX], "label": ["a"]}, MetadataFormat(box_format=BoxFormat.CXCYWH), ("a", (-0.5, 0, 3, 4), "px")),
        (
            {"bbox": [[0.5, 0.5, 0.5, 0.2]], "label": ["a"]},
            MetadataFormat(box_format=BoxFormat.REL_CXCYWH),
            ("a", (0.25, 0.4, 0.5, 0.2), "fraction"),
        ),
    ],
)
def test_an_object(objects, metadata_format, expected):
    (image,) = parsed({"objects": objects}, metadata_format)
    (object_,) = image.sample.objects
    assert image.faults == ()
    assert (object_.category, pytest.approx(object_.box), object_.frame) == expected


@pytest.mark.parametrize(
    ("value", "names", "category"),
    [
        *((value, ("1", "2", "3"), name) for value, name in ((0, "1"), (1, "2"), (2.0, "3"), ("1", "1"), ("3", "3"))),
        *((value, ("1", "2", "3"), None) for value in (3, -1, 0.5, "0", float("nan"))),
        *((value, ("cat", "dog"), name) for value, name in ((1, "dog"), ("1", "dog"), (" dog", "dog"), ("2", None))),
    ],
)
def test_a_number_is_an_index_and_a_text_a_name(value, names, category):
    rows = {"objects": [{"bbox": BOX, "label": value}]}, {"objects": {"bbox": [BOX], "category": [value]}}
    for row in rows:
        (image,) = parsed(row, MetadataFormat(names))
        assert [object_.category for object_ in image.sample.objects] == ([category] if category else [])
        assert [fault.reason for fault in image.faults] == ([] if category else [Reason.UNKNOWN_CATEGORY])


@pytest.mark.parametrize(
    ("objects", "reason", "num_objects"),
    [
        ({"bbox": [BOX, [1, 2, 3]], "category": [0, 0]}, Reason.MALFORMED_BOX, 1),
        ({"bbox": [BOX, ["a", 2, 3, 4]], "category": [0, 0]}, Reason.MALFORMED_BOX, 1),
        ({"bbox": [BOX, [float("nan"), 2, 3, 4]], "category": [0, 0]}, Reason.MALFORMED_BOX, 1),
        ({"bbox": [BOX, [10**400, 2, 3, 4]], "category": [0, 0]}, Reason.MALFORMED_BOX, 1),
        ('{"bbox": [[NaN, 2, 3, 4], [1, 2, 3, 4]], "category": [0, 0]}', Reason.MALFORMED_BOX, 1),  # of CSV
        ({"bbox": [BOX, None], "category": [0, 0]}, Reason.MALFORMED_BOX, 1),
        ({"bbox": [BOX, BOX], "category": [0, 2]}, Reason.UNKNOWN_CATEGORY, 1),
        ({"bbox": [BOX, BOX], "category": [0, -1]}, Reason.UNKNOWN_CATEGORY, 1),
        ({"bbox": [BOX, BOX], "category": [0, "cow"]}, Reason.UNKNOWN_CATEGORY, 1),
        ({"bbox": [BOX, BOX], "category": [0]}, Reason.MALFORMED_ANNOTATION, 0),
        ({"bbox": "BOX", "category": [0]}, Reason.MALFORMED_ANNOTATION, 0),
        ([1, 2], Reason.MALFORMED_ANNOTATION, 0),
        ("nothing", Reason.MALFORMED_ANNOTATION, 0),
    ],
)
def test_a_fault_costs_one_object_or_those_of_its_row(objects, reason, num_objects):
    (image,) = parsed({"objects": objects})
    (fault,) = image.faults
    assert (fault.reason, fault.line, len(image.sample.objects)) == (reason, 1, num_objects)


VALUES = {"area": 12.5, "id": 7, "iscrowd": 0}


@pytest.mark.parametrize(
    ("values", "expected", "number_texts"),
    [
        (VALUES, (12.5, False, 7), 0),
        ({"area": "12.5", "id": "7", "iscrowd": "0"}, (12.5, False, 7), 1),
        ({"area": 12, "id": 9.0, "iscrowd": True}, (12.0, True, 9), 0),
        ({"id": float("nan"), "iscrowd": "yes"}, (None, True, None), 1),
        (VALUES | {"iscrowd": "No"}, (12.5, False, 7), 1),
    ],
)
@pytest.mark.parametrize("is_list", [True, False])
def test_numbers_booleans_and_ids_of_objects(values, expected, number_texts, is_list):
    objects = [{"bbox": BOX, "category": 0, **values}]
    by_key = {key: [value] for key, value in objects[0].items()}
    (image,) = parsed({"objects": objects if is_list else by_key})
    (object_,) = image.sample.objects
    assert (object_.area_px2, object_.is_crowd, object_.id) == expected
    assert len(image.warnings) == number_texts


def test_numbers_of_several_types_in_a_column_are_no_texts():
    rows = [{"bbox": [BOX], "category": [0], "id": [id_], "iscrowd": [flag]} for id_, flag in ((7, 0), (9.0, False))]
    data = "\n".join(json.dumps({"file_name": "1.jpg", "objects": objects}) for objects in rows)
    images = parsed(data.encode())
    assert [(image.sample.objects[0].id, image.warnings) for image in images] == [(7, ()), (9, ())]


def test_numbers_that_are_not_finite_beside_whole_ones():
    values = {"area": [12, float("inf"), float("-inf")], "id": [7, float("nan"), 8]}
    (image,) = parsed({"objects": {"bbox": [BOX] * 3, "category": [0] * 3, **values}})
    objects = [(object_.area_px2, object_.id) for object_ in image.sample.objects]
    assert objects == [(12.0, 7), (float("inf"), None), (float("-inf"), 8)]  # the areas are rejected later
    assert image.warnings == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("area", value) for value in ("wide", "", 10**400, True)),
        *(("id", value) for value in ("a", 7.5, "7.5", 1 << 63, "1" * 5000)),
        *(("iscrowd", value) for value in (2, "2", "many")),
    ],
)
def test_a_value_of_another_type_costs_its_object(key, value):
    objects = [{"bbox": BOX, "category": 0}, {"bbox": BOX, "category": 0, key: value}]
    (image,) = parsed({"objects": objects})
    (fault,) = image.faults
    assert (fault.reason, fault.where, len(image.sample.objects)) == (Reason.MALFORMED_ANNOTATION, "object 1", 1)
    assert fault.detail.startswith(f"{key} ")


@pytest.mark.parametrize(
    ("size", "expected", "is_warned"),
    [
        ((40, 30), (40, 30), False),
        (("40", 30.0), (40, 30), False),
        ((None, None), (None, None), False),
        ((int("9" * 25), 30), (None, None), True),
        (("9" * 5000, "30"), (None, None), True),
    ],
)
def test_sizes(size, expected, is_warned):
    objects = {"bbox": [BOX], "category": [0]}
    (image,) = parsed({"width": size[0], "height": size[1], "objects": objects})
    assert (image.sample.width, image.sample.height, bool(image.warnings)) == (*expected, is_warned)


def test_a_row_with_a_key_twice_is_a_fault():
    good = b'{"file_name": "1.jpg", "objects": [{"bbox": [1, 2, 3, 4], "category": 0}]}\n'
    bad, image = parsed(good + good.replace(b'"objects"', b'"objects": [], "objects"'))
    assert (bad.sample, len(image.sample.objects)) == (None, 1)
    assert "the key 'objects' twice" in bad.faults[0].detail


@pytest.mark.parametrize("row", [b"{", b"[1]", b'{"file_name": ""}', b'{"text": "a"}', b"\xff\xfe", b'{"file_name": 1'])
def test_a_row_without_an_image(row):
    good = b'{"file_name": "good.jpg", "text": "a"}\n'
    bad, *_ = [image for image in parsed(good + row, MetadataFormat(captions=("text",))) if not image.sample]
    (fault,) = bad.faults
    assert fault.reason is Reason.MALFORMED_IMAGE
    assert "line 2" in fault.text("metadata.jsonl")


def test_forms_of_a_file_agree():
    objects = {"bbox": [BOX], "category": ["cat"], "area": [9.5], "iscrowd": [1], "id": [7]}
    row = {"file_name": "a/1.jpg", "width": 40, "height": 30, "objects": objects, "text": "one", "other": 1}
    parquet = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([row]), parquet)
    csv_row = json.dumps(objects).replace('"', '""')
    files = {
        "metadata.jsonl": json.dumps(row).encode(),
        "metadata.parquet": parquet.getvalue(),
        "metadata.csv": f'file_name,width,height,objects,text,other\na/1.jpg,40,30,"{csv_row}",one,1\n'.encode(),
    }
    images = {
        name: next(parse_metadata(io.BytesIO(data), f"train/{name}", MetadataFormat(captions=("text",))))
        for name, data in files.items()
    }
    (jsonl_image, *other_images) = images.values()
    assert jsonl_image.sample.file_name == "train/a/1.jpg"
    assert (jsonl_image.sample.captions, jsonl_image.sample.width) == (("one",), 40)
    (object_,) = jsonl_image.sample.objects
    assert (object_.area_px2, object_.is_crowd, object_.id) == (9.5, True, 7)
    assert jsonl_image.notes == ("field other",)
    assert [image._replace(places=jsonl_image.places) for image in other_images] == [jsonl_image, jsonl_image]


@pytest.mark.parametrize("form", [{"bbox": [BOX], "label": ["a"], "hue": [3]}, [{"bbox": BOX, "label": "a", "hue": 3}]])
def test_values_that_no_record_has(form):
    (image,) = parsed({"objects": form, "colour": "red", "image_id": 7}, MetadataFormat())
    assert image.notes == ("field colour", "field objects.hue")
    (image,) = parsed({"objects": form, "colour": "red", "image_id": 7}, MetadataFormat(has_fields=True))
    assert image.sample.fields == {"colour": "red", "image_id": 7}
    assert [object_.fields for object_ in image.sample.objects] == [{"hue": 3}]


def test_splits_by_the_first_folder():
    metadata_format = MetadataFormat(captions=("text",), splits={"train": "train", "valid": "val"})
    rows = [{"file_name": f"{folder}/1.jpg", "text": "a"} for folder in ("train", "valid", "elsewhere")]
    images = parsed("\n".join(map(json.dumps, rows)).encode(), metadata_format)
    assert [image.sample and image.sample.split for image in images] == ["train", "val", None]


@pytest.mark.parametrize(("path", "name"), [("a/1.png", "x/7-1.png"), (b"a/1.png", "x/7"), (None, "x/7")])
def test_names_of_images_in_parquet_files(path, name):
    """A path of another type names no image."""
    row = {"image.bytes": b"an image", "image.path": path}
    assert _held_image(row, "train/x.parquet", 7, "image") == (name, b"an image")


BOXES = {"bbox": [BOX, [0.5, 0, 2, 2]], "category": ["cat", "cat"]}


@pytest.mark.parametrize(
    ("objects", "is_plain"),
    [
        ({**BOXES, "area": [1.5, 2.5], "iscrowd": [0, 1], "id": [7, 8]}, True),
        ({**BOXES, "iscrowd": [False, True], "area": None}, True),
        ({**BOXES, "category": [0, 1]}, False),
        ({**BOXES, "category": ["cat", None]}, False),
        ({**BOXES, "category": ["cat"]}, False),
        ({**BOXES, "iscrowd": [0, 2]}, False),
        ({**BOXES, "area": [1, "x"]}, False),
        ({**BOXES, "id": [7, None]}, False),
        ({**BOXES, "score": [0.5, 0.5]}, False),
        ({**BOXES, "label": ["dog", "dog"]}, False),
        ({**BOXES, "bbox": [BOX, [1, 2]]}, False),
        ({**BOXES, "bbox": [BOX, None]}, False),
        ({**BOXES, "bbox": [BOX, [10**400, 2, 3, 4]]}, False),
        ({**BOXES, "bbox": [BOX, [1, 2, 3, "4"]]}, False),
        ({"bbox": [], "category": []}, False),
        ({"category": ["cat"], "bbox": True}, False),
        ([{"bbox": BOX, "category": "cat"}], False),
    ],
)
def test_lists_of_plain_values_are_read_as_any_other(objects, is_plain, monkeypatch):
    results, convert = [], module._plain_objects
    monkeypatch.setattr(module, "_plain_objects", lambda *row: results.append(convert(*row)) or results[-1])
    image = parsed({"objects": objects}, MetadataFormat())
    assert [result is not None for result in results] == [is_plain]
    monkeypatch.setattr(module, "_plain_objects", lambda *_: None)
    assert image == parsed({"objects": objects}, MetadataFormat())


@pytest.mark.parametrize("metadata_format", [NAMED, MetadataFormat(box_format=BoxFormat.XYXY)])
def test_other_formats_are_not_plain(metadata_format):
    row = {f"objects.{key}": cells for key, cells in BOXES.items()}
    assert module._plain_objects(row, MetadataFormat())
    assert module._plain_objects(row, metadata_format) is None
