import numpy as np
import pytest
from PIL import Image

from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import LAYOUTS
from recordmill.transforms.extract.extract_files import UnusableRecordError
from recordmill.transforms.extract.extract_rows import Extracted, RowExtractor
from recordmill.transforms.sample.draw_scene import encoded

CAT, FIGURE, SKY = Category(3, "cat"), Category(7, "figure", keypoints=("head", "foot")), Category(92, "sky", isthing=0)
LABELS = LabelMap((CAT, FIGURE), (SKY,))


def png(width: int = 40, height: int = 30) -> bytes:
    return encoded(Image.new("L", (width, height)), "PNG")


DETECTION = {
    "image.encoded": png(),
    "image.file_name": b"a/b.png",
    "image.height": np.array([30]),
    "image.width": np.array([40]),
    "image.id": b"5",
    "objects.area": np.float32([50.37, 9]),
    "objects.category_id": np.array([3, 7]),
    "objects.id": np.array([11, 12]),
    "objects.is_crowd": np.array([1, 0]),
    "objects.xmin": np.float32([0.25, 0.5]),
    "objects.xmax": np.float32([0.5, 1]),
    "objects.ymin": np.float32([0, 0.1]),
    "objects.ymax": np.float32([0.5, 0.3]),
}
TFDS = {
    "image.encoded": png(),
    "image.file_name": b"b.png",
    "image.number": np.array([6]),
    "objects.area_whole": np.array([50]),
    "objects.bbox_yxyx": np.float32([0, 0.25, 0.5, 0.5]),
    "objects.category_id": np.array([3]),
    "objects.id": np.array([11]),
    "objects.is_crowd": np.array([0]),
    "panoptic.file_name": b"p.png",
    "panoptic.png": b"the PNG",
    "segments.area": np.array([7]),
    "segments.bbox_yxyx": np.float32([0, 0, 1, 1]),
    "segments.class_index": np.array([0]),
    "segments.id": np.array([70_000]),
    "segments.is_crowd": np.array([0]),
}
BOX = b'{"id":%d,"image_id":%d,"category_id":3,"bbox":[10.0,0.0,10.0,15.0],"area":%b,"iscrowd":%d'


def extract(layout: str, values: dict, *parts: Part) -> Extracted:
    return RowExtractor(LAYOUTS[layout].with_parts(parts), LABELS, "val")(values)


def test_detection():
    rows, files, faults = extract("detection", DETECTION)
    assert [(file.path, file.data) for file in files] == [("images/val/a/b.png", png())]
    assert (rows.image.id, rows.image.file_name, rows.image.width, rows.image.height) == (5, "a/b.png", 40, 30)
    assert rows.instances[0].json == BOX % (11, 5, b"50.37", 1) + b"}"
    assert (rows.instances[1].id, rows.keypoints, rows.captions, rows.panoptic, faults) == (12, (), (), None, [])


def test_keypoints_are_category():
    values = DETECTION | {
        "objects.keypoint_num": np.array([0, 1]),
        "objects.keypoint_x": np.float32([0, 0, 0.55, 0.9]),
        "objects.keypoint_y": np.float32([0, 0, 0.2, 0.9]),
        "objects.keypoint_visibility": np.array([0, 0, 1, 0]),
    }
    rows, _, _ = extract("detection", values, Part.KEYPOINTS)
    (figure,) = rows.keypoints
    assert figure.json.endswith(b',"num_keypoints":1,"keypoints":[22.0,6.0,1,0.0,0.0,0]}')
    assert b"keypoints" not in rows.instances[1].json


def test_keypoints_are_padded():
    """Lists of keypoints are of the category with the most; the rest of another's room is empty."""
    pole = Category(3, "pole", keypoints=("top",))
    values = DETECTION | {
        "objects.category_id": np.array([7, 3]),
        "objects.keypoint_num": np.array([1, 1]),
        "objects.keypoint_x": np.float32([0.55, 0.9, 0.25, 0]),
        "objects.keypoint_y": np.float32([0.2, 0.9, 0.5, 0]),
        "objects.keypoint_visibility": np.array([1, 0, 2, 0]),
    }
    extractor = RowExtractor(LAYOUTS["detection"].with_parts((Part.KEYPOINTS,)), LabelMap((pole, FIGURE)), "val")
    rows, _, _ = extractor(values)
    assert [row.json.partition(b',"num_keypoints"')[2] for row in rows.keypoints] == [
        b':1,"keypoints":[22.0,6.0,1,0.0,0.0,0]}',
        b':1,"keypoints":[10.0,15.0,2]}',
    ]


def test_keras():
    values = {name: value for name, value in TFDS.items() if name.startswith("image.")}
    values |= {
        "objects.area": np.float32([50.37]),
        "objects.bbox_xywh_px": np.float32([10.01, 0, 10, 15]),
        "objects.category_id": np.array([3]),
        "objects.id": np.array([11]),
    }
    rows, _, _ = extract("keras", values)
    assert (rows.image.width, rows.image.height) == (40, 30)
    assert rows.instances[0].json == (BOX % (11, 6, b"50.37", 0)).replace(b"10.0,", b"10.01,", 1) + b"}"


def test_tfds():
    rows, files, faults = extract("tfds", TFDS, Part.PANOPTIC)
    assert rows.instances[0].json == BOX % (11, 6, b"50", 0) + b"}"
    assert [(file.path, file.data) for file in files[1:]] == [("panoptic/val/p.png", b"the PNG")]
    (segment,) = rows.panoptic.segments_info
    assert (segment.id, segment.category_id, segment.bbox, segment.area) == (70_000, 92, (0, 0, 40, 30), 7)
    assert faults == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"panoptic.file_name": b"../p.png"}, "file_name"),
        ({"panoptic.file_name": b"\xff"}, "schema"),
        ({"segments.class_index": np.array([1])}, "class"),
        ({"segments.class_index": np.array([-1])}, "class"),
    ],
)
def test_panoptic_row_that_cannot_be_used_costs_itself(changes, reason):
    rows, files, faults = extract("tfds", TFDS | changes, Part.PANOPTIC)
    assert (rows.panoptic, len(files), len(rows.instances)) == (None, 1, 1)
    assert [fault[0] for fault in faults] == [reason]


def test_no_panoptic_row_is_no_fault():
    rows, files, faults = extract("tfds", TFDS | {"panoptic.file_name": b""}, Part.PANOPTIC)
    assert (rows.panoptic, len(files), faults) == (None, 1, [])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"image.height": np.array([60])}, "image_size"),
        ({"image.encoded": b"\xff\xd8\xff no image"}, "image_undecodable"),
        ({"objects.category_id": np.array([3, 5])}, "class"),
        ({"objects.mask_png": [png(), b"no PNG"]}, "mask"),
        ({"objects.mask_png": [png(), png(41)]}, "mask"),
    ],
)
def test_record_with_a_fault_that_is_kept(changes, reason):
    rows, files, faults = extract("detection", DETECTION | changes, *[Part.MASK_PNG] * (reason == "mask"))
    assert [fault[0] for fault in faults] == [reason]
    assert (len(files), [row.id for row in rows.instances]) == (1, [11, 12])
    if reason == "mask":
        assert all(b'"segmentation":[]' in row.json for row in rows.instances)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"image.height": np.array([0])}, "the image is 40x30, the record says 40x0"),
        ({"image.id": b"1_0"}, "1_0"),
        ({"image.file_name": b"\xff.jpg"}, "not UTF-8"),
    ],
)
def test_record_that_cannot_be_used(changes, said):
    with pytest.raises(UnusableRecordError, match=said):
        extract("detection", DETECTION | changes)


def test_without_size_no_pixels():
    with pytest.raises(UnusableRecordError, match="header"):
        extract("tfds", TFDS | {"image.encoded": b"no image"})
