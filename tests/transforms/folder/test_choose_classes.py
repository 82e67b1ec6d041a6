"""The classes of a data set, and the images of those that were asked for."""

from itertools import permutations

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.annotations import AnnotatedImage, Category, ImageLabels, ImageRow
from recordmill.schemas.errors import CategoryError
from recordmill.schemas.images import ImageRef, ImageTask, JoinSide
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.rejects import Count, Metric
from recordmill.transforms.folder.choose_classes import ChooseClasses, ListClasses, class_labels


def names(labels: LabelMap) -> list[str]:
    assert [category.id for category in labels.categories] == list(range(len(labels.categories)))
    assert labels.segments == ()
    return [category.name for category in labels.categories]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["dog", "cat", "Cow"], ["Cow", "cat", "dog"]),
        (["10", "9", "1"], ["1", "9", "10"]),
        (["10", "9", "a"], ["10", "9", "a"]),
        (["007", "10", "9"], ["007", "9", "10"]),
        (["1", "01", "001"], ["001", "01", "1"]),
        (["²", "10", "9"], ["10", "9", "²"]),
        (["٣", "10", "9"], ["10", "9", "٣"]),
        (["-1", "10", "9"], ["-1", "10", "9"]),
        (["1" * 18, "2"], ["2", "1" * 18]),
        (["1" * 19, "2"], ["1" * 19, "2"]),
        ([], []),
    ],
)
def test_all_classes_are_sorted_and_numbers_by_their_value(found, expected):
    for order in permutations(found):
        assert names(class_labels(order, ())) == expected


@pytest.mark.parametrize("asked", [("dog", "cat"), ("9", "10", "1"), ("10",), ("unicorn", "cat"), ("cat", "35")])
def test_classes_that_are_asked_for_keep_their_order(asked):
    assert names(class_labels(["cat", "dog", "10", "9", "1"], asked)) == list(asked)


# Classes that are likely to be a mistake


@pytest.mark.parametrize(
    ("found", "asked", "told"),
    [
        (["cat", "dog"], ("Emu",), "--classes Emu: no image is of these; there are 'cat', 'dog'"),
        (["cat"], ("cta", "Dog"), "--classes cta,Dog: no image is of these; there are 'cat'"),
        (
            [f"{number:02}" for number in range(10)],
            ("x",),
            f"--classes x: no image is of these; there are {', '.join(repr(f'{n:02}') for n in range(10))}",
        ),
        (
            [f"{number:02}" for number in range(17)],
            ("x",),
            f"--classes x: no image is of these; there are {', '.join(repr(f'{n:02}') for n in range(10))} and 7 more",
        ),
    ],
)
def test_if_no_image_is_of_the_classes_that_are_asked_for_those_that_there_are_are_told(found, asked, told):
    for folders in ((), ("images",)):
        with pytest.raises(CategoryError) as caught:
            class_labels(found, asked, folders)
        assert str(caught.value) == told


@pytest.mark.parametrize(
    ("asked", "wrong", "near"),
    [
        (("cat", "Dog"), "Dog", "dog"),
        (("cat", "ZEBRA", "DOG "), "DOG ", "dog"),
    ],
)
def test_for_a_class_that_is_not_there_one_in_other_letters_is_told(asked, wrong, near):
    with pytest.raises(CategoryError) as caught:
        class_labels(["cat", "dog", "zebra"], asked)
    assert str(caught.value) == f"--classes {wrong!r}: no image is of that class; did you mean {near!r}?"


@pytest.mark.parametrize(
    "asked",
    [("cat", "cats"), ("cats", "cat"), ("cat", "unicorn"), ("cat", "dogs"), ("car", "dog"), ("dog", "cat", "Cat")],
)
def test_a_class_may_be_missing_if_no_other_was_meant(asked):
    """As a split may lack one."""
    assert names(class_labels(["cat", "dog"], asked)) == list(asked)


def test_without_any_image_the_classes_that_are_asked_for_are_no_matter():
    """That there is none is told by what writes."""
    assert names(class_labels([], ("cat", "dog"), ("images",))) == ["cat", "dog"]
    assert names(class_labels([], (), ("images",))) == []


@pytest.mark.parametrize(
    "found", [("train", "val"), ("train", "test"), ("Train", "VALID", "test"), ("train",), ("dev", "eval", "training")]
)
def test_class_folders_that_are_called_as_splits_are_refused(found):
    first = sorted(found)[0]
    with pytest.raises(CategoryError) as caught:
        class_labels(found, (), ("pets", "more"))
    message = str(caught.value)
    listed = ", ".join(map(repr, sorted(found)))
    assert message.startswith(f"the folders in pets more are called {listed}, as splits are, and would become the cla")
    assert f"(--images pets/{first} --split {first.lower()} …)" in message
    assert message.endswith(f"give --classes {','.join(sorted(found))}")


def test_a_single_class_folder_is_refused():
    with pytest.raises(CategoryError) as caught:
        class_labels(["pets"], (), ("images",))
    assert str(caught.value) == (
        "all images in images are in one folder, 'pets', so there would be one class; if class folders are in that, "
        "give --images images/pets; if it is the only class, --classes pets"
    )


@pytest.mark.parametrize(
    ("found", "asked", "folders"),
    [
        (["cat"], ("cat",), ("images",)),
        (["cat"], (), ()),
        (["train", "val"], ("train", "val"), ("images",)),
        (["train", "val"], (), ()),
        (["cat", "train"], (), ("images",)),
        (["trains", "vals"], (), ("images",)),
    ],
    ids=["named", "of a table", "splits that are named", "splits of a table", "one that is none", "like splits"],
)
def test_classes_that_are_named_or_of_no_folder_are_let_be(found, asked, folders):
    assert names(class_labels(found, asked, folders)) == sorted(found)


def row(name: str, class_name: str | None) -> tuple[str, JoinSide]:
    return name, JoinSide(AnnotatedImage(ImageRow(1, name), "train", labels=ImageLabels(class_name=class_name)))


ROWS = [row("a", "dog"), row("b", "cat"), row("c", "dog"), row("d", None), ("e", JoinSide(file=ImageRef("e", 1)))]


@pytest.mark.parametrize(("asked", "expected"), [((), ["cat", "dog"]), (("cow", "dog"), ["cow", "dog"])])
def test_the_classes_of_rows_are_one_label_map(asked, expected):
    labels = LabelMap(tuple(Category(index, name) for index, name in enumerate(expected)))
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        assert_that(p | beam.Create(ROWS) | ListClasses(asked, ("images",)), equal_to([labels]))


def test_the_transform_tells_what_is_wrong_with_folders_of_classes():
    rows = [row("train/a", "train"), row("val/b", "val")]
    told = "the folders in pets are called 'train', 'val', as splits are"
    with pytest.raises(Exception, match=told), beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        p | beam.Create(rows) | ListClasses((), ("pets",))


def test_without_rows_there_is_an_empty_label_map():
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        assert_that(p | beam.Create([]) | ListClasses((), ("images",)), equal_to([LabelMap(())]))


def task(id_: int, class_name: str, split: str) -> ImageTask:
    return ImageTask(id_, "a", None, None, ImageRef("a", 1), split, (), ImageLabels(class_name=class_name))


TASKS = [task(1, "cat", "train"), task(2, "dog", "train"), task(3, "dog", "val"), task(4, "cow", "val")]


@pytest.mark.parametrize(
    ("asked", "chosen", "others"),
    [
        ((), [1, 2, 3, 4], []),
        (("cat", "dog", "cow"), [1, 2, 3, 4], []),
        (("cow", "cat"), [1, 4], ["train", "val"]),
        (("dog",), [2, 3], ["train", "val"]),
        (("Dog",), [], ["train", "train", "val", "val"]),
    ],
)
def test_images_of_other_classes_are_counted_by_split(asked, chosen, others):
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        images = p | beam.Create(TASKS) | ChooseClasses(asked)
        assert_that(images.tasks, equal_to([task for task in TASKS if task.image_id in chosen]), "Tasks")
        counted = [(split, Count(Metric.OF_OTHER_CLASSES, 1)) for split in others]
        assert_that(images.counted, equal_to(counted), "Counted")
