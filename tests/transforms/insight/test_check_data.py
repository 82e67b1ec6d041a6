import msgspec
import pytest

from recordmill.schemas.problems import Duplicates, SplitDuplicates
from recordmill.schemas.statistics import ClassDrift, ClassInOneSplit, SplitComparison
from recordmill.transforms.insight.check_data import check_data, order_splits
from tests.transforms.insight.test_page import manifest_of, statistics_of


def test_check_data():
    manifest = manifest_of(counts=(9, 0), splits=("train", "val"))
    of = {
        "train": SplitDuplicates(3, 1, leaked=2, labels_differ=1),
        "val": SplitDuplicates(exact=2, leaked=2),
    }
    findings = {"dark": 2, "blurred": 1, "thin_boxes": 4}
    splits = manifest.splits | {"val": msgspec.structs.replace(manifest.splits["val"], findings=findings)}
    manifest = msgspec.structs.replace(manifest, splits=splits, duplicates=Duplicates("", 3, 1, of))
    statistics = {name: msgspec.structs.replace(each, measured=8) for name, each in statistics_of(manifest).items()}
    comparison = SplitComparison((ClassInOneSplit("cat", "train", 9),), (ClassDrift("cat", "val", 1, 0.1, 0.2),) * 2)
    assert [tuple(check) for check in check_data(manifest, statistics, comparison)] == [
        ("Leakage", 4, "images that another split has", "duplicates"),
        ("Duplicates", 6, "5 exact, 1 near, 1 other labels", "duplicates"),
        ("Rejects", 8, "4 empty_box, 2 image_missing, 2 malformed_image", "rejects"),
        ("Class gaps", 4, "1 in one split only, 2 other share, 1 without any", "class-gaps"),
        ("Suspicious boxes", 4, "4 thin boxes", "possible-problems"),
        ("Suspicious images", 3, "2 dark, 1 blurred", "possible-problems"),
    ]


def test_what_nobody_looked_at_is_not_clean():
    checks = {
        check.title: check for check in check_data(manifest_of(), statistics_of(manifest_of()), SplitComparison())
    }
    for title in ("Leakage", "Duplicates", "Suspicious images"):
        assert checks[title].number is None


@pytest.mark.parametrize(
    ("options", "order"),
    [
        (dict.fromkeys("abc", "c=0.5,a=0.25,b=0.25"), "cab"),
        ({"val": "val", "train": "", "x": "x", "test": "test"}, ["train", "val", "test", "x"]),
        ({"x": "x", "b": "b=0.5,a=0.5", "a": "b=0.5,a=0.5"}, "bax"),
    ],
)
def test_splits_are_in_order_given(options, order):
    manifest = manifest_of(splits=("train",))
    (entry,) = manifest.splits.values()
    recipes = {
        name: msgspec.structs.replace(entry.recipe, split=name, options={"split": split} if split else {})
        for name, split in options.items()
    }
    splits = {name: msgspec.structs.replace(entry, recipe=recipe) for name, recipe in sorted(recipes.items())}
    assert order_splits(msgspec.structs.replace(manifest, splits=splits)) == list(order)
