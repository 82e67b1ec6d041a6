"""Jobs and splits without labels."""

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.annotated.join_annotated import empty_splits
from recordmill.transforms.annotated.source import LABELLED, UNLABELLED, Source, yield_nothing
from recordmill.transforms.join.observed_labels import ObservedLabel


def source(has_label_name: bool = True) -> Source:
    named = (lambda name: name.replace("jpg", "txt")) if has_label_name else None
    return Source("data", "yolo", (), yield_nothing, bool, label_name=named, splits=("train", "val"))


TRAIN, UNKNOWN = ObservedLabel(LABELLED, "train"), ObservedLabel(LABELLED)
IN_VAL = [ObservedLabel(f"{UNLABELLED}val", name) for name in ("b.jpg", "a.jpg")]


@pytest.mark.parametrize(
    ("observed", "splits", "warned"),
    [
        ([TRAIN, ObservedLabel(LABELLED, "val")], ("train", "val"), {}),
        ([UNKNOWN], ("train", "test"), {}),
        ([TRAIN], ("train", "val"), {"val": "because all label files are empty"}),
        ([TRAIN, *IN_VAL], ("train", "val"), {"val": "'a.jpg' has no label file 'a.txt'"}),
    ],
)
def test_split_without_labels_is_a_warning(observed, splits, warned):
    texts = dict(empty_splits(observed, source(), splits))
    assert texts.keys() == warned.keys()
    assert all(text in texts[split] for split, text in warned.items())


@pytest.mark.parametrize(
    ("observed", "has_label_name", "said"),
    [
        ([], True, "because all label files are empty"),
        (IN_VAL, True, "'a.jpg' has no label file 'a.txt'"),
        ([], False, "no image has a label of the format yolo. If"),
    ],
)
def test_job_without_labels_is_an_error(observed, has_label_name, said):
    with pytest.raises(ConfigError) as error:
        list(empty_splits(observed, source(has_label_name), ("train", "val")))
    assert said in str(error.value)
    assert "--allow-empty" in str(error.value)
