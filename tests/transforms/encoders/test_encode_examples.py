import io
import json
import struct
import tracemalloc
from collections import Counter

import msgspec
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from pycocotools import mask as coco_mask

from recordmill.schemas.block import ragged_bytes
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import FeatureKind, FeatureTable, Part, RecordOf
from recordmill.schemas.field_features import FieldColumn, add_fields
from recordmill.schemas.inputs.annotations import (
    Annotation,
    Caption,
    Category,
    ImageLabels,
    PanopticAnnotation,
    Segment,
    StuffAnnotation,
)
from recordmill.schemas.inputs.files import File, ImageFile
from recordmill.schemas.inputs.images import ImageTask, StoredImage
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.splits import name_id
from recordmill.schemas.layouts import CLASSIFICATION, DETECTION, KERAS, TFDS, change_keys_and_types
from recordmill.schemas.rejects import Metric, Reason, Rejected
from recordmill.transforms.encoders import encode_examples, encode_masks, record_maker
from recordmill.transforms.encoders.encode_examples import LoadedImage
from recordmill.transforms.encoders.record_maker import EncodedRun
from recordmill.transforms.insight.count_images import ImageCounter
from recordmill.transforms.insight.fingerprint_images import ImageFingerprints
from recordmill.transforms.records.parse_record import RecordParser, convert_to_layout_types
from tests.transforms.blocks.of_tasks import block_of_tasks
from tests.transforms.encoders import drawn_tasks
from tests.transforms.encoders.drawn_tasks import encode_tasks
from tests.transforms.insight.drawn_facts import record_places, sorted_objects

LABELS = LabelMap(
    (Category(0, "été", keypoints=("nose", "tail")), Category(3, "dog", keypoints=("nose",)), Category(90, "dog")),
    (Category(3, "dog", isthing=1), Category(92, "banner", isthing=0), Category(100, "sky")),
)
_KERAS = KERAS.with_parts(())
PLAIN = DETECTION.with_parts(())
IMAGE = StoredImage(b"\xff\xd8 not looked at", "jpeg", 100, 50, "5ha")
INSIDE = Annotation(-7, 90, (25.0, 10.0, 50.0, 20.0), 12.25, True)
CROSSING = Annotation(8, 0, (75.0, 40.0, 50.0, 20.0), 1e18, False)
OUTSIDE = Annotation(9, 3, (200.0, 0.0, 10.5, 10.0), 100.0, False)


def task(*annotations: Annotation, image_id: int = 139, **labels) -> ImageTask:
    ref = ImageFile("images/é.jpg", 1)
    return ImageTask(image_id, "train/é.jpg", None, None, ref, "train", annotations, ImageLabels(**labels))


def read(record: bytes) -> dict[str, list]:
    features = tf.train.Example.FromString(record).features.feature
    return {name: list(getattr(f, f.WhichOneof("kind")).value) for name, f in features.items()}


def encode(task: ImageTask, policy: str = "clip", table=PLAIN, image: StoredImage = IMAGE) -> EncodedRun:
    return encode_tasks(LABELS, table, policy, [(task, image)])


def only(encoded: EncodedRun) -> dict[str, list]:
    (record,) = encoded.records
    return read(b"".join(record))


TABLES = {
    "detection": PLAIN,
    "ids": DETECTION.with_parts((Part.LVIS, Part.CATEGORY_ID)),
    "masks": DETECTION.with_parts((Part.MASK_PNG, Part.MASK_RLE, Part.KEYPOINTS)),
    "captions": DETECTION.with_parts((Part.CAPTIONS, Part.CAPTION_TERMS, Part.SEMANTIC, Part.MASK_RLE)),
    "keras": _KERAS,
    "tfds": TFDS.with_parts((Part.CAPTIONS, Part.CAPTION_TOKENS, Part.PANOPTIC)),
    "classification": CLASSIFICATION.with_parts(()),
}


def assert_is_that_of_each_image(labels: LabelMap, table: FeatureTable, policy: str, loaded: list) -> None:
    """A run gives what its images give one by one."""
    found, parts = encode_tasks(labels, table, policy, loaded), []
    for task, stored in loaded:
        parts.append(encode_tasks(labels, table, policy, [(task, stored)]))
        records = [b"".join(record) for record in parts[-1].records]
        parts[-1] = parts[-1]._replace(records=records)
    assert list(map(b"".join, found.records)) == [record for part in parts for record in part.records]
    assert +found.counted == sum((part.counted for part in parts), Counter())
    assert Counter(found.class_counts) == sum((Counter(part.class_counts) for part in parts), Counter())
    assert found.rejected == [each for part in parts for each in part.rejected]
    unread = [task.ref.size_bytes for task, stored in loaded if isinstance(stored, Rejected) and is_wanted(task, table)]
    assert found.rejected_bytes == unread
    assert (found.images, found.bytes) == (sum(part.images for part in parts), sum(part.bytes for part in parts))
    written = [part for part in parts if len(part.records_per_image)]
    assert found.records_per_image.tolist() == [int(part.records_per_image[0]) for part in written]
    together, alone = [(ImageCounter(), ImageFingerprints()) for _ in range(2)]
    places = [(number, 100 * number, 100) for number in range(len(written))]
    for counters, facts, of in (
        (together, found.facts, places),
        *((alone, part.facts, [place]) for part, place in zip(written, places, strict=True)),
    ):
        counters[0].add(facts, record_places(of), sorted_objects(facts))
        counters[1].add(facts, record_places(of))
    assert str(together[0].statistics("s")) == str(alone[0].statistics("s"))
    assert together[1].collect("s") == alone[1].collect("s")


def is_wanted(task: ImageTask, table: FeatureTable) -> bool:
    """Whether an image that has no record is a reject."""
    return not task.is_continuation and bool(task.annotations or table.record_of is not RecordOf.ANNOTATION)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("policy", ["clip", "drop", "keep"])
@pytest.mark.parametrize("labels", [drawn_tasks.LABELS, drawn_tasks.SHIFTED], ids=["labels", "shifted"])
@pytest.mark.parametrize("table", TABLES)
def test_a_run_is_that_of_each_image(table, labels, policy, seed):
    assert_is_that_of_each_image(labels, TABLES[table], policy, drawn_tasks.draw_tasks(seed, labels))


@pytest.mark.parametrize("table", [PLAIN, _KERAS])
def test_many_objects(table):
    loaded = drawn_tasks.draw_tasks(0, images=3, most=20_000)
    assert sum(len(task.annotations) for task, _ in loaded) >= 20_000
    assert_is_that_of_each_image(drawn_tasks.LABELS, table, "clip", loaded)


def test_unknown_category_is_error_of_ours():
    with pytest.raises(KeyError, match="2"):
        encode(task(msgspec.structs.replace(INSIDE, category_id=2)))


def pixels(png: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(png)) as image:
        assert (image.format, image.mode) == ("PNG", "L")
        return np.asarray(image)


def test_every_feature():
    assert only(encode(task(INSIDE, CROSSING))) == {
        "image/encoded": [b"\xff\xd8 not looked at"],
        "image/filename": ["train/é.jpg".encode()],
        "image/format": [b"jpeg"],
        "image/height": [50],
        "image/key/sha256": [b"5ha"],
        "image/object/area": [12.25, struct.unpack("f", struct.pack("f", 1e18))[0]],
        "image/object/bbox/xmax": [0.75, 1.0],
        "image/object/bbox/xmin": [0.25, 0.75],
        "image/object/bbox/ymax": pytest.approx([0.6, 1.0]),
        "image/object/bbox/ymin": pytest.approx([0.2, 0.8]),
        "image/object/class/index": [2, 0],
        "image/object/class/label": [3, 1],
        "image/object/class/text": [b"dog", "été".encode()],
        "image/object/id": [-7, 8],
        "image/object/is_crowd": [1, 0],
        "image/source_id": [b"139"],
        "image/width": [100],
    }


@pytest.mark.parametrize(
    "table", [PLAIN, TFDS.with_parts(()), DETECTION, TFDS], ids=["plain", "plain tfds", "all", "tfds"]
)
def test_empty_lists_without_objects(table):
    found = only(encode(task(), table=table))
    assert set(found) == {feature.name for feature in table.features}
    assert {name for name, values in found.items() if not values} == {f.name for f in table.features if f.shape}


def test_lists_of_lvis():
    lists = {"neg_category_ids": (5, 2), "not_exhaustive_category_ids": (7,)}
    found = only(encode(task(**lists), table=TABLES["ids"]))
    assert {name: tuple(found[f"image/{name}"]) for name in lists} == lists


# The layouts keras and tfds


def test_every_feature_of_layout_keras():
    encoded = encode(task(INSIDE, OUTSIDE, CROSSING), table=_KERAS)
    image = {"image": [IMAGE.data], "image_id": [139], "path": ["train/é.jpg".encode()]}
    assert [read(b"".join(record)) for record in encoded.records] == [
        {
            **image,
            "area": [12.25],
            "bbox": [25.0, 10.0, 50.0, 20.0],
            "category_id": [90],
            "class_index": [2],
            "id": [-7],
        },
        {
            **image,
            "area": [struct.unpack("f", struct.pack("f", 1e18))[0]],
            "bbox": pytest.approx([75.0, 40.0, 25.0, 10.0]),
            "category_id": [0],
            "class_index": [0],
            "id": [8],
        },
    ]
    assert +encoded.counted == {Metric.IMAGES: 1, Metric.OBJECTS: 2, Metric.BOXES_CLIPPED: 1}
    assert [(reject.id, reject.reason) for reject in encoded.rejected] == [(9, Reason.EMPTY_BOX)]


def test_boxes_of_shrunk_image():
    shrunk = msgspec.structs.replace(IMAGE, annotated_size=(200, 100))
    assert only(encode(task(INSIDE), table=_KERAS, image=shrunk))["bbox"] == [12.5, 5.0, 25.0, 10.0]
    assert only(encode(task(INSIDE), image=shrunk))["image/object/bbox/xmin"] == [0.125]


@pytest.mark.parametrize(
    ("image_id", "beginning"), [(139, "box x 200"), (name_id("train/é.jpg"), "'train/é.jpg': box x 200")]
)
def test_reject_names_the_image_where_no_file_has_its_id(image_id, beginning):
    (rejected,) = encode(task(OUTSIDE, image_id=image_id)).rejected
    assert rejected.detail.startswith(beginning)


def test_every_feature_of_layout_tfds():
    captions = (Caption(4, "un été"), Caption(6, ""))
    table = TFDS.with_parts((Part.CAPTIONS,))
    encoded = encode(task(INSIDE, CROSSING, captions=captions), table=table)
    assert only(encoded) == {
        "captions/id": [4, 6],
        "captions/text": ["un été".encode(), b""],
        "image": [IMAGE.data],
        "image/filename": ["train/é.jpg".encode()],
        "image/id": [139],
        "objects/area": [12, 10**18],
        "objects/bbox": pytest.approx([0.2, 0.25, 0.6, 0.75, 0.8, 0.75, 1.0, 1.0]),
        "objects/category_id": [90, 0],
        "objects/id": [-7, 8],
        "objects/is_crowd": [1, 0],
        "objects/label": [2, 0],
    }
    assert encoded.counted[Metric.CAPTIONS] == 2
    assert encoded.facts.num_captions.tolist() == [2]


# Masks

MASKED = DETECTION.with_parts((Part.MASK_PNG, Part.MASK_RLE))
POLYGON = [[10, 5, 60, 5, 60, 45.5, 10, 45.5]]


def masked(id_: int, segmentation: object, **changed) -> Annotation:
    text = segmentation if isinstance(segmentation, bytes) else json.dumps(segmentation).encode()
    annotation = Annotation(id_, 3, (10.0, 5.0, 50.0, 40.0), 2000.0, False, text)
    return msgspec.structs.replace(annotation, **changed)


def as_pycocotools_draws(segmentation: object) -> np.ndarray:
    return coco_mask.decode(coco_mask.merge(coco_mask.frPyObjects(segmentation, 50, 100)))


RUNS = [0, 50, 4950]
FIRST_COLUMN = np.pad(np.ones((50, 1), np.uint8), ((0, 0), (0, 99)))


@pytest.mark.parametrize(
    ("segmentation", "expected"),
    [
        (POLYGON, as_pycocotools_draws(POLYGON)),
        ({"counts": RUNS, "size": [50, 100]}, FIRST_COLUMN),
        (b"", np.zeros((50, 100), np.uint8)),
        (None, np.zeros((50, 100), np.uint8)),
    ],
)
@pytest.mark.parametrize("is_crowd", [False, True])
def test_mask_is_same_image_as_png_and_as_run_lengths(segmentation, expected, is_crowd):
    encoded = encode(task(masked(1, segmentation, is_crowd=is_crowd)), table=MASKED)
    found = only(encoded)
    (png,), (counts,) = found["image/object/mask"], found["image/object/mask/rle"]
    assert np.array_equal(pixels(png), expected)
    assert np.array_equal(coco_mask.decode({"counts": counts, "size": [50, 100]}), expected)
    assert encoded.counted.get(Metric.MASKS, 0) == int(expected.any())


@pytest.mark.parametrize(
    ("segmentation", "number"),
    [
        ({"counts": [5000, 0], "size": [50, 100]}, 1),
        ({"counts": [5000], "size": [50, 100]}, 0),
        ([[200, 0, 300, 9]], 0),
    ],
)
def test_run_lengths_without_pixels(segmentation, number):
    encoded = encode(task(masked(1, segmentation)), table=MASKED)
    assert not pixels(only(encoded)["image/object/mask"][0]).any()
    assert encoded.counted.get(Metric.MASKS, 0) == number


def test_malformed_mask_is_a_reject():
    encoded = encode(task(masked(1, POLYGON), masked(2, [[1, 2, 3]]), masked(3, [])), table=MASKED)
    found = only(encoded)
    assert found["image/object/id"] == [1, 3]
    assert [pixels(png).any() for png in found["image/object/mask"]] == [True, False]
    assert [(reject.id, reject.reason, reject.image_id) for reject in encoded.rejected] == [
        (2, Reason.MALFORMED_SEGMENTATION, 139)
    ]
    assert (encoded.counted[Metric.OBJECTS], encoded.counted[Metric.MASKS]) == (2, 1)


# Stuff

SEMANTIC = DETECTION.with_parts((Part.SEMANTIC,))


def region(id_: int, category_id: int, segmentation: object) -> StuffAnnotation:
    return StuffAnnotation(id_, category_id, json.dumps(segmentation).encode())


def test_later_stuff_covers_earlier():
    left, all_of_it = [[0, 0, 50, 0, 50, 50, 0, 50]], {"counts": [0, 5000], "size": [50, 100]}
    regions = (region(1, 100, all_of_it), region(2, 92, left))
    encoded = encode(task(regions=regions), table=SEMANTIC)
    found = pixels(only(encoded)["image/segmentation/class/encoded"][0])
    expected = np.full((50, 100), 10, np.uint8)
    expected[:, :50] = 2
    assert np.array_equal(found, expected)
    assert encoded.counted[Metric.REGIONS] == 2


# PanopticAnnotation

PANOPTIC = DETECTION.with_parts((Part.SEMANTIC, Part.PANOPTIC))
MASK_NAMES = ("image/panoptic/category_mask", "image/panoptic/instance_mask", "image/segmentation/class/encoded")


@pytest.fixture
def panoptic(tmp_path) -> PanopticAnnotation:
    """Left a dog, right sky, void in between."""
    colours = np.zeros((50, 100, 3), np.uint8)
    colours[:, :40] = 7, 1, 0
    colours[:, 60:] = 0, 0, 1
    Image.fromarray(colours).save(tmp_path / "p.png")
    segments = (Segment(65536, 100, False), Segment(7 + 256, 3, True, (0.0, 0.0, 40.0, 50.0), 1999.5))
    return PanopticAnnotation(File(str(tmp_path / "p.png")), "p.png", segments)


def columns(left: int, middle: int, right: int) -> np.ndarray:
    return np.tile(np.repeat(np.array([left, middle, right], np.uint8), (40, 20, 40)), (50, 1))


def test_panoptic_annotation_becomes_three_masks(panoptic):
    encoded = encode(task(INSIDE, panoptic=(panoptic,)), table=PANOPTIC)
    found = [pixels(only(encoded)[name][0]) for name in MASK_NAMES]
    for mask, expected in zip(found, (columns(2, 0, 5), columns(2, 0, 0), columns(1, 255, 10)), strict=True):
        assert np.array_equal(mask, expected)
    assert (encoded.counted[Metric.PANOPTIC], encoded.rejected) == (1, [])


@pytest.mark.parametrize("rows", [(), (PanopticAnnotation(File("gone.png"), "gone.png", ()),)])
def test_without_usable_panoptic_annotation_all_is_void(rows):
    encoded = encode(task(INSIDE, panoptic=rows), table=PANOPTIC)
    found = [pixels(only(encoded)[name][0]) for name in MASK_NAMES]
    for mask, void in zip(found, (0, 0, 255), strict=True):
        assert np.array_equal(mask, np.full((50, 100), void))
    assert Metric.PANOPTIC not in +encoded.counted
    assert [(reject.what, reject.id, reject.reason, reject.image_id) for reject in encoded.rejected] == [
        ("annotation", None, Reason.MASK_MISSING, 139) for _ in rows
    ]


# Limits


@pytest.fixture(name="limit")
def limit_records(monkeypatch):
    def limit(size: int) -> None:
        for module in (record_maker, encode_examples):
            monkeypatch.setattr(module, "MAX_RECORD_BYTES", size)

    return limit


def test_masks_are_drawn_no_further_than_record_holds(limit, monkeypatch):
    drawn = []
    limit(3000)
    monkeypatch.setattr(encode_masks, "mask_png", lambda *_: drawn.append(1) or bytes(500))
    table = DETECTION.with_parts((Part.MASK_PNG,))
    (rejected,) = encode(task(*(masked(number, POLYGON) for number in range(50))), table=table).rejected
    assert (rejected.reason, rejected.annotations, len(drawn)) == (Reason.RECORD_TOO_LARGE, 50, 6)
    assert only(encode(task(*(masked(number, POLYGON) for number in range(3))), table=table))


@pytest.mark.parametrize("table", [PLAIN, _KERAS])
def test_image_that_no_record_holds_is_rejected(table, limit):
    limit(len(IMAGE.data) - 1)
    (rejected,) = encode(task(INSIDE), table=table).rejected
    assert (rejected.what, rejected.id, rejected.reason) == ("image", 139, Reason.RECORD_TOO_LARGE)
    assert f"its record would have {len(IMAGE.data)} bytes or more" in rejected.detail


def test_record_of_many_small_values(limit):
    limit(3000)
    few, many = (task(*(masked(id_, POLYGON) for id_ in range(number)), OUTSIDE) for number in (5, 100))
    found = encode_tasks(LABELS, PLAIN, "clip", [(few, IMAGE), (many, IMAGE), (few, IMAGE)])
    assert (len(list(found.records)), found.counted[Metric.OBJECTS], found.images) == (2, 10, 2)
    assert [(each.reason, each.annotations) for each in found.rejected] == [
        (Reason.EMPTY_BOX, 0),
        (Reason.RECORD_TOO_LARGE, 101),
        (Reason.EMPTY_BOX, 0),
    ]


def test_records_of_objects_are_made_one_at_time():
    """A megabyte for each of a thousand objects would be a gigabyte."""
    large_image = msgspec.structs.replace(IMAGE, data=bytes(1_000_000))
    objects = [msgspec.structs.replace(INSIDE, id=number) for number in range(1000)]
    tracemalloc.start()
    sizes = [len(b"".join(record)) for record in encode(task(*objects), table=_KERAS, image=large_image).records]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(sizes), sum(sizes) > 1_000_000_000, peak < 20_000_000) == (1000, True, True)


NUMBERED = LabelMap((Category(0, "été"), Category(3, "dog"), Category(90, "cat")))


@pytest.mark.parametrize("layout", ["detection", "keras", "tfds", "classification"])
def test_other_forms_mean_the_same(layout):
    """Names of classes in place of numbers, floats in place of integers, under other keys."""
    table = TABLES[layout]
    whole = [each.name for each in table.features if each.kind is FeatureKind.INT64 and each.source != table.label]
    keys = {name: f"my {name.replace('/', ' ')}" for name in whole}
    other = change_keys_and_types(table, keys, dict.fromkeys(keys.values(), FeatureKind.FLOAT), label_as_text=True)
    file = io.BytesIO()
    Image.new("RGB", (100, 50)).save(file, "PNG")
    loaded = [(task(INSIDE, INSIDE, class_name="dog"), StoredImage(file.getvalue(), "png", 100, 50, "5ha"))]
    plain, changed = (
        [b"".join(record) for record in encode_tasks(NUMBERED, each, "clip", loaded).records] for each in (table, other)
    )
    assert plain != changed
    for one, another in zip(plain, changed, strict=True):
        found = convert_to_layout_types(RecordParser(other)(another), other, NUMBERED)
        expected = RecordParser(table)(one)
        assert found.keys() == expected.keys()
        for source, value in expected.items():
            np.testing.assert_array_equal(found[source], value)
            assert getattr(found[source], "dtype", bytes) == getattr(value, "dtype", bytes)


@pytest.mark.parametrize(
    ("key", "kind", "annotation", "word"),
    [
        ("area", FeatureKind.INT64, INSIDE, "12.25 is not a whole number"),
        (
            "area",
            FeatureKind.INT64,
            Annotation(7, 90, (25.0, 10.0, 50.0, 20.0), 1e19, False),
            "1e.19 is not a whole number",
        ),
        *(
            ("id", FeatureKind.FLOAT, Annotation(id_, 90, (0.0, 0.0, 5.0, 5.0), 1.0, False), f"{id_} is not exact")
            for id_ in ((1 << 24) + 1, (1 << 62) + 1, (1 << 63) - 1)
        ),
    ],
)
def test_number_that_type_does_not_hold_ends_job(key, kind, annotation, word):
    with pytest.raises(ConfigError, match=word):
        encode(task(annotation), table=change_keys_and_types(_KERAS, {}, {key: kind}))


def test_fields_of_an_image_are_counted_once():
    """An image whose objects are in two shards, one with no object, and one that is whole."""
    fields = [FieldColumn("image", "hour", FeatureKind.INT64), FieldColumn("object", "score", FeatureKind.INT64)]
    table = add_fields(_KERAS, fields).table
    images = [task(INSIDE), task(CROSSING, INSIDE), task(OUTSIDE)]
    images[0] = msgspec.structs.replace(images[0], is_continuation=True)
    hours, scores = ([b'{"%b":%d}' % (name, number) for number in range(4)] for name in (b"hour", b"score"))
    block = block_of_tasks(images, ("train",)).replace(
        image_fields=ragged_bytes(hours[:3]), object_fields=ragged_bytes(scores)
    )
    loaded = [LoadedImage(msgspec.structs.replace(image, annotations=()), IMAGE) for image in images]
    run = encode_examples.ExampleEncoder(LABELS, table, "clip").encode(block, loaded)
    assert run.records_per_image.tolist() == [1, 2]
    counted = {source: (items.items.tolist(), items.rows, items.missing) for source, items in run.fields.items()}
    assert counted == {fields[0].source: ([1], 1, 0), fields[1].source: ([0, 1, 2], 3, 0)}
