import hashlib
import json

import numpy as np
import pytest
from PIL import Image

from recordmill.schemas.dataset.checks import Check
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.annotations import (
    Annotation,
    Caption,
    Category,
    ImageLabels,
    PanopticAnnotation,
    Segment,
)
from recordmill.schemas.inputs.encoders import EncoderInfo, TextForm
from recordmill.schemas.inputs.files import File, ImageFile
from recordmill.schemas.inputs.images import ImageTask, StoredImage
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import CLASSIFICATION, DETECTION, KERAS, TFDS, features_table
from recordmill.transforms.records.example import ExampleWriter
from recordmill.transforms.records.parse_record import RecordParser
from recordmill.transforms.sample.draw_scene import encoded
from recordmill.transforms.verify.check_records import RecordChecker, text_faults
from tests.transforms.encoders.drawn_tasks import encode_tasks

LABELS = LabelMap(
    (Category(1, "cat", keypoints=("nose", "tail")), Category(7, "dog")),
    (Category(1, "cat", isthing=1), Category(92, "banner")),
)


def png(pixels: np.ndarray) -> bytes:
    return encoded(Image.fromarray(pixels), "PNG")


DATA = png(np.arange(20 * 30 * 3, dtype=np.uint8).reshape(20, 30, 3))
IMAGE = StoredImage(DATA, "png", 30, 20, hashlib.sha256(DATA).hexdigest())
POLYGON = json.dumps([[3, 4, 13, 4, 13, 14, 3, 14]]).encode()
OBJECTS = (
    Annotation(5, 1, (3.0, 4.0, 10.0, 10.0), 100.0, False, POLYGON, (4.0, 5.0, 2.0, 0.0, 0.0, 0.0)),
    Annotation(6, 7, (0.0, 0.0, 30.0, 20.0), 600.0, True, b""),
)
CHECK = Check.TENSORFLOW
LAYOUTS = {"detection": DETECTION, "plain": DETECTION.with_parts(()), "keras": KERAS.with_parts(()), "tfds": TFDS}


@pytest.fixture(params=list(Check), autouse=True)
def _thoroughly_or_not(request, monkeypatch) -> None:
    """Run each test with each check."""
    monkeypatch.setitem(globals(), "CHECK", request.param)


def values_of(labels: LabelMap, table: FeatureTable, task: ImageTask, image: StoredImage) -> dict:
    """What a record holds, by source, as ExampleWriter takes it."""
    (record,) = encode_tasks(labels, table, "clip", [(task, image)]).records
    values = RecordParser(table)(b"".join(record))
    arrays = (
        (feature, values[feature.source]) for feature in table.features if not isinstance(values[feature.source], bytes)
    )
    return values | {feature.source: value.tolist() if feature.is_list else value.item() for feature, value in arrays}


@pytest.fixture
def values(tmp_path) -> dict:
    """Everything that a record of any layout may hold, of two objects."""
    colours = np.zeros((20, 30, 3), np.uint8)
    colours[:, 10:, 0] = 9
    (tmp_path / "p.png").write_bytes(png(colours))
    labels = ImageLabels(
        (Caption(1, "a cat"), Caption(2, "é")),
        (),
        (PanopticAnnotation(File(str(tmp_path / "p.png")), "p.png", (Segment(9, 92, False),)),),
        (5,),
        (),
    )
    task = ImageTask(139, "a.png", 30, 20, ImageFile("a.png", 1), "train", OBJECTS, labels)
    sources = {}
    for table in (DETECTION, TFDS):
        sources |= values_of(LABELS, table, task, IMAGE)
    return sources | {"objects.bbox_xywh_px": [item.bbox_xywh_px for item in OBJECTS]}


def record(values: dict, layout: str, **changed) -> bytes:
    """A record of the first object, or of both, with some values changed."""
    table = LAYOUTS[layout]
    sources = values | changed
    if layout == "keras":
        sources = {key: value[0] if key.startswith("objects.") else value for key, value in sources.items()}
    return ExampleWriter(table).write(sources)


def check(values: dict, layout: str, boxes_inside: bool = True, **changed) -> tuple[int, list[tuple[str, str]]]:
    return RecordChecker(CHECK, LAYOUTS[layout], LABELS, boxes_inside)(record(values, layout, **changed))


def reasons(values: dict, layout: str, **changed) -> list[str]:
    return [reason for reason, _ in check(values, layout, **changed)[1]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_whole_record_has_no_fault(values, layout):
    assert check(values, layout) == (1 if layout == "keras" else 2, [])


@pytest.mark.parametrize("layout", ["detection", "plain", "tfds"])
def test_record_without_objects_is_whole(layout):
    task = ImageTask(139, "a.png", 30, 20, ImageFile("a.png", 1), "train", ())
    empty = ExampleWriter(LAYOUTS[layout]).write(values_of(LABELS, LAYOUTS[layout], task, IMAGE))
    assert RecordChecker(CHECK, LAYOUTS[layout], LABELS, True)(empty) == (0, [])


def test_not_a_record_is_named():
    assert [reason for reason, _ in RecordChecker(CHECK, DETECTION, LABELS, True)(b"no record")[1]] == ["schema"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_image_that_does_not_decode_is_named(values, layout):
    assert "image_undecodable" in reasons(values, layout, **{"image.encoded": DATA[:60]})


def test_too_few_keypoints_for_objects_are_named(values):
    changed = {
        f"objects.keypoint_{name}": values[f"objects.keypoint_{name}"][:3] for name in ("x", "y", "visibility", "text")
    }
    assert check(values, "detection", **changed) == (2, [("keypoints", "3 keypoints for 2 objects of 2 each")])


BOXES = [
    ("plain", {"objects.xmax": [1.1, 1.0]}, "box_range"),
    ("plain", {"objects.ymin": [-0.1, 0.0]}, "box_range"),
    ("keras", {"objects.bbox_xywh_px": [(3.0, 4.0, 28.0, 10.0)] * 2}, "box_range"),
    ("tfds", {"objects.bbox_yxyx": [0.0, 0.0, 1.0, 1.0, 0.2, 0.2, 0.3, 1.3]}, "box_range"),
]
CLASSES_CHANGED = (
    {"objects.category_id": [2, 7], "objects.label": [2, 7]},
    {"objects.class_index": [-1, 1]},
    {"objects.class_index": [2, 1]},
)


@pytest.mark.parametrize(
    ("layout", "changed", "reason"),
    [
        ("plain", {"image.encoded": png(np.zeros((20, 30, 3), np.uint8))}, "image_sha256"),
        ("plain", {"image.width": 31}, "image_size"),
        ("plain", {"image.height": 19}, "image_size"),
        ("plain", {"image.width": 20, "image.height": 30}, "image_size"),
        # Of lists of different lengths nothing else is checked.
        ("plain", {"objects.area": [1.0], "objects.category_id": [9, 9]}, "object_lists"),
        *BOXES,
        ("plain", {"objects.xmin": [0.9, 0.0]}, "box_order"),
        ("keras", {"objects.bbox_xywh_px": [(3.0, 4.0, -1.0, 10.0)] * 2}, "box_order"),
        ("tfds", {"objects.bbox_yxyx": [0.0, 0.0, 1.0, 1.0, 0.4, 0.2, 0.3, 0.3]}, "box_order"),
        *((layout, changed, "class") for layout in ("plain", "keras", "tfds") for changed in CLASSES_CHANGED),
        ("detection", {"objects.label": [1, 1]}, "class"),
        ("tfds", {"segments.class_index": [-1]}, "class"),
        ("tfds", {"segments.class_index": [2]}, "class"),
    ],
)
def test_record_with_one_fault(values, layout, changed, reason):
    assert reasons(values, layout, **changed) == [reason]


@pytest.mark.parametrize(("layout", "changed", "reason"), BOXES)
def test_box_that_was_kept_may_reach_out_of_its_image(values, layout, changed, reason):
    assert check(values, layout, boxes_inside=False, **changed)[1] == []


@pytest.mark.parametrize(
    ("changed", "faults"),
    [
        ({"objects.label": [2, 7]}, 1),
        ({"objects.category_id": [7, 1]}, 4),
        ({"objects.category_name": [b"dog", b"cat"]}, 2),
    ],
)
def test_classes_that_do_not_belong_together(values, changed, faults):
    assert reasons(values, "detection", **changed) == ["class"] * faults


def test_labels_not_category_ids_are_known(values):
    labels = LabelMap((Category(0, "cat", keypoints=("nose", "tail")), Category(7, "dog")), LABELS.segments)
    shifted = {"objects.category_id": [0, 7], "objects.label": [1, 2]}
    whole = RecordChecker(CHECK, DETECTION, labels, True)
    assert whole(record(values, "detection", **shifted)) == (2, [])
    unshifted = record(values, "detection", **shifted | {"objects.label": [0, 7]})
    assert [reason for reason, _ in whole(unshifted)[1]] == ["class", "class"]
    without_ids = RecordChecker(CHECK, LAYOUTS["plain"], labels, True)
    assert [reason for reason, _ in without_ids(record(values, "plain", **shifted))[1]] == ["class", "class"]


BLANK = png(np.zeros((20, 30), np.uint8))


@pytest.mark.parametrize(
    ("layout", "changed"),
    [
        *(
            ("detection", {source: bad})
            for source in ("semantic.png", "panoptic.category_png", "panoptic.instance_png")
            for bad in (b"", png(np.zeros((30, 20), np.uint8)))
        ),
        ("tfds", {"panoptic.png": b""}),
        ("tfds", {"panoptic.png": png(np.zeros((30, 20, 3), np.uint8))}),
        ("detection", {"objects.mask_png": [BLANK, BLANK[:50]]}),
        ("detection", {"objects.mask_png": [png(np.zeros((20, 29), np.uint8)), BLANK]}),
        ("detection", {"objects.mask_png": [png(np.full((20, 30), 255, np.uint8)), BLANK]}),
    ],
)
def test_mask_damaged_or_of_another_size_is_named(values, layout, changed):
    (source,) = changed
    ((reason, detail),) = check(values, layout, **changed)[1]
    assert reason == "mask"
    assert source in detail


def test_maps_may_have_many_values(values):
    labels = png(np.full((20, 30), 255, np.uint8))
    assert reasons(values, "detection", **{"semantic.png": labels, "panoptic.category_png": labels}) == []


def palette_png(pixels: np.ndarray) -> bytes:
    image = Image.fromarray(pixels)
    image.putpalette([*range(255, -1, -1)] * 3)
    return encoded(image, "PNG")


def one_bit_png(pixels: np.ndarray) -> bytes:
    return encoded(Image.fromarray(pixels > 0), "PNG")


@pytest.mark.parametrize(
    ("source", "data", "detail"),
    [
        ("semantic.png", png(np.full((20, 30), 1, np.uint8)), None),
        ("semantic.png", png(np.full((20, 30), 2, np.uint8)), None),
        ("semantic.png", png(np.arange(600, dtype=np.uint8).reshape(20, 30) % 5), "values of no class: 0, 3, 4"),
        ("semantic.png", palette_png(np.ones((20, 30), np.uint8)), "a colour or palette PNG of 8 bits, not a grey PNG"),
        ("semantic.png", one_bit_png(np.ones((20, 30), np.uint8)), "a grey PNG of 1 bits, not a grey PNG of 8 bits"),
        ("depth.png", png(np.full((20, 30), 700, np.uint16)), None),
        ("depth.png", png(np.full((20, 30), 200, np.uint8)), "a grey PNG of 8 bits, not a grey PNG of 16 bits"),
        ("depth.png", png(np.full((30, 20), 700, np.uint16)), "20x30 pixels, the image 30x20"),
        ("depth.png", b"", "does not decode"),
    ],
)
def test_maps_that_readers_would_take_for_other_numbers(values, source, data, detail):
    """TensorFlow scales the values of grey PNGs of 1 or 8 bits to those of 8 or 16, and reads palettes as colours."""
    faults = check(values, "detection", **{source: data})[1]
    assert [reason for reason, _ in faults] == (["mask"] if detail else [])
    assert all(detail in text for _, text in faults)


def test_pixels_of_a_mask_may_be_any_class_id(values):
    paired = LabelMap(LABELS.categories, (Category(0, "road"), Category(9, "sky")), has_pixel_ids=True)
    whole = RecordChecker(CHECK, LAYOUTS["detection"], paired, True)
    for value, number in ((0, 0), (9, 0), (255, 0), (1, 1)):
        data = record(values, "detection", **{"semantic.png": png(np.full((20, 30), value, np.uint8))})
        assert len(whole(data)[1]) == number, value


# Images of one class each

CLASSES = LabelMap((Category(0, "cat"), Category(1, "été")))


def check_class_record(data: bytes = DATA, **changed) -> tuple[int, list[tuple[str, str]]]:
    """Findings for a record of an image of the class `été`, with some values changed."""
    labels = ImageLabels(class_name="été")
    task = ImageTask(139, "a.png", None, None, ImageFile("a.png", 1), "train", (), labels)
    image = StoredImage(data, "png", 30, 20, hashlib.sha256(data).hexdigest())
    values = values_of(CLASSES, CLASSIFICATION.with_parts(()), task, image) | changed
    return RecordChecker(CHECK, CLASSIFICATION.with_parts(()), CLASSES, True)(
        ExampleWriter(CLASSIFICATION.with_parts(())).write(values)
    )


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 4)])
def test_whole_record_of_one_class_has_no_fault_and_no_object(shape):
    assert check_class_record(png(np.zeros(shape, np.uint8))) == (0, [])


@pytest.mark.parametrize(
    ("changed", "reason", "detail"),
    [
        *(
            (
                {"image.class_index": index},
                "class",
                f"class {'été'.encode()} with class index {index} is not in the manifest",
            )
            for index in (0, 2, -1)
        ),
        ({"image.class_name": b"cat"}, "class", "class b'cat' with class index 1 is not in the manifest"),
        ({"image.channels": 1}, "image_channels", "the image decodes to 3 channels; the record says 1"),
        ({"image.height": 21}, "image_size", "the image decodes to 30x20; the record says 30x21"),
        ({"image.sha256": b"x"}, "image_sha256", "the image's SHA-256 is not the record's"),
    ],
)
def test_value_wrong_is_named(changed, reason, detail):
    assert check_class_record(**changed) == (0, [(reason, detail)])


COUNTS = EncoderInfo("captions", TextForm.COUNTS, 5, "train", 7, "")
TOKENS = EncoderInfo("captions", TextForm.TOKENS, 5, "train", 7, "")


@pytest.mark.parametrize(
    ("encoder", "values", "text"),
    [
        (COUNTS, {"index": [0, 4], "value": [1.0, 2.0]}, None),
        (COUNTS, {"index": [], "value": []}, None),
        (TOKENS, {"tokens": [4, 1, 1, 2]}, None),
        (TOKENS, {"tokens": []}, None),
        (COUNTS, {"index": [0, 5], "value": [1.0, 2.0]}, "0 .. 5 is not within the encoder's 0 .. 4"),
        (COUNTS, {"index": [-1, 4], "value": [1.0, 2.0]}, "-1 .. 4 is not within the encoder's 0 .. 4"),
        (COUNTS, {"index": [4, 0], "value": [1.0, 2.0]}, "do not ascend"),
        (COUNTS, {"index": [2, 2], "value": [1.0, 2.0]}, "do not ascend"),
        (COUNTS, {"index": [0, 4], "value": [1.0, float("nan")]}, "a term has the weight nan"),
        (COUNTS, {"index": [0, 4], "value": [0.0, 1.0]}, "a term has the weight 0"),
        (TOKENS, {"tokens": [0, 2]}, "0 .. 2 is not within the encoder's 1 .. 4"),
        (TOKENS, {"tokens": [2, 5]}, "2 .. 5 is not within the encoder's 1 .. 4"),
    ],
)
def test_numbers_of_texts_are_those_that_their_encoder_gives(encoder, values, text):
    kinds = {"index": np.int64, "value": np.float32, "tokens": np.int64}
    faults = list(
        text_faults({f"captions.{key}": np.array(numbers, kinds[key]) for key, numbers in values.items()}, encoder)
    )
    assert [reason for reason, _ in faults] == (["text"] if text else [])
    assert all(text in detail for _, detail in faults)


def test_record_is_held_against_its_encoders(values):
    values |= {"captions.index": [3, 7], "captions.value": [1.0, 1.0], "captions.tokens": []}
    record = ExampleWriter(DETECTION).write(values)
    assert RecordChecker(CHECK, DETECTION, LABELS, True)(record) == (2, [])
    _, faults = RecordChecker(CHECK, DETECTION, LABELS, True, (COUNTS,))(record)
    assert [reason for reason, _ in faults] == ["text"]


FEATURE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
HALVES = FEATURE.astype("<f2").tobytes()
INFINITE = np.full(FEATURE.shape, np.inf, np.float32)


@pytest.mark.parametrize(
    ("dtype", "changed", "reasons"),
    [
        ("float32", {}, []),
        ("float16", {}, []),
        ("float32", {"feature.shape": (4, 3, 3)}, ["feature_shape"]),
        ("float16", {"feature.shape": (4, 3, 3)}, ["feature_shape"]),
        ("float32", {"feature.values": INFINITE.ravel()}, ["feature_values"]),
        ("float16", {"feature.bytes": INFINITE.astype("<f2").tobytes()}, ["feature_values"]),
        ("float16", {"feature.bytes": HALVES + b"\0"}, ["feature_shape"]),
    ],
)
def test_feature_of_image(dtype, changed, reasons):
    named = {"image.class_index": 1, "image.class_name": b"dog", "image.file_name": b"a.jpg", "image.id": b"7"}
    feature = {"feature.bytes": HALVES, "feature.values": FEATURE.ravel(), "feature.shape": FEATURE.shape}
    table = features_table(FEATURE.shape, dtype)
    check = RecordChecker(CHECK, table, LABELS, boxes_inside=True)
    assert [reason for reason, _ in check(ExampleWriter(table).write(named | feature | changed))[1]] == reasons
