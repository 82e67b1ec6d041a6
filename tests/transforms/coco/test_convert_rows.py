"""Rows of COCO files, as whole files give them."""

import json
import math
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from recordmill.schemas.errors import AnnotationFileError, WrongFlagError
from recordmill.schemas.inputs.annotations import (
    Annotation,
    Caption,
    Category,
    ImageLabels,
    ImageRow,
    PanopticAnnotation,
    Segment,
    StuffAnnotation,
)
from recordmill.schemas.inputs.boxes import box_fault, keypoints_fault
from recordmill.schemas.inputs.coco import AnnotationFile, AnnotationKind, AnnotationSource, BoxFormat
from recordmill.schemas.inputs.files import File
from recordmill.schemas.rejects import Reason, Rejected
from tests.transforms.coco.whole_files import CATEGORY, IMAGE, OBJECT, Read, document, read_whole, without

INSTANCES, KEYPOINTS, CAPTIONS, STUFF, PANOPTIC, IMAGE_INFO = AnnotationKind
KEYED = {"id": 3, "name": "person", "keypoints": ["nose", "tail"], "skeleton": [[1, 2]]}
TREE = {"id": 2, "name": "tree"}
CAPTION = {"id": 4, "image_id": 1, "caption": "un été\n"}
RUNS = {"counts": [0, 1200], "size": [30, 40]}
REGION = {"id": 5, "image_id": 1, "category_id": 92, "segmentation": RUNS}
SEGMENT = {"id": 263, "category_id": 1, "iscrowd": 1, "bbox": [0, 0, 4.5, 5], "area": 9}
PNG = {"image_id": 1, "file_name": "a.png", "segments_info": [SEGMENT]}
ANNOTATION = Annotation(7, 3, (1.0, 2.0, 3.5, 4.0), 12.5, False)
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


def read_rows(folder: Path, kind: AnnotationKind, *rows: object, masks: bool = False) -> Read:
    """Read a file of one image."""
    return Read(folder, document([IMAGE], rows, [KEYED, TREE]), kind, masks)


def test_rows_become_structs(tmp_path):
    read = Read(tmp_path, document())
    assert read.parts == {1: ((ImageRow(1, "a.jpg", 40, 30),), (ANNOTATION,))}
    assert read.rejected == []
    assert read.file == AnnotationFile(read.path, INSTANCES, 1, 1, (Category(3, "dog", "animal"),))


@pytest.mark.parametrize("content", [document([], [], []), {"images": []}, {"images": [], "annotations": []}])
def test_empty_lists(tmp_path, content):
    read = Read(tmp_path, content)
    assert (read.parts, read.rejected, read.file) == ({}, [], AnnotationFile(read.path, INSTANCES, 0, 0, ()))


@pytest.mark.parametrize("key", ["segmentation", "ID", "keypoints"])
@pytest.mark.parametrize("value", [{"counts": 'a\\u0041"}', "size": [1, 2]}, None, [{"images": []}]])
def test_unknown_fields_are_counted(tmp_path, key, value):
    more = {key: value}
    plain = Read(tmp_path, document())
    category = CATEGORY if key == "keypoints" else {**CATEGORY, **more}  # a known field there
    read = Read(tmp_path, {**more, **document([{**more, **IMAGE}], [{**OBJECT, **more}], [category])})
    lists = ("file", "images", "annotations", *(() if key == "keypoints" else ("categories",)))
    counted = {name: {key: 1} for name in lists} if value and "size" in value else {}
    assert (read.parts, read.rejected) == (plain.parts, [])
    assert read.file == msgspec.structs.replace(plain.file, unread=counted, observed=read.file.observed)


def test_fields_that_only_some_layouts_carry_are_counted(tmp_path):
    images = [{**IMAGE, "neg_category_ids": [1]}, {**IMAGE, "id": 2, "not_exhaustive_category_ids": []}]
    rows = [{**OBJECT, "id": id_, "iscrowd": id_ % 2} for id_ in range(5)]
    read = Read(tmp_path, document(images, rows))
    assert read.file.optional == {"images": {"neg_category_ids": 1}, "annotations": {"iscrowd": 2}}
    assert (read.file.unread, read.file.lvis) == ({}, True)


# Rows of any kind

ROWS = {
    INSTANCES: (OBJECT, Reason.MALFORMED_ANNOTATION),
    KEYPOINTS: (OBJECT, Reason.MALFORMED_ANNOTATION),
    CAPTIONS: (CAPTION, Reason.MALFORMED_CAPTION),
    STUFF: (REGION, Reason.MALFORMED_ANNOTATION),
    PANOPTIC: (PNG, Reason.MALFORMED_PANOPTIC),
}
FIELDS = [(kind, key) for kind, (row, _) in ROWS.items() for key in row if key not in ("area", "iscrowd")]
NO_IDS = [True, 5.5, [5], "", None, INT64_MAX + 1, INT64_MIN - 1, 1e19]


@pytest.mark.parametrize("id_", NO_IDS)
@pytest.mark.parametrize(("kind", "key"), [(kind, key) for kind, key in FIELDS if key.endswith("id")])
def test_row_with_unusable_id_is_rejected(tmp_path, kind, key, id_):
    row, reason = ROWS[kind]
    read = read_rows(tmp_path, kind, {**row, key: id_})
    left = without(row, key)
    assert read.reasons == [("annotation", left.get("id"), reason, left.get("image_id"))]
    assert (read.part.annotations, read.part.labels.rows) == ((), 0)


@pytest.mark.parametrize(("kind", "key"), FIELDS)
def test_row_that_lacks_field_is_rejected(tmp_path, kind, key):
    row, reason = ROWS[kind]
    left = without(row, key)
    read = read_rows(tmp_path, kind, left)
    assert read.reasons == [("annotation", left.get("id"), reason, left.get("image_id"))]
    assert key in read.rejected[0].detail


@pytest.mark.parametrize("row", [None, 5, [1, "a.jpg"], {}])
@pytest.mark.parametrize("kind", ROWS)
def test_row_that_is_no_object_is_rejected(tmp_path, kind, row):
    read = Read(tmp_path, document([row, IMAGE], [row]), kind)
    image = ("image", None, Reason.MALFORMED_IMAGE, None)
    assert read.reasons == [image, ("annotation", None, ROWS[kind][1], None)]
    assert list(read.parts) == [1]


@pytest.mark.parametrize("id_", [0, -1, INT64_MAX, INT64_MIN, 5.0, "5", "-5", "5.0"])
def test_whole_numbers_are_ids_however_they_are_written(tmp_path, id_):
    content = document([{**IMAGE, "id": id_}], [{**OBJECT, "id": id_, "image_id": id_, "category_id": id_}], [])
    read = Read(tmp_path, content)
    number = id_ if isinstance(id_, int) else int(float(id_))
    annotation = Annotation(number, number, (1.0, 2.0, 3.5, 4.0), 12.5, False)
    assert read.parts == {number: ((ImageRow(number, "a.jpg", 40, 30),), (annotation,))}
    assert read.rejected == []


# Images and categories


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ({}, (None, None)),
        ({"width": None, "height": None}, (None, None)),
        ({"width": 0, "height": 0}, (None, None)),
        ({"width": -1, "height": -1}, (None, None)),
        ({"width": 40}, (None, None)),
        ({"width": 40, "height": 0}, (None, None)),
        ({"width": 0, "height": 30}, (None, None)),
        ({"width": 40.0, "height": "30"}, (40, 30)),
    ],
)
def test_size_is_known_whole_or_not_at_all(tmp_path, size, expected):
    read = Read(tmp_path, document([{"id": 1, "file_name": "a.jpg", **size}], []))
    assert read.parts == {1: ((ImageRow(1, "a.jpg", *expected),), ())}


BAD_IMAGES = [
    *({**IMAGE, "id": id_} for id_ in NO_IDS),
    *({**IMAGE, "width": width} for width in ("wide", 40.5, True, 1 << 70)),
    *(without(IMAGE, key) for key in ("id", "file_name")),
]


@pytest.mark.parametrize("image", BAD_IMAGES, ids=range(len(BAD_IMAGES)))
def test_malformed_image_row_is_rejected(tmp_path, image):
    read = Read(tmp_path, document([image, {**IMAGE, "id": 2}], []))
    id_ = 1 if image.get("id") == 1 and image["id"] is not True else None
    assert read.reasons == [("image", id_, Reason.MALFORMED_IMAGE, None)]
    assert list(read.parts) == [2]
    lacking = [key for key in ("id", "file_name") if key not in image]
    assert all(key in read.rejected[0].detail for key in lacking)


@pytest.mark.parametrize("id_", [INT64_MAX + 1, True, None])
def test_category_without_usable_id_stops_file(tmp_path, id_):
    with pytest.raises(AnnotationFileError, match="a category has an integer id and a name"):
        Read(tmp_path, document(categories=[{**CATEGORY, "id": id_}]))


@pytest.mark.parametrize(
    ("more", "neg", "not_exhaustive"),
    [
        ({"neg_category_ids": [5]}, (5,), ()),
        ({"neg_category_ids": [5, 2], "not_exhaustive_category_ids": []}, (5, 2), ()),
        ({"not_exhaustive_category_ids": [7]}, (), (7,)),
        ({"neg_category_ids": None, "not_exhaustive_category_ids": [7]}, (), (7,)),
    ],
)
def test_lists_of_lvis(tmp_path, more, neg, not_exhaustive):
    read = Read(tmp_path, document([{**IMAGE, **more}]))
    assert read.part.labels == ImageLabels(neg_category_ids=neg, not_exhaustive_category_ids=not_exhaustive)
    assert read.file.lvis
    assert not Read(tmp_path, document()).file.lvis


def test_lvis_s_images_are_called_as_their_address_ends(tmp_path):
    image = {**without(IMAGE, "file_name"), "coco_url": "http://images.cocodataset.org/train2017/000000391895.jpg"}
    read = Read(tmp_path, document([image]))
    assert [row.file_name for row in read.part.rows] == ["000000391895.jpg"]


def test_file_of_images_has_no_annotations(tmp_path):
    read = Read(tmp_path, document(annotations=[]), IMAGE_INFO)
    assert (read.part.annotations, read.part.labels) == ((), ImageLabels())


# Boxes, areas and crowds


@pytest.mark.parametrize(("area", "expected"), [(None, 14.0), (0, 0.0), (12.5, 12.5), ("7", 7.0), (1e18, 1e18)])
def test_area_is_json_s_or_box_s(tmp_path, area, expected):
    read = Read(tmp_path, document(annotations=[{**OBJECT, "area": area}]))
    assert [annotation.area_px2 for annotation in read.part.annotations] == [expected]


@pytest.mark.parametrize(
    ("iscrowd", "expected"),
    [
        *((value, False) for value in (0, False, None, "0", "false", "No", 0.0, "0.0")),
        *((value, True) for value in (1, True, "1", "TRUE", "yes", 1.0)),
    ],
)
def test_forms_of_iscrowd(tmp_path, iscrowd, expected):
    rows = [{**OBJECT, "iscrowd": iscrowd}, {**without(OBJECT, "iscrowd"), "id": 8}]
    read = Read(tmp_path, document(annotations=rows))
    assert [annotation.is_crowd for annotation in read.part.annotations] == [expected, False]


@pytest.mark.parametrize("iscrowd", [2, -1, 0.5, "", "2", "many", [0], math.nan])
def test_iscrowd_that_is_no_boolean_costs_its_row(tmp_path, iscrowd):
    read = Read(tmp_path, document(annotations=[{**OBJECT, "iscrowd": iscrowd}, {**OBJECT, "id": 8}]))
    assert read.reasons == [("annotation", 7, Reason.MALFORMED_ANNOTATION, 1)]
    assert [annotation.id for annotation in read.part.annotations] == [8]


BAD_BOXES = [[], [1, 2, 3, 4, 5], [1, 2, -3, 4], ["1", 2, 3, 4], [1, 2, None, 4], [1, 2, True, 4], {"x": 1}]


@pytest.mark.parametrize("bbox", [*BAD_BOXES, [math.nan, 0, 1, 1], [0, 0, 1, 1e19]])
def test_malformed_box_is_rejected_and_shown(tmp_path, bbox):
    for kind, more in (INSTANCES, {}), (KEYPOINTS, {"keypoints": [1, 2, 2, 4, 5, 0]}):
        read = read_rows(tmp_path, kind, {**OBJECT, **more, "bbox": bbox}, {**OBJECT, "id": 8})
        assert read.reasons == [("annotation", 7, Reason.MALFORMED_BOX, 1)]
        assert read.rejected[0].detail.endswith(": " + json.dumps(bbox).replace("NaN", '"NaN"'))
        assert [annotation.id for annotation in read.part.annotations] == [8]


@pytest.mark.parametrize("area", [math.nan, 1e19, -1e30, "nan", "wide", True, []])
def test_area_that_is_no_number_of_pixels_costs_its_row(tmp_path, area):
    read = Read(tmp_path, document(annotations=[{**OBJECT, "area": area}, {**OBJECT, "id": 8}]))
    assert read.reasons == [("annotation", 7, Reason.MALFORMED_ANNOTATION, 1)]
    assert [annotation.id for annotation in read.part.annotations] == [8]


BOX_NUMBERS = st.floats() | st.floats(-2e18, 2e18)


@given(st.tuples(BOX_NUMBERS, BOX_NUMBERS, BOX_NUMBERS, BOX_NUMBERS))
def test_box_without_fault_is_finite_and_not_negative(box):
    good = all(abs(number) <= 1e18 for number in box) and box[2] >= 0 and box[3] >= 0
    assert (box_fault(box) == "") == good


@pytest.mark.parametrize("segmentation", [RUNS, None, [math.nan]])
@pytest.mark.parametrize("kind", [INSTANCES, KEYPOINTS])
def test_segmentation_is_kept_as_text_where_masks_are_wanted(tmp_path, kind, segmentation):
    row = {**OBJECT, "segmentation": segmentation}
    (masked,) = read_rows(tmp_path, kind, row, masks=True).part.annotations
    (plain,) = read_rows(tmp_path, kind, row).part.annotations
    assert masked.segmentation.decode().replace('"NaN"', "NaN") == json.dumps(segmentation)
    assert plain.segmentation == b""


def test_nan_outside_of_strings(tmp_path):
    image = {**IMAGE, "file_name": 'NaN "-Infinity" \\.jpg', "score": -math.inf}
    row = {**OBJECT, "score": math.nan, "segmentation": [[math.inf, -math.inf]]}
    category = {**CATEGORY, "name": "Infinity"}
    read = Read(tmp_path, document([image], [row, {**row, "id": 8, "bbox": [math.nan] * 4}], [category]))
    assert read.parts == {1: ((ImageRow(1, 'NaN "-Infinity" \\.jpg', 40, 30),), (ANNOTATION,))}
    assert read.reasons == [("annotation", 8, Reason.MALFORMED_BOX, 1)]
    assert read.file.categories == (Category(3, "Infinity", "animal"),)


# Boxes in another format


def read_in(folder: Path, format_: BoxFormat | None, rows: list[dict], image: dict = IMAGE, kind=INSTANCES) -> Read:
    return Read(folder, document([image], rows, [KEYED, TREE]), kind, format_=format_)


@pytest.mark.parametrize("kind", [INSTANCES, KEYPOINTS])
@pytest.mark.parametrize(
    ("format_", "numbers"),
    [
        (BoxFormat.XYWH, [10, 3, 20, 15]),
        (BoxFormat.XYXY, [10, 3, 30, 18]),
        (BoxFormat.REL_XYWH, [0.25, 0.1, 0.5, 0.5]),
        (BoxFormat.REL_XYXY, [0.25, 0.1, 0.75, 0.6]),
    ],
)
def test_box_in_format_given_becomes_pixels(tmp_path, format_, numbers, kind):
    without_area = without(OBJECT, "area") | {"bbox": numbers}
    rows = [without_area, OBJECT | {"id": 8, "bbox": numbers, "keypoints": [1, 2, 2, 0, 0, 0], "iscrowd": 1}]
    annotations = read_in(tmp_path, format_, rows, kind=kind).part.annotations
    assert [annotation.bbox_xywh_px for annotation in annotations] == [pytest.approx((10, 3, 20, 15))] * 2
    assert [annotation.area_px2 for annotation in annotations] == [pytest.approx(300), 12.5]
    assert [annotation.is_crowd for annotation in annotations] == [False, True]
    assert len(annotations[1].keypoints_xyv) == (6 if kind is KEYPOINTS else 0)


@pytest.mark.parametrize("image", [{"id": 1, "file_name": "a.jpg"}, IMAGE | {"width": 0}, IMAGE | {"height": -1}])
def test_fractions_without_image_size(tmp_path, image):
    read = read_in(tmp_path, BoxFormat.REL_XYWH, [OBJECT | {"bbox": [0.25, 0.1, 0.5, 0.5]}], image)
    detail = "bbox is fractions of an image whose width and height are missing from the file: [0.25, 0.1, 0.5, 0.5]"
    assert read.rejected == [Rejected("annotation", 7, Reason.MALFORMED_BOX, detail, 1)]
    assert read.part.annotations == ()
    (annotation,) = read_in(tmp_path, BoxFormat.XYXY, [OBJECT], image).part.annotations
    assert annotation.bbox_xywh_px == (1, 2, 2.5, 2)


def test_fractions_of_absent_image(tmp_path):
    row = OBJECT | {"image_id": 99, "bbox": [0.25, 0.1, 0.5, 0.5]}
    read = read_in(tmp_path, BoxFormat.REL_XYXY, [OBJECT | {"bbox": [0.1, 0.1, 0.5, 0.5]}, row])
    detail = "bbox is fractions of an image, and no image row of the file has the id 99"
    assert read.rejected == [Rejected("annotation", 7, Reason.UNKNOWN_IMAGE, detail, 99)]
    assert read_in(tmp_path, BoxFormat.XYXY, [row]).rejected == []  # it may be in another file


def test_swapped_corners_are_rejected(tmp_path):
    (reject,) = read_in(tmp_path, BoxFormat.XYXY, [OBJECT | {"bbox": [10, 3, 9, 18]}]).rejected
    detail = "bbox has a negative width or height: [10, 3, 9, 18]"
    assert (reject.reason, reject.detail) == (Reason.MALFORMED_BOX, detail)


@pytest.mark.parametrize("kind", [INSTANCES, KEYPOINTS])
def test_odd_boxes_need_a_format(tmp_path, kind):
    rows = [OBJECT | {"id": id_, "bbox": [0.25, 0.1, 0.5, 0.5]} for id_ in range(9)]
    with pytest.raises(WrongFlagError, match=r"9 of 9 boxes have no number above 1 and look like .* fractions"):
        read_in(tmp_path, None, rows, kind=kind)
    annotations = read_in(tmp_path, BoxFormat.XYWH, rows, kind=kind).part.annotations
    assert {(annotation.bbox_xywh_px, annotation.area_px2) for annotation in annotations} == {
        ((0.25, 0.1, 0.5, 0.5), 12.5)
    }


# Keypoints


@pytest.mark.parametrize(
    ("keypoints", "expected"),
    [
        ([1, 2, 2, 30.5, 4, 0], (1.0, 2.0, 2.0, 30.5, 4.0, 0.0)),
        ([-1, -2, 1, 300, 400, 2.0], (-1.0, -2.0, 1.0, 300.0, 400.0, 2.0)),
        ([0] * 6, (0.0,) * 6),
        ([], ()),
        (None, ()),
    ],
)
def test_keypoints_of_an_object(tmp_path, keypoints, expected):
    read = read_rows(tmp_path, KEYPOINTS, {**OBJECT, "keypoints": keypoints})
    assert read.part.annotations == (msgspec.structs.replace(ANNOTATION, keypoints_xyv=expected),)
    assert read.rejected == []


@pytest.mark.parametrize(
    "keypoints",
    [
        [1, 2, 2],
        [1, 2, 3, 4, 5, 2],
        [1, 2, 2, 4, 5, 0.5],
        [math.nan, 2, 2, 4, 5, 2],
        [1, 2, 2, -1e19, 5, 2],
        [1, 2, 2, None, 5, 2],
        [1, 2, 2, "4", 5, 2],
        [[1, 2, 2], [4, 5, 2]],
        "12 2",
    ],
)
def test_malformed_keypoints_are_rejected_and_others_stay(tmp_path, keypoints):
    good = {**OBJECT, "id": 8, "keypoints": [1, 2, 2, 4, 5, 0]}
    read = read_rows(tmp_path, KEYPOINTS, {**OBJECT, "keypoints": keypoints}, good)
    assert read.reasons == [("annotation", 7, Reason.MALFORMED_KEYPOINTS, 1)]
    assert [annotation.id for annotation in read.part.annotations] == [8]


def test_number_of_unnamed_keypoints(tmp_path):
    lengths = [(2, 6), (2, 3), (2, 6), (2, 0), (4, 9), (4, 3), (3, 6), (2, 5)]
    rows = [
        {**OBJECT, "id": id_, "category_id": category, "keypoints": [1] * length}
        for id_, (category, length) in enumerate(lengths)
    ]
    bad = [{**rows[0], "id": 20, "keypoints": "x"}, {**rows[0], "id": 21, "category_id": 5}]
    categories = [KEYED, TREE, {"id": 4, "name": "car"}]
    read = Read(tmp_path, document(annotations=[*rows, *bad], categories=categories), KEYPOINTS)
    assert read.file.keypoints == {2: 2, 4: 3}  # of two that are as frequent the larger
    assert [row.id for row in read.part.annotations] == [0, 2, 3, 4, 6, 21]
    assert {(reject.id, reject.reason) for reject in read.rejected} == {
        (n, Reason.MALFORMED_KEYPOINTS) for n in (1, 5, 7, 20)
    }
    (detail,) = (reject.detail for reject in read.rejected if reject.id == 1)
    assert "'tree' has 2 keypoints by most of its rows: 3 numbers instead of 6: [1, 1, 1]" in detail
    assert Category(2, "tree") in read.file.categories


def test_category_without_keypoints_and_rows_without_any(tmp_path):
    rows = [{**OBJECT, "category_id": 2, "keypoints": keypoints} for keypoints in ([], None, [1, 2, 3, 4])]
    read = read_rows(tmp_path, KEYPOINTS, *({**row, "id": id_} for id_, row in enumerate(rows)))
    assert read.file.keypoints == {}
    assert [row.id for row in read.part.annotations] == [0, 1]


def test_keypoints_are_named_later(tmp_path):
    read = read_rows(tmp_path, KEYPOINTS, {**OBJECT, "category_id": 5, "keypoints": [1]})
    assert [(annotation.id, annotation.category_id) for annotation in read.part.annotations] == [(7, 5)]
    assert read.rejected == []


NUMBERS = st.floats() | st.integers(-5, 5).map(float)


@given(st.lists(NUMBERS, max_size=9).map(tuple), st.integers(0, 3))
def test_valid_keypoints(numbers, expected):
    good = (
        len(numbers) in (0, 3 * expected)
        and all(abs(number) <= 1e18 for number in numbers)
        and set(numbers[2::3]) <= {0.0, 1.0, 2.0}
    )
    assert (keypoints_fault(numbers, expected) == "") == good


# Captions, regions and panoptic rows


def test_a_caption_keeps_its_text(tmp_path):
    read = read_rows(tmp_path, CAPTIONS, CAPTION, {**CAPTION, "id": -1, "caption": ""})
    assert read.part.labels == ImageLabels(captions=(Caption(4, "un été\n"), Caption(-1, "")))
    assert (read.part.annotations, read.rejected) == ((), [])


@pytest.mark.parametrize("caption", [None, 5])
def test_caption_that_is_no_text_is_rejected_and_others_stay(tmp_path, caption):
    read = read_rows(tmp_path, CAPTIONS, {**CAPTION, "caption": caption}, {**CAPTION, "id": 5})
    assert read.reasons == [("annotation", 4, Reason.MALFORMED_CAPTION, 1)]
    assert [row.id for row in read.part.labels.captions] == [5]


@pytest.mark.parametrize("segmentation", [RUNS, "nonsense"])
def test_region_keeps_its_segmentation_as_text(tmp_path, segmentation):
    read = read_rows(tmp_path, STUFF, {**REGION, "segmentation": segmentation})
    assert read.part.labels == ImageLabels(regions=(StuffAnnotation(5, 92, json.dumps(segmentation).encode()),))
    assert read.rejected == []


def test_panoptic_row_knows_its_png_and_its_segments(tmp_path):
    read = read_rows(tmp_path, PANOPTIC, {**PNG, "segments_info": [SEGMENT, {"id": 1, "category_id": 92}]})
    segments = (Segment(263, 1, True, (0.0, 0.0, 4.5, 5.0), 9.0), Segment(1, 92, False, None, None))
    row = PanopticAnnotation(File(str(tmp_path / "masks" / "a.png")), "a.png", segments)
    assert read.part.labels == ImageLabels(panoptic=(row,))
    assert read.rejected == []


BAD_SEGMENTS = [
    None,
    [None],
    [{"category_id": 1}],
    *([{**SEGMENT, "id": id_}] for id_ in (0, 1 << 24, None)),
    *([{**SEGMENT, "category_id": id_}] for id_ in (INT64_MAX + 1, None, 5.5)),
    *([{**SEGMENT, "area": number}] for number in (math.nan, "wide")),
    *([{**SEGMENT, "bbox": [0, 0, number, 1]}] for number in (math.nan, -1, None)),
    *([{**SEGMENT, "bbox": bbox}] for bbox in ([1, 2, 3], "box")),
    *([{**SEGMENT, "iscrowd": flag}] for flag in ("many", 2)),
    [SEGMENT, {**SEGMENT, "category_id": 2}],
]
BAD_PANOPTIC = [{"segments_info": segments} for segments in BAD_SEGMENTS] + [
    {"file_name": n} for n in ("../../x", "", None)
]


@pytest.mark.parametrize("bad", BAD_PANOPTIC, ids=range(len(BAD_PANOPTIC)))
def test_malformed_panoptic_row_is_rejected(tmp_path, bad):
    read = read_rows(tmp_path, PANOPTIC, {**PNG, **bad})
    assert read.reasons == [("annotation", None, Reason.MALFORMED_PANOPTIC, 1)]
    assert read.part.labels.panoptic == ()


# Annotation ids that images share


def test_shared_annotation_ids_are_kept(tmp_path):
    images = [{**IMAGE, "id": id_} for id_ in (1, 2, 3)]
    rows = [{**OBJECT, "id": id_, "image_id": image} for id_, image in ((7, 3), (8, 1), (7, 2), (9, 1), (8, 2), (9, 1))]
    read = Read(tmp_path, document(images, rows))
    assert sum(len(annotations) for _, annotations in read.parts.values()) == 6
    (warning,) = read.file.warnings
    assert warning.startswith(
        f"{read.path}: annotations of different images share an id: those of images 2 and 3 share 7 (number of such "
        "ids: 2). None is rejected, but "
    )
    assert Read(tmp_path, document([IMAGE], [OBJECT, OBJECT])).file.warnings == ()


# The fast way and the slow one

IDS = st.integers(-3, 6) | st.sampled_from([INT64_MIN, INT64_MAX])
SIDES = st.none() | st.integers(-1, 9)
COORDINATES = st.integers(0, 500) | st.floats(-500, 500)
LENGTHS = st.integers(0, 500) | st.floats(0, 500)
IMAGES = st.fixed_dictionaries(
    {"id": IDS, "file_name": st.text(st.characters(exclude_categories=["Cs"]))},
    optional={"width": SIDES, "height": SIDES, "license": st.none()},
)
ANNOTATIONS = st.fixed_dictionaries(
    {"id": IDS, "image_id": IDS, "category_id": IDS, "bbox": st.tuples(COORDINATES, COORDINATES, LENGTHS, LENGTHS)},
    optional={
        "area": st.none() | LENGTHS,
        "iscrowd": st.none() | st.sampled_from([0, 1, True, False]),
        "segmentation": st.lists(COORDINATES),
    },
)


@settings(max_examples=60)
@given(images=st.lists(IMAGES, max_size=5), annotations=st.lists(ANNOTATIONS, max_size=8))
def test_bad_row_changes_nothing_for_others(tmp_path_factory, images, annotations):
    folder = tmp_path_factory.getbasetemp()
    try:
        fast = Read(folder, document(images, annotations))
    except WrongFlagError:  # the boxes look like fractions
        reject()
    assert fast.rejected == []
    in_blocks = Read(folder, document(images, annotations), block_bytes=90)
    assert (in_blocks.parts, in_blocks.file) == (fast.parts, fast.file)
    slow = Read(folder, document([*images, {"id": 1}], [{**OBJECT, "image_id": ["?"]}, *annotations]))
    assert slow.parts == fast.parts
    assert {(rejected.what, rejected.id, rejected.image_id) for rejected in slow.rejected} == {
        ("annotation", 7, None),
        ("image", 1, None),
    }


def test_annotations_with_keys_that_are_not_utf_8_do_not_end_the_reading_of_image_info(tmp_path):
    (tmp_path / "a.json").write_bytes(b'{"images": [], "annotations": [{"\xfe": 1}], "categories": []}')
    with pytest.raises(WrongFlagError, match=r"has 1 annotations, which --image-info would drop"):
        list(read_whole(AnnotationSource(AnnotationKind.IMAGE_INFO, str(tmp_path / "a.json"))))
