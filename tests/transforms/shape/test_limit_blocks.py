import re
from collections import Counter
from fractions import Fraction

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.pvalue import AsSingleton
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.annotations import Annotation, Caption, Category, ImageLabels, StuffAnnotation, TableRow
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageTask
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.limits import Limits
from recordmill.schemas.inputs.splits import Division, SplitShares
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.shape.limit_blocks import (
    LimitBlocks,
    choose_by_class,
    choose_images,
    choose_units,
    class_pairs,
    hash_texts,
    limit_block,
    list_units,
)
from tests.beam_pipeline import Pipeline
from tests.transforms.blocks.of_tasks import block_of_tasks
from tests.transforms.dataset.kinds import applied

SPLITS = ("train", "val")
CAT, DOG, SKY = Category(3, "cat"), Category(7, "dog"), Category(11, "sky")
SKY_REGION = StuffAnnotation(1, 11, b"[]")
LABELS = LabelMap((CAT, DOG), (CAT, SKY))
HALVES = SplitShares((("train", Fraction(1, 2)), ("val", Fraction(1, 2))))


def image(number: int, split: str = "train", objects: tuple[int, ...] = (), **labels) -> ImageTask:
    annotations = tuple(
        Annotation(number * 10 + place, id_, (0.0, 0.0, 9.0, 9.0), 81.0, place == 1)
        for place, id_ in enumerate(objects)
    )
    name = f"p{number % 5}/{number}.jpg"
    return ImageTask(number, name, 10, 10, ImageFile(f"images/{name}", 1), split, annotations, ImageLabels(**labels))


IMAGES = [
    image(number, SPLITS[number % 3 == 0], objects=(3,) * (number % 3) + (7,) * (number % 2)) for number in range(40)
]


def remaining(limits: Limits, images=IMAGES, division=None, cut: int = 40) -> tuple[list[ImageTask], Counter]:
    """Images that remain, in their order, and the counts of Facts. Blocks end after `cut` images."""
    facts = FactsBuilder()
    blocks = [block_of_tasks(images[start : start + cut], SPLITS) for start in range(0, len(images), cut)]
    labels = LABELS if limits.per_class else None
    units = [part for block in blocks for part in list_units(block, SPLITS, division, labels)]
    names = choose_images(units, limits, facts)
    ids = [id_ for block in blocks for id_ in limit_block(block, SPLITS, names, facts).image_id.tolist()]
    by_id = {task.image_id: task for task in images}
    return [by_id[id_] for id_ in ids], Counter(facts.build().counts)


@pytest.mark.parametrize(
    ("units", "limit", "expected"),
    [
        ([], 3, []),
        ([5, 1, 9], 2, [1, 5]),
        ([5, 1, 9], 4, [1, 5, 9]),
        ([1, 2, 2, 2, 3, 4, 4], 3, [1, 3]),  # 2 does not fit after 1, and 4 not after 3
        ([1, 2, 2, 2, 3, 4, 4], 4, [1, 2]),
        ([1, 1, 1], 2, []),
    ],
)
def test_groups_that_do_not_fit_are_skipped(units, limit, expected):
    assert choose_units(np.array(units, np.int64), limit).tolist() == expected


def plain_choice(images: list[tuple[int, list[int]]], maximum: int) -> set[int]:
    """The rule, image by image: hash, and class of each object."""
    units: dict[int, list[int]] = {}
    for name, classes in images:
        units.setdefault(name, []).extend(classes)
    counts, chosen = Counter(), set()
    for name in sorted(units):
        if not units[name] or any(counts[label] < maximum for label in units[name]):
            counts.update(units[name])
            chosen.add(name)
    return chosen


@pytest.mark.parametrize("at_once", [1, 3, 1000])
@pytest.mark.parametrize("maximum", [1, 4, 15, 500])
def test_an_image_stays_while_one_of_its_classes_has_room(maximum, at_once, monkeypatch):
    monkeypatch.setattr("recordmill.transforms.shape.limit_blocks._AT_ONCE", at_once)
    rng = np.random.default_rng(maximum)
    images = [(int(name), rng.geometric(0.3, rng.integers(0, 5)).tolist()) for name in rng.integers(0, 150, 200)]
    counted = [sorted(Counter(classes).items()) for _, classes in images]
    starts = np.concatenate([[0], np.cumsum(list(map(len, counted)))])
    pairs = np.array([pair for pairs in counted for pair in pairs], np.int64).reshape(-1, 2)
    names = np.array([name for name, _ in images], np.int64)
    chosen = choose_by_class(names, starts, pairs[:, 0].astype(np.int32), pairs[:, 1].astype(np.int32), maximum)
    assert chosen.tolist() == sorted(plain_choice(images, maximum))


@pytest.mark.parametrize("limits", [Limits(7), Limits(None, 5), Limits(9, 5)])
def test_blocks_may_be_cut_anywhere(limits):
    whole, counts = remaining(limits)
    assert 0 < len(whole) < len(IMAGES)
    for cut in (1, 3, 17):
        assert remaining(limits, cut=cut) == (whole, counts)
    assert {task.image_id for task in remaining(limits, IMAGES[::-1])[0]} == {task.image_id for task in whole}


def test_a_smaller_limit_is_a_subset_of_each_split():
    few, many = remaining(Limits(4))[0], remaining(Limits(9))[0]
    assert Counter(task.split for task in few) == {"train": 4, "val": 4}
    assert {task.image_id for task in few} < {task.image_id for task in many}


def test_left_out_images_and_their_annotations_are_counted():
    left, counts = remaining(Limits(9, 5))
    objects, kept = (sum(len(task.annotations) for task in tasks) for tasks in (IMAGES, left))
    assert counts["train", "over_limit"] == sum(task.split == "train" for task in IMAGES) - 9
    assert sum(counts[split, "over_class_limit"] for split in SPLITS) == 18 - len(left) > 0
    assert sum(counts[split, "of_limited_images"] for split in SPLITS) == objects - kept
    captioned = [
        image(number, captions=(Caption(1, "a"),) * 3, regions=(StuffAnnotation(2, 11, b"[]"),)) for number in (1, 2)
    ]
    assert remaining(Limits(1), captioned)[1] == {("train", "over_limit"): 1, ("train", "of_limited_images"): 4}


def test_limited_classes_are_those_of_the_images_within_the_limit():
    within = remaining(Limits(9))[0]
    assert remaining(Limits(9, 3))[0] == remaining(Limits(None, 3), within)[0]


def test_groups_stay_whole():
    division = Division(HALVES, "^p[0-9]")
    left = remaining(Limits(12), division=division)[0]
    for split in SPLITS:
        groups = Counter(task.file_name[:2] for task in IMAGES if task.split == split)
        own = Counter(task.file_name[:2] for task in left if task.split == split)
        assert 0 < own.total() <= 12
        assert all(groups[name] == number for name, number in own.items())
    with pytest.raises(
        ConfigError, match=re.escape("--limit 2 leaves nothing in split train, because its smallest group has 5 ")
    ):
        remaining(Limits(2), division=division)


def test_rows_of_one_value_of_the_group_column_stay_together():
    images = [image(number, row=TableRow(b"", number, "", f"g{number // 4}")) for number in range(20)]
    left = remaining(Limits(9), images)[0]
    assert Counter(task.image_id // 4 for task in left) == dict.fromkeys({task.image_id // 4 for task in left}, 4)
    assert len(left) == 8


def test_objects_classes_and_tags_are_what_is_counted():
    tasks = [
        image(1, objects=(3, 7, 3), regions=(SKY_REGION,)),
        image(2, class_name="dog"),
        image(3, objects=(3,), tags=("dog", "fog")),
        image(4),
    ]
    pairs = class_pairs(block_of_tasks(tasks, SPLITS), LABELS).tolist()
    assert sorted(pairs) == [[0, 0], [0, 0], [0, 1], [1, 1], [2, 0], [2, 1]]


def test_a_limit_of_classes_without_any_is_a_warning():
    facts = FactsBuilder()
    units = list_units(block_of_tasks([image(1), image(2)], SPLITS), SPLITS, None, LABELS)
    assert len(choose_images(units, Limits(None, 1), facts)["train"]) == 16
    (warning,) = facts.build().warnings
    assert warning == ("train", "--max-per-class 1 does nothing, because no image of train has a class or object")
    assert len(remaining(Limits(1, 1), [image(1), image(2)])[0]) == 1  # and the limit of images holds


def test_spellings_of_a_name_are_one_unit():
    names = "é.jpg", "./e\u0301.jpg"
    tasks = [ImageTask(number, name, 1, 1, ImageFile(name, 1), "train", ()) for number, name in enumerate(names)]
    with pytest.raises(
        ConfigError, match=r"images with one name has 2 members and stays whole\. Use --limit 2 or more$"
    ):
        remaining(Limits(1), tasks)
    assert hash_texts(["a\udcff"]).tolist() != hash_texts(["a"]).tolist()


def test_blocks_in_a_pipeline():
    expected, counts = remaining(Limits(9, 5), division=Division(HALVES, "/([0-9]+)"))
    with Pipeline() as p:
        blocks = p | beam.Create([(part, pack_block(block_of_tasks(IMAGES[part::4], SPLITS))) for part in range(4)])
        labels = AsSingleton(p | "Labels" >> beam.Create([LABELS]))
        left, facts = applied(blocks, LimitBlocks(Limits(9, 5), SPLITS, Division(HALVES, "/([0-9]+)"), labels))
        ids = left | beam.FlatMap(lambda keyed: unpack_block(keyed[1]).image_id.tolist())
        assert_that(ids, equal_to([task.image_id for task in expected]))
        added = facts | beam.FlatMap(lambda facts: facts.counts.items()) | beam.CombinePerKey(sum)
        assert_that(added, equal_to(list(counts.items())), "Facts")
