import pytest

from recordmill.schemas.shards import ShardSizing
from recordmill.transforms.shards.plan_blocks import SplitPlan, sizing_warnings


def warned(shards: int, images: int, **asked: int) -> list[str]:
    sizing = ShardSizing(**asked)
    return list(sizing_warnings("val", SplitPlan(sizing, shards, images, 0, images), sizing))


@pytest.mark.parametrize(
    ("shards", "images", "asked", "told"),
    [
        (64, 3, {"num_shards": 64}, "--num-shards 64 gives split val 64 shards for 3 images: 61 of them are empty"),
        (2, 1, {"num_shards": 2}, "1 of them are empty; give fewer"),
        (10, 19, {"num_shards": 10}, "10 shards for 19 images, about one in each; give fewer"),
        (10, 10, {"num_shards": 10}, "about one in each; give fewer"),
        (1500, 1501, {"examples_per_shard": 1}, "--examples-per-shard 1 gives split val 1,500 shards"),
        (
            89,
            239,
            {"shard_bytes": 200},
            "--shard-size of 200 bytes gives split val 89 shards for 239 images, as no pict",
        ),
        (89, 239, {"shard_bytes": 200}, "did you mean 200MB?"),
        (20, 20, {"shard_bytes": 100_000}, "about one in each; give more"),
        (10_001, 1_000_000, {"shard_bytes": 20_000}, "--shard-size of 20,000 bytes gives split val 10,001 shards"),
        (10_001, 1_000_000, {"num_shards": 10_001}, "slow to open and to list; give fewer"),
    ],
)
def test_what_is_odd_is_named_in_one_sentence_with_its_numbers_and_cure(shards, images, asked, told):
    (text,) = warned(shards, images, **asked)
    assert told in text


@pytest.mark.parametrize(
    ("shards", "images", "asked"),
    [
        (64, 64_000, {"num_shards": 64}),
        (3, 3, {"num_shards": 3}),  # a trial with a few pictures
        (9, 9, {"num_shards": 9}),
        (10, 20, {"num_shards": 10}),
        (1, 3, {"shard_bytes": 200}),
        (10_000, 1_000_000, {"shard_bytes": 20_000}),
        (1, 0, {"shard_bytes": 150_000_000}),
    ],
)
def test_what_may_be_meant_is_not(shards, images, asked):
    assert warned(shards, images, **asked) == []


def test_rows_of_a_table_may_be_small():
    sizing = ShardSizing(shard_bytes=2000)
    assert list(sizing_warnings("val", SplitPlan(sizing, 89, 2390, 0, 2390), sizing, "row")) == []
    (text,) = sizing_warnings("val", SplitPlan(sizing, 89, 100, 0, 100), sizing, "row")
    assert "89 shards for 100 rows, about one in each" in text
