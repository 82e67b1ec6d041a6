import pickle
from collections import Counter

import numpy as np
import pytest

from recordmill._repeats import collect_classes, repeat_factors, round_factors
from recordmill.schemas.errors import ConfigError
from tests.recordmill.splits import CONTENTS, draw, write_split

RECORDS = 12


def detectron_factors(classes: list[list[int]], threshold: float) -> list[float]:
    """Factors by the formula of the LVIS paper, image by image."""
    counts = Counter(label for own in classes for label in set(own))
    by_class = {label: max(1.0, (threshold / (number / len(classes))) ** 0.5) for label, number in counts.items()}
    return [max((by_class[label] for label in set(own)), default=1.0) for own in classes]


@pytest.mark.parametrize("threshold", [0.001, 0.05, 0.3, 1.0])
def test_factors_are_those_of_lvis(threshold):
    rng = np.random.default_rng(0)
    classes = [rng.geometric(0.1, rng.integers(0, 6)).tolist() for _ in range(300)]
    factors = repeat_factors(collect_classes(classes), threshold)
    np.testing.assert_allclose(factors, detectron_factors(classes, threshold))


def test_no_records():
    assert repeat_factors(collect_classes([]), 0.1).tolist() == []


def test_fractions_are_rounded_by_seed_and_right_on_average():
    factors, numbers = np.array([1.0, 1.25, 2.5, 7.9]), np.arange(4)
    rounded = np.array([round_factors(factors, numbers, seed) for seed in range(4000)])
    np.testing.assert_allclose(rounded.mean(axis=0), factors, atol=0.03)
    assert (np.floor(factors) <= rounded).all()
    assert (rounded <= np.ceil(factors)).all()
    assert round_factors(factors, numbers, 5).tolist() == rounded[5].tolist()
    # of a slice, the numbers are those of the whole split
    assert round_factors(factors[2:], numbers[2:], 5).tolist() == rounded[5, 2:].tolist()


def drawn_split(folder, name: str, **more):
    contents = CONTENTS[name]
    return write_split(folder, contents, [draw(contents, number) for number in range(RECORDS)], **more)


def ids(records) -> list[int]:
    return [int(np.ravel(record["image_id"])[0]) for record in records]


def expected_ids(split, threshold: float, seed: int = 0, first: int = 0) -> list[int]:
    key = "label" if "label" in split.features else "labels"
    records = list(split.numpy(keys=[key, "image_id"]))
    factors = detectron_factors([np.atleast_1d(record[key]).tolist() for record in records], threshold)
    times = round_factors(np.array(factors), first + np.arange(len(records)), seed)
    return [number for number, repeats in zip(ids(records), times.tolist(), strict=True) for _ in range(repeats)]


@pytest.mark.parametrize("name", ["classification", "detection", "keras", "tfds", "float32"])
@pytest.mark.parametrize("compressed", [False, True])
def test_readers_in_order(tmp_path, name, compressed):
    split = drawn_split(tmp_path, name, compressed=compressed)
    repeated = split.repeated(1.0, seed=1)
    expected = expected_ids(split, 1.0, seed=1)
    assert len(repeated) == len(expected) > len(split)
    assert ids(repeated) == ids(repeated.numpy(threads=2)) == ids(repeated.numpy(keys=["image_id"])) == expected
    assert ids(repeated[3:9]) == expected[3:9]
    assert len(ids(split)) == RECORDS


def test_records_by_number(tmp_path):
    split = drawn_split(tmp_path, "detection")
    repeated = pickle.loads(pickle.dumps(split.repeated(0.9)))
    expected = expected_ids(split, 0.9)
    assert ids([repeated[number] for number in range(-len(expected), 0)]) == expected
    assert ids(repeated.grain()[number] for number in range(len(expected))) == expected
    assert repeated.read([0, 1]) == [split.raw(expected[0]), split.raw(expected[1])]
    with pytest.raises(IndexError, match=f"has {len(expected)} records"):
        repeated[len(expected)]
    assert repr(repeated.grain()) != repr(split.repeated(0.9, seed=3).grain())


@pytest.mark.parametrize("name", ["classification", "detection"])
def test_tensorflow_reads_the_same(tmp_path, name):
    split = drawn_split(tmp_path, name)
    repeated = split.repeated(1.0)
    expected, keys = expected_ids(split, 1.0), ["image_id"]
    assert ids(repeated.tensorflow(keys=keys)) == expected
    assert int(repeated.tensorflow(keys=keys).cardinality()) == len(expected)
    parts = [ids(repeated.tensorflow(keys=keys, shard=(host, 3))) for host in range(3)]
    assert [number for part in parts for number in part] == expected
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert sorted(ids(repeated.tensorflow(keys=keys, shuffle=True, seed=1))) == sorted(expected)


def test_classes_are_read_once(tmp_path):
    split = drawn_split(tmp_path, "detection")
    lengths = [len(split.repeated(0.8, seed=seed)) for seed in range(8)]
    for file in tmp_path.iterdir():
        file.unlink()
    assert [len(split.repeated(0.8, seed=seed)) for seed in range(8)] == lengths
    assert len(set(lengths)) > 1


def test_shares_are_those_of_a_slice(tmp_path):
    split = drawn_split(tmp_path, "classification")
    part = split[4:9]
    repeated = [ids(part.repeated(1.0, seed=seed)) for seed in range(20)]
    assert repeated == [expected_ids(part, 1.0, seed, first=4) for seed in range(20)]
    assert repeated != [
        [number for number in ids(split.repeated(1.0, seed=seed)) if 4 <= number < 9] for seed in range(20)
    ]


@pytest.mark.parametrize(
    ("threshold", "seed", "error"),
    [
        (0, 0, "threshold must be a fraction above 0 and up to 1"),
        (1.5, 0, "threshold must be a fraction above 0 and up to 1"),
        ("x", 0, "threshold='x' must be a fraction of the records: threshold=0.001"),
        (0.1, 0.5, "seed=0.5 must be a whole number: seed=0"),
    ],
)
def test_wrong_arguments(tmp_path, threshold, seed, error):
    with pytest.raises(ConfigError, match=error):
        drawn_split(tmp_path, "classification").repeated(threshold, seed=seed)


def test_a_repeated_split_is_not_repeated(tmp_path):
    with pytest.raises(ConfigError, match="is repeated already"):
        drawn_split(tmp_path, "classification").repeated(0.1).repeated(0.1)
