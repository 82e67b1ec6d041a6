import msgspec

from recordmill.schemas.manifest import RewrittenPictures
from recordmill.transforms.report.tabulate_splits import amount_rows, value_rows
from tests.transforms.metadata.test_describe_split import SPLIT
from tests.transforms.report.test_page import manifest_of, statistics_of


def test_values_that_all_splits_have_stand_once_and_those_of_none_not():
    of = {
        "train": {"seed": 1, "gzip": True, "match": ["a", "b"], "lists": [], "limit": None, "old": False},
        "val": {"seed": 2, "gzip": True, "match": ["a", "b"], "lists": [], "limit": None},
    }
    assert value_rows(of) == [("gzip", ["yes"]), ("match", ["a, b"]), ("old", ["no", ""]), ("seed", ["1", "2"])]


def test_amounts_of_each_split():
    (shard,) = SPLIT.shards[:1]
    manifest = manifest_of(counts=(9, 2), splits=("train", "val"))
    rewritten = RewrittenPictures({"gif": 3, "webp": 1200}, turned=0, shrunk=4, bytes_read=9, bytes_written=8)
    train = msgspec.structs.replace(
        manifest.splits["train"],
        shards=tuple(msgspec.structs.replace(shard, bytes=size) for size in [1000] * 11 + [12_000]),
        class_counts=(9, 0),
        images=msgspec.structs.replace(SPLIT.images, rewritten=rewritten),
    )
    val = msgspec.structs.replace(manifest.splits["val"], shards=(msgspec.structs.replace(shard, bytes=1000),))
    manifest = msgspec.structs.replace(manifest, splits={"train": train, "val": val})
    rows = dict(amount_rows(manifest, {"train": statistics_of(manifest)["train"]}))
    assert rows["objects per image"] == ["1.0", ""]
    assert rows["classes"] == ["1 of 2 with any", "2 of 2 with any"]
    assert rows["balance of classes"] == ["1.0 to 1", "4.5 to 1"]
    assert rows["rewritten"] == ["gif 3, webp 1,200; 4 made smaller: 9 bytes became 8 bytes", ""]
    assert rows["formats in records"] == ["jpeg 8", ""]
    assert rows["shards"] == ["12 of 1.0 kB to 12.0 kB, 23.0 kB in all", "1 of 1.0 kB, 1.0 kB in all"]
    assert rows["largest shard"] == ["6.26 times the mean", "1.00 times the mean"]
    assert rows["hosts"] == ["at most 12 (number of shards)", "at most 1 (number of shards)"]
    manifest = msgspec.structs.replace(manifest, splits={"val": val})
    assert rows.keys() - dict(amount_rows(manifest, {})).keys() == {
        "formats in records",
        "objects per image",
        "rewritten",
    }
