"""Tests for parse_lines and source."""

import io
import json

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.annotated.yolo_lines import LineFormat
from recordmill.transforms.ndjson.ndjson_options import NdjsonOptions
from recordmill.transforms.ndjson.read_ndjson import LineRules, parse_lines, source
from tests.literal_data import write_files

HEADER = {"type": "dataset", "task": "detect", "class_names": {"0": "cat", "1": "dog"}}
IMAGE = {"type": "image", "file": "1.jpg", "width": 40, "height": 30}
BOX = [0, 0.5, 0.5, 0.5, 1]
RULES = LineRules("boxes", LineFormat(("cat", "dog"), "", 2, 3, has_masks=True))


def parse(*lines: object, rules: LineRules = RULES):
    data = b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    return list(parse_lines(io.BytesIO(data), "a/set.ndjson", rules))


def annotated(**annotations: object) -> dict:
    return IMAGE | {"annotations": annotations}


@pytest.mark.parametrize(
    ("key", "row", "expected"),
    [
        ("boxes", BOX, {"box": (0.25, 0, 0.5, 1)}),
        ("bboxes", BOX, {"box": (0.25, 0, 0.5, 1)}),
        (
            "segments",
            [1, 0.1, 0.1, 0.5, 0.1, 0.5, 0.5],
            {"box": (0.1, 0.1, 0.4, 0.4), "segmentation": "[[0.1, 0.1, 0.5, 0.1, 0.5, 0.5]]"},
        ),
        ("pose", [*BOX, 0.1, 0.2, 2, 0, 0, 0], {"keypoints": (0.1, 0.2, 2, 0, 0, 0)}),
        ("obb", [0, 0.1, 0.1, 0.5, 0.1, 0.5, 0.5, 0.1, 0.5], {"corners": (0.1, 0.1, 0.5, 0.1, 0.5, 0.5, 0.1, 0.5)}),
    ],
)
def test_objects_of_each_task(key, row, expected):
    (image,) = parse(HEADER, annotated(**{key: [row]}))
    (object_,) = image.sample.objects
    assert (image.faults, object_.frame, object_.category_id) == ((), "fraction", row[0])
    assert {name: getattr(object_, name) for name in expected} == expected


def test_an_image_has_its_name_size_and_url():
    (image,) = parse(HEADER, IMAGE | {"file": "b\\1.jpg", "url": "https://x/1.jpg", "hash": "f"})
    sample = image.sample
    assert (sample.file_name, sample.width, sample.height, sample.split) == ("a/b/1.jpg", 40, 30, "")
    assert (image.url, image.entry, sample.fields) == ("https://x/1.jpg", "line 2", {"hash": "f"})


@pytest.mark.parametrize("line", [{"width": None, "height": 30}, {"width": 0, "height": 0}])
def test_a_size_may_be_missing(line):
    (image,) = parse(IMAGE | line)
    assert (image.sample.width, image.sample.height, image.faults) == (None, None, ())


@pytest.mark.parametrize("annotations", [None, {}, {"boxes": []}, {"boxes": None}])
def test_an_image_without_annotations_is_background(annotations):
    (image,) = parse(IMAGE | {"annotations": annotations})
    assert (image.sample.objects, image.faults, image.warnings) == ((), (), ())


def test_classes_of_an_image_are_tags():
    (image,) = parse(annotated(classification=[1, 0, 1]))
    assert (image.sample.tags, image.faults) == (("dog", "cat"), ())


@pytest.mark.parametrize(
    ("classes", "reason"), [([0, 2], "unknown_category"), ([-1], "unknown_category"), (["cat"], "malformed_annotation")]
)
def test_a_class_of_an_image_that_is_not_known(classes, reason):
    (image,) = parse(annotated(classification=classes))
    assert [(fault.reason, fault.where) for fault in image.faults] == [(reason, "classification")]


@pytest.mark.parametrize(
    ("key", "row", "reason", "detail"),
    [
        ("boxes", [2, 0.5, 0.5, 0.5, 1], "unknown_category", "class 2 is not in 0 to 1"),
        ("boxes", [-1, 0.5, 0.5, 0.5, 1], "unknown_category", "class -1 is not in 0 to 1"),
        ("boxes", [0.5, 0.5, 0.5, 0.5, 1], "unknown_category", "class 0.5 is not in 0 to 1"),
        ("boxes", [0, 0.5, 0.5, 0.5], "malformed_annotation", "4 numbers, but a box has 5"),
        ("boxes", [], "malformed_annotation", "0 numbers, but a box has 5"),
        ("boxes", [0, 1.5, 0.5, 0.5, 1], "malformed_box", "a number is not in 0..1"),
        ("boxes", [0, float("nan"), 0.5, 0.5, 1], "malformed_annotation", "NaN or Infinity"),
        ("boxes", {"class": 0}, "malformed_annotation", "Expected `array`"),
        ("segments", [0, 0.1, 0.1, 0.5, 0.1], "malformed_annotation", "5 numbers, but a polygon has 7"),
        ("segments", [0, 0.1, 0.1, 0.5, 0.1, 0.5, 0.5, 1], "malformed_annotation", "8 numbers, but a polygon has 7"),
        ("pose", [*BOX, 0.1, 0.2], "malformed_annotation", "7 numbers, but a pose has 11"),
        ("pose", [*BOX, 0.1, 0.2, 3, 0, 0, 0], "malformed_keypoints", "a visibility is not 0, 1 or 2"),
        ("obb", [0, 0.5, 0.5, 0.2, 0.2, 1.5], "malformed_annotation", "6 numbers, but an oriented box has 9"),
    ],
)
def test_a_fault_costs_its_object_only(key, row, reason, detail):
    good = {"boxes": BOX, "pose": [*BOX, 0.1, 0.2, 2, 0, 0, 0]}
    good["segments"] = good["obb"] = [0, 0.1, 0.1, 0.5, 0.1, 0.5, 0.5, 0.1, 0.5]
    (image,) = parse(HEADER, annotated(**{key: [good[key], row]}))
    (fault,) = image.faults
    assert (len(image.sample.objects), fault.reason, fault.line, fault.where) == (1, reason, 2, f"{key}[1]")
    assert detail in fault.detail


def test_a_repeated_object_is_a_fault():  # Ultralytics drops it
    (image,) = parse(annotated(boxes=[BOX, BOX]))
    assert (len(image.sample.objects), image.faults[0].detail) == (1, "it repeats boxes[0]")


def test_numbers_in_texts_are_read_with_a_warning():
    (image,) = parse(IMAGE | {"width": "40", "annotations": {"boxes": [["0", "0.5", 0.5, 0.5, 1]]}})
    assert (image.sample.width, image.sample.objects[0].box, len(image.warnings)) == (40, (0.25, 0, 0.5, 1), 1)


def test_the_list_of_the_task_is_read():
    (image,) = parse(annotated(segments=[[0, 0.1, 0.1, 0.5, 0.1, 0.5, 0.5]], boxes=[BOX], mood=[1]))
    assert [object_.box for object_ in image.sample.objects] == [(0.25, 0, 0.5, 1)]
    assert [text.partition(",")[0] for text in image.warnings] == [
        "images whose annotations have 'mood'",
        "images whose annotations have 'segments'",
    ]


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        (b'{"type": "image", "file": "1.jpg", "ann', "it is not JSON (Input data was truncated)"),
        (b'{"type": "image", "file": "1.jpg", "file": "2.jpg"}', "the key 'file' twice"),
        (b'{"type": "image", "file": "\xff.jpg"}', "UTF-8"),
        ([1], "Expected `object`"),
        ({"type": "video", "file": "1.mp4"}, "its type is 'video', not image"),
        ({"type": "image", "url": "https://x/1.jpg"}, "it has no file"),
        (IMAGE | {"annotations": [1]}, "Expected `object | null`"),
        (IMAGE | {"annotations": {"boxes": 7}}, "Expected `array`"),
        (IMAGE | {"width": "wide"}, "Expected `int | null`"),
    ],
)
def test_a_fault_of_a_line_costs_its_image_only(line, detail):
    bad, good = parse(HEADER, line, IMAGE)
    (fault,) = bad.faults
    assert (bad.sample, fault.reason, fault.line, good.sample.file_name) == (None, "malformed_image", 2, "a/1.jpg")
    assert detail in fault.detail


@pytest.mark.parametrize(
    ("split", "expected"),
    [("train", "train"), ("valid", "val"), (None, "it has no split"), ("dev", "its split 'dev' is not")],
)
def test_splits(split, expected):
    (image,) = parse(IMAGE | {"split": split}, rules=RULES._replace(has_splits=True))
    assert expected in (image.sample.split if image.sample else image.faults[0].detail)


def test_path_of_the_data_set_has_folders_of_splits():  # as in Ultralytics
    (image,) = parse(IMAGE | {"split": "val"}, rules=RULES._replace(path="..", has_splits=True))
    assert image.sample.file_name == "images/val/1.jpg"


def source_of(tmp_path, *lines: object, **options: object):
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    write_files(tmp_path, {"set.ndjson": "\n".join(texts), "1.jpg": ""})
    return source(NdjsonOptions(data=str(tmp_path), output="out", **options))


def names_of(tmp_path, class_names: object) -> list[tuple[int, str]]:
    found = source_of(tmp_path, HEADER | {"class_names": class_names}, IMAGE)
    return [(category.id, category.name) for category in found.categories]


def test_class_names_are_a_list_or_by_index(tmp_path):
    assert names_of(tmp_path, ["cat", "dog"]) == [(0, "cat"), (1, "dog")]
    assert names_of(tmp_path, {"1": "dog", "0": "cat"}) == [(0, "cat"), (1, "dog")]


def test_an_index_without_a_name_gets_that_of_ultralytics(tmp_path):
    found = source_of(tmp_path, HEADER | {"class_names": {"0": "cat", "2": "dog"}}, IMAGE)
    assert [category.name for category in found.categories] == ["cat", "class1", "dog"]
    assert ["1 (class1)" in text for text in found.warnings] == [True]


@pytest.mark.parametrize(
    ("header", "pose", "names"),
    [
        (
            {"kpt_shape": [2, 3], "kpt_names": {"0": ["nose", "tail"]}},
            BOX,
            [("nose", "tail"), ("keypoint_1", "keypoint_2")],
        ),
        ({}, [*BOX, 0.1, 0.2, 2, 0, 0, 0], [("keypoint_1", "keypoint_2")] * 2),
        ({}, [*BOX, 0.1, 0.2], [("keypoint_1",)] * 2),
    ],
)
def test_keypoints_are_those_of_kpt_shape_or_of_the_first_poses(header, pose, names, tmp_path):
    line = IMAGE | {"annotations": {"pose": [pose]}}
    found = source_of(tmp_path, HEADER | {"task": "pose"} | header, line)
    assert [category.keypoints for category in found.categories] == names


def test_splits_are_those_of_the_lines(tmp_path):
    lines = [IMAGE | {"file": f"{at}.jpg", "split": split} for at, split in enumerate(("valid", "train", "dev"))]
    found = source_of(tmp_path, HEADER, *lines, '{"type": "image", "split": "test", ')
    assert found.splits == ("train", "val")


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([HEADER, IMAGE, HEADER], 'line 3: a second line of the type "dataset"'),
        ([HEADER | {"task": "depth"}, IMAGE], "line 1: the task is 'depth', which is not read"),
        ([HEADER | {"class_names": {}}, IMAGE], "line 1: no class_names"),
        ([HEADER | {"class_names": {"x": "cat"}}, IMAGE], "not a whole number below 1,000,000: 'x'"),
        ([HEADER | {"class_names": {"99999999": "cat"}}, IMAGE], "not a whole number below 1,000,000: '99999999'"),
        ([HEADER | {"class_names": [1]}, IMAGE], "line 1: Expected `str`, got `int`"),
        ([HEADER | {"task": "pose"}, IMAGE], "line 1: no kpt_shape, and it does not follow from the poses"),
        ([HEADER | {"task": "pose", "kpt_shape": [0, 3]}, IMAGE], "kpt_shape must be the number of keypoints"),
    ],
)
def test_data_sets_that_cannot_be_read(lines, text, tmp_path):
    with pytest.raises(ConfigError, match=text.replace("(", r"\(")):
        source_of(tmp_path, *lines)


def test_files_of_different_classes_are_refused(tmp_path):
    write_files(tmp_path, {"b.ndjson": json.dumps(HEADER | {"class_names": ["fly"]})})
    with pytest.raises(ConfigError, match="differ in task, class_names, kpt_shape or path"):
        source_of(tmp_path, HEADER, IMAGE)


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("set.ndjson", b"", "is empty"),
        ("set.ndjson", b'{"id": 1}\n', 'line 1: not {"type": "dataset"'),
        ("set.ndjson.gz", b"\x1f\x8b\x08", "line 1: it is compressed by gzip. Unpack it"),
    ],
)
def test_other_files(name, data, text, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ConfigError) as error:
        source(NdjsonOptions(data=str(tmp_path / name), output="out"))
    assert text in str(error.value)


def test_images_that_are_only_urls_are_fetched_by_a_command(tmp_path):
    line = IMAGE | {"url": "https://x/1.jpg"}
    write_files(tmp_path, {"a b/set.ndjson": f"{json.dumps(HEADER)}\n{json.dumps(line)}\n"})
    options = NdjsonOptions(data=str(tmp_path / "a b"), output="out")
    with pytest.raises(ConfigError) as error:
        source(options)
    assert f"(cd '{tmp_path}/a b' && jq -r " in str(error.value)
    assert f"'{tmp_path}/a b/set.ndjson' | curl --create-dirs -fsSLZ -K -)" in str(error.value)
    (tmp_path / "a b" / "other.png").touch()
    with pytest.raises(ConfigError, match="has none of the images of"):
        source(options)
    write_files(tmp_path, {"a b/images/train/1.jpg": ""})
    assert source(options).splits == ()
