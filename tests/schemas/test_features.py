import pytest
import tensorflow as tf

from recordmill.schemas.features import Feature, FeatureKind, FeatureTable, Part, parse_spec
from recordmill.transforms.records.example import ExampleWriter

NAME = Feature("a/name", "image.file_name", FeatureKind.BYTES, (), "utf-8", "file name")
AREAS = Feature("b/areas", "objects.area", FeatureKind.FLOAT, ("N",), "px²", "areas")
IDS = Feature("c/ids", "objects.id", FeatureKind.INT64, ("N",), "COCO id", "annotation ids")
TABLE = FeatureTable("test", (NAME, AREAS, IDS))


def record(name: bytes, areas: list[float], ids: list[int]) -> bytes:
    return ExampleWriter(TABLE).write({"image.file_name": name, "objects.area": areas, "objects.id": ids})


@pytest.mark.parametrize("features", [(AREAS, NAME), (NAME, NAME), (NAME, IDS, AREAS)])
def test_features_out_of_order_or_given_twice_are_refused(features):
    with pytest.raises(ValueError, match="features of test must be unique and sorted"):
        FeatureTable("test", features)


def test_the_spec_parses_one_record():
    parsed = tf.io.parse_single_example(record(b"x.jpg", [1.5, 2.5], [7, -7]), parse_spec(TABLE))
    assert parsed["a/name"].numpy() == b"x.jpg"
    assert parsed["b/areas"].numpy().tolist() == [1.5, 2.5]
    assert parsed["c/ids"].numpy().tolist() == [7, -7]


def test_spec_parses_batch_whose_lists_differ_in_length():
    records = [record(b"x.jpg", [], []), record(b"y.jpg", [1.5, 2.5], [7, 8])]
    parsed = tf.io.parse_example(records, parse_spec(TABLE))
    assert parsed["a/name"].numpy().tolist() == [b"x.jpg", b"y.jpg"]
    assert parsed["b/areas"].to_list() == [[], [1.5, 2.5]]
    assert parsed["c/ids"].to_list() == [[], [7, 8]]


# Boxes


BOX = Feature("a/box", "objects.bbox_xywh_px", FeatureKind.FLOAT, ("4",), "px", "box")
BOXES = Feature("b/boxes", "objects.bbox_yxyx", FeatureKind.FLOAT, ("N", "4"), "fraction", "boxes")
PAIRS = Feature("c/pairs", "segments.area", FeatureKind.INT64, ("S", "2"), "", "pairs")
BOXED = FeatureTable("boxed", (BOX, BOXES, PAIRS))


def boxed(box: list[float], boxes: list[float], pairs: list[int]) -> bytes:
    values = {"objects.bbox_xywh_px": box, "objects.bbox_yxyx": boxes, "segments.area": pairs}
    return ExampleWriter(BOXED).write(values)


@pytest.mark.parametrize("boxes", [[], [[0, 1, 2, 3]], [[0, 1, 2, 3], [4, 5, 6, 7]]])
def test_box_and_list_of_boxes_keep_their_shape_in_one_record(boxes):
    record = boxed([1, 2, 3, 4], [edge for box in boxes for edge in box], [5, 6])
    parsed = tf.io.parse_single_example(record, parse_spec(BOXED))
    assert parsed["a/box"].numpy().tolist() == [1, 2, 3, 4]
    assert parsed["b/boxes"].shape == (len(boxes), 4)
    assert parsed["b/boxes"].numpy().tolist() == boxes
    assert parsed["c/pairs"].numpy().tolist() == [[5, 6]]


def test_lists_of_boxes_keep_their_records_apart_in_batch():
    records = [boxed([1, 2, 3, 4], [], []), boxed([5, 6, 7, 8], [*range(8)], [1, 2]), boxed([0] * 4, [9] * 4, [])]
    parsed = tf.io.parse_example(records, parse_spec(BOXED))
    assert parsed["a/box"].numpy().tolist() == [[1, 2, 3, 4], [5, 6, 7, 8], [0, 0, 0, 0]]
    assert parsed["b/boxes"].to_list() == [[], [[0, 1, 2, 3], [4, 5, 6, 7]], [[9, 9, 9, 9]]]
    assert parsed["c/pairs"].to_list() == [[], [[1, 2]], []]


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
def test_table_with_some_parts_keeps_what_every_record_has_and_nothing_else_on_top(parts, features):
    chosen = OPTIONAL.with_parts(parts)
    assert chosen.features == features
    assert set(chosen.parts) == set(parts) & set(OPTIONAL.parts)
    assert (chosen.layout, chosen.groups, chosen.examples_per_shard) == ("optional", ("d",), 7)
    assert chosen.sources == {feature.source for feature in features}


def test_features_are_renamed_by_what_they_hold_and_stay_sorted():
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
    packed = Feature("p", "p", FeatureKind.BYTES, ("2", "3"), "uint8", "")
    assert packed.is_packed
    assert not packed.is_list
    for other in (
        Feature("p", "p", FeatureKind.BYTES, ("N",), "", ""),
        Feature("p", "p", FeatureKind.FLOAT, ("2",), "", ""),
    ):
        assert other.is_list
        assert not other.is_packed
    table = FeatureTable("t", (packed,))
    record = ExampleWriter(table).write({"p": b"abcdef"})
    assert tf.io.parse_single_example(record, parse_spec(table))["p"].numpy() == b"abcdef"
