"""What is wrong with a data set besides what is in its shards."""

import msgspec
import pytest

from recordmill.pipelines.verify import expected_shards, folder_faults
from recordmill.schemas.annotations import Category
from recordmill.schemas.manifest import FORMAT, Manifest, SplitManifest, encode_json
from recordmill.schemas.plan_report import ShardCheck
from tests.transforms.metadata.test_describe_split import SHARDS, SPLIT

FOUND = {"train": ((6, 5), (2, 4)), "val": ((6, 100), (2, 200))}
"""How many records and objects each shard of a split has."""


def of_split(name: str, split: SplitManifest = SPLIT) -> SplitManifest:
    recipe = msgspec.structs.replace(split.recipe, split=name)
    shards = tuple(msgspec.structs.replace(shard, file=shard.file.replace("train", name)) for shard in split.shards)
    return msgspec.structs.replace(split, recipe=recipe, shards=shards)


def plus(split: SplitManifest, part: str, *counts: str) -> SplitManifest:
    """A split's manifest with one more of some counts."""
    before = getattr(split, part)
    changed = msgspec.structs.replace(before, **{count: getattr(before, count) + 1 for count in counts})
    return msgspec.structs.replace(split, **{part: changed})


VAL = of_split("val")
VAL = msgspec.structs.replace(VAL, annotations=msgspec.structs.replace(VAL.annotations, rows=324, objects=300))


def write(folder, train: SplitManifest = SPLIT, layout: str = "detection", **others: SplitManifest) -> None:
    splits = {"train": train, **others}
    manifest = Manifest(FORMAT, "coco", layout, (), (Category(1, "cat"),), (), splits)
    (folder / "manifest.json").write_bytes(encode_json(manifest))


def faults(folder) -> list[tuple[str, str]]:
    checks = [
        ShardCheck(split, f"{split} {number}", examples, objects, 0, ())
        for split, found in FOUND.items()
        for number, (examples, objects) in enumerate(found)
    ]
    return [(fault.file, fault.reason) for fault in folder_faults(str(folder), checks)]


@pytest.mark.parametrize(
    ("part", "counts"),
    [
        ("images", ()),
        ("images", ("written", "rows")),  # records
        ("images", ("rows",)),
        ("annotations", ("objects", "rows")),  # objects
        ("annotations", ("rows",)),
    ],
)
@pytest.mark.parametrize("name", ["train", "val"])
def test_each_count_is_held_against_its_parts(tmp_path, part, counts, name):
    splits = {"train": SPLIT, "val": VAL}
    write(tmp_path, **splits | {name: plus(splits[name], part, *counts)})
    assert faults(tmp_path) == [("manifest.json", "count")] * bool(counts)


@pytest.mark.parametrize(("examples", "is_right"), [(9, True), (8, False)])
def test_where_a_record_is_of_an_object_there_are_as_many_records_as_objects(tmp_path, examples, is_right):
    shards = (msgspec.structs.replace(SHARDS[0], file=f"file_00-{examples}.tfrec", examples=examples),)
    recipe = msgspec.structs.replace(SPLIT.recipe, layout="keras")
    write(tmp_path, msgspec.structs.replace(SPLIT, shards=shards, recipe=recipe), "keras")
    assert faults(tmp_path) == [("manifest.json", "count")] * (not is_right)


def test_a_file_that_is_named_as_a_shard_must_be_listed(tmp_path):
    write(tmp_path, val=VAL)
    for name in (*(shard.file for shard in (*SPLIT.shards, *VAL.shards)), "coco-test.tfrecord-00000-of-00001", "x"):
        (tmp_path / name).touch()
    assert faults(tmp_path) == []
    (tmp_path / "coco-val.tfrecord-00000-of-00003.gz").touch()
    assert faults(tmp_path) == [("coco-val.tfrecord-00000-of-00003.gz", "unlisted")]


@pytest.mark.parametrize(("boxes", "inside"), [("clip", True), ("keep", False)])
def test_boxes_that_were_kept_as_they_came_may_lie_outside(tmp_path, boxes, inside):
    recipe = msgspec.structs.replace(SPLIT.recipe, options={**SPLIT.recipe.options, "boxes": boxes})
    write(tmp_path, msgspec.structs.replace(SPLIT, recipe=recipe))
    expected = expected_shards(str(tmp_path))
    assert [(shard.path, shard.split, shard.info, shard.boxes_inside) for shard in expected] == [
        (str(tmp_path / shard.file), "train", shard, inside) for shard in SPLIT.shards
    ]
