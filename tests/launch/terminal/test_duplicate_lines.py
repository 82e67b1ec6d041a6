"""Leakage is told first, with its cure; then what is there more than once in each split."""

import msgspec

from recordmill.launch.terminal.duplicate_lines import duplicate_lines
from recordmill.schemas.duplicates import Duplicates, SplitDuplicates
from recordmill.schemas.manifest import FORMAT, Manifest
from tests.transforms.metadata.test_commit_splits import of_split

TRAIN = SplitDuplicates(exact=1234, near=56, leaked=7, labels_differ=3)


def lines(duplicates: Duplicates | msgspec.UnsetType, *names: str, lacking: str = "") -> list[tuple[str, str]]:
    splits = of_split(lacking).splits if lacking else {}
    manifest = Manifest(FORMAT, "coco", "detection", (), (), (), splits, duplicates=duplicates)
    return list(duplicate_lines("out", manifest, names))


def found(**splits: SplitDuplicates) -> Duplicates:
    return Duplicates("", 99, 5, splits, {})


def test_leakage_is_told_before_all_else_with_its_cure():
    both = found(train=TRAIN, val=SplitDuplicates(exact=8, leaked=8))
    (first, leak), (second, of_val) = lines(both, "val")
    assert (first, second) == ("LEAKAGE", "duplicates")
    assert [part in leak for part in ("5 pictures", "7 of train", "8 of val", "--groups out/duplicates.jsonl")] == [
        True
    ] * 4
    assert "8 images of val" in of_val
    assert len(lines(both, "train", "val")) == 3


def test_of_each_split_the_numbers_are_told():
    ((_, text),) = lines(found(train=msgspec.structs.replace(TRAIN, leaked=0), test=SplitDuplicates()), "train", "test")
    assert [part in text for part in ("1,234 images of train", "56 nearly", "labels there: 3;")] == [True] * 3
    ((_, text),) = lines(found(train=SplitDuplicates(near=2)), "train")
    assert "labels" not in text


def test_a_class_of_copies_is_told():
    ((_, text),) = lines(Duplicates("", 0, 0, {}, {"all\x1b[1m": 2001}))
    assert "2,001 pictures of the class all" in text
    assert "\x1b" not in text


def test_of_many_classes_of_copies_the_first_are_told_and_how_many_there_are():
    told = lines(Duplicates("", 0, 0, {}, {f"c{number}": number for number in range(9)}))
    assert [f"class c{number} are" in text for number, (_, text) in enumerate(told)] == [True] * 5 + [False]
    assert "4 classes more" in told[-1][1]
    assert len(lines(Duplicates("", 0, 0, {}, {f"c{number}": number for number in range(5)}))) == 5


def test_a_split_that_was_not_compared_is_told_with_the_cure():
    ((_, text),) = lines(found(train=SplitDuplicates()), "train", lacking="val")
    assert text.startswith("val was not compared")
    assert "recordmill report out" in text
    assert lines(found(train=SplitDuplicates()), "train", lacking="train") == []


def test_without_any_nothing_is_told():
    assert lines(found(train=SplitDuplicates()), "train") == []
    assert lines(msgspec.UNSET, "train") == []
    assert lines(found(train=TRAIN), "test") == []
