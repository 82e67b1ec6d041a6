"""Tests for read_label_map."""

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.tfrecord.label_map import numbered_names, read_label_map


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("item {\n  name: 'cat'\n  id: 1\n}\nitem { id: 2, name: \"big dog\" }", {1: "cat", 2: "big dog"}),
        ("item: { id: 1; name: 'a' 'b' } # comment\n", {1: "ab"}),
        ('item { id: 1 name: "caf\\303\\251" keypoints { id: 0 label: "nose" } }', {1: "café"}),
        ("item { name: '/m/1' id: 3 display_name: 'Cat' }", {3: "Cat"}),
        ("item { id: 0 name: 'background' } item { id: 1 name: 'cat' }", {1: "cat"}),
    ],
)
def test_items(text, expected, tmp_path):
    (tmp_path / "map.pbtxt").write_text(text)
    assert read_label_map(str(tmp_path / "map.pbtxt")).name_by_id == expected


def test_a_text_may_be_the_name_beside_a_display_name(tmp_path):
    (tmp_path / "map.pbtxt").write_text("item { name: '/m/1' id: 3 display_name: 'Cat' }")
    assert read_label_map(str(tmp_path / "map.pbtxt")).name_by_text == {"Cat": "Cat", "/m/1": "Cat"}


def test_names_of_tfds_are_numbered_from_0(tmp_path):
    (tmp_path / "label.labels.txt").write_text("cat\nbig dog\n")
    assert read_label_map(str(tmp_path / "label.labels.txt")).name_by_id == {0: "cat", 1: "big dog"}


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("item { id: 1 name: 'a'", "map.pbtxt is not a label map"),
        ("a { " * 5000, "map.pbtxt is not a label map"),
        ("", "has no item"),
        ("item { id: 1 }", "the item of id 1 has no name"),
        ("item { id: 1 name: 'a' } item { id: 1 name: 'b' }", "two classes have the id 1"),
        ("item { name: 'a' } item { name: 'b' }", "two classes have the id 0"),
        ("item { id: 1 name: 'a' } item { id: 2 name: 'a' }", "two classes have the name 'a'"),
    ],
)
def test_unusable_label_maps(text, detail, tmp_path):
    (tmp_path / "map.pbtxt").write_text(text)
    with pytest.raises(ConfigError, match=detail):
        read_label_map(str(tmp_path / "map.pbtxt"))


@pytest.mark.parametrize("names", [["cat=1", "dog"], ["cat=1", "dog=1"]])
def test_unusable_numbers_of_names(names):
    with pytest.raises(ConfigError):
        numbered_names(names)
