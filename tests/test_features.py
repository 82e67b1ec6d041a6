"""Feature tables and what is made of them."""

import pytest
import tensorflow as tf

from schemas.example import ExampleWriter
from schemas.features import Feature, FeatureTable, Kind, markdown, parse_spec

NAME = Feature("a/name", "image.file_name", Kind.BYTES, (), "utf-8", "file name")
AREAS = Feature("b/areas", "objects.area", Kind.FLOAT, ("N",), "px²", "areas")
IDS = Feature("c/ids", "objects.id", Kind.INT64, ("N",), "COCO id", "annotation ids")
TABLE = FeatureTable("test", (NAME, AREAS, IDS))


def record(name: bytes, areas: list[float], ids: list[int]) -> bytes:
    return ExampleWriter(TABLE).write({"image.file_name": name, "objects.area": areas, "objects.id": ids})


@pytest.mark.parametrize("features", [(AREAS, NAME), (NAME, NAME), (NAME, IDS, AREAS)])
def test_features_out_of_order_or_given_twice_are_refused(features):
    with pytest.raises(ValueError, match="features of test must be unique and sorted"):
        FeatureTable("test", features)


@pytest.mark.parametrize(("source", "name"), [("objects.area", "b/areas"), ("image.file_name", "a/name"), ("x", None)])
def test_name_of(source, name):
    assert TABLE.name_of(source) == name


def test_the_spec_parses_one_record():
    parsed = tf.io.parse_single_example(record(b"x.jpg", [1.5, 2.5], [7, -7]), parse_spec(TABLE))
    assert parsed["a/name"].numpy() == b"x.jpg"
    assert parsed["b/areas"].numpy().tolist() == [1.5, 2.5]
    assert parsed["c/ids"].numpy().tolist() == [7, -7]


def test_the_spec_parses_a_batch_whose_lists_differ_in_length():
    records = [record(b"x.jpg", [], []), record(b"y.jpg", [1.5, 2.5], [7, 8])]
    parsed = tf.io.parse_example(records, parse_spec(TABLE))
    assert parsed["a/name"].numpy().tolist() == [b"x.jpg", b"y.jpg"]
    assert parsed["b/areas"].to_list() == [[], [1.5, 2.5]]
    assert parsed["c/ids"].to_list() == [[], [7, 8]]


def test_a_record_without_a_single_value_does_not_parse():
    empty = tf.train.Example().SerializeToString()
    with pytest.raises(tf.errors.InvalidArgumentError, match="a/name"):
        tf.io.parse_single_example(empty, parse_spec(TABLE))


def test_markdown():
    assert markdown(TABLE).splitlines() == [
        "| key | type | unit | meaning |",
        "|---|---|---|---|",
        "| a/name | bytes | utf-8 | file name |",
        "| b/areas | float [N] | px² | areas |",
        "| c/ids | int64 [N] | COCO id | annotation ids |",
    ]
