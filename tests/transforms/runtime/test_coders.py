"""Structs that cross a shuffle come out as they went in, and equal ones have the same bytes."""

import pickle
from itertools import combinations

import pytest
from apache_beam.coders import registry

from recordmill.schemas.annotations import AnnotatedImage, Annotation, Caption, ImageLabels, ImageRow, Segment
from recordmill.schemas.annotations import PanopticAnnotation as Panoptic
from recordmill.schemas.coco import AnnotationKind, BlockRows
from recordmill.schemas.images import ImageRef, ImageTask, JoinSide
from recordmill.schemas.shards import Amount, Measured, ShardKey
from recordmill.transforms.runtime import coders  # noqa: F401  registers them

OBJECT = Annotation(-(1 << 62), 1, (0.1, 1e300, 3.0, 0.0), 1e-9, True, b"[[1, 2]]", (1.0, 2.0, 2.0))
LABELS = ImageLabels(
    (Caption(1, "ü 🐈\x00"),),
    panoptic=(Panoptic("p", "a.png", (Segment(70_000, 3, False, (1.0, 2.0, 3.0, 4.0), 5.0),)),),
    neg_category_ids=(1, 2),
    class_name="",
)
ROW = ImageRow(5, "a/b.jpg", 40)
REF = ImageRef("gs://b/a.jpg", 1 << 40, "1795319575582895")
VALUES = [
    BlockRows(5, "a.json", AnnotationKind.PANOPTIC, 2, (ROW, ROW), (LABELS,), (5, -1), (OBJECT,), LABELS),
    ImageTask(5, "a/b.jpg", 40, None, REF, "train", (OBJECT, OBJECT), LABELS, True),
    JoinSide(AnnotatedImage(ROW, "val", (OBJECT,), LABELS)),
    JoinSide(file=REF),
    Measured("train", ((1 << 62, -5), b"\xff", "a.jpg", "rows.csv:3"), Amount(1 << 40, 2), b"\x00\xff"),
    ShardKey("train", 3, 128),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_they_come_out_as_they_went_in(value):
    coder = registry.get_coder(type(value))
    encoded = coder.encode(value)
    assert coder.decode(encoded) == value
    assert type(coder.decode(encoded)) is type(value)
    copy = pickle.loads(pickle.dumps(coder))  # as workers get it
    assert (copy, hash(copy), copy.encode(value)) == (coder, hash(coder), encoded)


@pytest.mark.parametrize("struct", sorted({type(value) for value in VALUES}, key=str))
def test_structs_may_be_keys_of_a_group(struct):
    """Beam groups by a key's bytes, so equal values must have the same."""
    coder = registry.get_coder(struct)
    assert coder.is_deterministic()
    assert coder.as_deterministic_coder("Step") is coder


def test_coders_of_different_structs_differ():
    found = [registry.get_coder(type(value)) for value in (VALUES[0], VALUES[1], VALUES[2], *VALUES[4:])]
    assert not any(one == other for one, other in combinations(found, 2))
