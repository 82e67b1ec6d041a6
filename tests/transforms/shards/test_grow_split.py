"""The entry of a split with that of a run that added to it."""

import msgspec
import pytest

from recordmill.schemas.dataset.manifest import (
    AnnotationCounts,
    ImageCounts,
    InputRows,
    MappedClass,
    RewrittenImages,
    SplitManifest,
    Unlisted,
)
from recordmill.schemas.dataset.recipes import Recipe
from recordmill.schemas.inputs.encoders import TextCounts
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.shards.grow_split import grow_split

UNSET = msgspec.UNSET


def recipe(folder: str) -> Recipe:
    return Recipe(1, "coco", "train", "detection", (), (), (folder,), {"seed": 0})


def shard(index: int, count: int, examples: int = 5) -> ShardInfo:
    return ShardInfo(f"coco-train.tfrecord-{index:05}-of-{count:05}", examples, 100, "crc", "sha")


BASE = SplitManifest(
    recipe("old"),
    {"pillow": "11"},
    "",
    (InputRows("a.json", "captions", 0, 4), InputRows("b.json", "instances", 12, 9, {"images": {"id": 1}})),
    ImageCounts(12, 10, 1, {"image_missing": 1}, rewritten=RewrittenImages({"tiff": 2}, 1, 0, 90, 50), groups=3),
    AnnotationCounts(13, 8, 4, 0, 0, 0, {"empty_box": 1}, {}, 0, 2, 0),
    Unlisted(6, ("a", "b", "c", "d", "f")),
    1000,
    "old rejects",
    (shard(0, 2), shard(1, 2)),
    (5, 3),
    ("warned", "warned twice"),
    {"captions": TextCounts(4, 0, 20, 1)},
    {"dark": 2},
    "old statistics",
    "old fingerprints",
    (),
    UNSET,
    "old images",
)
RUN = SplitManifest(
    recipe("new"),
    {"pillow": "12"},
    "",
    (InputRows("b.json", "instances", 7, 6), InputRows("c.json", "instances", 1, 0)),
    ImageCounts(8, 5, 0, {"image_missing": 1, "duplicate": 1}, present=1, changed=1),
    AnnotationCounts(6, 4, 0, 0, 0, 0, {}, {"crowd": 1}, 0, 0, 0, of_present_images=1),
    Unlisted(1, ("e",)),
    500,
    "rejects of both",
    (shard(2, 4), shard(3, 4, examples=0)),
    (1, 1, 2),
    ("warned twice",),
    {"captions": TextCounts(1, 1, 2, 0), "more": TextCounts(1, 0, 0, 0)},
    {"dark": 1, "thin_boxes": 3},
    "statistics of both",
    "fingerprints of both",
    (),
    (MappedClass("feline", "cat", 4),),
    "images of both",
    changes_sha256="changes",
)


def test_numbers_are_sums_and_recipe_is_the_first():
    grown = grow_split(BASE, RUN)
    assert (grown.recipe, grown.made_by) == (BASE.recipe, BASE.made_by)
    assert grown.inputs == (
        InputRows("a.json", "captions", 0, 4),
        InputRows("b.json", "instances", 19, 15, {"images": {"id": 1}}),
        InputRows("c.json", "instances", 1, 0),
    )
    assert grown.images == ImageCounts(
        20,
        15,
        1,
        {"duplicate": 1, "image_missing": 2},
        rewritten=RewrittenImages({"tiff": 2}, 1, 0, 90, 50),
        groups=3,
        present=1,
        changed=1,
    )
    assert grown.annotations == AnnotationCounts(
        19, 12, 4, 0, 0, 0, {"empty_box": 1}, {"crowd": 1}, 0, 2, 0, of_present_images=1
    )
    assert grown.images.accounted == grown.images.rows
    assert grown.annotations.accounted == grown.annotations.rows
    assert grown.unlisted == Unlisted(1, ("e",))  # the run may have added those of the first
    assert (grown.record_bytes, grown.class_counts) == (1500, (6, 4, 2))
    assert grown.warnings == ("warned", "warned twice")
    assert grown.texts == {"captions": TextCounts(5, 1, 22, 1), "more": TextCounts(1, 0, 0, 0)}
    assert grown.findings == {"dark": 3, "thin_boxes": 3}
    assert grown.class_map == (MappedClass("feline", "cat", 4),)


def test_lists_are_those_of_the_run_and_shards_follow():
    grown = grow_split(BASE, RUN)
    assert [shard.file[-14:] for shard in grown.shards] == ["00000-of-00002", "00001-of-00002", "00002-of-00004"]
    digests = grown.rejects_sha256, grown.statistics_sha256, grown.fingerprints_sha256, grown.images_sha256
    assert digests == ("rejects of both", "statistics of both", "fingerprints of both", "images of both")
    assert grown.changes_sha256 == "changes"


def test_each_run_is_listed():
    twice = grow_split(grow_split(BASE, RUN), msgspec.structs.replace(RUN, shards=(), changes_sha256=UNSET))
    assert [run.recipe.images for run in twice.runs] == [("new",), ("new",)]
    assert [(run.shards, run.images, run.made_by) for run in twice.runs] == [
        (1, RUN.images, {"pillow": "12"}),
        (0, RUN.images, {"pillow": "12"}),
    ]
    assert twice.images.rows == 28
    assert twice.changes_sha256 is UNSET


@pytest.mark.parametrize(
    ("base", "run", "expected"),
    [
        (UNSET, UNSET, UNSET),
        ((), UNSET, ()),
        (
            (MappedClass("tabby", "cat", 1), MappedClass("snake", "", 2)),
            (MappedClass("tabby", "cat", 3), MappedClass("lion", "cat", 0, 1)),
            (MappedClass("snake", "", 2), MappedClass("lion", "cat", 0, 1), MappedClass("tabby", "cat", 4)),
        ),
    ],
)
def test_class_maps_are_added(base, run, expected):
    entries = (msgspec.structs.replace(entry, class_map=map_) for entry, map_ in ((BASE, base), (RUN, run)))
    assert grow_split(*entries).class_map == expected
