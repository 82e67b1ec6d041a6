import io
import random
from functools import reduce

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Annotation, Category, ImageLabels
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageTask, StoredImage
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import CLASSIFICATION, DETECTION
from recordmill.schemas.statistics import SCALE, ZERO_BIN, PixelMeasures, Statistics, bin_index, edge
from recordmill.transforms.blocks.image_facts import join_facts
from recordmill.transforms.dataset.facts import add_statistics
from recordmill.transforms.insight.count_images import ImageCounter, describe_statistics, distribution, histogram
from recordmill.transforms.insight.read_examples import choose_examples
from tests.transforms.encoders.drawn_tasks import encode_tasks
from tests.transforms.insight.drawn_facts import (
    ImageFacts,
    counted,
    draw_facts,
    fact_columns,
    record_places,
    sorted_objects,
)

LABELS = LabelMap((Category(1, "cat"), Category(2, "dog")), (Category(9, "sky"),))


def image(name: str, width=640, height=480, boxes=(), classes=(), **more) -> ImageFacts:
    edges = tuple(zip(*boxes, strict=True)) if boxes else ((), (), (), ())
    return ImageFacts(name, width, height, "jpeg", 1000, edges, classes or [0] * len(boxes), **more)


@given(st.floats(min_value=1e-9, max_value=1e12, allow_nan=False))
def test_number_is_between_edges_of_its_bin(number):
    index = bin_index(number)
    assert edge(index) <= number < edge(index + 1)
    assert histogram(np.array([number])).bins == {index: 1}


def test_histogram_has_sums_and_bounds():
    counts = histogram(np.array([0, 3, 3, 80.0]))
    assert (counts.bins, counts.least, counts.largest) == ({ZERO_BIN: 1, bin_index(3): 2, bin_index(80): 1}, 0, 80)
    assert counts.total == 86 * SCALE
    described = distribution(counts, is_whole=True)
    assert (described.count, described.mean, described.least, described.median, described.p95, described.largest) == (
        4,
        21.5,
        0,
        3,
        80,
        80,
    )
    assert [(bin_.low, bin_.high, bin_.number) for bin_ in described.bins] == [(0, 0, 1), (3, 3.5, 2), (80, 96, 1)]


def test_boxes_are_counted_by_size_shape_class_and_place():
    statistics = counted(image("a", 200, 100, [(0, 0, 0.5, 0.5), (0.9, 0.9, 1, 1)], [1, 1]), image("b", 200, 100))
    described = describe_statistics(statistics, LABELS, DETECTION, [0, 2])
    histograms = described.histograms
    assert (histograms["box_share"].least, histograms["box_share"].largest) == pytest.approx((0.01, 0.25))
    assert (histograms["box_side"].least, histograms["box_side"].largest) == pytest.approx((200**0.5, 5000**0.5))
    assert histograms["box_aspect"].mean == pytest.approx(2)
    assert [(row.low, row.number) for row in histograms["objects_an_image"].bins] == [(0, 1), (2, 1)]
    assert (histograms["classes_an_image"].largest, histograms["image_aspect"].mean) == (1, 2)
    assert np.argwhere(described.centres).tolist() == [[4, 4], [15, 15]]
    assert [(row.name, row.objects, row.images) for row in described.classes] == [("cat", 0, 0), ("dog", 2, 1)]
    assert (described.images, described.formats) == (2, {"jpeg": 2})


def test_shapes_are_of_boxes_with_area_however_small():
    boxes = [(0, 0, 0.004, 0.004 * aspect) for aspect in (2, 2.2, 2.4)]
    told = describe_statistics(counted(image("a", 100, 100, [*boxes, (0, 0, 0, 1)])), LABELS, DETECTION, [4, 0])
    assert (told.histograms["box_aspect"].count, told.histograms["box_side"].count) == (3, 4)
    assert told.histograms["box_aspect"].median == 2.25  # as if evenly spread from 2 to 2.5


def test_images_of_one_class_each_are_counted_by_it():
    described = describe_statistics(counted(ImageFacts("a", 2, 1, "png", 3)), LABELS, CLASSIFICATION, [0, 1])
    assert [(row.objects, row.images) for row in described.classes] == [(0, 0), (1, 1)]
    assert set(described.histograms) == {"image_width", "image_height", "image_aspect", "image_bytes"}
    assert described.centres == ()


def test_captions_and_segments_are_counted():
    statistics = counted(image("a", captions=2, segments=[0, 0]), image("b", captions=0))
    described = describe_statistics(statistics, LABELS, DETECTION, [0, 0])
    assert described.histograms["captions_an_image"].mean == 1
    assert [(row.name, row.images) for row in described.segments] == [("sky", 1)]


def test_chosen_examples():
    small, large = (0, 0, 0.01, 0.01), (0, 0, 0.5, 0.5)
    images = [
        image("few", boxes=[large]),
        image("many", boxes=[large] * 9),
        image("tiny", boxes=[large, small]),
        image("wide", 1000, 100),
        image("high", 100, 200),
    ]
    gallery = counted(*images).examples
    chosen = {why: [images[example.record].name for example in examples] for why, examples in gallery.items()}
    assert chosen["crowded"] == ["many", "tiny", "few"]
    assert chosen["small"][0] == "tiny"
    assert chosen["odd"] == ["wide", "high"]
    assert sorted(chosen["sample"]) == sorted(facts.name for facts in images)
    wide = gallery["odd"][0]
    assert (wide.shard, wide.record, wide.offset, wide.bytes) == ("s", 3, 300, 100)


def test_examples_are_different_images():
    """Copies are the darkest images, also those of another shard and of another split."""
    dark, day = (PixelMeasures(0, bright, 0.5) for bright in (30, 60))
    copies = [image(f"copy {number}", measures=dark, sha256="ab" * 32) for number in range(9)]
    others = [image(f"other {number}", measures=day) for number in range(3)]
    one, other = counted(*copies, shard="s"), counted(*copies[:2], *others, shard="t")
    assert [example.record for example in one.findings["dark"].examples] == [0]
    both = add_statistics(one, other)
    darkest = both.findings["dark"]
    assert darkest.number == 14
    assert (darkest.examples[0].shard, darkest.examples[0].record) == ("s", 0)
    assert {example.record for example in darkest.examples[1:]} == {2, 3, 4}
    split = describe_statistics(both, LabelMap(()), DETECTION, ())
    chosen = choose_examples({"train": split, "val": split})
    for why in ("dark", "sample"):
        assert [example.record for name, _, example in chosen if name == why].count(0) == 1
        assert len([name for name, _, _ in chosen if name == why]) == 4


def test_another_part_of_an_image_counts_its_objects_alone():
    dark, box = PixelMeasures(0, 81, 0.5), (0, 0, 0.5, 0.5)
    one, two = (image("a", 10, 1000, [box], measures=dark, is_continuation=more) for more in (False, True))
    statistics = counted(one, two)
    assert (statistics.images, sum(statistics.histograms["image_width"].bins.values())) == (1, 1)
    assert {why: len(examples) for why, examples in statistics.examples.items()} == dict.fromkeys(
        statistics.examples, 1
    )
    assert [statistics.findings[name].number for name in ("dark", "odd_aspect")] == [1, 1]


def test_boxes_that_may_be_faults_are_counted_and_pointed_to():
    thin, four, large = (0, 0, 0.5, 3.9 / 640), (0, 0, 4 / 480, 0.5), (0.1, 0.2, 0.5, 0.5)
    findings = counted(
        image("a", boxes=[large, large, large], classes=[1, 1, 0]),
        image("b", boxes=[thin, four, thin], classes=[0, 0, 1]),
        image("c", boxes=[large, thin], classes=[1, 1]),
        image("d"),
    ).findings
    pointed = {
        name: (finding.number, [example.record for example in finding.examples]) for name, finding in findings.items()
    }
    assert pointed == {"thin_boxes": (3, [1, 2]), "repeated_boxes": (1, [0])}


BOX = (100 / 480, 100 / 640, 200 / 480, 300 / 640)


@pytest.mark.parametrize(
    ("box", "bounds", "number"),
    [
        (BOX, (100, 100, 200, 300), 0),
        (BOX, None, 0),
        (BOX, (100, 100, 200, 261), 0),
        (BOX, (100, 100, 200, 259), 1),
        (BOX, (100, 141, 200, 300), 1),
        (BOX, (100, 100, 179, 300), 1),
        (BOX, (121, 100, 200, 300), 1),
        (BOX, (100, 100, 200, 351), 1),
        (BOX, (300, 400, 310, 410), 1),
        ((0, 0, 4 / 480, 4 / 640), (0, 0, 4, 2), 0),  # of half the size, and no more than two pixels off
        ((0, 0, 6 / 480, 6 / 640), (0, 0, 6, 3), 1),
        ((-0.5, 0.5, 1.5, 1), (0, 320, 480, 640), 0),  # masks end where the image does
        ((0, 0, 1, 1), (0, 0, 480, 640), 0),
    ],
)
def test_boxes_not_around_their_mask_are_counted(box, bounds, number):
    usual = image("usual", boxes=[BOX] * 2, classes=[0, 1], mask_bounds=[(100, 100, 200, 300), None])
    statistics = counted(
        usual, image("odd", boxes=[BOX, box], classes=[0, 1], mask_bounds=[None, bounds]), image("none")
    )
    pointed = {name: (finding.number, finding.examples[0].record) for name, finding in statistics.findings.items()}
    assert pointed.get("box_mask_mismatch", (0, 1)) == (number, 1)


@pytest.mark.parametrize(
    ("measures", "finding"),
    [
        (PixelMeasures(0, 81, 0.5), "dark"),
        (PixelMeasures(0, 82, 0.5), None),
        (PixelMeasures(243, 255, 0.5), "bright"),
        (PixelMeasures(242, 255, 0.5), None),
        (PixelMeasures(5, 16, 0), "blank"),
        (PixelMeasures(50, 200, 0.14), "blurred"),
        (PixelMeasures(50, 200, 0.15), None),
        (None, None),
    ],
)
def test_pixels_that_may_be_faults_are_counted(measures, finding):
    statistics = counted(image("usual", measures=PixelMeasures(10, 250, 0.4)), image("odd", measures=measures))
    assert statistics.measured == 1 + (measures is not None)
    pointed = {name: (counts.number, counts.examples[0].record) for name, counts in statistics.findings.items()}
    assert pointed == ({finding: (1, 1)} if finding else {})


def test_parts_add_up_to_same_in_any_order():
    parts = [
        counted(*images, places=places, shard=str(seed)) for seed in range(7) for images, places in [draw_facts(seed)]
    ]
    whole = reduce(add_statistics, parts)
    assert (whole.images, len(whole.examples["sample"])) == (sum(part.images for part in parts), 12)
    for seed in range(5):
        random.Random(seed).shuffle(parts)
        assert add_statistics(reduce(add_statistics, parts[3:]), reduce(add_statistics, parts[:3])) == whole


@pytest.mark.parametrize("kind", ["objects", "masks", "captions", "classes", "features"])
@pytest.mark.parametrize("seed", range(5))
def test_images_are_counted_together_as_one_by_one(seed, kind):
    images, places = draw_facts(seed, kind=kind)
    alone = [counted(image, places=[place]) for image, place in zip(images, places, strict=True)]
    assert str(counted(*images, places=places)) == str(reduce(add_statistics, alone, Statistics()))


def test_parts_of_images_are_joined():
    images, places = draw_facts(0, kind="masks")
    parts = [fact_columns(images[start : start + 7]) for start in range(0, len(images), 7)]
    joined = join_facts(parts)
    counter = ImageCounter()
    counter.add(joined, record_places(places), sorted_objects(joined))
    assert counter.statistics("s") == counted(*images, places=places)
    order = np.array([5, 3, 3, 59])
    selection = fact_columns([images[image] for image in order])
    assert str(joined.take(order)) == str(selection)


def test_sums_are_exact_however_large():
    sums = histogram(np.array([1e18, 1e30, 0.5, 2.0**52 + 1]))
    assert sums.total == (10**18 + int(1e30) + 2**52 + 1) * SCALE + SCALE // 2
    huge = counted(image("a", 1, 1, [(0.0, 0.0, 1e12, 1e12)]), image("b", 1, 1, [(0.0, 0.0, 1e13, 1e13)]))
    assert [example.rank for example in huge.examples["small"]] == [
        round(float(np.float32(n)) * SCALE) for n in (1e12, 1e13)
    ]


def polygon(left: float, top: float, right: float, bottom: float) -> bytes:
    return msgspec.json.encode([[left, top, right, top, right, bottom, left, bottom]])


@pytest.mark.parametrize("parts", [(Part.MASK_PNG,), (Part.MASK_RLE,), (Part.MASK_PNG, Part.MASK_RLE), ()])
def test_boxes_beside_their_masks(parts):
    """Four boxes: one equals its mask, one differs, one has an empty mask, and one has none."""
    segmentations = [polygon(10, 5, 30, 25), polygon(60, 5, 70, 45), polygon(30, 30, 30.1, 30.1), b""]
    annotations = tuple(
        Annotation(id_, 1, (10.0, 5.0, 20.0, 20.0), 400.0, False, segmentation)
        for id_, segmentation in enumerate(segmentations)
    )
    file = io.BytesIO()
    Image.new("RGB", (100, 50)).save(file, "JPEG")
    task = ImageTask(1, "1.jpg", None, None, ImageFile("1.jpg", 1), "train", annotations, ImageLabels())
    table = DETECTION.with_parts(parts)
    run = encode_tasks(
        LabelMap((Category(1, "cat"),)), table, "clip", [(task, StoredImage(file.getvalue(), "jpeg", 100, 50, "ab"))]
    )
    counter = ImageCounter()
    counter.add(run.facts, record_places([(0, 0, 1)]), sorted_objects(run.facts))
    statistics = counter.statistics("s")
    numbers = {name: finding.number for name, finding in statistics.findings.items()}
    assert numbers == {"repeated_boxes": 3} | ({"box_mask_mismatch": 1} if parts else {})
