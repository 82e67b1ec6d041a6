"""Image rows and image files find each other by name."""

from fractions import Fraction
from itertools import permutations

import apache_beam as beam
import msgspec
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.annotations import AnnotatedImage, Annotation, Caption, ImageLabels, ImageRow, TableRow
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.images import (
    NO_FILE,
    ImageNotes,
    ImageRef,
    ImageTask,
    JoinSide,
    UnmatchedImage,
    UnreferencedFile,
)
from recordmill.schemas.manifest import InputRows, SplitRows
from recordmill.schemas.rejects import Count, Metric, Reason, Rejected, SplitCount, SplitReject
from recordmill.schemas.splits import Division, SplitShares
from recordmill.transforms.join.match_files import MatchFiles, match_ends, match_files

FILE = ImageRef("images/a.jpg", 100, "1")
SIZED = ImageRow(1, "a.jpg", 40, 30)


def annotation(id_: int) -> Annotation:
    return Annotation(id_, 1, (1.0, 2.0, 3.0, 4.0), 12.0, False)


def listed(image: ImageRow, *annotations: Annotation) -> JoinSide:
    return JoinSide(image=AnnotatedImage(image, "val", annotations))


def labelled(class_name: str, split: str = "train", file: ImageRef | None = None, id_: int = 7) -> JoinSide:
    return JoinSide(AnnotatedImage(ImageRow(id_, "a.jpg"), split, labels=ImageLabels(class_name=class_name)), file)


def rejected(split: str, reason: Reason, detail: str, id_: int = 7, annotations: int = 0) -> SplitReject:
    return SplitReject(split, Rejected("image", id_, reason, detail, annotations=annotations))


def test_a_row_and_its_file_are_a_task():
    matches = [JoinSide(file=FILE), listed(SIZED, annotation(1))]
    task = ImageTask(1, "a.jpg", 40, 30, FILE, "val", (annotation(1),))
    assert list(match_files("a.jpg", matches)) == [task]
    assert list(match_files("a.jpg", reversed(matches))) == [task]


def test_a_row_that_comes_with_its_file_is_a_task():
    task = ImageTask(7, "a.jpg", None, None, FILE, "train", (), ImageLabels(class_name="cat"))
    assert list(match_files("a.jpg", [labelled("cat", file=FILE)])) == [task]


def test_two_rows_may_share_a_file():
    other = ImageRow(2, "./a.jpg")
    tasks = list(match_files("a.jpg", [listed(SIZED), JoinSide(file=FILE), listed(other, annotation(1))]))
    assert tasks == [
        ImageTask(1, "a.jpg", 40, 30, FILE, "val", ()),
        ImageTask(2, "./a.jpg", None, None, FILE, "val", (annotation(1),)),
    ]


def test_a_row_without_a_file_is_rejected_with_its_annotations():
    assert list(match_files("a.jpg", [listed(SIZED, annotation(1), annotation(2))])) == [
        UnmatchedImage("a.jpg"),
        rejected("val", Reason.IMAGE_MISSING, "no file 'a.jpg' under --images", 1, annotations=2),
    ]


@pytest.mark.parametrize("name", ["cat\\a.jpg", "x/cat\\a.jpg"])
def test_of_a_missing_name_with_a_backslash_it_is_told_what_separates_the_parts_of_a_path(name):
    _, found = match_files(name, [listed(ImageRow(1, name))])
    detail = f"no file {name!r} under --images; the parts of a path are to be separated by /"
    assert found == rejected("val", Reason.IMAGE_MISSING, detail, 1)


def test_a_name_with_a_backslash_whose_file_is_there_is_as_good_as_any():
    (found,) = match_files("cat\\a.jpg", [listed(ImageRow(1, "cat\\a.jpg")), JoinSide(file=FILE)])
    assert isinstance(found, ImageTask)


def test_captions_and_the_like_are_rejected_with_their_image_too():
    row = AnnotatedImage(SIZED, "val", (annotation(1),), ImageLabels((Caption(1, "a"), Caption(2, "b"))))
    _, (_, reject) = match_files("a.jpg", [JoinSide(image=row)])
    assert reject.annotations == 3


@pytest.mark.parametrize("count", [1, 2])
def test_files_that_no_row_names_are_unlisted(count):
    assert list(match_files("a.jpg", [JoinSide(file=FILE)] * count)) == [UnreferencedFile("a.jpg")]


def test_a_row_whose_name_two_folders_have_is_an_error():
    files = [JoinSide(file=ImageRef(f"{folder}/a.jpg", 1)) for folder in ("two", "one")]
    with pytest.raises(CollidingImagesError, match=r"'a\.jpg' is both one/a\.jpg and two/a\.jpg"):
        list(match_files("a.jpg", [*files, listed(SIZED)]))


def test_a_row_whose_name_two_files_have_that_look_alike_is_told_how_they_differ():
    files = [JoinSide(file=ImageRef(f"one/{name}.jpg", 1)) for name in ("\u00e9", "e\u0301")]
    with pytest.raises(
        CollidingImagesError, match=r"in 2 forms of Unicode, 'one/e\\u0301.jpg' and 'one/\\xe9.jpg'; re"
    ):
        list(match_files("\u00e9.jpg", [*files, listed(SIZED)]))


def test_two_files_that_come_with_rows_of_one_name_are_an_error():
    rows = [labelled("cat", file=ImageRef(f"{folder}/a.jpg", 1)) for folder in ("two", "one")]
    with pytest.raises(CollidingImagesError, match=r"is both one/a\.jpg and two/a\.jpg; give --images only the folder"):
        list(match_files("a.jpg", rows))


@pytest.mark.parametrize("name", ["../a.jpg", "/a.jpg", "https://example.org/a.jpg", "", "C:\\a.jpg", "a\x07.jpg"])
@pytest.mark.parametrize("files", [[], [JoinSide(file=FILE)]])
def test_a_name_that_must_not_be_looked_up_rejects_the_image_with_its_annotations(name, files):
    unmatched, (split, reject) = match_files(name, [listed(ImageRow(1, name), annotation(1), annotation(2)), *files])
    assert (split, reject.what, reject.id, reject.annotations) == ("val", "image", 1, 2)
    assert (reject.reason, unmatched) == (Reason.UNSAFE_FILE_NAME, UnmatchedImage(name))
    assert repr(name) in reject.detail


# Found by the end of the path


def of_name(name: str, id_: int = 1) -> JoinSide:
    return JoinSide(AnnotatedImage(ImageRow(id_, name, 40, 30), "val", (annotation(id_),)), name=name)


def file_of_name(name: str, folder: str = "images") -> JoinSide:
    return JoinSide(file=ImageRef(f"{folder}/{name}", 5), name=name)


@pytest.mark.parametrize("match", ["suffix", "name"])
@pytest.mark.parametrize("name", ["a.jpg", "/home/me/a.jpg", "D:\\me\\a.jpg", "https://example.org/a.jpg", "../a.jpg"])
def test_an_image_has_the_name_of_the_file_that_it_is_found_in(match, name):
    assert list(match_ends([file_of_name("train/a.jpg"), of_name(name)], match)) == [
        ImageTask(1, "train/a.jpg", 40, 30, ImageRef("images/train/a.jpg", 5), "val", (annotation(1),))
    ]


def test_what_has_no_partner_at_its_end_is_told_by_its_own_name():
    sides = [of_name("x/b/1.jpg", 1), of_name("/a/1.jpg", 2), file_of_name("b/1.jpg"), file_of_name("a/1.jpg")]
    sides += [of_name("/a/2/1.jpg", 3), file_of_name("c/2/1.jpg"), of_name("1.jpg", 4)]
    tasks, others = [], []
    for item in match_ends(sides, "suffix"):
        (tasks if isinstance(item, ImageTask) else others).append(item)
    assert sorted((task.image_id, task.file_name) for task in tasks) == [
        (1, "b/1.jpg"),
        (2, "a/1.jpg"),
        (3, "c/2/1.jpg"),
    ]
    missing = rejected("val", Reason.IMAGE_MISSING, "no file '1.jpg' under --images", 4, annotations=1)
    assert others == [UnmatchedImage("1.jpg"), missing]
    assert list(match_ends([file_of_name("q/1.jpg"), file_of_name("1.jpg")], "suffix")) == [
        UnreferencedFile("1.jpg"),
        UnreferencedFile("q/1.jpg"),
    ]


def test_an_unmatched_absolute_name_is_missing_and_not_unsafe_where_ends_are_compared():
    _, (_, reject) = match_ends([of_name("/a/1.jpg")], "suffix")
    assert reject.reason is Reason.IMAGE_MISSING


def test_two_rows_of_one_name_share_the_file_that_it_is_found_in():
    tasks = list(match_ends([of_name("x/1.jpg", 1), file_of_name("1.jpg"), of_name("x/1.jpg", 2)], "suffix"))
    assert [(task.image_id, task.file_name) for task in tasks] == [(1, "1.jpg"), (2, "1.jpg")]


def test_a_name_that_two_folders_have_is_an_error_for_ends_too():
    sides = [of_name("x/1.jpg"), file_of_name("1.jpg", "one"), file_of_name("1.jpg", "two")]
    with pytest.raises(CollidingImagesError, match=r"'1\.jpg' is both one/1\.jpg and two/1\.jpg"):
        list(match_ends(sides, "suffix"))


# Several rows of one image


@pytest.mark.parametrize("count", [2, 3])
def test_of_rows_that_agree_one_is_taken(count):
    found = list(match_files("a.jpg", [*[labelled("cat", "val")] * count, JoinSide(file=FILE)]))
    again = rejected("val", Reason.DUPLICATE_IMAGE_ID, "another row says the same of 'a.jpg'")
    task = ImageTask(7, "a.jpg", None, None, FILE, "val", (), ImageLabels(class_name="cat"))
    assert found == [again] * (count - 1) + [task]


def test_a_file_that_comes_with_each_of_its_rows_is_one_file():
    again, task = match_files("a.jpg", [labelled("cat", file=ImageRef("images/a.jpg", 5)) for _ in range(2)])
    assert again == rejected("train", Reason.DUPLICATE_IMAGE_ID, "another row says the same of 'a.jpg'")
    assert task.ref == ImageRef("images/a.jpg", 5)


def test_rows_that_agree_are_all_rejected_without_a_file():
    assert list(match_files("a.jpg", [labelled("cat"), labelled("cat")])) == [
        rejected("train", Reason.DUPLICATE_IMAGE_ID, "another row says the same of 'a.jpg'"),
        UnmatchedImage("a.jpg"),
        rejected("train", Reason.IMAGE_MISSING, "no file 'a.jpg' under --images"),
    ]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("cat", "train"), ("dog", "train")], "2 rows of 'a.jpg' say 'cat' in train, 'dog' in train"),
        ([("cat", "train"), ("cat", "test")], "2 rows of 'a.jpg' say 'cat' in test, 'cat' in train"),
        ([("cat", "train"), ("cat", "train"), ("dog", "val")], "3 rows of 'a.jpg' say 'cat' in train, 'dog' in val"),
    ],
)
def test_of_rows_that_differ_none_is_taken_whatever_their_order(rows, said):
    expected = sorted(rejected(split, Reason.DUPLICATE_IMAGE_ID, f"{said}: none is taken") for _, split in rows)
    for order in permutations(rows):
        found = match_files("a.jpg", [JoinSide(file=FILE), *(labelled(*row) for row in order)])
        assert sorted(found, key=lambda item: item.split) == expected


def test_rows_that_differ_leave_an_image_of_another_id_alone():
    rows = [labelled("cat"), labelled("dog"), labelled("cow", id_=8)]
    found = list(match_files("a.jpg", [*rows, JoinSide(file=FILE)]))
    assert [item.reject.id for item in found[:2]] == [7, 7]
    assert found[2:] == [ImageTask(8, "a.jpg", None, None, FILE, "train", (), ImageLabels(class_name="cow"))]


@pytest.mark.parametrize("match", ["suffix", "name"])
def test_the_transform_joins_by_the_last_part_of_names(match):
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        sides = [of_name("C:\\x\\a.jpg"), file_of_name("train/a.jpg"), file_of_name("train/b.jpg")]
        named = [(side.name, msgspec.structs.replace(side, name="")) for side in sides]
        matched = p | beam.Create(named) | MatchFiles(match)
        task = ImageTask(1, "train/a.jpg", 40, 30, ImageRef("images/train/a.jpg", 5), "val", (annotation(1),))
        assert_that(matched.tasks, equal_to([task]), "Tasks")
        assert_that(matched.unlisted, equal_to([UnreferencedFile("train/b.jpg")]), "Unlisted")


def test_the_transform_has_an_output_for_each():
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        both = p | beam.Create(
            [
                ("a.jpg", labelled("cat")),
                ("a.jpg", JoinSide(file=FILE)),
                ("b.jpg", JoinSide(file=ImageRef("images/b.jpg", 1))),
                ("gone.jpg", listed(ImageRow(2, "gone.jpg"))),
            ]
        )
        matched = both | MatchFiles()
        task = ImageTask(7, "a.jpg", None, None, FILE, "train", (), ImageLabels(class_name="cat"))
        missing = rejected("val", Reason.IMAGE_MISSING, "no file 'gone.jpg' under --images", 2)
        assert_that(matched.tasks, equal_to([task]), "Tasks")
        assert_that(matched.rejected, equal_to([missing]), "Rejected")
        assert_that(matched.unlisted, equal_to([UnreferencedFile("b.jpg")]), "Unlisted")
        assert_that(matched.unmatched, equal_to([UnmatchedImage("gone.jpg")]), "Unmatched")


def test_a_file_that_is_too_large_or_none_is_known_before_it_is_read():
    huge = ImageRef("images/a.jpg", 256_000_001, "1")
    detail = "'a.jpg': 256,000,001 bytes, where at most 256,000,000 are read"
    matches = [JoinSide(file=huge), listed(SIZED, annotation(1))]
    assert list(match_files("a.jpg", matches)) == [rejected("val", Reason.TOO_LARGE, detail, 1, 1)]
    link = [JoinSide(file=ImageRef("images/a.jpg", 0, NO_FILE)), listed(SIZED, annotation(1))]
    detail = "'a.jpg': a link that leads nowhere, a pipe or a device"
    assert list(match_files("a.jpg", link)) == [rejected("val", Reason.IMAGE_INACCESSIBLE, detail, 1, 1)]
    largest = ImageRef("images/a.jpg", 256_000_000, "1")
    assert [type(found) for found in match_files("a.jpg", [JoinSide(file=largest), listed(SIZED)])] == [ImageTask]


# Into splits

DIVISION = Division(SplitShares((("a", Fraction(1, 2)), ("b", Fraction(1, 2)))), "^[a-z]+/")


def noted(name: str, notes: ImageNotes = ImageNotes()) -> JoinSide:  # noqa: B008
    return JoinSide(AnnotatedImage(ImageRow(7, name), "", (annotation(1),)), notes=notes)


@pytest.mark.parametrize("folder", ["x", "y", "z", "u"])
def test_an_image_goes_where_its_group_does_with_all_that_was_found_of_it(folder):
    bad = Rejected("annotation", 3, Reason.MALFORMED_BOX, "x", 7)
    rows = InputRows("a.json", "instances", 1, 2)
    notes = ImageNotes((bad,), (Count(Metric.ROWS_MERGED, 1),), (rows,))
    split = DIVISION.shares.split_of(f"{folder}/")
    counted = [SplitReject(split, bad), SplitCount(split, Count(Metric.ROWS_MERGED, 1))]
    if split == "b":  # what is of no other split is the first one's
        counted.append(SplitRows("b", rows))
    sides = [noted(f"./{folder}/1.jpg", notes), JoinSide(file=FILE)]
    *found, task = match_files(f"{folder}/1.jpg", sides, DIVISION)
    assert (found, task.split) == (counted, split)
    missing = list(match_files(f"{folder}/1.jpg", sides[:1], DIVISION))
    assert missing[: len(counted)] == counted
    assert [item.split for item in missing if isinstance(item, SplitReject)] == [split, split]


def test_an_image_whose_name_gives_no_group_is_rejected_unless_it_has_no_file():
    split = DIVISION.shares.split_of("1.jpg")
    detail = "'1.jpg' has nothing that --group-from ^[a-z]+/ finds"
    sides = [noted("1.jpg"), JoinSide(file=FILE)]
    assert list(match_files("1.jpg", sides, DIVISION)) == [rejected(split, Reason.NO_GROUP, detail, annotations=1)]
    _, reject = match_files("1.jpg", sides[:1], DIVISION)
    assert reject.reject.reason is Reason.IMAGE_MISSING


def test_the_name_that_decides_is_that_of_the_file_where_one_is_looked_for():
    sides = [msgspec.structs.replace(noted("C:\\1.jpg"), name="C:\\1.jpg"), JoinSide(file=FILE, name="y/1.jpg")]
    (task,) = match_ends(sides, "suffix", DIVISION)
    assert (task.file_name, task.split) == ("y/1.jpg", DIVISION.shares.split_of("y/"))


def of_table(line: int, name: str = "a.jpg", record: bytes = b"\n\0") -> JoinSide:
    labels = ImageLabels(class_name="cat", row=TableRow(record, line, f"t.csv row {line}: column path"))
    return JoinSide(AnnotatedImage(ImageRow(7, name), "train", labels=labels))


def test_each_row_of_a_table_is_a_task_however_equal():
    sides = [of_table(3), JoinSide(file=FILE), of_table(1), of_table(2, record=b"\n\1x")]
    tasks = list(match_files("a.jpg", sides))
    assert {task.labels.row for task in tasks} == {side.row.labels.row for side in sides if side.image}
    assert {(task.image_id, task.ref, task.split) for task in tasks} == {(7, FILE, "train")}


def test_a_row_without_its_picture_is_rejected_by_its_place():
    missing, reject = match_files("b.jpg", [of_table(4, "b.jpg")])
    assert missing == UnmatchedImage("b.jpg")
    detail = "t.csv row 4: column path: no file 'b.jpg' under --images"
    assert reject == SplitReject("train", Rejected("row", 4, Reason.IMAGE_MISSING, detail))
