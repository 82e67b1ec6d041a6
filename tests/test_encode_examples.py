"""Pictures and annotations become records that TensorFlow reads."""

import struct

import apache_beam as beam
import pytest
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from schemas.coco import Annotation, Category
from schemas.images import ImageRef, ImageTask, Picture
from schemas.labels import LabelMap
from schemas.layouts import DETECTION, LAYOUTS
from schemas.rejects import Reason, Rejected, Tally
from transforms.encode_examples import Encoded, EncodeExamples, ExampleEncoder

LABELS = LabelMap((Category(0, "été"), Category(3, "dog"), Category(90, "dog")))
PICTURE = Picture(b"\xff\xd8 not looked at", "jpeg", 100, 50, "5ha")
INSIDE = Annotation(-7, 90, (25.0, 10.0, 50.0, 20.0), 12.25, True)
CROSSING = Annotation(8, 0, (75.0, 40.0, 50.0, 20.0), 1e18, False)
OUTSIDE = Annotation(9, 3, (200.0, 0.0, 10.5, 10.0), 100.0, False)


def task(*annotations: Annotation, image_id: int = 139) -> ImageTask:
    return ImageTask(image_id, "train/é.jpg", None, None, ImageRef("images/é.jpg", 1), "train", annotations)


def read(record: bytes) -> dict[str, list]:
    features = tf.train.Example.FromString(record).features.feature
    return {name: list(getattr(f, f.WhichOneof("kind")).value) for name, f in features.items()}


def encode(task: ImageTask, policy: str = "clip", table=DETECTION) -> Encoded:
    return ExampleEncoder(LABELS, table, policy).encode(task, PICTURE)


def test_every_feature():
    assert read(encode(task(INSIDE, CROSSING)).record) == {
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
        "image/object/class/label": [90, 0],
        "image/object/class/text": [b"dog", "été".encode()],
        "image/object/id": [-7, 8],
        "image/object/is_crowd": [1, 0],
        "image/source_id": [b"139"],
        "image/width": [100],
    }


@pytest.mark.parametrize("image_id", [0, -1, (1 << 63) - 1, -(1 << 63)])
def test_the_source_id_is_a_number_that_model_garden_can_read(image_id):
    (source_id,) = read(encode(task(image_id=image_id)).record)["image/source_id"]
    assert tf.strings.to_number(source_id, tf.int64).numpy() == image_id


@pytest.mark.parametrize(
    ("policy", "ids", "xmax", "clipped", "rejected"),
    [
        ("clip", [-7, 8], [0.75, 1.0], 1, {9: Reason.EMPTY_BOX}),
        ("drop", [-7], [0.75], 0, {8: Reason.BOX_OUTSIDE, 9: Reason.EMPTY_BOX}),
        ("keep", [-7, 8], [0.75, 1.25], 0, {9: Reason.EMPTY_BOX}),
    ],
)
def test_box_policies(policy, ids, xmax, clipped, rejected):
    encoded = encode(task(INSIDE, CROSSING, OUTSIDE), policy)
    found = read(encoded.record)
    assert (found["image/object/id"], found["image/object/bbox/xmax"]) == (ids, xmax)
    assert encoded.counted == {
        Tally.OBJECTS: len(ids),
        Tally.BOXES_CLIPPED: clipped,
        Tally.RECORD_BYTES: len(encoded.record),
    }
    assert {reject.id: reject.reason for reject in encoded.rejected} == rejected


def test_a_rejected_box_is_shown_with_its_image():
    (reject,) = encode(task(OUTSIDE)).rejected
    detail = "box x 200, y 0, 10.5x10 in an image of 100x50"
    assert reject == Rejected("annotation", 9, Reason.EMPTY_BOX, detail, 139)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_can_be_computed_and_has_empty_lists_without_objects(layout):
    table = LAYOUTS[layout]
    found = read(encode(task(), table=table).record)
    assert set(found) == {feature.name for feature in table.features}
    assert {name for name, values in found.items() if not values} == {f.name for f in table.features if f.shape}


def test_the_transform():
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        labels = p | "Labels" >> beam.Create([LABELS])
        pictures = p | "Pictures" >> beam.Create([(task(INSIDE), PICTURE), (task(OUTSIDE), PICTURE)])
        records = pictures | EncodeExamples(labels, DETECTION, "clip")
        assert_that(records, equal_to([encode(task(INSIDE)), encode(task(OUTSIDE))]))
