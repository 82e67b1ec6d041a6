from collections import Counter

import msgspec
import pytest

from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import (
    Annotation,
    Category,
    ImageLabels,
    PanopticAnnotation,
    Segment,
    StuffAnnotation,
)
from recordmill.schemas.inputs.files import File, ImageFile
from recordmill.schemas.inputs.images import ImageTask
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import DETECTION
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.blocks.image_tasks import image_tasks
from recordmill.transforms.coco.coco_options import CocoOptions
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.encoders.estimate_records import RecordEstimate
from recordmill.transforms.join.screen_objects import screen_annotations
from recordmill.transforms.shards import limit_records as module
from recordmill.transforms.shards.limit_records import limit_records
from tests.transforms.blocks.of_tasks import block_of_tasks
from tests.transforms.dataset.kinds import SplitReject, listed

SPLITS = ("train", "val")
CATEGORIES = LabelMap(
    (Category(3, "dog"), Category(1, "cat"), Category(1 << 40, "yak")),
    (Category(1, "cat", isthing=1), Category(92, "sky", isthing=0)),
)


def task(image_id: int, split: str, *objects: tuple[int, float, bool], **labels) -> ImageTask:
    """Objects have ids from 10 times `image_id` on; each has a category id, an area and iscrowd."""
    rows = (Annotation(10 * image_id + n, values[0], (0, 0, 1, 1), *values[1:]) for n, values in enumerate(objects))
    return ImageTask(image_id, "a", 40, 30, ImageFile("a", 1), split, tuple(rows), ImageLabels(**labels))


def unknown(split: str, image_id: int, id_: int | None, ids: str) -> SplitReject:
    detail = f"no category has the id {ids}"
    return SplitReject(split, Rejected("annotation", id_, Reason.UNKNOWN_CATEGORY, detail, image_id).named("a"))


CAT, SMALL_CAT, CROWD, DOG, YAK = (
    (1, 9.0, False),
    (1, -1.0, False),
    (1, 0.5, True),
    (3, 5.0, False),
    (1 << 40, 2.0, False),
)
IMAGES = [
    task(1, "train", CAT, (2, 9.0, True), CROWD),
    task(2, "val", DOG, SMALL_CAT),
    task(3, "val", YAK, YAK),
    task(4, "val"),
    task(5, "train", (4, 9.0, False)),
]


def options(**more) -> CocoOptions:
    return CocoOptions(images=("images",), instances=("a.json",), output="out", **more)


# The first option that skips an object counts it.
ALL_COUNTS = {("train", "crowd"): 1, ("val", "category"): 3, ("val", "area"): 1, ("val", "emptied"): 2}


@pytest.mark.parametrize(
    ("more", "object_ids", "counts"),
    [
        ({}, [10, 12, 20, 21, 30, 31], {}),
        ({"categories": ("cat", "dog")}, [10, 12, 20, 21], {("val", "category"): 2, ("val", "emptied"): 1}),
        ({"no_crowd": True}, [10, 20, 21, 30, 31], {("train", "crowd"): 1}),
        ({"min_area": 2.0}, [10, 20, 30, 31], {("train", "area"): 1, ("val", "area"): 1}),
        ({"categories": ("cat",), "no_crowd": True, "min_area": 6.0}, [10], ALL_COUNTS),
    ],
)
def test_screened_objects(more, object_ids, counts):
    facts = FactsBuilder()
    screened = image_tasks(
        screen_annotations(block_of_tasks(IMAGES, SPLITS), CATEGORIES, options(**more), SPLITS, facts), SPLITS
    )
    assert [annotation.id for task in screened for annotation in task.annotations] == object_ids
    assert [task.image_id for task in screened] == [1, 2, 3, 4, 5]
    assert facts.build().counts == counts
    assert listed(facts.build()) == [unknown("train", 1, 11, "2"), unknown("train", 5, 50, "4")]


def test_screened_labels():
    regions = tuple(StuffAnnotation(id_, category_id, b"") for id_, category_id in ((7, 92), (8, 93), (9, 3)))
    panoptic = [
        PanopticAnnotation(File("p"), "p", tuple(Segment(1, id_, False) for id_ in ids))
        for ids in ((1, 92), (95, 92, 94))
    ]
    images = [task(number, "val", regions=regions, panoptic=(row,)) for number, row in enumerate(panoptic)]
    facts = FactsBuilder()
    screened = screen_annotations(block_of_tasks(images, SPLITS), CATEGORIES, options(), SPLITS, facts)
    labels = [task.labels for task in image_tasks(screened, SPLITS)]
    assert [(image_labels.regions, image_labels.panoptic) for image_labels in labels] == [
        (regions[:1], (panoptic[0],)),
        (regions[:1], ()),
    ]
    region_rejects = [
        unknown("val", image, id_, category_id) for image in (0, 1) for id_, category_id in ((8, "93"), (9, "3"))
    ]
    assert Counter(listed(facts.build())) == Counter([*region_rejects, unknown("val", 1, None, "94, 95")])


def test_limited_records(monkeypatch):
    """Empty masks of 11,869 bytes each: those of the second image are too large for one record."""
    monkeypatch.setattr(module, "MAX_RECORD_BYTES", 12_000)
    large = [
        msgspec.structs.replace(image, width=4000, height=3000)
        for image in (task(6, "val", CAT), task(7, "val", CAT, DOG))
    ]
    block, facts = block_of_tasks([*IMAGES, *large], SPLITS), FactsBuilder()
    estimate = RecordEstimate(DETECTION.with_parts((Part.MASK_PNG,)))
    limited = limit_records(block, estimate, SPLITS, facts)
    assert image_tasks(limited, SPLITS) == [*IMAGES, large[0]]
    ((split, reject),) = listed(facts.build())
    assert (split, reject.id, reject.reason, reject.annotations) == ("val", 7, Reason.RECORD_TOO_LARGE, 2)
    assert "2 masks of 4000x3000 pixels take at least 23,738 bytes as PNG; a record has at most 12,000" in reject.detail
    assert limit_records(limited, estimate, SPLITS, facts) is limited
