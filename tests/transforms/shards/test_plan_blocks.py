import random
from itertools import permutations

import apache_beam as beam
import msgspec
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.block import Block, join_blocks
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.annotations import Annotation, Caption, ImageLabels, TableRow
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageTask
from recordmill.schemas.layouts import CLASSIFICATION, DETECTION, KERAS
from recordmill.schemas.shards import ShardKey, ShardSizing
from recordmill.transforms.blocks import cut_range as module
from recordmill.transforms.blocks.cut_range import cut_range
from recordmill.transforms.blocks.image_tasks import image_tasks
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.blocks.run_step import hash_images, image_order, ranges_of
from recordmill.transforms.encoders.estimate_records import RecordEstimate
from recordmill.transforms.runtime import progress
from recordmill.transforms.shards.plan_blocks import (
    PlanBlocks,
    SplitPlan,
    check_empty_shards,
    empty_shards,
    place_images,
    plan_blocks,
    plan_split,
    sizing_warnings,
    take_census,
)
from tests.beam_pipeline import Pipeline
from tests.transforms.blocks.drawn_blocks import IDS, SPLITS, contents
from tests.transforms.blocks.of_tasks import block_of_tasks
from tests.transforms.dataset.kinds import applied
from tests.transforms.encoders.drawn_tasks import expected_amount

SEED = 3
PLAIN = DETECTION.with_parts(())
SIZINGS = [
    *(ShardSizing(num_shards=number) for number in (1, 7, 1000)),
    *(ShardSizing(examples_per_shard=number) for number in (1, 2, 7)),
    *(ShardSizing(shard_bytes=size) for size in (1, 2_000, 100_000, 10**9)),
]


def task(id_: int, size: int, objects: int, split: str = "train") -> ImageTask:
    annotations = tuple(Annotation(number, 1, (0.0, 0.0, 1.0, 1.0), 1.0, False) for number in range(objects))
    return ImageTask(id_, f"{id_}.jpg", 40, 30, ImageFile(f"images/{id_}.jpg", size), split, annotations)


IMAGES = st.builds(task, IDS, st.integers(0, 5000), st.integers(0, 5), st.sampled_from(SPLITS))
MANY = st.lists(IMAGES, min_size=1, max_size=40, unique_by=lambda image: image.image_id)
Placed = dict[ShardKey, list[ImageTask]]


def ranges_in(images: list[ImageTask], bits: int) -> list[tuple[int, Block]]:
    """Images by range, those of a range in order."""
    block = block_of_tasks(images, SPLITS)
    hashes = hash_images(block.image_id, SEED)
    block = block.take(image_order(block, hashes))
    numbers = ranges_of(np.sort(hashes), bits)
    return [(number, block.take(numbers == number)) for number in np.unique(numbers).tolist()]


def planned(
    images: list[ImageTask], sizing: ShardSizing, estimate: RecordEstimate, bits: int, rng: random.Random
) -> tuple[dict[str, SplitPlan], Placed]:
    """The plan of each split, and the images of each shard, from the Blocks of the ranges in any order."""
    keyed = [
        (key, unpack_block(packed))
        for number, block in ranges_in(images, bits)
        for key, packed in cut_range(number, block)
    ]
    rng.shuffle(keyed)
    plans = plan_blocks(
        [census for key, block in keyed for census in take_census(key, block, estimate)], SPLITS, sizing
    )
    pieces_by_shard: dict[ShardKey, list[tuple[int, list[ImageTask]]]] = {}
    for key, block in keyed:
        for number, split in enumerate(SPLITS):
            if (part := block.take(block.split == number)) and len(part):
                placed, shards = place_images(key, part, plans[split], estimate)
                placed.check("test")
                for shard in np.unique(shards).tolist():
                    pieces = image_tasks(placed.take(shards == shard), SPLITS)
                    pieces_by_shard.setdefault(ShardKey(split, shard, plans[split].shards), []).append((key, pieces))
    placed_images = {
        shard: [image for _, pieces in sorted(of) for image in pieces] for shard, of in pieces_by_shard.items()
    }
    return {split: msgspec.structs.replace(plan, before=b"", keys=b"") for split, plan in plans.items()}, placed_images


def assert_is_promised(
    images: list[ImageTask], plan: SplitPlan, sizing: ShardSizing, placed: Placed, estimate: RecordEstimate
) -> None:
    """Each image of a split once, in the order of hashes, in the shard that the flags promise; images are cut only
    where a shard has all its examples."""
    hashes = dict(zip(images, hash_images(block_of_tasks(images, SPLITS).image_id, SEED).tolist(), strict=True))
    ordered = sorted(images, key=lambda image: (hashes[image], image.image_id))
    pieces = [(key.index, piece) for key in sorted(placed) for piece in placed[key]]
    joined: list[ImageTask] = []
    for _, piece in pieces:
        if piece.is_continuation:
            assert piece.image_id == joined[-1].image_id
            assert piece.annotations
            joined[-1] = msgspec.structs.replace(joined[-1], annotations=joined[-1].annotations + piece.annotations)
        else:
            joined.append(piece)
    assert joined == ordered
    sizes, examples = np.array([expected_amount(estimate, image) for image in ordered]).T
    assert (plan.images, plan.bytes, plan.examples) == (len(images), sizes.sum(), examples.sum())
    bytes_before, examples_before = np.cumsum(sizes) - sizes, np.cumsum(examples) - examples
    shards = [shard for shard, piece in pieces if not piece.is_continuation]
    example_shards = [shard for shard, piece in pieces for _ in range(expected_amount(estimate, piece)[1])]
    if sizing.num_shards is not None:
        assert plan.shards == sizing.num_shards
        assert shards == (np.arange(len(images)) * plan.shards // len(images)).tolist()
        return
    if sizing.examples_per_shard is not None:
        assert example_shards == (np.arange(plan.examples) // sizing.examples_per_shard).tolist()
        first = examples_before // sizing.examples_per_shard
    else:
        assert plan.sizing.shard_bytes == max(sizing.shard_bytes or 0, sizes.max(), 1)
        first = (bytes_before + sizes // 2) // plan.sizing.shard_bytes
    assert plan.shards == 1 + max(example_shards, default=0)
    assert shards == np.minimum(first, plan.shards - 1).tolist()


@settings(max_examples=150)
@given(
    MANY,
    st.sampled_from(SIZINGS),
    st.sampled_from([PLAIN, KERAS.with_parts(())]),
    st.randoms(use_true_random=False),
    st.sampled_from([3, 1000]),
)
def test_plan_blocks(images, sizing, table, rng, most):
    """The same, whatever the number of ranges, where they are cut, and in which order they come."""
    estimate = RecordEstimate(table)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOST_IMAGES", most)
        plansby_bits = [planned(images, sizing, estimate, bits, rng) for bits in (1, 4, 12)]
    assert plansby_bits[0] == plansby_bits[1] == plansby_bits[2]
    plans, placed = plansby_bits[0]
    assert plans.keys() == {image.split for image in images}
    for split, plan in plans.items():
        used, empty = [key.index for key in placed if key.split == split], list(empty_shards(split, plan))
        assert sorted([*used, *(key.index for key in empty)]) == list(range(plan.shards))
        assert {key.count for key in empty} <= {plan.shards}
        split_pieces = {key: pieces for key, pieces in placed.items() if key.split == split}
        assert_is_promised([image for image in images if image.split == split], plan, sizing, split_pieces, estimate)


def test_rows_of_one_id():
    """Rows of a table with one id are in one range, in the order of their content; each has its own shard."""
    labels = [
        ImageLabels(class_name="a", row=msgspec.convert([record, 1, place], TableRow))
        for record in (b"", b"a")
        for place in "12"
    ]
    rows = [msgspec.structs.replace(task(1, 9, 0), labels=row_labels) for row_labels in labels]
    for order in permutations(rows):
        (_, placed) = planned(
            list(order), ShardSizing(num_shards=3), RecordEstimate(CLASSIFICATION.with_parts(())), 4, random.Random(0)
        )
        assert [placed[ShardKey("train", shard, 3)] for shard in range(3)] == [rows[:2], rows[2:3], rows[3:]]


def test_plan_of_nothing():
    assert plan_blocks([], SPLITS, ShardSizing(num_shards=3)) == {}
    plan = plan_split(ShardSizing(num_shards=3), np.zeros((3, 4), np.int64), 0)
    assert list(empty_shards("train", plan)) == [ShardKey("train", index, 3) for index in range(3)]
    assert list(cut_range(5, block_of_tasks([], SPLITS))) == []


@pytest.mark.parametrize(
    ("sizing", "keys"),
    [
        (ShardSizing(num_shards=2), {(128, 130), (129, 130)}),
        (ShardSizing(num_shards=64), {(128, 131), (129, 131), (130, 131)}),  # not more than images
        (ShardSizing(examples_per_shard=100), {(128, 129)}),
    ],
)
def test_shards_of_a_split_that_grows_are_numbered_after_its_own(sizing, keys):
    images = [task(1, 5, 0), task(2, 5, 0), task(3, 5, 0), task(4, 5, 0, "val")]
    plan = PlanBlocks(SPLITS, sizing, RecordEstimate(PLAIN), "webdataset").after({"train": 128})
    if sizing.num_shards:  # val, which is new, has too few images
        images.pop()
    with Pipeline() as p:
        placed, _ = applied(p | beam.Create([(0, pack_block(block_of_tasks(images, SPLITS)))]), plan)
        of_train = placed | beam.Keys() | beam.Filter(lambda key: key.split == "train") | beam.Distinct()
        assert_that(of_train, equal_to([ShardKey("train", *key) for key in sorted(keys)]))


# Size of Blocks


def test_cut_range(monkeypatch):
    """Up to 1,000 images or 1 MB, or one image alone."""
    small = task(1, 1, 2)
    captions = msgspec.structs.replace(small, labels=ImageLabels((Caption(1, "x" * 50_000),)))
    masked = msgspec.structs.replace(
        small, annotations=(msgspec.structs.replace(small.annotations[0], segmentation=b"1" * 50_000),)
    )
    pointed = msgspec.structs.replace(
        small, annotations=(msgspec.structs.replace(small.annotations[0], keypoints_xyv=(0.5,) * 6_000),)
    )
    huge = msgspec.structs.replace(small, labels=ImageLabels((Caption(1, "x" * 3_000_000),)))
    for image, number, expected in (
        (small, 2001, [1000, 1000, 1]),
        (captions, 45, [20, 20, 5]),
        (masked, 45, [20, 20, 5]),
        (pointed, 45, [21, 21, 3]),
        (huge, 2, [1, 1]),
    ):
        block = block_of_tasks([image] * number, SPLITS)
        keyed = list(cut_range(5, block))
        assert [key for key, _ in keyed] == [(5 << 32) + part for part in range(len(expected))]
        parts = [unpack_block(packed) for _, packed in keyed]
        assert list(map(len, parts)) == expected
        assert contents(join_blocks(parts)) == contents(block)


def test_products_beyond_64_bits():
    images = block_of_tasks([task(id_, 1, 0) for id_ in range(9)], SPLITS)
    sizing = ShardSizing(num_shards=1 << 60)
    estimate = RecordEstimate(PLAIN)
    plans = plan_blocks(take_census(0, images, estimate), SPLITS, sizing)
    with pytest.raises(OverflowError, match="8 images in 1,152,921,504,606,846,976 shards"):
        place_images(0, images, plans["train"], estimate)


@pytest.mark.parametrize(("sizing", "table"), [(SIZINGS[4], KERAS.with_parts(())), (ShardSizing(num_shards=70), PLAIN)])
def test_transform(sizing, table):
    rng = random.Random(0)
    images = [
        task(id_, rng.randrange(50, 500), rng.randrange(4), split)
        for split, ids in (("train", range(60)), ("val", range(70, 75)))
        for id_ in ids
    ]
    estimate = RecordEstimate(table)
    plans, expected = planned(images, sizing, estimate, 3, rng)
    counts = {split: plan.shards for split, plan in plans.items()}
    empty = [ShardKey(split, index, count) for split, count in counts.items() for index in range(count)]
    blocks = [keyed for number, block in ranges_in(images, 3) for keyed in cut_range(number, block)]
    with Pipeline() as p:
        keyed_blocks, facts = applied(p | beam.Create(blocks), PlanBlocks(SPLITS, sizing, estimate))
        placed = keyed_blocks | beam.FlatMapTuple(
            lambda key, packed: [(key, image) for image in image_tasks(unpack_block(packed), SPLITS)] if packed else []
        )
        assert_that(
            placed, equal_to([(key, image) for key, images_ in expected.items() for image in images_]), "Placed"
        )
        without = keyed_blocks | "Empty" >> beam.FlatMapTuple(lambda key, packed: () if packed else (key,))
        assert_that(without, equal_to([key for key in empty if key not in expected]), "Without")
        totals = facts | "Totals" >> beam.FlatMap(
            lambda facts: [(split, plan.images, plan.shards) for split, plan in facts.plans.items()]
        )
        assert_that(totals, equal_to([("train", 60, counts["train"]), ("val", 5, counts["val"])]), "Plans")


def warned(shards: int, images: int, **asked: int) -> list[str]:
    sizing = ShardSizing(**asked)
    return list(sizing_warnings("val", SplitPlan(sizing, shards, images, 0, images), sizing))


@pytest.mark.parametrize(
    ("shards", "images", "asked", "told"),
    [
        (64, 3, {"num_shards": 64}, "--num-shards 64 gives split val 64 shards for 3 images: 61 of them are empty"),
        (2, 1, {"num_shards": 2}, "1 of them are empty. Use a smaller number"),
        (10, 19, {"num_shards": 10}, "10 shards for 19 images, about one in each. Use a smaller number"),
        (10, 10, {"num_shards": 10}, "about one in each. Use a smaller number"),
        (1500, 1501, {"examples_per_shard": 1}, "--examples-per-shard 1 gives split val 1,500 shards"),
        (
            89,
            239,
            {"shard_bytes": 200},
            "--shard-size of 200 bytes gives split val 89 shards for 239 images. Images are larger than that",
        ),
        (89, 239, {"shard_bytes": 200}, "Did you mean 200MB?"),
        (20, 20, {"shard_bytes": 100_000}, "about one in each. Use a larger number"),
        (10_001, 1_000_000, {"shard_bytes": 20_000}, "--shard-size of 20,000 bytes gives split val 10,001 shards"),
        (10_001, 1_000_000, {"num_shards": 10_001}, "slow to list and open. Use a smaller number"),
    ],
)
def test_odd_schema_is_named_with_numbers_and_cure(shards, images, asked, told):
    (text,) = warned(shards, images, **asked)
    assert told in text


@pytest.mark.parametrize(
    ("shards", "images", "asked"),
    [
        (64, 64_000, {"num_shards": 64}),
        (3, 3, {"num_shards": 3}),  # a trial with a few images
        (9, 9, {"num_shards": 9}),
        (10, 20, {"num_shards": 10}),
        (1, 3, {"shard_bytes": 200}),
        (10_000, 1_000_000, {"shard_bytes": 20_000}),
        (1, 0, {"shard_bytes": 150_000_000}),
    ],
)
def test_plausible_schema_is_not_named(shards, images, asked):
    assert warned(shards, images, **asked) == []


def test_rows_of_a_table_may_be_small():
    sizing = ShardSizing(shard_bytes=2000)
    assert list(sizing_warnings("val", SplitPlan(sizing, 89, 2390, 0, 2390), sizing, "row")) == []
    (text,) = sizing_warnings("val", SplitPlan(sizing, 89, 100, 0, 100), sizing, "row")
    assert "89 shards for 100 rows, about one in each" in text


def test_more_shards_than_images_is_error_where_none_is_empty():
    plans = {
        split: plan_split(ShardSizing(num_shards=5), np.array([[images], [9], [images]]), 9)
        for split, images in (("train", 5), ("val", 3), ("test", 4))
    }
    check_empty_shards(plans, "tfrecord")
    with pytest.raises(ConfigError, match=r"--num-shards 5 is more than the 3 images of split val.* 3 or fewer$"):
        check_empty_shards(plans, "webdataset")
    check_empty_shards({"train": plans["train"]}, "webdataset")
    plans["val"] = plan_split(ShardSizing(), np.empty((3, 0), np.int64), 9)
    with pytest.raises(ConfigError, match=r"split val has no images, and .* Leave the split out, or add images"):
        check_empty_shards(plans, "webdataset")


def test_tiles_are_planned_as_tiles():
    pairs = {"tile_xy_px": [(0, 0), (9, 0)], "whole_size_px": [(18, 9)] * 2, "image_size_px": [(9, 9)] * 2}
    block = block_of_tasks([task(1, 100, 0), task(2, 100, 0)], SPLITS)
    tiles = block.replace(**{name: np.array(pair, np.int64) for name, pair in pairs.items()})
    asked, estimate = ShardSizing(num_shards=3), RecordEstimate(PLAIN)
    with Pipeline() as p:
        blocks = p | beam.Create([(0, pack_block(tiles))])
        _, facts = applied(blocks, PlanBlocks(SPLITS, asked, estimate))
        warnings = facts | beam.FlatMap(lambda facts: [text for _, text in facts.warnings])
        text = "--num-shards 3 gives split train 3 shards for 2 tiles: 1 of them are empty. Use a smaller number"
        assert_that(warnings, equal_to([text]))
    assert progress.snapshot().unit == "tiles"
