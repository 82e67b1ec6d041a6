import io
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from recordmill.schemas.annotations import Category, PanopticAnnotation, Segment, StuffAnnotation
from recordmill.schemas.images import Picture
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.layouts import DETECTION, TFDS
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.examples.encode_regions import RegionEncoder
from recordmill.transforms.masks.bitmaps import bitmap

LABELS = LabelMap(
    (),
    (
        Category(3, "car", isthing=1),
        Category(92, "banner", isthing=0),
        Category(200, "rug", isthing=0),
        Category(255, "shelf"),
    ),
)
PICTURE = Picture(b"", "jpeg", 3, 2, "")
MASKS = frozenset({"panoptic.category_png", "panoptic.instance_png", "semantic.png"})


def grey(png: bytes) -> list[list[int]]:
    with Image.open(io.BytesIO(png)) as image:
        assert (image.format, image.mode) == ("PNG", "L")
        return np.asarray(image).tolist()


@pytest.fixture
def three_segments(tmp_path) -> PanopticAnnotation:
    """A car, void and a rug side by side, and a car below them all; in an image of 3 x 2 pixels."""
    colours = np.array([[[1, 0, 0], [0, 0, 0], [2, 0, 0]], [[0, 1, 0]] * 3], np.uint8)
    Image.fromarray(colours).save(tmp_path / "p.png")
    segments = (
        Segment(2, 200, False),
        Segment(1, 3, True, (0.0, 0.0, 1.5, 1.0), 7.9),
        Segment(256, 3, False, None, None),
    )
    return PanopticAnnotation(str(tmp_path / "p.png"), "é.png", segments)


def test_the_masks_of_a_panoptic_annotation(three_segments):
    values = RegionEncoder(LABELS, MASKS).of_panoptic(three_segments, PICTURE)
    assert grey(values["panoptic.category_png"]) == [[3, 0, 200], [3, 3, 3]]
    assert grey(values["panoptic.instance_png"]) == [[2, 0, 0], [3, 3, 3]]
    assert grey(values["semantic.png"]) == [[1, 255, 110], [1, 1, 1]]


def test_a_segment_that_vanishes_when_the_picture_is_shrunk_keeps_its_box_and_area(three_segments):
    """The car's single pixel is not in a picture of 1 x 1; no JSON says where it was."""
    unsaid = msgspec.structs.replace(
        three_segments, segments=tuple(msgspec.structs.replace(s, bbox_xywh_px=None) for s in three_segments.segments)
    )
    shrunk = Picture(b"", "jpeg", 1, 1, "", annotated_size=(3, 2))
    values = RegionEncoder(LABELS, TFDS.sources).of_panoptic(unsaid, shrunk)
    assert values["segments.bbox_yxyx"][4:8] == pytest.approx([0, 0, 1 / 2, 1 / 3])
    assert values["segments.area"] == [1, 7, 3]


def test_the_lists_of_a_panoptic_annotation(three_segments):
    values = RegionEncoder(LABELS, TFDS.sources).of_panoptic(three_segments, PICTURE)
    assert values == {
        "panoptic.file_name": "é.png".encode(),
        "panoptic.png": Path(three_segments.path).read_bytes(),
        "segments.area": [1, 7, 3],
        "segments.bbox_yxyx": pytest.approx([0, 2 / 3, 0.5, 1, 0, 0, 0.5, 0.5, 0.5, 0, 1, 1]),
        "segments.class_index": [2, 0, 0],
        "segments.id": [2, 1, 256],
        "segments.is_crowd": [0, 1, 0],
    }
    assert all(type(edge) is float for edge in values["segments.bbox_yxyx"])


@pytest.mark.parametrize("sources", [MASKS, TFDS.sources, DETECTION.sources])
def test_an_image_without_a_panoptic_annotation_is_void(sources):
    values = RegionEncoder(LABELS, sources).of_void(3, 2)
    if "panoptic.png" in sources:
        with Image.open(io.BytesIO(values["panoptic.png"])) as image:
            assert (image.mode, image.size, np.asarray(image).any()) == ("RGB", (3, 2), False)
        assert (values["panoptic.file_name"], values["segments.area"], values["segments.bbox_yxyx"]) == (b"", [], [])
    else:
        void = {source: grey(values[source]) for source in MASKS}
        assert void == {
            "panoptic.category_png": [[0] * 3] * 2,
            "panoptic.instance_png": [[0] * 3] * 2,
            "semantic.png": [[255] * 3] * 2,
        }


@pytest.mark.parametrize("category_id", [256, 1 << 40])
def test_a_category_id_that_a_byte_does_not_hold_is_refused_where_there_is_a_category_mask(tmp_path, category_id):
    labels = LabelMap((), (Category(category_id, "odd"),))
    Image.new("RGB", (3, 2), (5, 0, 0)).save(tmp_path / "p.png")
    row = PanopticAnnotation(str(tmp_path / "p.png"), "p.png", (Segment(5, category_id, False),))
    with pytest.raises(UnusableError, match=rf"'p\.png': label {category_id} is not 1 to 255") as caught:
        RegionEncoder(labels, MASKS).of_panoptic(row, PICTURE)
    assert caught.value.reason is Reason.CATEGORY_OUT_OF_RANGE
    assert RegionEncoder(labels, TFDS.sources).of_panoptic(row, PICTURE)["segments.class_index"] == [0]


def test_a_category_mask_holds_labels_so_that_category_id_0_is_not_void(tmp_path):
    labels = LabelMap((Category(7, "car"),), (Category(-1, "sky"), Category(0, "road"), Category(7, "car")))
    Image.fromarray(np.array([[[5, 0, 0], [6, 0, 0], [7, 0, 0]]] * 2, np.uint8)).save(tmp_path / "p.png")
    segments = (Segment(5, 0, False), Segment(6, 7, False), Segment(7, -1, False))
    row = PanopticAnnotation(str(tmp_path / "p.png"), "p.png", segments)
    values = RegionEncoder(labels, MASKS).of_panoptic(row, PICTURE)
    assert grey(values["panoptic.category_png"]) == [[3, 1, 2]] * 2


@pytest.mark.parametrize("category_id", [3, 255])
def test_the_edges_of_what_a_category_mask_holds(tmp_path, category_id):
    Image.new("RGB", (3, 2), (5, 0, 0)).save(tmp_path / "p.png")
    row = PanopticAnnotation(str(tmp_path / "p.png"), "p.png", (Segment(5, category_id, False),))
    values = RegionEncoder(LABELS, MASKS).of_panoptic(row, PICTURE)
    assert grey(values["panoptic.category_png"]) == [[category_id] * 3] * 2


def test_of_regions_that_overlap_the_later_one_is_seen():
    regions = [
        (StuffAnnotation(1, 92, b""), np.array([0, 4, 2])),
        (StuffAnnotation(2, 200, b""), np.array([2, 2, 2])),
        (StuffAnnotation(3, 3, b""), np.array([6])),
        (StuffAnnotation(4, 255, b""), np.array([5, 1])),
    ]
    values = RegionEncoder(LABELS, frozenset({"semantic.png"})).of_stuff(regions, 3, 2)
    assert grey(values["semantic.png"]) == [[2, 110, 255], [2, 110, 165]]
    assert [LABELS.segments[index].id for index in values["segments.class_index"]] == [92, 200, 3, 255]


@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_a_bitmap_is_what_its_runs_say_down_the_columns(width, height, data):
    pixels = data.draw(st.lists(st.booleans(), min_size=width * height, max_size=width * height))
    edges = np.flatnonzero(np.diff(pixels)) + 1
    runs = np.diff([0, *edges, len(pixels)])
    runs = np.concatenate([[0], runs]) if pixels[0] else runs
    assert bitmap(runs, width, height).T.ravel().tolist() == pixels


def test_a_picture_that_was_shrunk_has_masks_of_its_size_and_boxes_of_the_one_it_was(tmp_path):
    """Every other column of six goes; the segments' boxes are in pixels of the six."""
    columns = np.array([[[1, 0, 0]] * 4 + [[2, 0, 0]] * 2] * 2, np.uint8)
    Image.fromarray(columns).save(tmp_path / "p.png")
    segments = Segment(1, 3, False, (0.0, 0.0, 4.0, 2.0), 8.0), Segment(2, 200, False, None, None)
    row = PanopticAnnotation(str(tmp_path / "p.png"), "p.png", segments)
    values = RegionEncoder(LABELS, MASKS | TFDS.sources).of_panoptic(row, Picture(b"", "jpeg", 3, 1, "", (6, 2)))
    assert grey(values["panoptic.category_png"]) == [[3, 3, 200]]
    with Image.open(io.BytesIO(values["panoptic.png"])) as image:
        assert np.asarray(image).tolist() == [[[1, 0, 0], [1, 0, 0], [2, 0, 0]]]
    assert values["segments.bbox_yxyx"] == pytest.approx([0, 0, 1, 4 / 6, 0, 2 / 3, 1, 1])
    assert values["segments.area"] == [8, 4]
