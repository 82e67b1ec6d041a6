"""Jobs and splits without labels."""

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.annotated.join_annotated import empty_splits
from recordmill.transforms.annotated.source import EMPTY, LABELLED, NO_FILE, Source, yield_nothing
from recordmill.transforms.join.observed_labels import ObservedLabel


def source(has_label_name: bool = True) -> Source:
    named = (lambda name: name.replace("jpg", "txt")) if has_label_name else None
    return Source("data", "yolo", (), yield_nothing, bool, label_name=named, splits=("train", "val"))


TRAIN, VAL = (ObservedLabel(f"{LABELLED}{split}") for split in ("train", "val"))
WITHOUT_FILE = [ObservedLabel(f"{NO_FILE}val", name) for name in ("b.jpg", "a.jpg")]
EMPTY_FILE = ObservedLabel(f"{EMPTY}val", "a.jpg")


@pytest.mark.parametrize(
    ("observed", "splits", "warned"),
    [
        ([TRAIN, VAL, *WITHOUT_FILE, EMPTY_FILE], ("train", "val"), {}),
        ([ObservedLabel(LABELLED), ObservedLabel(EMPTY)], ("train", "test"), {}),  # --split decides
        ([TRAIN], ("train", "val"), {}),  # val has no image, which is an error of its own
        ([TRAIN, EMPTY_FILE], ("train", "val"), {"val": ": no label file has one"}),
        ([TRAIN, EMPTY_FILE, *WITHOUT_FILE], ("train", "val"), {"val": "'a.jpg' lacks the label file 'a.txt'"}),
    ],
)
def test_split_without_labels_is_a_warning(observed, splits, warned):
    texts = dict(empty_splits(observed, source(), splits))
    assert texts.keys() == warned.keys()
    assert all(text in texts[split] for split, text in warned.items())


@pytest.mark.parametrize(
    ("observed", "has_label_name", "reason"),
    [
        ([EMPTY_FILE], True, ": no label file has one"),
        ([EMPTY_FILE, *WITHOUT_FILE], True, "'a.jpg' lacks the label file 'a.txt'"),
        ([EMPTY_FILE], False, "no image has a label of the format yolo: no label file has one"),
    ],
)
def test_job_without_labels_is_an_error(observed, has_label_name, reason):
    with pytest.raises(ConfigError) as error:
        list(empty_splits(observed, source(has_label_name), ("train", "val")))
    assert reason in str(error.value)
    assert "--allow-empty" in str(error.value)


def test_job_without_images_is_an_error_of_another_step():
    assert list(empty_splits([], source(), ("train", "val"))) == []
