"""Everything that commands print when they are done, in one text."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from recordmill.launch.terminal.console import print_lines, terminal
from recordmill.launch.verbs.verify import print_checks
from recordmill.schemas.dataset.checks import Fault, Faults
from recordmill.schemas.dataset.manifest import (
    FORMAT,
    AnnotationCounts,
    ImageCounts,
    InputRows,
    Manifest,
    RewrittenImages,
    SplitManifest,
    Unlisted,
)
from recordmill.schemas.dataset.recipes import Recipe
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.encoders import EncoderInfo, TextCounts, TextForm
from recordmill.schemas.problems import Duplicates, SplitDuplicates, SplitProblems
from recordmill.schemas.shards import ShardInfo, SplitSize
from recordmill.schemas.sizes import printable
from recordmill.schemas.statistics import ClassDrift, ClassInOneSplit, SplitComparison
from recordmill.transforms.dataset.fact_lines import data_set_lines, split_lines
from tests.golden import assert_golden

CAT = Category(1, "cat")
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
VAL = replace(CLEAN, images=ImageCounts(4, 4, 0, {}), class_counts=(0,))
MIXED = replace(
    CLEAN,
    images=ImageCounts(
        1234, 1230, 2, {"image_missing": 3, "too_large": 1}, of_other_classes=2, without_objects=1219, emptied=1
    ),
    annotations=AnnotationCounts(
        5000, 12, 5, 4, 3, 6, {"empty_box": 1000}, {"crowd": 60}, 40, 2345, 11, keypoints_outside=3
    ),
    unlisted=Unlisted(1234, ("a.jpg", "b\x1b[2J.jpg")),
    class_counts=(3, 1, 0, 0, 0, 0),
    shards=(
        ShardInfo("a", 1, 900, "", ""),
        ShardInfo("b", 1, 2_000_000_000, "", ""),
        ShardInfo("c", 1, 150_000, "", ""),
    ),
    warnings=("b\x1b", "a"),
    inputs=(InputRows("a.json", "instances", 4, 9, {"annotations": {"a\x1b[2J": 1}, "file": {"info": 1}}),),
)
NAMES = ("cat", "cat", "a\x07b", "a\x07b", "[red]x", ":smile:")
MANY = tuple(Category(number, name, keypoints=("keypoint_1", "keypoint_2")) for number, name in enumerate(NAMES))
GROUPED = replace(
    CLEAN,
    recipe=replace(CLEAN.recipe, options={"group_from": "p\x1b+", "split": "train=0.8,val=0.2"}),
    images=replace(CLEAN.images, groups=1234, ungrouped=5),
)
TEXTS = EncoderInfo("cap\x1b", TextForm.COUNTS, 70, "train", 1234, "")
ROWS = replace(
    CLEAN,
    images=replace(CLEAN.images, rewritten=RewrittenImages({"GIF": 2, "BMP": 1}, 1, 2, 3000, 2000)),
    texts={"cap\x1b": TextCounts(1000, 3, 9000, 7)},
    annotations=replace(CLEAN.annotations, rows=0, objects=0),
)
GAPS = (9, 1076, 5, 0, 7, 8, 6)
LEAKED = SplitDuplicates(exact=1234, near=56, leaked=7, labels_differ=3)
COPIES = {f"c{number}\x1b": 2001 for number in range(9)}
OTHERWISE = SplitComparison(
    tuple(ClassInOneSplit(f"c\x1b{number}", "train", 1000 + number) for number in range(6)),
    (ClassDrift("cat", "val", 5, 0.04, 0.1234),),
)
FAULT = Fault("coco-val.tfrecord-00000-of-00001", 17, "data_crc", "the checksum\nis wrong")


def manifest(splits, categories=(CAT,), parts=(), layout="detection", **more) -> Manifest:
    return Manifest(FORMAT, "coco", layout, parts, categories, (), splits, **more)


def summary(splits: dict[str, SplitManifest], categories=(CAT,), compared=None, **more) -> None:
    names = [name for name in splits if name != "earlier"]
    print_lines(terminal(), data_set_lines("out", manifest(splits, categories, **more), names, compared))


def duplicates(
    split_duplicates: dict[str, SplitDuplicates], copies: Mapping[str, int], **splits: SplitManifest
) -> None:
    summary(splits or {"train": CLEAN}, duplicates=Duplicates("", 99, 5, split_duplicates, copies))


def conflicts() -> None:
    """Copies of a class folder in another, in a folder whose name a shell would split."""
    counts = {"train": SplitDuplicates(2776, labels_differ=2740, conflicting=2740), "val": SplitDuplicates()}
    problems = {split: SplitProblems("", {"exact_duplicates": 2326, "dark": 1}) for split in counts}
    more = {"duplicates": Duplicates("", 450, 0, counts, {}, 450), "problems": problems}
    print_lines(terminal(), data_set_lines("my out", manifest({"train": CLEAN, "val": CLEAN}, **more), ["train"]))


SHOWN = {
    "all that was left out": lambda: summary({"train": MIXED}, MANY, parts=(Part.MASK_RLE, Part.CATEGORY_ID)),
    "more rejects than are listed": lambda: summary(
        {"train": replace(CLEAN, images=ImageCounts(312_008, 4, 0, {"image_missing": 312_000, "too_large": 4}))}
    ),
    "splits share what is the same for both": lambda: summary(
        {
            "train": replace(GROUPED, class_counts=GAPS),
            "val": replace(VAL, class_counts=(0,) * 7),
            "earlier": replace(CLEAN, class_counts=GAPS),
        },
        tuple(Category(number, f"c\x1b{number}") for number in range(7)),
        compared=OTHERWISE,
    ),
    "pictures and texts": lambda: summary({"train": ROWS}, layout="classification", encoders=(TEXTS,)),
    "leakage": lambda: duplicates({"train": LEAKED, "val": SplitDuplicates(exact=8, leaked=8)}, {}, val=CLEAN),
    "near duplicates": lambda: duplicates({"train": SplitDuplicates(near=2)}, {}),
    "conflicting labels": conflicts,
    "classes of copies": lambda: duplicates({}, COPIES),
    "many faults": lambda: print_checks("out", [], Faults((FAULT,) * 1023)),
}


def test_summaries(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")  # where no number is cut
    texts = []
    for name, show in SHOWN.items():
        show()
        texts.append(f"== {name}\n{capsys.readouterr().out}")
    assert_golden("summaries", "\n".join(texts))


@pytest.mark.parametrize(
    ("images", "check", "cost"),
    [
        (4, "decode", "1 second"),
        (4_000, "decode", "10 seconds"),
        (3_000_000, "decode", "2.1 hours"),
        (3_000_000, "header", "2,000 seconds"),
    ],
)
def test_cost_of_a_plan(images, check, cost):
    split = replace(CLEAN, recipe=replace(CLEAN.recipe, options={"check": check}))
    lines = dict(split_lines(manifest({"train": split}), split, [split], SplitSize(images, 9, 1)))
    assert lines["cost"] == f"about {cost} of one core (--check {check})"


@pytest.mark.parametrize(
    ("tiles", "objects", "text"),
    [
        (0, 9, "1 of 2 classes have fewer than 5 objects (--max-per-class), and b has the fewest, 2"),
        (0, 0, "1 of 2 classes have fewer than 5 images (--max-per-class), and b has the fewest, 2"),
        (
            7,
            9,
            "1 of 2 classes have fewer than 5 objects in tiles (--max-per-class counts those of whole images), and b …",
        ),
        (7, 0, "1 of 2 classes have fewer than 5 tiles (--max-per-class counts those of whole images), and b has …"),
    ],
)
def test_classes_below_the_limit(tiles, objects, text):
    split = replace(
        CLEAN,
        recipe=replace(CLEAN.recipe, options={"max_per_class": 5}),
        images=replace(CLEAN.images, tiles=tiles),
        annotations=replace(CLEAN.annotations, rows=objects, objects=objects),
        class_counts=(7, 2),
    )
    categories = Category(1, "a"), Category(2, "b")
    lines = [line for _, line in split_lines(manifest({"train": split}, categories), split, [split])]
    assert any(line.startswith(text.removesuffix("…")) for line in lines), lines


@pytest.mark.parametrize(("parts", "has_classes"), [((), True), ((Part.DEPTH,), False)])
def test_images_with_nothing_but_depth_maps_have_no_line_of_classes(parts, has_classes):
    lines = dict(split_lines(manifest({"train": CLEAN}, (), parts), CLEAN, [CLEAN]))
    assert ("classes" in lines) == has_classes


def test_depth_maps_are_counted_beside_as_many_objects():
    split = replace(CLEAN, annotations=replace(CLEAN.annotations, rows=8, objects=4, depth_maps=4))
    texts = [text for _, text in split_lines(manifest({"train": split}), split, [split])]
    assert "objects 4, depth maps 4" in texts


@pytest.mark.parametrize(
    ("text", "expected"),
    [("été 日本.jpg", "été 日本.jpg"), ("a\nb\tc", "a\\nb\\tc"), ("\u202eabc", "\\u202eabc"), ("\x9b2J", "\\x9b2J")],
)
def test_printable(text, expected):
    assert printable(text) == expected
