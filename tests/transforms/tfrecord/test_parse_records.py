"""Tests for parse_records."""

import io
import json

import numpy as np
import pytest

from recordmill.schemas.inputs.splits import name_id
from recordmill.transforms.tfrecord.label_map import class_names, numbered_names
from recordmill.transforms.tfrecord.parse_records import RecordRules, parse_records
from recordmill.transforms.tfrecord.record_keys import API, choose_keys
from tests.literal_data import example, jpeg, old_record, png, tfrecord

MASK = png(np.array([[0, 0, 1], [0, 1, 1]], np.uint8))


RULES = RecordRules(API)
EDGE_NAMES, BOX = ("xmin", "ymin", "xmax", "ymax"), (0.0, 0.0, 1.0, 1.0)


def parse(*records: bytes, rules: RecordRules = RULES, file: str = "train.record"):
    return list(parse_records(io.BytesIO(tfrecord(*records)), file, rules))


def test_an_image_is_a_range_of_bytes_of_the_file():
    data = tfrecord(old_record(0), old_record(1))
    images = list(parse_records(io.BytesIO(data), "train.record", RecordRules(API)))
    assert [data[image.file.offset :][: image.file.size_bytes] for image in images] == [jpeg(0), jpeg(1)]
    assert [(image.sample.file_name, image.sample.data, image.entry) for image in images] == [
        ("0.jpg", b"", "record 0"),
        ("1.jpg", b"", "record 1"),
    ]


def test_a_large_image_is_a_range_of_bytes_of_the_file():
    pixels = png(np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8))
    data = tfrecord(old_record(image__encoded=pixels, image__thumbnail=pixels[:5000]))
    (image,) = parse_records(io.BytesIO(data), "a", RecordRules(API))
    assert data[image.file.offset :][: image.file.size_bytes] == pixels


def test_an_object_has_its_box_in_pixels_and_its_class():
    (image,) = parse(old_record(image__object__area=[100.0], image__object__is_crowd=[1]))
    (object_,) = image.sample.objects
    assert object_.box == pytest.approx((10, 6, 10, 18))
    assert (object_.category, object_.category_id, object_.frame) == ("cat", 1, "px")
    assert (object_.area_px2, object_.is_crowd) == (100, True)


def test_without_a_size_that_of_the_image_counts():
    (image,) = parse(old_record(image__width=[], image__height=[]))
    (object_,) = image.sample.objects
    assert object_.box == pytest.approx((10, 6, 10, 18))
    assert (image.sample.width, image.sample.height) == (40, 30)


def test_an_image_of_an_unknown_kind_has_boxes_in_fractions():
    (image,) = parse(old_record(image__encoded=b"?", image__width=[], image__height=[]))
    (object_,) = image.sample.objects
    assert object_.box == pytest.approx((0.25, 0.2, 0.25, 0.6))
    assert (image.sample.width, object_.frame) == (None, "fraction")


def test_keras_recipe():
    record = example(
        image=jpeg(1),
        path=b"./datasets/1.jpg",
        area=[5.0],
        bbox=[1.0, 2.0, 3.0, 4.0],
        category_id=[2],
        id=[9],
        image_id=[7],
    )
    keys = choose_keys({"image", "path", "bbox", "category_id"})
    (image,) = parse(record, rules=RecordRules(keys, numbered_names(["a", "b", "c"])))
    (object_,) = image.sample.objects
    assert (image.sample.file_name, image.sample.image_id) == ("datasets/1.jpg", 7)
    assert (object_.category, object_.category_id, object_.id) == ("c", 2, 9)
    assert (object_.box, object_.area_px2, object_.frame) == ((1, 2, 3, 4), 5, "px")


def test_tfds_coco():
    record = example(
        image=jpeg(1),
        image__filename=b"1.jpg",
        image__id=[7],
        objects__bbox=[0.25, 0.5, 0.75, 1.0],
        objects__label=[1],
        objects__is_crowd=[0],
        objects__id=[3],
        objects__area=[12],
    )
    keys = choose_keys({"image", "objects/bbox"})
    (image,) = parse(record, rules=RecordRules(keys, numbered_names(["a", "b"])))
    (object_,) = image.sample.objects
    assert (object_.box, object_.category, object_.id, object_.area_px2) == ((20, 7.5, 20, 15), "b", 3, 12)


def test_classes_of_an_image_are_tags_with_their_ids():
    (image,) = parse(example(image__encoded=jpeg(1), image__class__text=b"tench, Tinca", image__class__label=[5]))
    assert (image.sample.tags, image.tag_ids, image.sample.objects) == (("tench, Tinca",), (5,), ())


def test_other_keys_are_fields():
    (image,) = parse(
        old_record(image__camera=b"x", image__object__weight=[0.5], image__object__rgb=[1, 2, 3], image__format=b"jpg")
    )
    assert image.sample.fields == {"camera": "x"}
    assert image.sample.objects[0].fields == {"weight": 0.5, "rgb": [1, 2, 3]}


def test_flags_of_an_object_are_its_fields():
    flags = {"image__object__difficult": [1], "image__object__truncated": [0], "image__object__view": b"Left"}
    (image,) = parse(old_record(**flags))
    assert image.sample.objects[0].fields == {"difficult": 1, "truncated": 0, "view": "Left"}


def test_keypoints_without_a_visibility():
    points = {"image__object__keypoint__x": [0.25, 0.5], "image__object__keypoint__y": [0.5, float("nan")]}
    (image,) = parse(old_record(**points))
    assert image.sample.objects[0].keypoints == (10, 15, 2, 0, 0, 0)


def test_masks_are_run_lengths():
    record = old_record(image__object__mask=MASK, image__width=[3], image__height=[2])
    (image,) = parse(record, rules=RecordRules(API, has_masks=True))
    assert json.loads(image.sample.objects[0].segmentation) == {"size": [2, 3], "counts": [3, 3]}
    (image,) = parse(record)
    assert (image.sample.objects[0].segmentation, image.notes) == ("", ("polygons",))


@pytest.mark.parametrize(("pixels", "counts"), [([0, 0, 1, 0, 1, 1, 1, 0, 0, 0, 0, 0], ([3, 3], [0, 1, 5])), ([1], ())])
def test_masks_that_are_the_pixels_of_all_objects(pixels, counts):
    """As create_pet_tf_record.py writes them with --mask_type numerical."""
    boxes = {f"image__object__bbox__{edge}": [number] * 2 for edge, number in zip(EDGE_NAMES, BOX, strict=True)}
    labels = {"image__object__class__text": [b"cat", b"cat"], "image__object__class__label": [1, 1]}
    record = old_record(
        **boxes, **labels, image__object__mask=list(map(float, pixels)), image__width=[3], image__height=[2]
    )
    (image,) = parse(record, rules=RecordRules(API, has_masks=True))
    objects = image.sample.objects if image.sample else ()
    assert tuple(json.loads(one.segmentation)["counts"] for one in objects) == counts
    details = [] if counts else ["image/object/mask has 1 value, not 2 masks of 3x2 pixels"]
    assert [fault.detail for fault in image.faults] == details


@pytest.mark.parametrize(("has_captions", "written"), [(True, ("a cat", "b")), (False, ())])
def test_captions_that_are_not_written_are_noted(has_captions, written):
    (image,) = parse(old_record(image__caption=[b"a cat", b"b"]), rules=RecordRules(API, has_captions=has_captions))
    assert (image.sample.captions, image.notes) == (written, () if written else ("image/caption",))


@pytest.mark.parametrize(
    ("features", "name", "image_id", "id_text"),
    [
        ({}, "0.jpg", None, ""),
        ({"image__source_id": b"139"}, "0.jpg", 139, ""),
        ({"image__source_id": b"0.jpg"}, "0.jpg", name_id("0.jpg"), ""),
        ({"image__source_id": b"scene a"}, "0.jpg", name_id("scene a"), "scene a"),
        ({"image__source_id": b"007"}, "0.jpg", name_id("007"), "007"),
        ({"image__filename": b"", "image__source_id": b"scene a"}, "scene a.jpg", name_id("scene a"), "scene a"),
        ({"image__filename": b"C:\\data\\a"}, "data/a.jpg", None, ""),
        ({"image__filename": b"/home/x/../a.PNG"}, "home/x/a.PNG", None, ""),
        ({"image__filename": []}, "train.record-00000000.jpg", None, ""),
    ],
)
def test_names_and_ids(features, name, image_id, id_text):
    (image,) = parse(old_record(**features))
    assert (image.sample.file_name, image.sample.image_id, image.id_text) == (name, image_id, id_text)


@pytest.mark.parametrize(
    ("features", "reason", "detail"),
    [
        ({"image__object__class__label": [1, 2]}, "malformed_image", "class/label has 2 values of 1 box"),
        ({"image__object__bbox__xmax": []}, "malformed_image", "xmax 0"),
        ({"image__object__keypoint__x": [0.5]}, "malformed_image", "keypoint/x 1"),
        (
            {"image__object__class__label": [float("nan")]},
            "malformed_image",
            "class/label has nan",
        ),
        ({"image__width": [float("inf")]}, "malformed_image", "image/width has inf"),
        ({"image__encoded": []}, "malformed_image", "image/encoded has 0 values"),
        ({"image__encoded": [1.0]}, "malformed_image", "image/encoded is float, not bytes"),
        ({"image__width": b"40"}, "malformed_image", "image/width is bytes, not numbers"),
        ({"image__object__class__text": b"\xff"}, "malformed_image", "not UTF-8"),
        ({"image__object__bbox__xmax": [30.0]}, "malformed_box", "not in 0..1"),
        ({"image__object__class__text": [], "image__object__class__label": []}, "unknown_category", "no class"),
        ({"image__object__class__text": []}, "unknown_category", "class 1 has no name"),
    ],
)
def test_unusable_records_and_objects(features, reason, detail):
    faulty, usable = parse(old_record(**features), old_record(1))
    (fault,) = faulty.faults
    assert fault.reason == reason
    assert detail in fault.detail
    assert "record 0" in fault.where
    assert usable.faults == ()


def test_a_record_that_is_no_example():
    faulty, usable = parse(b"\xff\xff", old_record(1))
    assert [fault.reason for fault in faulty.faults] == ["malformed_image"]
    assert usable.sample.file_name == "1.jpg"


def test_a_sequence_example_with_an_image_in_its_context():
    steps = b"\x12\x07\x0a\x05\x0a\x01a\x12\x00"  # a feature list `a` without steps
    (image,) = parse(old_record() + steps)
    assert "SequenceExample" in image.faults[0].detail


def test_a_class_that_the_label_map_lacks():
    (image,) = parse(old_record(), rules=RecordRules(API, numbered_names(["dog"])))
    assert [(fault.reason, fault.detail) for fault in image.faults] == [
        ("unknown_category", "class 'cat' is not in the label map or --class-names")
    ]


def test_records_after_a_wrong_checksum_are_read():
    data = bytearray(tfrecord(old_record(0), old_record(1)))
    data[30] ^= 1
    damaged, usable = parse_records(io.BytesIO(data), "a", RecordRules(API))
    assert damaged.faults[0].where == "record 0 at byte 0"
    assert "The records after it are read" in damaged.faults[0].detail
    assert usable.sample.file_name == "1.jpg"


@pytest.mark.parametrize(("cut", "detail"), [(3, "the file ends 3 bytes into"), (40, "the file ends 40 bytes into")])
def test_records_before_the_end_of_a_cut_file_are_read(cut, detail):
    first, second = tfrecord(old_record(0)), tfrecord(old_record(1))
    image, fault = parse_records(io.BytesIO(first + second[:cut]), "a", RecordRules(API))
    assert image.sample.file_name == "0.jpg"
    assert fault.faults[0].reason == "malformed_labels"
    assert fault.faults[0].detail.startswith(f"record 1 at byte {len(first):,}: {detail}")
    assert fault.faults[0].detail.endswith(". Records before it that were read: 1")


def test_an_object_without_a_class_has_that_of_its_image():
    record = old_record(image__object__class__text=[], image__object__class__label=[], image__class__text=b"dog")
    (image,) = parse(record)
    assert [object_.category for object_ in image.sample.objects] == ["dog"]


def test_an_object_with_the_number_of_a_class_of_its_image_has_its_name():
    """As in the records of ImageNet's build_imagenet_data.py."""
    edges = {f"image__object__bbox__{edge}": [number] for edge, number in zip(EDGE_NAMES, BOX, strict=True)}
    tags = {"image__class__text": [b"dog", b"tench, Tinca"], "image__class__label": [7, 5]}
    known, unknown = parse(
        *(example(image__encoded=jpeg(1), **edges, **tags, image__object__bbox__label=[label]) for label in (5, 6))
    )
    assert [(one.category, one.category_id) for one in known.sample.objects] == [("tench, Tinca", 5)]
    assert [fault.detail for fault in unknown.faults] == [
        "class 6 has no name (--label-map or --class-names gives names)"
    ]


@pytest.mark.parametrize(("label", "name"), [([1], "cat"), ([], "dog")])
def test_a_label_map_names_an_object_with_a_number_and_the_class_of_its_image_one_without(label, name):
    """The classes of images and those of objects may have the same numbers."""
    numbers = {"image__object__class__text": [], "image__object__class__label": label}
    record = old_record(**numbers, image__class__text=b"dog", image__class__label=[1])
    (image,) = parse(record, rules=RecordRules(API, class_names([(1, "cat", ""), (2, "dog", "")])))
    assert [object_.category for object_ in image.sample.objects] == [name]


def test_names_of_files_give_splits():
    (image,) = parse(old_record(), rules=RecordRules(API, by_name=True), file="valid/x.record")
    assert image.sample.split == "val"


def test_records_of_one_image_have_its_checksum():
    one, same, other = (image.file.version for image in parse(old_record(), old_record(), old_record(image__a=[1])))
    assert one == same
    assert one[:8] == other[:8]
    assert one != other
