"""stats.pb says what statistics.json says, to the library that has the message."""

from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest

from recordmill.schemas.annotations import Category
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.layouts import CLASSIFICATION, DETECTION
from recordmill.schemas.statistics import ImageFacts, RecordPlace
from recordmill.schemas.statistics_file import SplitStatistics
from recordmill.transforms.statistics.count_images import ImageCounter
from recordmill.transforms.statistics.describe_statistics import describe_statistics
from recordmill.transforms.statistics.encode_stats import encode_stats

statistics_pb2 = pytest.importorskip(
    "tensorflow_metadata.proto.v0.statistics_pb2", reason="with Python 3.10 the extra dev does not have it"
)

NAMES = ("cat", "dog", "fish", "cat", "gn\u00fc")


def described(images: list[ImageFacts], counts: list[int], table=DETECTION, names=NAMES) -> SplitStatistics:
    counter = ImageCounter()
    for facts in images:
        counter.add(facts, RecordPlace(0, 0, 9))
    labels = LabelMap(tuple(Category(id_, name) for id_, name in enumerate(names, 1)))
    return describe_statistics(counter.statistics("s"), labels, table, counts)


def image(number: int, objects: int) -> ImageFacts:
    edges = tuple((edge,) * objects for edge in (0.0, 0.0, 0.5, 0.5))
    return ImageFacts(str(number), 100 + 10 * number, 80, "jpeg", 9000, edges, (0,) * objects)


@pytest.fixture(scope="module")
def read() -> Any:
    """32 pictures of 100 to 410 pixels; the first 4 have no object, 4 have 3, and so on up to 9."""
    train = described(
        [image(number, number // 4 + 2 if number > 3 else 0) for number in range(32)], [60, 50, 0, 40, 18]
    )
    found = statistics_pb2.DatasetFeatureStatisticsList()
    found.ParseFromString(encode_stats({"val": described([image(1, 1)], [0, 0, 0, 1, 0]), "train": train}))
    return found


def features(dataset) -> dict:
    return {each.name: each for each in dataset.features}


def test_each_split_is_a_dataset_with_what_is_known_of_it(read):
    assert [(each.name, each.num_examples) for each in read.datasets] == [("train", 32), ("val", 1)]
    kinds = {
        name: (each.Type.Name(each.type), each.WhichOneof("stats")) for name, each in features(read.datasets[0]).items()
    }
    assert kinds == {
        **dict.fromkeys(("image_width", "image_height", "image_bytes"), ("INT", "num_stats")),
        **dict.fromkeys(("objects_an_image", "classes_an_image"), ("INT", "num_stats")),
        **dict.fromkeys(("image_aspect", "box_side", "box_share", "box_aspect"), ("FLOAT", "num_stats")),
        "class": ("STRING", "string_stats"),
    }


def test_numbers(read):
    widths = np.arange(100, 420, 10)
    found = features(read.datasets[0])["image_width"].num_stats
    assert (found.min, found.max, found.mean, found.num_zeros) == (100, 410, widths.mean(), 0)
    assert found.median == pytest.approx(np.median(widths), rel=0.05)
    assert found.std_dev == pytest.approx(widths.std(), rel=0.05)
    common = found.common_stats
    assert (common.num_non_missing, common.num_missing, common.tot_num_values) == (32, 0, 32)
    assert (common.min_num_values, common.max_num_values, common.avg_num_values) == (1, 1, 1)
    standard, quantiles = found.histograms
    assert (standard.type, quantiles.type) == (standard.STANDARD, standard.QUANTILES)
    for histogram in found.histograms:
        edges = [(bucket.low_value, bucket.high_value) for bucket in histogram.buckets]
        assert (edges[0][0], edges[-1][1]) == (100, 410)
        assert all(one[1] == other[0] for one, other in pairwise(edges))
        assert sum(bucket.sample_count for bucket in histogram.buckets) == pytest.approx(32)
    assert [bucket.sample_count for bucket in standard.buckets] == [
        ((low <= widths) & (widths < high)).sum() for low, high in ((100, 112), (112, 128), (128, 160), (160, 192))
    ] + [
        ((low <= widths) & (widths < high)).sum()
        for low, high in ((192, 224), (224, 256), (256, 320), (320, 384), (384, 448))
    ]
    assert [bucket.sample_count for bucket in quantiles.buckets] == pytest.approx([3.2] * 10)
    assert [bucket.high_value for bucket in quantiles.buckets][:9] == pytest.approx(
        np.quantile(widths, np.arange(1, 10) / 10), rel=0.1
    )


def test_the_deviation_of_whole_numbers_that_fill_their_bins_is_theirs():
    widths = range(128, 192)
    found = statistics_pb2.DatasetFeatureStatisticsList()
    images = [ImageFacts(str(width), width, 80, "jpeg", 9000) for width in widths]
    found.ParseFromString(encode_stats({"train": described(images, [0] * 5)}))
    of_images = features(found.datasets[0])
    assert of_images["image_width"].num_stats.std_dev == pytest.approx(np.std(widths))
    shapes = np.array(widths) / 80
    assert of_images["image_aspect"].num_stats.std_dev == pytest.approx(shapes.std(), rel=0.05)


def test_numbers_of_objects(read):
    found = features(read.datasets[0])
    objects = np.array([0] * 4 + [number // 4 + 2 for number in range(4, 32)])
    of_images = found["objects_an_image"].num_stats
    assert (of_images.num_zeros, of_images.max, of_images.mean) == (4, 9, objects.mean())
    assert of_images.std_dev == pytest.approx(objects.std(), rel=0.05)
    for name in ("box_side", "class"):
        stats = found[name].num_stats if name == "box_side" else found[name].string_stats
        common = stats.common_stats
        assert (common.num_non_missing, common.num_missing) == (28, 4)
        assert (common.min_num_values, common.max_num_values, common.tot_num_values) == (3, 9, 168)
        assert common.avg_num_values == pytest.approx(168 / 28)
    one = features(read.datasets[1])["box_side"].num_stats
    assert (one.common_stats.min_num_values, one.min, one.std_dev) == (1, one.max, pytest.approx(0, abs=1e-6))


def test_a_file_that_was_edited_to_count_less_images_than_have_objects_is_encoded():
    edited = msgspec.structs.replace(described([image(1, 1), image(2, 1)], [0, 0, 0, 1, 0]), images=1)
    found = statistics_pb2.DatasetFeatureStatisticsList()
    found.ParseFromString(encode_stats({"train": edited}))
    common = features(found.datasets[0])["box_side"].num_stats.common_stats
    assert (common.num_non_missing, common.num_missing) == (2, 0)


def test_classes_by_their_names_the_most_frequent_first(read):
    found = features(read.datasets[0])["class"].string_stats
    expected = [("cat", 100), ("dog", 50), ("gn\u00fc", 18)]
    assert found.unique == 3
    assert [(each.value, each.frequency) for each in found.top_values] == expected
    ranks = [(each.low_rank, each.high_rank, each.label, each.sample_count) for each in found.rank_histogram.buckets]
    assert ranks == [(rank, rank, name, number) for rank, (name, number) in enumerate(expected)]
    assert found.avg_length == 3


def test_of_many_classes_the_most_frequent_are_named():
    names = tuple(f"c{number}" for number in range(1500))
    images = [ImageFacts(str(number), 10, 10, "png", 5) for number in range(3)]
    counts = [number % 7 + 1 for number in range(1500)]
    found = statistics_pb2.DatasetFeatureStatisticsList()
    found.ParseFromString(encode_stats({"train": described(images, counts, CLASSIFICATION, names)}))
    stats = features(found.datasets[0])["class"].string_stats
    assert (stats.unique, len(stats.top_values), len(stats.rank_histogram.buckets)) == (1500, 20, 1000)
    assert (stats.top_values[0].value, stats.top_values[0].frequency) == ("c1000", 7)
    assert stats.common_stats.max_num_values == 1


def test_records_without_pictures_are_counted():
    found = statistics_pb2.DatasetFeatureStatisticsList()
    found.ParseFromString(encode_stats({"train": described([ImageFacts("a")] * 3, [0] * 5)}))
    assert [(each.name, each.num_examples, len(each.features)) for each in found.datasets] == [("train", 3, 0)]
