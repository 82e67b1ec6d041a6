import numpy as np
import pytest
import tensorflow as tf

from recordmill.schemas.features import Feature, FeatureKind, FeatureTable, Part, parse_spec
from recordmill.transforms.records.example import ExampleWriter

NAME = Feature("a/name", "image.file_name", FeatureKind.BYTES, (), "utf-8", "file name")
AREAS = Feature("b/areas", "objects.area", FeatureKind.FLOAT, ("N",), "px²", "areas")
IDS = Feature("c/ids", "objects.id", FeatureKind.INT64, ("N",), "COCO id", "annotation ids")
BOX = Feature("d/box", "objects.bbox_xywh_px", FeatureKind.FLOAT, ("4",), "px", "box")
BOXES = Feature("e/boxes", "objects.bbox_yxyx", FeatureKind.FLOAT, ("N", "4"), "fraction", "boxes")
PAIRS = Feature("f/pairs", "segments.area", FeatureKind.INT64, ("S", "2"), "", "pairs")
PACKED = Feature("g/packed", "p", FeatureKind.BYTES, ("2", "3"), "uint8", "")
TABLE = FeatureTable("test", (NAME, AREAS, IDS, BOX, BOXES, PAIRS, PACKED))
ROWS = [
    (b"x.jpg", [1.5], [7, -7], [1, 2, 3, 4], [], [[5, 6]], b"abcdef"),
    (b"y.jpg", [], [7], [5, 6, 7, 8], [[0, 1, 2, 3], [4, 5, 6, 7]], [[1, 2]], b"bcdefg"),
    (b"", [1.5, 2.5], [], [0] * 4, [[9] * 4], [], b"cdefgh"),
]


def record(row: tuple) -> bytes:
    values = dict(zip((feature.source for feature in TABLE.features), row, strict=True))
    for source in ("objects.bbox_yxyx", "segments.area"):
        values[source] = [number for numbers in values[source] for number in numbers]
    return ExampleWriter(TABLE).write(values)


@pytest.mark.parametrize("features", [(AREAS, NAME), (NAME, NAME), (NAME, IDS, AREAS)])
def test_features_out_of_order_or_given_twice_are_refused(features):
    with pytest.raises(ValueError, match="features of test must be unique and sorted"):
        FeatureTable("test", features)


@pytest.mark.parametrize("row", ROWS)
def test_spec_parses_one_record(row):
    parsed = tf.io.parse_single_example(record(row), parse_spec(TABLE))
    assert [np.array(parsed[feature.name]).tolist() for feature in TABLE.features] == list(row)
    assert parsed["e/boxes"].shape == (len(row[4]), 4)


def test_spec_keeps_lists_of_batch_apart():
    parsed = tf.io.parse_example([record(row) for row in ROWS], parse_spec(TABLE))
    found = [parsed[feature.name] for feature in TABLE.features]
    columns = [each.to_list() if isinstance(each, tf.RaggedTensor) else each.numpy().tolist() for each in found]
    assert list(zip(*columns, strict=True)) == ROWS


# Parts


CAPTIONS = Feature("b/captions", "captions.text", FeatureKind.BYTES, ("C",), "utf-8", "captions", Part.CAPTIONS)
MASKS = Feature("d/masks", "objects.mask_png", FeatureKind.BYTES, ("N",), "PNG", "masks", Part.MASK_PNG)
RUNS = Feature("e/runs", "objects.mask_rle", FeatureKind.BYTES, ("N",), "RLE", "runs", Part.MASK_RLE)
OPTIONAL = FeatureTable("optional", (NAME, CAPTIONS, IDS, MASKS, RUNS), groups=("d",), examples_per_shard=7)


def test_parts_are_features_in_order_of_part():
    assert OPTIONAL.parts == (Part.MASK_PNG, Part.MASK_RLE, Part.CAPTIONS)
    assert TABLE.parts == ()


@pytest.mark.parametrize(
    ("parts", "features"),
    [
        ((), (NAME, IDS)),
        ((Part.CAPTIONS,), (NAME, CAPTIONS, IDS)),
        ((Part.MASK_RLE, Part.MASK_PNG), (NAME, IDS, MASKS, RUNS)),
        ((Part.PANOPTIC,), (NAME, IDS)),
        (OPTIONAL.parts, OPTIONAL.features),
    ],
)
def test_table_with_some_parts_has_only_their_features(parts, features):
    chosen = OPTIONAL.with_parts(parts)
    assert chosen.features == features
    assert set(chosen.parts) == set(parts) & set(OPTIONAL.parts)
    assert (chosen.layout, chosen.groups, chosen.examples_per_shard) == ("optional", ("d",), 7)
    assert chosen.sources == {feature.source for feature in features}


def test_renamed_features_stay_sorted():
    table = FeatureTable("t", tuple(Feature(name, f"of.{name}", FeatureKind.INT64, (), "", "") for name in "abc"))
    renamed = table.renamed({"of.a": "z", "of.x": "y"})
    assert [(feature.name, feature.source) for feature in renamed.features] == [
        ("b", "of.b"),
        ("c", "of.c"),
        ("z", "of.a"),
    ]
    with pytest.raises(ValueError, match="b would be the name of two features of layout t"):
        table.renamed({"of.a": "b"})


def test_numbers_packed_in_bytes_are_one_value():
    assert PACKED.is_packed
    assert not PACKED.is_list
    for other in (
        Feature("p", "p", FeatureKind.BYTES, ("N",), "", ""),
        Feature("p", "p", FeatureKind.FLOAT, ("2",), "", ""),
    ):
        assert other.is_list
        assert not other.is_packed
