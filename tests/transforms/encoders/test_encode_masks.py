import io
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from recordmill.schemas.inputs.annotations import Category, PanopticAnnotation, Segment, StuffAnnotation
from recordmill.schemas.inputs.files import File
from recordmill.schemas.inputs.images import StoredImage
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import DETECTION, TFDS
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.encoders import encode_masks as module
from recordmill.transforms.encoders.encode_masks import MAX_SEGMENTS, RegionEncoder, read_panoptic
from recordmill.transforms.images import colours as pixel_colours
from recordmill.transforms.images import load_images
from recordmill.transforms.runtime.threads import Budget
from recordmill.transforms.sample.draw_scene import encoded

STUFF = Category(92, "banner", isthing=0), Category(200, "rug", isthing=0)
LABELS = LabelMap((), (Category(3, "car", isthing=1), *STUFF, Category(255, "shelf")))
IMAGE = StoredImage(b"", "jpeg", 3, 2, "")
MASKS = frozenset({"panoptic.category_png", "panoptic.instance_png", "semantic.png"})


def panoptic(folder: Path, colours: object, *segments: Segment) -> PanopticAnnotation:
    """A row, with its PNG of RGB pixels."""
    Image.fromarray(np.array(colours, np.uint8)).save(folder / "p.png")
    return PanopticAnnotation(File(str(folder / "p.png")), "p.png", segments)


def grey(png: bytes) -> list[list[int]]:
    with Image.open(io.BytesIO(png)) as image:
        assert (image.format, image.mode) == ("PNG", "L")
        return np.asarray(image).tolist()


@pytest.fixture
def three_segments(tmp_path) -> PanopticAnnotation:
    """A car, void and a rug side by side, and a car below them all; in an image of 3 x 2 pixels."""
    segments = Segment(2, 200, False), Segment(1, 3, True, (0.0, 0.0, 1.5, 1.0), 7.9), Segment(256, 3, False)
    row = panoptic(tmp_path, [[[1, 0, 0], [0, 0, 0], [2, 0, 0]], [[0, 1, 0]] * 3], *segments)
    return msgspec.structs.replace(row, file_name="é.png")


def test_masks_of_panoptic_annotation(three_segments):
    values = RegionEncoder(LABELS, MASKS).encode_panoptic(three_segments, IMAGE)
    assert grey(values["panoptic.category_png"]) == [[3, 0, 200], [3, 3, 3]]
    assert grey(values["panoptic.instance_png"]) == [[2, 0, 0], [3, 3, 3]]
    assert grey(values["semantic.png"]) == [[1, 255, 110], [1, 1, 1]]


def test_dropped_segments_are_void(three_segments):
    row = msgspec.structs.replace(three_segments, segments=three_segments.segments[:1], void_ids=(1, 256))
    values = RegionEncoder(LABELS, MASKS | {"panoptic.png"}).encode_panoptic(row, IMAGE)
    assert grey(values["panoptic.category_png"]) == [[0, 0, 200], [0, 0, 0]]
    assert grey(values["semantic.png"]) == [[255, 255, 110], [255, 255, 255]]
    with Image.open(io.BytesIO(values["panoptic.png"])) as image:
        assert np.asarray(image).tolist() == [[[0, 0, 0], [0, 0, 0], [2, 0, 0]], [[0, 0, 0]] * 3]


def test_vanished_segment_keeps_its_box(three_segments):
    """The car's single pixel is not in an image of 1 x 1; no JSON says where it was."""
    unsaid = msgspec.structs.replace(
        three_segments, segments=tuple(msgspec.structs.replace(s, bbox_xywh_px=None) for s in three_segments.segments)
    )
    shrunk = StoredImage(b"", "jpeg", 1, 1, "", annotated_size=(3, 2))
    values = RegionEncoder(LABELS, TFDS.sources).encode_panoptic(unsaid, shrunk)
    assert values["segments.bbox_yxyx"][4:8] == pytest.approx([0, 0, 1 / 2, 1 / 3])
    assert values["segments.area"] == [1, 7, 3]


def test_lists_of_panoptic_annotation(three_segments):
    values = RegionEncoder(LABELS, TFDS.sources).encode_panoptic(three_segments, IMAGE)
    assert values == {
        "panoptic.file_name": "é.png".encode(),
        "panoptic.png": Path(three_segments.file.path).read_bytes(),
        "segments.area": [1, 7, 3],
        "segments.bbox_yxyx": pytest.approx([0, 2 / 3, 0.5, 1, 0, 0, 0.5, 0.5, 0.5, 0, 1, 1]),
        "segments.class_index": [2, 0, 0],
        "segments.id": [2, 1, 256],
        "segments.is_crowd": [0, 1, 0],
    }
    assert all(type(edge) is float for edge in values["segments.bbox_yxyx"])


@pytest.mark.parametrize("sources", [MASKS, TFDS.sources, DETECTION.sources])
def test_image_without_panoptic_annotation_is_void(sources):
    values = RegionEncoder(LABELS, sources).encode_void(3, 2)
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
def test_category_id_above_255(tmp_path, category_id):
    labels = LabelMap((), (Category(category_id, "odd"),))
    row = panoptic(tmp_path, [[[5, 0, 0]] * 3] * 2, Segment(5, category_id, False))
    with pytest.raises(UnusableError, match=rf"'p\.png': label {category_id} is not in 1..255") as caught:
        RegionEncoder(labels, MASKS).encode_panoptic(row, IMAGE)
    assert caught.value.reason is Reason.CATEGORY_OUT_OF_RANGE
    assert RegionEncoder(labels, TFDS.sources).encode_panoptic(row, IMAGE)["segments.class_index"] == [0]


def test_category_0_is_not_void(tmp_path):
    labels = LabelMap((Category(7, "car"),), (Category(-1, "sky"), Category(0, "road"), Category(7, "car")))
    segments = (Segment(5, 0, False), Segment(6, 7, False), Segment(7, -1, False))
    row = panoptic(tmp_path, [[[5, 0, 0], [6, 0, 0], [7, 0, 0]]] * 2, *segments)
    values = RegionEncoder(labels, MASKS).encode_panoptic(row, IMAGE)
    assert grey(values["panoptic.category_png"]) == [[3, 1, 2]] * 2


@pytest.mark.parametrize("category_id", [3, 255])
def test_limits_of_category_mask(tmp_path, category_id):
    row = panoptic(tmp_path, [[[5, 0, 0]] * 3] * 2, Segment(5, category_id, False))
    values = RegionEncoder(LABELS, MASKS).encode_panoptic(row, IMAGE)
    assert grey(values["panoptic.category_png"]) == [[category_id] * 3] * 2


def test_of_regions_that_overlap_later_one_is_seen():
    regions = [
        (StuffAnnotation(1, 92, b""), np.array([0, 4, 2])),
        (StuffAnnotation(2, 200, b""), np.array([2, 2, 2])),
        (StuffAnnotation(3, 3, b""), np.array([6])),
        (StuffAnnotation(4, 255, b""), np.array([5, 1])),
    ]
    values = RegionEncoder(LABELS, frozenset({"semantic.png"})).encode_stuff(regions, 3, 2)
    assert grey(values["semantic.png"]) == [[2, 110, 255], [2, 110, 165]]
    assert [LABELS.segments[index].id for index in values["segments.class_index"]] == [92, 200, 3, 255]


def test_shrunk_image_has_shrunk_masks(tmp_path):
    """Every other column of six goes; the segments' boxes are in pixels of the six."""
    segments = Segment(1, 3, False, (0.0, 0.0, 4.0, 2.0), 8.0), Segment(2, 200, False)
    row = panoptic(tmp_path, [[[1, 0, 0]] * 4 + [[2, 0, 0]] * 2] * 2, *segments)
    values = RegionEncoder(LABELS, MASKS | TFDS.sources).encode_panoptic(
        row, StoredImage(b"", "jpeg", 3, 1, "", (6, 2))
    )
    assert grey(values["panoptic.category_png"]) == [[3, 3, 200]]
    with Image.open(io.BytesIO(values["panoptic.png"])) as image:
        assert np.asarray(image).tolist() == [[[1, 0, 0], [1, 0, 0], [2, 0, 0]]]
    assert values["segments.bbox_yxyx"] == pytest.approx([0, 0, 1, 4 / 6, 0, 2 / 3, 1, 1])
    assert values["segments.area"] == [8, 4]


CATEGORIES = frozenset({1, 3, 92})
COLOURS = np.array([[[0, 0, 0], [7, 1, 0]], [[7, 1, 0], [1, 2, 3]], [[0, 0, 255], [0, 0, 0]]], np.uint8)
"""Three rows of two pixels: void, 263, 197121, 255 << 16."""
SEGMENTS = (Segment(197121, 92, False), Segment(263, 1, True), Segment(255 << 16, 3, False))
PLACES = [[0, 2], [2, 1], [3, 0]]


def png(colours: np.ndarray = COLOURS, mode: str = "RGB", **options) -> bytes:
    return encoded(Image.fromarray(colours).convert(mode), "PNG", **options)


def with_palette() -> bytes:
    image = Image.new("P", (2, 3))
    image.putdata([0, 1, 1, 2, 3, 0])
    image.putpalette([0, 0, 0, 7, 1, 0, 1, 2, 3, 0, 0, 255])
    return encoded(image, "PNG")


def read(folder: Path, data: bytes, segments=SEGMENTS, width: int = 2, height: int = 3) -> tuple[bytes, np.ndarray]:
    (folder / "p.png").write_bytes(data)
    row = PanopticAnnotation(File(str(folder / "p.png")), "p.png", tuple(segments))
    return read_panoptic(row, width, height, CATEGORIES)


def fault(folder: Path, data: bytes, *segments: Segment, width: int = 2, height: int = 3) -> tuple[Reason, str]:
    with pytest.raises(UnusableError) as caught:
        read(folder, data, segments or SEGMENTS, width, height)
    assert caught.value.detail.startswith("'p.png': ")
    assert str(caught.value) == caught.value.detail
    return caught.value.reason, caught.value.detail.removeprefix("'p.png': ")


@pytest.mark.parametrize("data", [png(), png(mode="RGBA"), with_palette(), png(compress_level=0)])
def test_pixels_become_places_in_segments_info(tmp_path, data):
    stored, indices = read(tmp_path, data)
    assert (stored, indices.dtype, indices.tolist()) == (data, np.uint8, PLACES)


def test_image_without_segments_is_all_void(tmp_path):
    _, indices = read(tmp_path, png(np.zeros((3, 2, 3), np.uint8)), segments=())
    assert indices.tolist() == [[0, 0]] * 3


IDS = st.integers(1, (1 << 24) - 1) | st.sampled_from([1, 255, 256, 65535, 65536, (1 << 24) - 1])


@settings(max_examples=60)
@given(st.lists(IDS, unique=True, max_size=MAX_SEGMENTS), st.randoms(use_true_random=False))
def test_every_id_is_found(tmp_path_factory, ids, rng):
    places = [*range(len(ids) + 1), *(rng.randrange(len(ids) + 1) for _ in range(40))]
    rng.shuffle(places)
    values = np.array([0, *ids])[places]
    colours = np.stack([values & 255, values >> 8 & 255, values >> 16], -1)[None].astype(np.uint8)
    segments = [Segment(id_, 1, False) for id_ in ids]
    _, indices = read(tmp_path_factory.getbasetemp(), png(colours), segments, len(places), 1)
    assert indices.tolist() == [places]


def test_as_many_segments_as_byte_tells_apart_and_one_more(tmp_path):
    ids = np.arange(1, MAX_SEGMENTS + 2, dtype=np.uint16)
    colours = np.stack([ids & 255, ids >> 8, 0 * ids], -1)[None].astype(np.uint8)
    segments = [Segment(int(id_), 1, False) for id_ in ids]
    _, indices = read(tmp_path, png(colours[:, :-1]), segments[:-1], MAX_SEGMENTS, 1)
    assert indices.tolist() == [[*range(1, 256)]]
    reason, detail = fault(tmp_path, png(colours), *segments, width=256, height=1)
    assert (reason, detail) == (Reason.TOO_MANY_SEGMENTS, "256 segments; a mask of one byte can store 255")


# Missing and broken


def test_png_not_there_is_named_by_its_name_in_json(tmp_path):
    row = PanopticAnnotation(File(str(tmp_path / "sub" / "gone.png")), "sub/gone.png", SEGMENTS)
    with pytest.raises(UnusableError, match=r"'sub/gone\.png': no such file under --panoptic-masks") as caught:
        read_panoptic(row, 2, 3, CATEGORIES)
    assert caught.value.reason is Reason.MASK_MISSING


def broken() -> dict[str, bytes]:
    whole = png()
    at = whole.index(b"IDAT")
    flipped = bytearray(whole)
    flipped[at + 6] ^= 255
    return {
        "empty": b"",
        "text": b"not a PNG",
        "a JPEG": encoded(Image.fromarray(COLOURS), "JPEG"),
        "only its signature": whole[:8],
        "cut in its header": whole[:20],
        "cut in its pixels": whole[: at + 8],
        "without its end": whole[:-12],
        "a wrong checksum": bytes(flipped),
    }


@pytest.mark.parametrize("data", broken().values(), ids=broken())
def test_png_that_does_not_decode_is_unreadable(tmp_path, data):
    reason, detail = fault(tmp_path, data)
    assert reason is Reason.MASK_UNREADABLE
    assert detail.startswith("it does not decode as PNG")


@settings(max_examples=150)
@given(st.data())
def test_damaged_png_is_read_or_refused(tmp_path_factory, data):
    damaged = bytearray(png())
    for place in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    try:
        outcome = read(tmp_path_factory.getbasetemp(), bytes(damaged))[1].tolist()
    except UnusableError as error:
        outcome = error.reason
    assert outcome in (PLACES, Reason.MASK_UNREADABLE, Reason.MASK_SIZE_MISMATCH, Reason.SEGMENT_MISMATCH)


@pytest.mark.parametrize(("mode", "told"), [("L", "mode L"), ("1", "mode 1"), ("LA", "mode LA"), ("I;16", "mode I;16")])
def test_png_that_holds_no_colours_is_unreadable(tmp_path, mode, told):
    reason, detail = fault(tmp_path, encoded(Image.new(mode, (2, 3)), "PNG"))
    assert (reason, detail) == (Reason.MASK_UNREADABLE, f"a PNG of {told}; segment ids are written as RGB")


@pytest.mark.parametrize(("width", "height"), [(3, 2), (2, 4), (1, 3), (200, 300)])
def test_png_of_another_size(tmp_path, width, height):
    found = fault(tmp_path, png(), width=width, height=height)
    assert found == (Reason.MASK_SIZE_MISMATCH, f"it is 2x3, its image is {width}x{height}")


def test_file_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(load_images, "MAX_FILE_BYTES", 1234)
    assert fault(tmp_path, bytes(1235)) == (Reason.MASK_UNREADABLE, "1,235 bytes; the limit is 1,234")


# PNG and row contradict each other


def test_pixels_of_segments_that_row_does_not_list(tmp_path):
    found = fault(tmp_path, png(), *SEGMENTS[:1])
    assert found == (Reason.SEGMENT_MISMATCH, "3 of its pixels belong to segments that segments_info does not list")


def test_segments_without_a_pixel(tmp_path):
    more = [Segment(id_, 1, False) for id_ in range(300, 308)]
    found = fault(tmp_path, png(), *SEGMENTS, *more)
    assert found == (Reason.SEGMENT_MISMATCH, "segments 300, 301, 302, 303, 304 have no pixels in it")


def test_two_channel_format_is_known_by_its_categories(tmp_path):
    """panopticapi's: red is the category, green the instance; the ids of the row are not in it."""
    colours = np.array([[[1, 0, 0], [1, 1, 0]], [[92, 0, 0], [0, 0, 0]], [[3, 2, 0], [3, 1, 0]]], np.uint8)
    reason, detail = fault(tmp_path, png(colours))
    assert reason is Reason.TWO_CHANNEL_PANOPTIC
    assert "converters/2channels2panoptic_coco_format.py" in detail


def test_ids_that_look_like_two_channels_but_match_are_read(tmp_path):
    colours = np.array([[[1, 0, 0], [1, 1, 0]]], np.uint8)
    segments = (Segment(257, 3, False), Segment(1, 1, False))
    assert read(tmp_path, png(colours), segments, 2, 1)[1].tolist() == [[2, 1]]


def test_ids_that_look_like_two_channels_and_partly_match(tmp_path):
    colours = np.array([[[1, 0, 0], [1, 1, 0]]] * 3, np.uint8)
    found = fault(tmp_path, png(colours), Segment(257, 3, False), Segment(1, 1, False), Segment(300, 1, False))
    assert found == (Reason.SEGMENT_MISMATCH, "segments 300 have no pixels in it")


@pytest.mark.parametrize("colour", [(2, 0, 0), (1, 0, 1), (1, 0, 0), (0, 0, 0)])
def test_colours_no_categories_are_not_taken_for_two_channels(tmp_path, colour):
    colours = np.full((3, 2, 3), colour, np.uint8)
    assert fault(tmp_path, png(colours))[0] is Reason.SEGMENT_MISMATCH


def test_pixels_are_decoded_out_of_budget_of_all_images(tmp_path, monkeypatch):
    parts: list[int] = []

    class Noted(Budget):
        def part(self, amount):
            parts.append(amount)
            return super().part(amount)

    monkeypatch.setattr(module, "DECODING", Noted(100))
    monkeypatch.setattr(pixel_colours, "_PIXELS_AT_ONCE", 2)  # a row
    assert read(tmp_path, png())[1].tolist() == PLACES
    assert parts == [6]
