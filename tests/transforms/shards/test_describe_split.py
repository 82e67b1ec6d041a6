import hashlib
from types import MappingProxyType

import msgspec
import pytest

from recordmill.schemas.dataset.manifest import (
    FORMAT,
    AnnotationCounts,
    ImageCounts,
    InputRows,
    MappedClass,
    SplitManifest,
    Unlisted,
)
from recordmill.schemas.dataset.recipes import InputFile, Recipe
from recordmill.schemas.errors import EmptyDatasetError, LostImagesError, TooManyRejectsError
from recordmill.schemas.inputs.annotations import Annotation, Category, ImageLabels
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageTask
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.rejects import Metric, Reason, Rejected, RejectLine
from recordmill.schemas.shards import ShardInfo, SplitSize
from recordmill.schemas.statistics import ZERO_BIN, Histogram, Statistics
from recordmill.transforms.blocks.pack_block import pack_block
from recordmill.transforms.dataset.compare_names import Names
from recordmill.transforms.dataset.facts import Facts, FactsBuilder, add_facts
from recordmill.transforms.dataset.rejects import RejectList, count_rejects
from recordmill.transforms.runtime.beam_steps import library_versions
from recordmill.transforms.shards.describe_split import (
    Rows,
    check_examples,
    check_rejects,
    check_totals,
    count_classes,
    describe_plan,
    describe_split,
)
from tests.transforms.blocks.of_tasks import block_of_tasks
from tests.transforms.dataset.kinds import tally

TABLE, KERAS, FOLDER = (LAYOUTS[layout].with_parts(()) for layout in ("detection", "keras", "classification"))
PATHS = InputFile("labels", "more/labels.csv", 5, "c"), InputFile("instances", "instances.json", 7, "d")
RECIPE = Recipe(FORMAT, "coco", "train", "detection", (), PATHS, ("images",), {"gzip": False, "seed": 0})
SHARDS = [
    ShardInfo("coco-train.tfrecord-00001-of-00002", 2, 200, "crc", "b"),
    ShardInfo("coco-train.tfrecord-00000-of-00002", 6, 600, "crc", "a"),
]
INPUTS = [InputRows("b.json", "captions", 4, 17), InputRows("a.json", "instances", 8, 16)]
REJECTED = [
    Rejected("image", 9, Reason.IMAGE_MISSING, "no file 'ü.jpg'", annotations=2),
    Rejected("annotation", 5, Reason.EMPTY_BOX, "box", 2),
    Rejected("image", None, Reason.MALFORMED_IMAGE, "row"),
    Rejected("annotation", 4, Reason.EMPTY_BOX, "box", 2),
]
COUNTS = {
    Metric.ROWS_MERGED.value: 2,
    Metric.IMAGES.value: 8,
    Metric.OBJECTS.value: 9,
    Metric.CAPTIONS.value: 8,
    Metric.REGIONS.value: 5,
    Metric.PANOPTIC.value: 3,
    Metric.ANNOTATIONS_MERGED.value: 1,
    Metric.MASKS.value: 7,
    Metric.BOXES_CLIPPED.value: 4,
    Metric.RECORD_BYTES.value: 700,
    Metric.FILTERED_CROWD.value: 3,
}
UNLISTED = Unlisted(1, ("x.jpg",))
FIRST = tuple(
    RejectLine(row.what, row.reason.value, row.detail, row.id) for row in map(REJECTED.__getitem__, (3, 1, 0, 2))
)
STATISTICS = b"{}"

SPLIT = SplitManifest(
    recipe=RECIPE,
    made_by=library_versions("detection"),
    compression="",
    inputs=(INPUTS[1], INPUTS[0]),
    class_counts=(9, 0),
    warnings=("a", "b"),
    images=ImageCounts(rows=10, written=8, without_record=0, rejected={"image_missing": 1, "malformed_image": 1}),
    annotations=AnnotationCounts(
        rows=33,
        objects=9,
        captions=8,
        stuff=5,
        panoptic=3,
        joined=1,
        rejected={"empty_box": 2},
        filtered={"crowd": 3},
        of_rejected_images=2,
        boxes_clipped=4,
        masks=7,
    ),
    unlisted=UNLISTED,
    record_bytes=700,
    rejects_sha256="abc",
    first_rejects=FIRST,
    statistics_sha256=hashlib.sha256(STATISTICS).hexdigest(),
    shards=(SHARDS[1], SHARDS[0]),
)


def without_records(images: ImageCounts) -> SplitManifest:
    nothing = AnnotationCounts(0, 0, 0, 0, 0, 0, {}, {}, 0, 0, 0)
    return msgspec.structs.replace(
        SPLIT, images=images, annotations=nothing, class_counts=(), shards=(ShardInfo("x", 0, 0, "", ""),)
    )


def facts(inputs=INPUTS, counts=COUNTS, statistics=MappingProxyType({})) -> Facts:
    """Facts of the split, and of another."""
    splits = {"train": 1, "val": 9}
    return Facts(
        {(split, metric): number * more for metric, number in counts.items() for split, more in splits.items()},
        {(split, rows.path, rows.kind): rows for rows in inputs for split in splits},
        unlisted=Names(UNLISTED.files, UNLISTED.first),
        warnings={("train", "b"), ("train", "a"), ("val", "c")},
        statistics=dict(statistics),
    )


def described(rejects=REJECTED, shards=SHARDS, class_counts=(9, 0), recipe=RECIPE, **changed) -> SplitManifest:
    list_ = RejectList(tally(rejects), "abc", FIRST)
    return describe_split(recipe, facts(**changed), list_, class_counts, STATISTICS, shards)


def test_describe_split():
    assert described() == described(REJECTED[::-1], SHARDS[::-1], inputs=INPUTS[::-1]) == SPLIT
    counts = COUNTS | {Metric.OF_REJECTED_IMAGES.value: 1}  # besides those that their rejects count
    assert described(counts=counts).annotations.of_rejected_images == 3


def test_images_without_objects():
    statistics = Statistics(8, {"objects_an_image": Histogram(9, 0.0, 5.0, {ZERO_BIN: 5, 0: 3})})
    split = described(counts=COUNTS | {Metric.EMPTIED.value: 3}, statistics={"train": statistics})
    assert (split.images.without_objects, split.images.emptied) == (5, 3)


def test_images_of_other_classes_are_counted_apart_and_add_up():
    inputs = [InputRows("labels.csv", "labels", 11, 0)]
    counts = {Metric.IMAGES.value: 8, Metric.OF_OTHER_CLASSES.value: 2}
    split = described(REJECTED[2:3], class_counts=(0, 8), inputs=inputs, counts=counts)
    assert split.images == ImageCounts(11, 8, 0, {"malformed_image": 1}, of_other_classes=2)
    check_totals(split, FOLDER)


def test_compression_is_as_tensorflow_names_it():
    assert described(recipe=msgspec.structs.replace(RECIPE, options={"gzip": True})).compression == "GZIP"


# Nothing is lost


WHOLE = {"rows": 10, "written": 8, "without_record": 0, "of_other_classes": 0}
REJECTS = {"image_missing": 1, "malformed_image": 1}


@pytest.mark.parametrize(
    "changed", [{"rows": 11}, {"written": 9}, {"without_record": 1}, {"of_other_classes": 3}, {"rejected": {}}]
)
def test_one_number_of_images_wrong_is_named(changed):
    numbers = WHOLE | {"rejected": REJECTS} | changed
    with pytest.raises(LostImagesError) as caught:
        check_totals(msgspec.structs.replace(SPLIT, images=msgspec.structs.replace(SPLIT.images, **changed)), TABLE)
    assert str(caught.value).startswith(
        "{rows} images came in, {written} were written, {without_record} give no record, {of_other_classes} have "
        "other classes, 0 are over a limit and {rejected} are rejected".format(**numbers)
    )


@pytest.mark.parametrize(
    ("changed", "rows", "accounted"),
    [
        ({"rows": 32}, 32, 33),
        ({"objects": 8}, 33, 32),
        ({"captions": 7}, 33, 32),
        ({"stuff": 6}, 33, 34),
        ({"panoptic": 1}, 33, 31),
        ({"joined": 0}, 33, 32),
        ({"rejected": {}}, 33, 31),
        ({"filtered": {}}, 33, 30),
        ({"of_rejected_images": 0}, 33, 31),
    ],
)
def test_one_number_of_annotations_wrong_is_named(changed, rows, accounted):
    counts = msgspec.structs.replace(SPLIT.annotations, **changed)
    with pytest.raises(LostImagesError, match=f"^{rows} annotations came in and {accounted} are accounted for"):
        check_totals(msgspec.structs.replace(SPLIT, annotations=counts), TABLE)


@pytest.mark.parametrize(
    ("record_of", "examples", "told"),
    [
        (TABLE, 7, "8 records were made and 7 are in the shards"),
        (TABLE, 9, "8 records were made and 9 are in the shards"),
        (KERAS, 8, "9 records were made and 8 are in the shards"),
    ],
)
def test_record_that_did_not_reach_shard_is_named(record_of, examples, told):
    split = msgspec.structs.replace(SPLIT, shards=(ShardInfo("x", examples, 1, "crc", "a"),))
    with pytest.raises(LostImagesError, match=told):
        check_totals(split, record_of)


def test_with_one_record_object_image_may_give_none():
    images = ImageCounts(10, 7, 1, SPLIT.images.rejected)
    split = msgspec.structs.replace(SPLIT, images=images, shards=(ShardInfo("x", 9, 1, "crc", "a"),))
    check_totals(split, KERAS)


def test_clipped_boxes_and_masks_are_not_counted_twice():
    counts = msgspec.structs.replace(SPLIT.annotations, boxes_clipped=9, masks=9)
    check_totals(msgspec.structs.replace(SPLIT, annotations=counts), TABLE)


@pytest.mark.parametrize(("table", "number"), [(TABLE, 9), (KERAS, 9), (FOLDER, 8)])
def test_objects_or_images_of_no_class_are_named(table, number):
    shards = (ShardInfo("x", 9 if table is KERAS else 8, 1, "c", "a"),)
    whole = msgspec.structs.replace(SPLIT, shards=shards, class_counts=(1, number - 1))
    check_totals(whole, table)
    for classified in (number - 1, number + 1):
        with pytest.raises(LostImagesError, match=f"{number} are in records and {classified} of them have a class"):
            check_totals(msgspec.structs.replace(whole, class_counts=(1, classified - 1)), table)


# Too much is rejected

ROWS = {"train": Rows(images=10, annotations=33)}


def check(rows=ROWS, rejected=REJECTED, max_rejects=1.0, inputs=("a.json",)) -> None:
    check_rejects(rows, tally(rejected), max_rejects, inputs, "Do this")


IMAGES = [Rejected("image", id_, Reason.IMAGE_MISSING, "gone") for id_ in range(30)]
ANNOTATIONS = [reject for reject in REJECTED if reject.what == "annotation"]
ASKED_FOR = [*(Rejected("image", -id_, Reason.EXCLUDED, "'a': excluded") for id_ in range(8)), IMAGES[9]]
HUNDRED = {"train": Rows(100, 33)}
TWO_SPLITS = {"test": Rows(10, 33), "train": Rows(90, 33)}
"""A split with few images may lose many of them."""


@pytest.mark.parametrize(
    ("rows", "rejected", "max_rejects"),
    [
        (ROWS, REJECTED, 0.2),
        (ROWS, REJECTED, 1.0),
        (ROWS, ASKED_FOR, 0.5),  # 1 of the 2 others
        (HUNDRED, IMAGES[:29], 0.29),  # 0.29 * 100 is 28.999999999999996
        (TWO_SPLITS, REJECTED, 0.031),  # 2 of 66 annotations
    ],
)
def test_rejects_up_to_limit_are_accepted(rows, rejected, max_rejects):
    check(rows, rejected, max_rejects)


@pytest.mark.parametrize(
    ("rows", "rejected", "max_rejects", "told"),
    [
        (ROWS, IMAGES[:10], 0.5, r"10 of 10 images .*\. Fix the data and run again$"),
        (ROWS, ANNOTATIONS, 0.06, r"2 of 33 annotations \(6\.1%\)"),
        (ROWS, ASKED_FOR, 0.4, "^1 of 2 images .*: image_missing 1. The first: gone"),
        (HUNDRED, IMAGES, 0.29, "30 of 100 images"),
        (TWO_SPLITS, REJECTED, 0.019, r"2 of 100 images \(2\.0%\) are rejected"),
    ],
)
def test_too_many_rejects(rows, rejected, max_rejects, told):
    with pytest.raises(TooManyRejectsError, match=told):
        check(rows, rejected, max_rejects)


def test_too_many_rejects_are_named_with_cure():
    with pytest.raises(TooManyRejectsError) as caught:
        check(max_rejects=0.19)
    assert str(caught.value) == (
        "2 of 10 images (20.0%) are rejected, more than --max-rejects 0.19 allows: "
        "image_missing 1, malformed_image 1. The first: no file 'ü.jpg'. Do this. "
        "Fix the data and run again, or accept the rejects by a larger --max-rejects"
    )


def test_paths_of_no_images_are_named():
    with pytest.raises(EmptyDatasetError) as caught:
        check({"train": Rows(0, 0), "val": Rows(0, 0)}, [], inputs=["more/labels.csv", "a.json", "a.json"])
    assert str(caught.value) == "a.json, more/labels.csv: no images, so there is nothing to write"


@pytest.mark.parametrize(
    ("images", "told"),
    [
        (
            ImageCounts(2, 0, 0, {"image_missing": 1, "too_large": 1}),
            "all are rejected: image_missing 1, too_large 1. The first: gone. See rejects.jsonl. Nothing",
        ),
        (ImageCounts(2, 0, 2, {}), "none has an object. See"),
        (ImageCounts(2, 0, 0, {}, without_tile=2), "2 have no tile with an object "),
        (
            ImageCounts(2, 0, 0, {"image_missing": 1}, removed=1),
            "1 are rejected, and the pipeline removed 1: image_missing 1. The first: gone. See",
        ),
        (ImageCounts(2, 0, 0, {"image_missing": 1}, of_other_classes=1), "none has one of the requested classes"),
    ],
)
def test_one_split_without_examples(images, told):
    rejects = {"val": RejectList(tally([]), "", (RejectLine("image", "image_missing", "gone"),))}
    with pytest.raises(EmptyDatasetError, match=f"of the 2 images of split val {told}"):
        check_examples({"train": SPLIT, "val": without_records(images)}, rejects, "rejects.jsonl")


SPLITS = "train", "val"
LABELS = LabelMap((Category(3, "cat"), Category(7, "dog"), Category(9, "dog")))


def task(split: str, *category_ids: int, class_name: str | None = None) -> ImageTask:
    annotations = tuple(
        Annotation(id_, kind, (0.0, 0.0, 1.0, 1.0), 1.0, False) for id_, kind in enumerate(category_ids)
    )
    labels = ImageLabels(class_name=class_name)
    return ImageTask(1, "a.jpg", None, None, ImageFile("a.jpg", 1), split, annotations, labels)


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
    facts = FactsBuilder()
    count_classes((0, pack_block(block_of_tasks(tasks, SPLITS))), facts, LABELS, SPLITS)
    assert facts.build().classes == counts


def test_plan_is_manifest_before_image_is_read():
    rejected = [Rejected("annotation", 1, Reason.MALFORMED_BOX, ""), Rejected("image", 1, Reason.IMAGE_MISSING, "")]
    rows = InputRows("b.json", "captions", 3, 4), InputRows("a.json", "instances", 3, 4)
    facts = Facts(
        {("val", "groups"): 2, ("val", "crowd"): 1},
        {("val", row.path, row.kind): row for row in rows},
        count_rejects(("val", reject) for reject in rejected),
        classes={("val", 1): 4},
        plans={"val": SplitSize(5, 150, 2)},
    )
    recipes = [msgspec.structs.replace(SPLIT.recipe, split=split) for split in ("train", "val")]
    plan = describe_plan(recipes, facts, LABELS, LAYOUTS["detection"].with_parts(()))
    train, val = plan.manifest.splits.values()
    assert plan.sizes == {"train": SplitSize(0, 0, 0), "val": SplitSize(5, 150, 2)}
    assert (val.images.written, val.images.rejected, val.images.groups) == (5, {"image_missing": 1}, 2)
    assert (val.annotations.rejected, val.annotations.filtered) == ({"malformed_box": 1}, {"crowd": 1})
    assert (train.images.rejected, train.annotations.rejected) == ({}, {})
    assert (train.class_counts, val.class_counts) == ((0, 0, 0), (0, 4, 0))
    assert val.inputs == (rows[1], rows[0])
    assert plan.manifest.num_classes == 10


def test_metric_with_name_of_field_is_in_manifest():
    """A count of a step is in the manifest as soon as a field has its name."""
    numbers = {metric.value: number for number, metric in enumerate(Metric, 1)}
    facts = Facts(counts={("train", name): number for name, number in numbers.items()})
    split = describe_split(RECIPE, facts, RejectList(tally([]), "", ()), [], b"")
    fields = [(counts, name) for counts in (split.images, split.annotations) for name in counts.__struct_fields__]
    fields_by_name = {name: getattr(counts, name) for counts, name in fields if name in numbers}
    assert fields_by_name == {name: numbers[name] for name in fields_by_name}
    assert {"groups", "emptied", "of_rejected_images", "keypoints_outside"} <= fields_by_name.keys()


def test_mapped_classes_of_several_sets_add_up():
    collected = []
    for name, new_name in (("birds", ""), ("cats", ""), ("dogs", "bird")):
        builder = FactsBuilder()
        builder.add_mapped("train", MappedClass("crow", new_name, objects=2))
        collected.append(builder.build().with_set_name(name))
    split = describe_split(RECIPE, add_facts(collected), RejectList(tally([]), "", ()), [], b"")
    assert split.class_map == (MappedClass("crow", "", objects=4), MappedClass("crow", "bird", objects=2))
