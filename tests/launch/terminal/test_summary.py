"""What a command tells when it is done."""

import msgspec
import pytest

from recordmill.launch.terminal.fault_summary import print_checks
from recordmill.launch.terminal.summary import print_plan, print_splits, print_times, printable, terminal
from recordmill.pipelines.options.coco_options import CocoOptions
from recordmill.schemas.annotations import Category
from recordmill.schemas.features import Part
from recordmill.schemas.manifest import (
    FORMAT,
    AnnotationCounts,
    ImageCounts,
    InputRows,
    Manifest,
    SplitManifest,
    Unlisted,
)
from recordmill.schemas.plan_report import Fault, Faults, PlanReport, ShardCheck
from recordmill.schemas.recipes import Recipe
from recordmill.schemas.shards import ShardInfo
from recordmill.schemas.statistics_file import ClassDrift, ClassInOneSplit, SplitComparison

ONE_CATEGORY = (Category(1, "cat"),)
CLEAN = SplitManifest(
    recipe=Recipe(FORMAT, "coco", "train", "detection", (), (), (), {}),
    made_by={"recordmill": "0.1.0"},
    compression="",
    inputs=(),
    images=ImageCounts(1234, 1234, 0, {}),
    annotations=AnnotationCounts(5000, 5000, 0, 0, 0, 0, {}, {}, 0, 0, 0),
    unlisted=Unlisted(0, ()),
    record_bytes=1,
    class_counts=(5000,),
    rejects_sha256="",
    shards=(ShardInfo("coco-train.tfrecord-00000-of-00001", 1234, 1_234_567, "", ""),),
)
MIXED = SplitManifest(
    recipe=CLEAN.recipe,
    made_by={"recordmill": "0.1.0"},
    compression="",
    inputs=(),
    images=ImageCounts(1234, 1230, 0, {"image_missing": 3, "too_large": 1}),
    annotations=AnnotationCounts(5000, 3900, 0, 0, 0, 0, {"empty_box": 1000}, {"crowd": 60}, 40, 2345, 0),
    unlisted=Unlisted(1234, ("a.jpg", "b\x1b[2J.jpg")),
    record_bytes=1,
    class_counts=(3, 1, 0, 0),
    rejects_sha256="",
    shards=(
        ShardInfo("a", 1, 900, "", ""),
        ShardInfo("b", 1, 2_000_000_000, "", ""),
        ShardInfo("c", 1, 150_000, "", ""),
    ),
)


def shown(capsys, split: SplitManifest, folder: str = "out", categories=ONE_CATEGORY, parts=(), **more) -> list[str]:
    manifest = Manifest(FORMAT, "coco", "detection", parts, categories, (), {"train": split}, **more)
    print_splits(terminal(), folder, manifest, ["train"])
    return capsys.readouterr().out.splitlines()


def test_a_clean_split(capsys):
    assert shown(capsys, CLEAN, num_classes=91) == [
        "coco-train is in out",
        "  images       1,234 of 1,234",
        "  annotations  5,000 of 5,000",
        "  classes      1: cat 5,000",
        "  shards       1 of 1.2 MB, 1.2 MB in all",
        "  first shard  out/coco-train.tfrecord-00000-of-00001",
        "  num_classes  91, which is the largest label, 90, + 1",
    ]


def test_what_is_not_carried_is_told_by_summary_and_plan(capsys):
    inputs = (InputRows("a.json", "instances", 4, 9, {"annotations": {"a\x1b[2J": 1}, "file": {"info": 1}}),)
    told = ["  not carried  of annotations: a\\x1b[2J 1", "               of every COCO file: info"]
    assert shown(capsys, msgspec.structs.replace(CLEAN, inputs=inputs))[6:8] == told
    assert planned(capsys, msgspec.structs.replace(PLAN, inputs=inputs))[3:5] == told


def test_groups_are_told_by_summary_and_plan_of_each_split(capsys):
    recipe = msgspec.structs.replace(CLEAN.recipe, options={"group_from": "p\x1b+", "split": "train=0.8,val=0.2"})
    images = msgspec.structs.replace(CLEAN.images, groups=1234)
    assert shown(capsys, msgspec.structs.replace(CLEAN, recipe=recipe, images=images))[2] == (
        "  groups       1,234, by --group-from p\\x1b+; 100.0% of all images, by train=0.8,val=0.2"
    )
    plan = msgspec.structs.replace(PLAN, groups_by_split={"train": 1234})
    assert planned(capsys, plan, splits=("train", "val"))[3] == "  groups       train 1,234, val 0"


def test_keypoints_that_no_file_names_are_told(capsys):
    cat = Category(1, "cat", keypoints=("keypoint_1", "keypoint_2"))
    line = "  keypoints    2 of cat, as most rows have: keypoint_1 to keypoint_2, as none is named"
    assert line in shown(capsys, CLEAN, categories=(cat,))
    named = (Category(1, "cat", keypoints=("keypoint_1", "tail")),)
    assert not any("keypoint" in text for text in shown(capsys, CLEAN, categories=named))


def test_of_many_classes_the_first_are_named(capsys):
    categories = tuple(Category(id_, f"c{id_}") for id_ in range(1, 1235))
    split = msgspec.structs.replace(CLEAN, class_counts=(5000, *[0] * 1000, *[1] * 233))
    line = "  classes      1,234: c1 5,000, c2 0, c3 0, c4 0, c5 0 and 1,229 more; 1,000 without any"
    assert line in shown(capsys, split, categories=categories)


def test_without_classes_none_is_named(capsys):
    lines = shown(capsys, msgspec.structs.replace(CLEAN, class_counts=()), categories=())
    assert "  classes      0" in lines
    assert not any("num_classes" in line for line in lines)


def test_warnings_of_all_splits_are_told_once(capsys):
    split = msgspec.structs.replace(CLEAN, warnings=("b\x1b", "a"))
    manifest = Manifest(FORMAT, "coco", "detection", (), ONE_CATEGORY, (), {"train": split, "val": split})
    print_splits(terminal(), "out", manifest, ["train", "val"])
    assert capsys.readouterr().out.splitlines()[-2:] == ["  warning      a", "  warning      b\\x1b"]


def test_classes_that_lie_in_splits_otherwise_than_by_chance_are_told(capsys):
    manifest = Manifest(FORMAT, "coco", "detection", (), ONE_CATEGORY, (), {"train": CLEAN, "val": CLEAN})
    alone = tuple(ClassInOneSplit(f"c\x1b{number}", "train", 1000 + number) for number in range(6))
    comparison = SplitComparison(alone, (ClassDrift("cat", "val", 5, 0.04, 0.1234),))
    print_splits(terminal(), "out", manifest, ["train", "val"], comparison)
    first, second = capsys.readouterr().out.splitlines()[-2:]
    assert first.startswith(
        "  perhaps bad  classes that are in one split only 6: c\\x1b0 (train, images 1,000), c\\x1b1 (tr"
    )
    assert first.endswith("c\\x1b4 (train, images 1,004) …")
    assert second == (
        "  perhaps bad  class shares that differ between splits by more than chance 1: cat (4.0% of the images of val, "
        "12.3% elsewhere)"
    )


def test_times_are_told_of_the_whole_and_its_steps(capsys):
    print_times(terminal(), {"starting": 2.04, "reading annotations": 1000.0, "writing": 0.34})
    print_times(terminal(), {"the job": 1.25})
    print_times(terminal(), {})
    assert capsys.readouterr().out.splitlines() == [
        "That took 1,002.4 s: starting 2.0 s, reading annotations 1,000.0 s, writing 0.3 s",
        "That took 1.2 s",
    ]


def test_every_kind_is_told(capsys):
    split = msgspec.structs.replace(
        CLEAN,
        images=ImageCounts(10, 7, 2, {"image_missing": 1}),
        annotations=AnnotationCounts(30, 12, 5, 4, 3, 6, {}, {}, 0, 0, 11),
    )
    assert shown(capsys, split, parts=(Part.MASK_RLE, Part.CAPTIONS))[1:5] == [
        "  images       7 of 10 (image_missing 1, without an object 2)",
        "  annotations  30 of 30",
        "               objects 12, captions 5, stuff 4, panoptic 3, keypoint rows joined with their instance 6",
        "  masks        11 of 12 objects; the others have no segmentation",
    ]


def test_everything_that_was_left_out_is_told(capsys):
    categories = (Category(1, "cat"), Category(2, "cat"), Category(3, "a\x07b"), Category(4, "a\x07b"))
    assert shown(capsys, MIXED, categories=categories) == [
        "coco-train is in out",
        "  images       1,230 of 1,234 (image_missing 3, too_large 1)",
        "  annotations  3,900 of 5,000 (empty_box 1,000, crowd 60, of rejected images 40)",
        "  boxes        2,345 clipped at their image's edge",
        "  classes      4: cat 3, cat 1, a\\x07b 0, a\\x07b 0; 2 without any",
        "  shards       3 of 900 bytes to 2.0 GB, 2.0 GB in all",
        "  first shard  out/a",
        "               several category ids share a name: a\\x07b, cat",
        "  files        1,234 in --images that nothing refers to, and that are left out (a.jpg, b\\x1b[2J.jpg …)",
        "Every reject is in out/rejects-train.jsonl",
    ]


OF_ONE_CLASS = msgspec.structs.replace(
    CLEAN,
    images=ImageCounts(20, 15, 0, {"image_missing": 3}, of_other_classes=2),
    annotations=AnnotationCounts(0, 0, 0, 0, 0, 0, {}, {}, 0, 0, 0),
    unlisted=Unlisted(1, ("notes.txt",)),
    class_counts=(10, 5),
    shards=(ShardInfo("images-train.tfrecord-00000-of-00001", 15, 900, "", ""),),
)


def test_splits_of_one_job_share_what_is_the_same_for_all_of_them(capsys):
    val = msgspec.structs.replace(
        OF_ONE_CLASS,
        class_counts=(0, 4),
        images=ImageCounts(4, 4, 0, {}),
        shards=(ShardInfo("images-val.tfrecord-00000-of-00001", 4, 200, "", ""),),
    )
    splits = {"test": CLEAN, "train": OF_ONE_CLASS, "val": val}
    manifest = Manifest(FORMAT, "images", "classification", (), (Category(0, "cat"), Category(1, "dog")), (), splits, 2)
    print_splits(terminal(), "out", manifest, ["train", "val"])
    assert capsys.readouterr().out.splitlines() == [
        "images-train is in out",
        "  images       15 of 20 (image_missing 3, of classes not asked for 2)",
        "  classes      2: cat 10, dog 5",
        "  shards       1 of 900 bytes, 900 bytes in all",
        "  first shard  out/images-train.tfrecord-00000-of-00001",
        "images-val is in out",
        "  images       4 of 4",
        "  classes      2: cat 0, dog 4; 1 without any",
        "  shards       1 of 200 bytes, 200 bytes in all",
        "  first shard  out/images-val.tfrecord-00000-of-00001",
        "  num_classes  2, which is the largest label, 1, + 1",
        "  files        1 in --images that nothing refers to, and that are left out (notes.txt)",
        "Every reject is in out/rejects-train.jsonl",
    ]


@pytest.mark.parametrize("name", ["[red]x", "a[/b]", ":smile:"])
def test_names_are_no_markup(capsys, name):
    assert shown(capsys, CLEAN, folder=name)[0] == f"coco-train is in {name}"
    fault = Fault(name, 3, "class", name)
    print_checks(terminal(), name, [ShardCheck("train", name, 1, 1, 1, 1, Faults((fault,)))], Faults((fault,)))
    assert f"{name} record 3: class: {name}" in capsys.readouterr().out.splitlines()


PLAN = PlanReport(
    images=118_000,
    images_by_split={"train": 118_000},
    bytes=19_300_000_000,
    shards=129,
    rejected={"image": {"image_missing": 2}, "annotation": {"unknown_category": 1}},
    classes=("person", "bicycle"),
    class_counts={"train": [262_465, 7_113]},
    num_classes=91,
    shifted_labels=0,
)
OPTIONS = {"images": ("i",), "instances": ("a",), "output": "out", "name": "coco"}


def planned(capsys, plan: PlanReport, splits=("train",), **options) -> list[str]:
    print_plan(terminal(), plan, CocoOptions(**OPTIONS | options), splits)
    return capsys.readouterr().out.splitlines()


def test_a_plan(capsys):
    assert planned(capsys, PLAN) == [
        "coco-train would be written to out; nothing was",
        "  images       118,000 (image_missing 2)",
        "  annotations  some are left out (unknown_category 1)",
        "  classes      2: person 262,465, bicycle 7,113",
        "  num_classes  91, which is the largest label, 90, + 1",
        "  shards       129 of about 149.6 MB",
        "  bytes        19.3 GB to read, and to write before compression",
        "  cost         about 295 seconds of one core (--check decode)",
    ]
    shifted = planned(capsys, msgspec.structs.replace(PLAN, shifted_labels=2))
    assert [line for line in shifted if line.startswith("  labels       class index + 1 (1 to 2)")]


def test_a_plan_tells_each_split_in_its_order_and_those_without_an_image_too(capsys):
    plan = msgspec.structs.replace(PLAN, images_by_split={"c": 117_000, "a": 1000}, class_counts={"c": [5, 0]})
    lines = planned(capsys, plan, splits=("val", "c", "b", "a"))
    assert lines[0] == "coco-val, coco-c, coco-b, coco-a would be written to out; nothing was"
    assert lines[2] == "               val 0, c 117,000, b 0, a 1,000"
    assert lines[4:6] == [
        "  classes      val 2: person 0, bicycle 0; 2 without any",
        "  classes      c 2: person 5, bicycle 0; 1 without any",
    ]


def test_a_plan_of_one_split_tells_its_images_once(capsys):
    lines = planned(capsys, msgspec.structs.replace(PLAN, images=0, images_by_split={}), splits=("val",))
    assert lines[:2] == ["coco-val would be written to out; nothing was", "  images       0 (image_missing 2)"]
    assert not any("val 0" in line for line in lines)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"num_shards": 7}, "  shards       129 of about 149.6 MB"),
        ({"writer": "beam"}, "  shards       as the runner chooses"),
        ({"writer": "beam", "num_shards": 7}, "  shards       129 of about 149.6 MB"),
    ],
)
def test_the_shards_of_a_plan(capsys, options, line):
    assert line in planned(capsys, PLAN, **options)


@pytest.mark.parametrize(
    ("images", "cost"),
    [
        (0, "about 1 second"),
        (4_000_000, "about 2.8 hours"),
    ],
)
def test_the_cost_of_a_plan(capsys, images, cost):
    plan = PlanReport(images, {"train": images}, 0, 0, {"image": {}, "annotation": {}}, (), {}, 0, 0)
    assert f"  cost         {cost} of one core (--check decode)" in planned(capsys, plan)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("été 日本.jpg", "été 日本.jpg"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\u202eabc", "\\u202eabc"),
        ("\x9b2J", "\\x9b2J"),
    ],
)
def test_printable(text, expected):
    assert printable(text) == expected
