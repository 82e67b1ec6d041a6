import apache_beam as beam
import msgspec
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.annotations import Annotation, Category, ImageLabels
from recordmill.schemas.images import ImageRef, ImageTask
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.manifest import InputRows
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.schemas.shards import SplitSize
from recordmill.transforms.blocks.pack_block import pack_block
from recordmill.transforms.dataset.facts import Facts, add_facts
from recordmill.transforms.metadata.report_plan import CountClasses, plan_of
from recordmill.transforms.rejects.bounded_rejects import count_rejects
from tests.oracles.block_of_tasks import block_of_tasks
from tests.transforms.metadata.test_describe_split import SPLIT

SPLITS = "train", "val"
LABELS = LabelMap((Category(3, "cat"), Category(7, "dog"), Category(9, "dog")))


def task(split: str, *category_ids: int, class_name: str | None = None) -> ImageTask:
    annotations = tuple(
        Annotation(id_, kind, (0.0, 0.0, 1.0, 1.0), 1.0, False) for id_, kind in enumerate(category_ids)
    )
    labels = ImageLabels(class_name=class_name)
    return ImageTask(1, "a.jpg", None, None, ImageRef("a.jpg", 1), split, annotations, labels)


@pytest.mark.parametrize(
    ("tasks", "counts"),
    [
        (
            [task("val", 7, 7, 3), task("val"), task("train", 9), task("val", 7)],
            {("train", 2): 1, ("val", 0): 1, ("val", 1): 3},
        ),
        ([task("val", class_name="cat"), task("val", class_name="cat")], {("val", 0): 2}),
        ([task("val")], {}),
    ],
)
def test_count_classes(tasks, counts):
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        blocks = [(0, pack_block(block_of_tasks(part, SPLITS))) for part in (tasks[:1], tasks[1:]) if part]
        found = p | beam.Create(blocks) | CountClasses(SPLITS, p | "Labels" >> beam.Create([LABELS]))
        added = found | beam.combiners.ToList() | beam.Map(lambda parts: add_facts(parts).classes)
        assert_that(added, equal_to([counts]))


def test_the_plan_is_the_manifest_before_a_picture_is_read():
    rejected = [Rejected("annotation", 1, Reason.MALFORMED_BOX, ""), Rejected("image", 1, Reason.IMAGE_MISSING, "")]
    rows = InputRows("b.json", "captions", 3, 4), InputRows("a.json", "instances", 3, 4)
    facts = Facts(
        {("val", "groups"): 2, ("val", "crowd"): 1},
        {("val", each.path, each.kind): each for each in rows},
        count_rejects(("val", reject) for reject in rejected),
        classes={("val", 1): 4},
        plans={"val": SplitSize(5, 150, 2)},
    )
    recipes = [msgspec.structs.replace(SPLIT.recipe, split=split) for split in ("train", "val")]
    plan = plan_of(recipes, facts, LABELS, LAYOUTS["detection"].with_parts(()))
    train, val = plan.manifest.splits.values()
    assert plan.sizes == {"train": SplitSize(0, 0, 0), "val": SplitSize(5, 150, 2)}
    assert (val.images.written, val.images.rejected, val.images.groups) == (5, {"image_missing": 1}, 2)
    assert (val.annotations.rejected, val.annotations.filtered) == ({"malformed_box": 1}, {"crowd": 1})
    assert (train.images.rejected, train.annotations.rejected) == ({}, {})
    assert (train.class_counts, val.class_counts) == ((0, 0, 0), (0, 4, 0))
    assert val.inputs == (rows[1], rows[0])
    assert plan.manifest.num_classes == 10
