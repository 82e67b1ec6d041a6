import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import AnnotationFileError, WrongFlagError
from recordmill.schemas.inputs.annotations import (
    Annotation,
    Caption,
    Category,
    ImageLabels,
    PanopticAnnotation,
    Segment,
    StuffAnnotation,
)
from recordmill.schemas.inputs.coco import AnnotationFile, AnnotationKind, AnnotationSource, BoxFormat, FileAnnotations
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.coco.convert_rows import box_fault, keypoints_fault
from tests.transforms.coco.whole_files import read_whole

IMAGE = {"id": 1, "file_name": "a.jpg", "width": 40, "height": 30}
OBJECT = {"id": 7, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3.5, 4], "area": 12.5, "iscrowd": 0}
PERSON = {"id": 1, "name": "person", "keypoints": ["nose", "tail"], "skeleton": [[1, 2]]}
TREE = {"id": 2, "name": "tree"}
CAPTION = {"id": 4, "image_id": 1, "caption": "un été\n"}
RUNS = {"counts": [0, 1200], "size": [30, 40]}
REGION = {"id": 5, "image_id": 1, "category_id": 92, "segmentation": RUNS}
SEGMENT = {"id": 263, "category_id": 1, "iscrowd": 1, "bbox": [0, 0, 4.5, 5], "area": 9}
PANOPTIC = {"image_id": 1, "file_name": "a.png", "segments_info": [SEGMENT]}
INT64_MAX = (1 << 63) - 1

NO_IDS = [INT64_MAX + 1, None, 5.5]


def without(row: dict, key: str) -> dict:
    return {name: value for name, value in row.items() if name != key}


class Read:
    """What is in a file of the image 1, besides its image row: a part, rejects, the file."""

    def __init__(self, folder: Path, kind: AnnotationKind, rows, categories=(PERSON, TREE), masks=False, image=IMAGE):
        path = folder / "file.json"
        document = {"images": [image], "annotations": list(rows), "categories": list(categories)}
        path.write_text(json.dumps(document))
        source = AnnotationSource(kind, str(path), str(folder / "masks") if kind is AnnotationKind.PANOPTIC else "")
        items = list(read_whole(source, masks))
        (self.part,) = (item for item in items if isinstance(item, FileAnnotations))
        (self.file,) = (item for item in items if isinstance(item, AnnotationFile))
        self.rejected = [item for item in items if isinstance(item, Rejected)]
        assert (self.part.kind, self.file.kind) == (kind, kind)
        assert self.file.annotations == len(rows)

    @property
    def reasons(self) -> list[tuple]:
        return [(reject.what, reject.id, reject.reason, reject.image_id) for reject in self.rejected]


# Boxes in another format


def read_in(folder: Path, format_: BoxFormat | None, rows: list[dict], image: dict = IMAGE, kind="instances") -> list:
    path = folder / "file.json"
    path.write_text(json.dumps({"images": [image], "annotations": rows, "categories": [PERSON, TREE]}))
    return list(read_whole(AnnotationSource(AnnotationKind(kind), str(path), "", format_)))


@pytest.mark.parametrize("kind", ["instances", "keypoints"])
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
    rows = [without_area, OBJECT | {"id": 8, "bbox": numbers, "keypoints": [1, 2, 2, 0, 0, 0]}]
    part, _ = read_in(tmp_path, format_, rows, kind=kind)
    assert [annotation.bbox_xywh_px for annotation in part.annotations] == [pytest.approx((10, 3, 20, 15))] * 2
    assert [annotation.area_px2 for annotation in part.annotations] == [pytest.approx(300), 12.5]
    assert len(part.annotations[1].keypoints_xyv) == (6 if kind == "keypoints" else 0)


@pytest.mark.parametrize("image", [{"id": 1, "file_name": "a.jpg"}, IMAGE | {"width": 0}, IMAGE | {"height": -1}])
def test_fractions_of_image_whose_size_is_not_known_are_rejected(tmp_path, image):
    row = OBJECT | {"bbox": [0.25, 0.1, 0.5, 0.5]}
    reject, part, _ = read_in(tmp_path, BoxFormat.REL_XYWH, [row], image)
    detail = "bbox is fractions of an image whose width and height the file does not say: [0.25, 0.1, 0.5, 0.5]"
    assert reject == Rejected("annotation", 7, Reason.MALFORMED_BOX, detail, 1)
    assert part.annotations == ()
    part, _ = read_in(tmp_path, BoxFormat.XYXY, [OBJECT], image)
    assert part.annotations[0].bbox_xywh_px == (1, 2, 2.5, 2)


def test_fractions_of_image_that_file_does_not_have_are_named_as_such(tmp_path):
    row = OBJECT | {"image_id": 99, "bbox": [0.25, 0.1, 0.5, 0.5]}
    items = read_in(tmp_path, BoxFormat.REL_XYXY, [OBJECT | {"bbox": [0.1, 0.1, 0.5, 0.5]}, row])
    assert [item for item in items if isinstance(item, Rejected)] == [
        Rejected(
            "annotation",
            7,
            Reason.UNKNOWN_IMAGE,
            "bbox is fractions of an image, and no image row of the file has the id 99",
            99,
        )
    ]
    items = read_in(tmp_path, BoxFormat.XYXY, [row])  # it may be in another file
    assert not any(isinstance(item, Rejected) for item in items)


def test_box_whose_second_corner_is_before_first_is_rejected_with_its_own_numbers(tmp_path):
    reject, _, _ = read_in(tmp_path, BoxFormat.XYXY, [OBJECT | {"bbox": [10, 3, 9, 18]}])
    assert (reject.reason, reject.detail) == (
        Reason.MALFORMED_BOX,
        "bbox has a negative width or height: [10, 3, 9, 18]",
    )


@pytest.mark.parametrize("kind", ["instances", "keypoints"])
def test_file_whose_boxes_do_not_look_like_coco_s_is_refused_unless_format_is_given(tmp_path, kind):
    rows = [OBJECT | {"id": id_, "bbox": [0.25, 0.1, 0.5, 0.5]} for id_ in range(9)]
    with pytest.raises(WrongFlagError, match=r"9 of 9 boxes have no number above 1 and look like .* fractions"):
        read_in(tmp_path, None, rows, kind=kind)
    part, _ = read_in(tmp_path, BoxFormat.XYWH, rows, kind=kind)
    assert {annotation.bbox_xywh_px for annotation in part.annotations} == {(0.25, 0.1, 0.5, 0.5)}
    assert {annotation.area_px2 for annotation in part.annotations} == {12.5}


# Objects


@pytest.mark.parametrize("segmentation", [RUNS, None, [math.nan]])
@pytest.mark.parametrize("kind", [AnnotationKind.INSTANCES, AnnotationKind.KEYPOINTS])
def test_segmentation_is_kept_as_text_where_masks_are_wanted_and_not_looked_at(tmp_path, kind, segmentation):
    row = {**OBJECT, "segmentation": segmentation}
    (kept,) = Read(tmp_path, kind, [row], masks=True).part.annotations
    (plain,) = Read(tmp_path, kind, [row]).part.annotations
    text = kept.segmentation.decode().replace('"NaN"', "NaN")
    assert text == json.dumps(segmentation)
    assert plain.segmentation == b""


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
    read = Read(tmp_path, AnnotationKind.KEYPOINTS, [{**OBJECT, "keypoints": keypoints}])
    assert read.part.annotations == (Annotation(7, 1, (1.0, 2.0, 3.5, 4.0), 12.5, False, b"", expected),)
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
    read = Read(tmp_path, AnnotationKind.KEYPOINTS, [{**OBJECT, "keypoints": keypoints}, good])
    assert read.reasons == [("annotation", 7, Reason.MALFORMED_KEYPOINTS, 1)]
    assert [annotation.id for annotation in read.part.annotations] == [8]


def test_category_that_names_no_keypoints_has_as_many_as_most_of_its_rows(tmp_path):
    lengths = [(2, 6), (2, 3), (2, 6), (2, 0), (3, 9), (3, 3), (1, 6), (2, 5)]
    rows = [
        {**OBJECT, "id": id_, "category_id": category, "keypoints": [1] * length}
        for id_, (category, length) in enumerate(lengths)
    ]
    bad = [{**rows[0], "id": 20, "keypoints": "x"}, {**rows[0], "id": 21, "category_id": 5}]
    read = Read(tmp_path, AnnotationKind.KEYPOINTS, [*rows, *bad], (PERSON, TREE, {"id": 3, "name": "car"}))
    assert read.file.keypoints == {2: 2, 3: 3}  # of two that are as frequent the larger
    assert [row.id for row in read.part.annotations] == [0, 2, 3, 4, 6, 21]
    assert {reject.id: reject.reason for reject in read.rejected} == dict.fromkeys(
        (1, 5, 7, 20), Reason.MALFORMED_KEYPOINTS
    )
    (detail,) = (reject.detail for reject in read.rejected if reject.id == 1)
    assert "'tree' has 2 keypoints by most of its rows: 3 numbers instead of 6: [1, 1, 1]" in detail
    assert Category(2, "tree") in read.file.categories


def test_category_without_keypoints_and_rows_without_any(tmp_path):
    rows = [{**OBJECT, "category_id": 2, "keypoints": keypoints} for keypoints in ([], None, [1, 2, 3, 4])]
    read = Read(tmp_path, AnnotationKind.KEYPOINTS, [{**row, "id": id_} for id_, row in enumerate(rows)])
    assert read.file.keypoints == {}
    assert [row.id for row in read.part.annotations] == [0, 1]


def test_keypoints_of_unknown_category_are_named_by_their_category_later(tmp_path):
    read = Read(tmp_path, AnnotationKind.KEYPOINTS, [{**OBJECT, "category_id": 5, "keypoints": [1]}])
    assert [(annotation.id, annotation.category_id) for annotation in read.part.annotations] == [(7, 5)]
    assert read.rejected == []


def test_bad_box_of_object_with_keypoints_is_named_as_such(tmp_path):
    row = {**OBJECT, "bbox": [1, 2, -3, 4], "keypoints": [1, 2, 2, 4, 5, 0]}
    assert Read(tmp_path, AnnotationKind.KEYPOINTS, [row]).reasons == [("annotation", 7, Reason.MALFORMED_BOX, 1)]


NUMBERS = st.floats() | st.integers(-5, 5).map(float)


@given(st.lists(NUMBERS, max_size=9).map(tuple), st.integers(0, 3))
def test_keypoints_without_fault_are_finite_threes_of_known_visibility(numbers, expected):
    good = (
        len(numbers) in (0, 3 * expected)
        and all(map(math.isfinite, numbers))
        and all(abs(number) <= 1e18 for number in numbers)
        and set(numbers[2::3]) <= {0.0, 1.0, 2.0}
    )
    assert (keypoints_fault(numbers, expected) == "") == good


# Captions


def test_a_caption_keeps_its_text(tmp_path):
    rows = [CAPTION, {**CAPTION, "id": -1, "caption": ""}]
    read = Read(tmp_path, AnnotationKind.CAPTIONS, rows, categories=())
    assert read.part.labels == ImageLabels(captions=(Caption(4, "un été\n"), Caption(-1, "")))
    assert (read.part.annotations, read.rejected) == ((), [])


@pytest.mark.parametrize("caption", [None, 5])
def test_caption_not_text_is_rejected_and_others_stay(tmp_path, caption):
    other = {**CAPTION, "id": 5}
    read = Read(tmp_path, AnnotationKind.CAPTIONS, [{**CAPTION, "caption": caption}, other], categories=())
    assert read.reasons == [("annotation", 4, Reason.MALFORMED_CAPTION, 1)]
    assert [row.id for row in read.part.labels.captions] == [5]


@pytest.mark.parametrize("key", CAPTION)
def test_caption_that_lacks_field_is_rejected(tmp_path, key):
    row = without(CAPTION, key)
    read = Read(tmp_path, AnnotationKind.CAPTIONS, [row], categories=())
    assert read.reasons == [("annotation", row.get("id"), Reason.MALFORMED_CAPTION, row.get("image_id"))]


# Ids of all kinds

ROWS = {
    AnnotationKind.INSTANCES: (OBJECT, Reason.MALFORMED_ANNOTATION),
    AnnotationKind.KEYPOINTS: (OBJECT, Reason.MALFORMED_ANNOTATION),
    AnnotationKind.CAPTIONS: (CAPTION, Reason.MALFORMED_CAPTION),
    AnnotationKind.STUFF: (REGION, Reason.MALFORMED_ANNOTATION),
    AnnotationKind.PANOPTIC: (PANOPTIC, Reason.MALFORMED_PANOPTIC),
}


@pytest.mark.parametrize("id_", NO_IDS)
@pytest.mark.parametrize(
    ("kind", "key"), [(kind, key) for kind, (row, _) in ROWS.items() for key in row if key.endswith("id")]
)
def test_row_of_any_kind_with_unusable_id_is_rejected(tmp_path, kind, key, id_):
    row, reason = ROWS[kind]
    read = Read(tmp_path, kind, [{**row, key: id_}])
    left = without(row, key)
    assert read.reasons == [("annotation", left.get("id"), reason, left.get("image_id"))]
    assert (read.part.annotations, read.part.labels.rows) == ((), 0)


@pytest.mark.parametrize("row", [5, {}])
@pytest.mark.parametrize("kind", ROWS)
def test_rows_no_objects_are_rejected(tmp_path, kind, row):
    assert Read(tmp_path, kind, [row]).reasons == [("annotation", None, ROWS[kind][1], None)]


# Stuff


@pytest.mark.parametrize("segmentation", [RUNS, "nonsense"])
def test_region_keeps_its_segmentation_as_text_and_is_not_looked_at(tmp_path, segmentation):
    read = Read(tmp_path, AnnotationKind.STUFF, [{**REGION, "segmentation": segmentation}])
    assert read.part.labels == ImageLabels(regions=(StuffAnnotation(5, 92, json.dumps(segmentation).encode()),))
    assert read.rejected == []


@pytest.mark.parametrize("key", REGION)
def test_region_that_lacks_field_is_rejected(tmp_path, key):
    row = without(REGION, key)
    read = Read(tmp_path, AnnotationKind.STUFF, [row])
    assert read.reasons == [("annotation", row.get("id"), Reason.MALFORMED_ANNOTATION, row.get("image_id"))]


# PanopticAnnotation


def test_panoptic_row_knows_its_png_and_its_segments(tmp_path):
    bare = {"id": 1, "category_id": 92}
    read = Read(tmp_path, AnnotationKind.PANOPTIC, [{**PANOPTIC, "segments_info": [SEGMENT, bare]}])
    segments = (Segment(263, 1, True, (0.0, 0.0, 4.5, 5.0), 9.0), Segment(1, 92, False, None, None))
    row = PanopticAnnotation(str(tmp_path / "masks" / "a.png"), "a.png", segments)
    assert read.part.labels == ImageLabels(panoptic=(row,))
    assert read.rejected == []


@pytest.mark.parametrize("file_name", ["../../x", "", None])
def test_png_that_must_not_be_looked_up_is_rejected(tmp_path, file_name):
    read = Read(tmp_path, AnnotationKind.PANOPTIC, [{**PANOPTIC, "file_name": file_name}])
    assert read.reasons == [("annotation", None, Reason.MALFORMED_PANOPTIC, 1)]
    assert read.part.labels.panoptic == ()


BAD_SEGMENTS = [
    None,
    [None],
    [{"category_id": 1}],
    *([{**SEGMENT, "id": id_}] for id_ in (0, 1 << 24, None)),
    *([{**SEGMENT, "category_id": id_}] for id_ in NO_IDS),
    *([{**SEGMENT, "area": number}] for number in (math.nan, "wide")),
    *([{**SEGMENT, "bbox": [0, 0, number, 1]}] for number in (math.nan, -1, None)),
    *([{**SEGMENT, "bbox": bbox}] for bbox in ([1, 2, 3], "box")),
    [{**SEGMENT, "iscrowd": "many"}],
    [SEGMENT, {**SEGMENT, "category_id": 2}],
]


@pytest.mark.parametrize("segments", BAD_SEGMENTS, ids=range(len(BAD_SEGMENTS)))
def test_panoptic_row_with_malformed_segment_is_rejected(tmp_path, segments):
    read = Read(tmp_path, AnnotationKind.PANOPTIC, [{**PANOPTIC, "segments_info": segments}])
    assert read.reasons == [("annotation", None, Reason.MALFORMED_PANOPTIC, 1)]


BOX_NUMBERS = st.floats() | st.floats(-2e18, 2e18)


@given(st.tuples(BOX_NUMBERS, BOX_NUMBERS, BOX_NUMBERS, BOX_NUMBERS))
def test_box_without_fault_is_finite_and_not_negative(box):
    good = all(abs(number) <= 1e18 for number in box) and box[2] >= 0 and box[3] >= 0
    assert (box_fault(box) == "") == good


# Files of images, and LVIS's


def test_file_of_images_has_no_annotations(tmp_path):
    read = Read(tmp_path, AnnotationKind.IMAGE_INFO, [])
    assert (read.part.annotations, read.part.labels) == ((), ImageLabels())


def test_annotations_of_file_of_images_would_be_lost_and_are_refused(tmp_path):
    with pytest.raises(AnnotationFileError, match=r"file\.json has 2 annotations, which --image-info would drop"):
        Read(tmp_path, AnnotationKind.IMAGE_INFO, [OBJECT, CAPTION])


@pytest.mark.parametrize(
    ("more", "neg", "not_exhaustive"),
    [
        ({"neg_category_ids": [5, 2], "not_exhaustive_category_ids": []}, (5, 2), ()),
        ({"not_exhaustive_category_ids": [7]}, (), (7,)),
        ({"neg_category_ids": None, "not_exhaustive_category_ids": [7]}, (), (7,)),
    ],
)
def test_lvis_s_lists_go_with_their_image_and_file_is_known_by_them(tmp_path, more, neg, not_exhaustive):
    read = Read(tmp_path, AnnotationKind.INSTANCES, [OBJECT], image={**IMAGE, **more})
    assert read.part.labels == ImageLabels(neg_category_ids=neg, not_exhaustive_category_ids=not_exhaustive)
    assert read.file.lvis
    assert not Read(tmp_path, AnnotationKind.INSTANCES, [OBJECT]).file.lvis


def test_lvis_s_images_are_called_as_their_address_ends(tmp_path):
    image = {**without(IMAGE, "file_name"), "coco_url": "http://images.cocodataset.org/train2017/000000391895.jpg"}
    read = Read(tmp_path, AnnotationKind.INSTANCES, [OBJECT], image=image)
    assert [row.file_name for row in read.part.rows] == ["000000391895.jpg"]
