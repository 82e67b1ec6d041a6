from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import msgspec
import numpy as np
import pytest

from recordmill.schemas.dataset.manifest import num_classes
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import FeatureKind, FeatureTable, Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import (
    CLASSIFICATION,
    DETECTION,
    KERAS,
    LAYOUTS,
    TFDS,
    CocoLayout,
    change_keys_and_types,
    column_writer,
    features_table,
)
from recordmill.schemas.rejects import Reason


def test_layouts_by_kind_of_source():
    fixed = {name: table for name, table in LAYOUTS.items() if table.features}
    of_one_class = {name for name, table in fixed.items() if "image.class_index" in table.sources}
    assert set(get_args(CocoLayout)) == set(fixed) - of_one_class
    assert of_one_class == {"classification"}


@pytest.mark.parametrize("name", get_args(CocoLayout))
def test_layout_of_objects_has_what_verify_and_extract_need(name):
    needed = {"objects.id"}, {"objects.area", "objects.area_whole"}, {"objects.category_id", "objects.label"}
    assert [each for each in needed if not each & LAYOUTS[name].sources] == []


def markdown(table: FeatureTable) -> str:
    """The table as docs/records.md shows it."""
    rows = [
        f"| {f.name} | {f.kind.value}{' [' + ', '.join(f.shape) + ']' if f.shape else ''} | {f.unit} | {f.meaning} |"
        for f in table.features
    ]
    return "\n".join(["| key | type | unit | meaning |", "|---|---|---|---|", *rows])


DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_holds_each_value_once_and_is_documented(name):
    table = LAYOUTS[name]
    assert table.layout == name
    assert len(table.sources) == len(table.features)
    assert [feature.name for feature in table.features if not (feature.unit and feature.meaning)] == []
    assert markdown(table) in (DOCS / "records.md").read_text()


def test_features_of_images():
    table = features_table((7, 7, 1280), "float32")
    assert {feature.name: (feature.kind.value, feature.shape) for feature in table.features} == {
        "feature": ("float", ("7", "7", "1280")),
        "feature/shape": ("int64", ("3",)),
        "image/class/label": ("int64", ()),
        "image/class/text": ("bytes", ()),
        "image/filename": ("bytes", ()),
        "image/source_id": ("bytes", ()),
    }
    half = {feature.name: feature for feature in features_table((1280,), "float16").features}
    assert (half["feature"].kind.value, half["feature"].shape) == ("bytes", ())
    assert half["feature/shape"].shape == ("1",)
    assert markdown(table) in (DOCS / "records.md").read_text()


def test_documentation_lists_every_reason_and_part():
    reasons = (DOCS / "cli.md").read_text()
    assert [reason.value for reason in Reason if f"`{reason.value}`" not in reasons] == []
    parts = (DOCS / "records.md").read_text()
    assert [part.value for part in Part if part.value not in parts] == []


@pytest.mark.parametrize(
    ("names", "kinds", "word"),
    [
        ({"objects/bboxes": "b"}, {}, "Did you mean objects/bbox"),
        ({"image": "objects/image"}, {}, "have the same length"),
        ({"image": "objects/bbox"}, {}, "have the same length"),
        ({"objects/id": "image"}, {}, "image would be the name of two"),
        ({"image": "../../x\n"}, {}, "printable"),
        ({"image": "x" * 201}, {}, "printable"),
        ({"image": ""}, {}, "printable"),
        ({"image/id": "id"}, {"image/id": FeatureKind.FLOAT}, "no feature 'image/id'"),
        ({}, {"objects/bbox": FeatureKind.INT64}, "coordinates"),
        ({}, {"image": FeatureKind.INT64}, "texts or files"),
    ],
)
def test_keys_and_types_that_layout_cannot_have(names, kinds, word):
    with pytest.raises(ConfigError, match=word):
        change_keys_and_types(TFDS, names, kinds)


def test_classes_are_numbered_by_label():
    labels = LabelMap((Category(5, "a"), Category(90, "b")))
    for table, number in ((TFDS, 2), (KERAS, 91), (DETECTION, 91), (CLASSIFICATION, 2)):
        key = next(feature.name for feature in table.features if feature.source == table.label)
        assert num_classes(labels, change_keys_and_types(table, {key: "y"}, {}, label_as_text=True)) == number


@pytest.mark.parametrize(
    ("source", "kind", "number", "stored"),
    [
        ("image.width", FeatureKind.FLOAT, 2**24, 2.0**24),
        ("image.width", FeatureKind.FLOAT, 2**24 + 1, "not exact as float32"),
        ("objects.area", FeatureKind.INT64, 2.0, 2),
        ("objects.area", FeatureKind.INT64, 2.5, "not a whole number"),
        ("objects.area", FeatureKind.INT64, np.nan, "not a whole number"),
    ],
)
def test_dtype_keeps_numbers_exact(source, kind, number, stored):
    (feature,) = (each for each in DETECTION.features if each.source == source)
    write = column_writer(msgspec.structs.replace(feature, kind=kind))
    assert write
    run = SimpleNamespace(size_px=np.array([[number, 1]]), block=SimpleNamespace(area_px2=np.array([number])))
    if isinstance(stored, str):
        with pytest.raises(ConfigError, match=stored):
            write(run)
    else:
        assert write(run).tolist() == [stored]
