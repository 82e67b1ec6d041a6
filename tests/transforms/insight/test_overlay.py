from collections import Counter

import numpy as np
import pytest
from PIL import Image

from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import DETECTION, KERAS, TABLE, TFDS
from recordmill.transforms.dataset.record_view import RecordView
from recordmill.transforms.images.masks import mask_png, mask_rle, run_lengths
from recordmill.transforms.insight.overlay import Layer, Overlay, OverlayReader, class_colour
from recordmill.transforms.sample.draw_scene import encoded
from tests.transforms.show.records import image_bytes, label_map

CAT = Category(1, "cat", keypoints=("nose", "tail", "ear"), skeleton=((1, 2),))
LABELS = LabelMap((CAT, Category(3, "dog")), (Category(1, "cat", isthing=1), Category(92, "sky", isthing=0)))
SIZE = 4, 2
MASK = np.array([[0, 1, 1, 0], [0, 0, 1, 0]], bool)
RUNS = run_lengths(MASK)


def overlay(values: dict, table: FeatureTable = DETECTION, labels: LabelMap = LABELS) -> Overlay:
    return OverlayReader(labels, table)(RecordView(values, SIZE))


def shapes(values: dict, table: FeatureTable = DETECTION, labels: LabelMap = LABELS) -> tuple:
    return overlay(values, table, labels).layers[0].shapes


def areas(layer: Layer) -> list[tuple[str, int]]:
    return [(shape.name, int(shape.mask.sum())) for shape in layer.shapes]


def edges(*boxes: tuple[float, float, float, float]) -> dict:
    columns = zip(*boxes, strict=True)
    return {f"objects.{edge}": np.float32(c) for edge, c in zip(("ymin", "xmin", "ymax", "xmax"), columns, strict=True)}


BOX = (0.25, 0.25, 0.75, 0.75)


def test_boxes_of_each_layout():
    same = (
        edges(BOX),
        {"objects.bbox_yxyx": np.float32(BOX)},
        {"objects.bbox_xywh_px": np.float32([1, 0.5, 2, 1])},
        {"objects.bbox_yxyx": np.float32([*BOX, 0.5])},  # as far as they go
        {"objects.bbox_xywh_px": np.float32([1, 0.5, 2, 1, 0.5])},
    )
    assert [[shape.box_yxyx_frac for shape in shapes(values)] for values in same] == [[BOX]] * 5


def test_class_by_index_by_id_by_label_and_by_name():
    for values, labels, table in (
        ({"objects.class_index": np.array([1])}, LABELS, TFDS),
        ({"objects.category_id": np.array([3])}, LABELS, KERAS),
        ({"objects.label": np.array([3])}, LABELS, DETECTION),
        ({"objects.category_name": [b"dog"], "objects.class_index": np.array([1])}, LABELS, DETECTION),
        ({"objects.category_name": [b"dog"], "objects.label": np.array([1])}, LabelMap(()), DETECTION),
    ):
        (shape,) = shapes(edges(BOX) | values, table, labels)
        assert (shape.name, shape.colour) == ("dog", class_colour(1))
        assert OverlayReader(labels, table).classes(RecordView(edges(BOX) | values)) == {"dog"}


def test_shifted_labels_are_none_of_ids():
    labels = LabelMap((Category(0, "face"), Category(1, "mask")))
    values = edges(BOX) | {"objects.label": np.array([1]), "objects.category_id": np.array([0])}
    assert shapes(values, labels=labels)[0].name == "face"


def test_class_without_name_has_its_number():
    assert shapes(edges(BOX) | {"objects.label": np.array([17])})[0].name == "class 17"
    assert shapes(edges(BOX))[0].name == ""
    # Of lists of different lengths as many objects are drawn as there are boxes.
    values = edges(BOX, BOX) | {"objects.xmax": np.float32([0.5]), "objects.class_index": np.array([1])}
    assert [shape.name for shape in shapes(values)] == ["dog"]


def test_each_list_is_converted_once(monkeypatch):
    """However many objects an image has: one image may have tens of thousands."""
    column, sources = RecordView.column, []
    monkeypatch.setattr(RecordView, "column", lambda view, source: sources.append(source) or column(view, source))
    number = 50
    values = edges(*[BOX] * number) | {"objects.label": np.array([3, 1] * 25), "objects.category_name": [b"dog"] * 9}
    assert [shape.name for shape in shapes(values)] == ["dog"] * 9 + ["cat", *["dog", "cat"] * 20]
    assert max(Counter(sources).values()) == 1


def test_one_name_has_one_colour():
    values = edges(BOX, BOX, BOX) | {"objects.category_name": [b"a", b"b", b"a"]}
    first, second, third = (shape.colour for shape in shapes(values, labels=LabelMap(())))
    assert first == third != second


@pytest.mark.parametrize(
    ("source", "encode"),
    [("objects.mask_png", lambda runs: mask_png(runs, *SIZE)), ("objects.mask_rle", mask_rle)],
)
def test_masks(source, encode):
    (shape,) = shapes(edges(BOX) | {source: [encode(RUNS)]})
    assert (shape.mask == MASK).all()
    assert [shape.box_yxyx_frac for shape in shapes({source: [encode(RUNS)]})] == [None]
    assert shapes(edges(BOX) | {source: [encode(np.array([8]))]})[0].mask is None  # an empty one


def test_crowds():
    values = edges(BOX, BOX) | {"objects.is_crowd": np.array([0, 1])}
    assert [shape.is_crowd for shape in shapes(values)] == [False, True]


def test_keypoints_and_skeleton_of_their_category():
    values = edges(BOX, BOX) | {
        "objects.class_index": np.array([0, 1]),
        "objects.keypoint_x": np.float32([0.25, 0.5, 0, 0, 0, 0]),
        "objects.keypoint_y": np.float32([0.75, 0.5, 0, 0, 0, 0]),
        "objects.keypoint_visibility": np.array([2, 1, 0, 0, 0, 0]),
    }
    cat, dog = shapes(values)
    assert cat.keypoints == ((0.25, 0.75, 2), (0.5, 0.5, 1), (0.0, 0.0, 0))
    assert dog.keypoints == ((0.0, 0.0, 0),) * 3
    assert (cat.skeleton, dog.skeleton) == (((1, 2),), ())
    del values["objects.keypoint_visibility"]
    assert shapes(values)[0].keypoints[2] == (0.0, 0.0, 2)
    values |= {"objects.keypoint_x": np.zeros(5), "objects.keypoint_y": np.zeros(5)}
    assert shapes(values)[0].keypoints == ()
    values["objects.keypoint_x"] = np.float32([0.5])
    assert shapes(values)[0].keypoints == ()


def test_panoptic_masks_of_layout_detection():
    categories, instances = label_map([[1, 1, 92, 92], [1, 1, 0, 5]]), label_map([[1, 2, 0, 0], [1, 2, 0, 0]])
    values = {"panoptic.category_png": categories, "panoptic.instance_png": instances}
    (layer,) = overlay(values).layers
    assert layer.title == "panoptic"
    assert areas(layer) == [("cat", 2), ("cat", 2), ("class 5", 1), ("sky", 2)]
    assert layer.shapes[0].colour == class_colour(0)  # as the objects of that class
    assert OverlayReader(LABELS, DETECTION).classes(RecordView(values)) == {"class 5", "cat", "sky"}


def test_panoptic_pngs_of_layout_tfds():
    ids = np.zeros((2, 4, 3), np.uint8)
    ids[0, :2] = 1, 2, 0
    ids[1, :3] = 9, 0, 0
    ids[1, 3] = 77
    segments = {"segments.id": np.array([513, 9]), "segments.class_index": np.array([0, 1])}
    (layer,) = overlay(segments | {"panoptic.png": label_map(ids)}, TFDS).layers
    assert areas(layer) == [("sky", 3), ("cat", 2)]


def test_semantic_masks():
    values = {"semantic.png": label_map([[1, 1, 2, 2], [255, 0, 2, 7]])} | edges(BOX)
    objects, semantic = overlay(values).layers
    assert (objects.title, len(objects.shapes), semantic.title) == ("objects", 1, "semantic")
    assert areas(semantic) == [("things", 2), ("sky", 3), ("class 7", 1)]
    assert OverlayReader(LABELS, DETECTION).classes(RecordView(values)) == {"sky", "class 7"}


PAIRED = LabelMap((), (Category(0, "background"), Category(1, "road"), Category(7, "sky")), has_pixel_ids=True)


def test_masks_whose_pixels_are_class_ids():
    values = {"semantic.png": label_map([[1, 1, 7, 7], [255, 0, 7, 9]])}
    (semantic,) = overlay(values, labels=PAIRED).layers
    assert areas(semantic) == [("road", 2), ("sky", 3), ("class 9", 1)]  # neither the background nor unknown pixels
    assert [shape.colour for shape in semantic.shapes[:2]] == [class_colour(1), class_colour(2)]
    classes = OverlayReader(PAIRED, DETECTION).classes
    assert classes(RecordView(values)) == {"background", "road", "sky", "class 9"}
    assert classes(RecordView({"semantic.png": label_map([[7, 255]])})) == {"sky"}


def test_value_0_is_a_class_where_it_is_not_the_background():
    (semantic,) = overlay({"semantic.png": label_map([[0, 0, 1, 1]])}, labels=SKY_FIRST).layers
    assert areas(semantic) == [("sky", 2), ("road", 2)]


SKY_FIRST = LabelMap((), (Category(0, "sky"), Category(1, "road")), has_pixel_ids=True)


def test_depth_is_in_metres():
    units = np.array([[0, 256, 512, 65535]], np.uint16)
    table = DETECTION.with_depth_scale(1 / 256)
    (depth,) = overlay({"depth.png": encoded(Image.fromarray(units), "PNG")}, table).layers
    assert (depth.title, depth.shapes) == ("depth", ())
    assert depth.depth_m.tolist() == [[0.0, 1.0, 2.0, 65535 / 256]]


def test_texts():
    captions = {"image.file_name": b"a.jpg", "image.id": b"7", "captions.text": [b"one", b"two"]}
    assert overlay(captions).lines == ("a.jpg", "one", "two")
    assert overlay({"image.id": b"7", "image.class_name": b"\xff"}).lines == ("7", "\\xff")
    assert overlay({"image.class_index": np.array([1])}).lines == ("dog",)
    assert overlay({"row.class_index/kind": np.array([0])}, TABLE).lines == ("cat",)
    assert overlay({"image.class_index": np.array([9])}).lines == ("class 9",)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"objects.mask_png": [image_bytes()[:40]]}, "the mask of object 0 cannot be drawn"),
        ({"objects.mask_rle": [b"not run lengths"]}, "the mask of object 0 cannot be drawn"),
        ({"semantic.png": b"no PNG"}, "semantic.png cannot be drawn"),
        ({"panoptic.category_png": b""}, None),
    ],
)
def test_undrawable_values_are_named(values, told):
    drawing = overlay(edges(BOX) | values)
    assert drawing.layers[0].shapes[0].box_yxyx_frac == BOX
    assert [fault.startswith(told) for fault in drawing.faults] == ([True] if told else [])


def test_a_box_that_is_not_finite():
    drawing = overlay(edges((0.0, np.nan, 1.0, np.inf)))
    assert drawing.layers[0].shapes[0].box_yxyx_frac is None
    assert drawing.faults[0].startswith("the box of object 0 is not finite")


def test_nothing_to_draw_is_image_alone():
    assert [(layer.title, layer.shapes) for layer in overlay({}).layers] == [("objects", ())]
