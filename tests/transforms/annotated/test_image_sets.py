"""Which lists of a folder are those of splits."""

import pytest

from recordmill.transforms.annotated.image_sets import find_image_sets, parse_image_set
from tests.literal_data import write_files


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["train", "val", "trainval", "cat_train"], {"train": "train", "val": "val"}),
        (["train", "trainval", "test"], {"trainval": "trainval", "test": "test"}),
        (["default"], {"default": "train"}),
        (["cat_train", "cat_val"], {}),
    ],
)
def test_lists_of_splits(names, expected, tmp_path):
    write_files(tmp_path, {f"Main/{name}.txt": "1" for name in names} | {"Layout/train.txt": "1"})
    lists = find_image_sets(str(tmp_path), ("Main", "none"))
    paths = {str(tmp_path / "Main" / f"{name}.txt"): split for name, split in expected.items()}
    assert {list_.path: list_.split for list_ in lists} == paths


def test_the_first_folder_with_lists_counts(tmp_path):
    write_files(tmp_path, {"Main/cat_train.txt": "1", "Main/cat_val.txt": "1", "Layout/val.txt": "1"})
    (list_,) = find_image_sets(str(tmp_path), ("Main", "Layout"))
    assert list_.path.endswith("Layout/val.txt")


@pytest.mark.parametrize(
    ("path", "lines", "expected"),
    [
        ("ImageSets/Main/train.txt", ["1", "a b.PNG"], ["i/1.jpg", "i/a b.PNG"]),
        ("ImageSets/Layout/train.txt", ["1 2", "1 3"], ["i/1.jpg", "i/1.jpg"]),
    ],
)
def test_names_of_a_list(path, lines, expected):
    assert [*parse_image_set(path, lines, "i/")] == expected
