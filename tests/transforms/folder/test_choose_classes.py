import re
from itertools import permutations

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.errors import CategoryError
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.transforms.blocks.pack_block import pack_block
from recordmill.transforms.folder.choose_classes import ListClasses, class_labels, folders_without_images


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
        (["9", "10", "-1"], ["-1", "9", "10"]),
        (["10.0", "2.5", "20.0", "5.0"], ["2.5", "5.0", "10.0", "20.0"]),
        (["1" * 18, "2"], ["2", "1" * 18]),
        (["1" * 19, "2"], ["2", "1" * 19]),
        ([], []),
    ],
)
def test_all_classes_are_sorted_and_numbers_by_their_value(found, expected):
    for order in permutations(found):
        assert names(class_labels(order, ())) == expected


@pytest.mark.parametrize("asked", [("dog", "cat"), ("9", "10", "1"), ("10",), ("unicorn", "cat"), ("cat", "35")])
def test_classes_asked_for_keep_their_order(asked):
    assert names(class_labels(["cat", "dog", "10", "9", "1"], asked)) == list(asked)


TENS = [f"{number:02}" for number in range(17)]
FIRST_TENS = ", ".join(map(repr, TENS[:10]))


@pytest.mark.parametrize(
    ("found", "asked", "folders", "message"),
    [
        (["cat", "dog"], ("Emu",), (), "--classes Emu: no example is of these; there are 'cat', 'dog'"),
        (["cat"], ("cta", "Dog"), ("pets",), "--classes cta,Dog: no example is of these; there are 'cat'"),
        (TENS[:10], ("x",), (), f"--classes x: no example is of these; there are {FIRST_TENS}"),
        (TENS, ("x",), (), f"--classes x: no example is of these; there are {FIRST_TENS} and 7 more"),
        (["cat", "dog"], ("cat", "Dog"), (), "--classes 'Dog': no example is of that class; did you mean 'dog'?"),
        (
            ["cat", "dog"],
            ("cat", "ZEBRA", "DOG "),
            (),
            "--classes 'DOG ': no example is of that class; did you mean 'd",
        ),
        *(
            (found, (), ("pets", "more"), f"the folders in pets more are called {', '.join(map(repr, found))}, as spli")
            for found in (["test", "train"], ["Train", "VALID", "test"], ["train"], ["dev", "eval", "training"])
        ),
        (
            ["train", "val"],
            (),
            ("pets",),
            "the folders in pets are called 'train', 'val', as splits are, and would become the classes; convert each "
            "by a run of its own (--images pets/train --split train …), or, if they are classes, give --classes "
            "train,val",
        ),
        (
            ["pets"],
            (),
            ("images",),
            "all images in images are in one folder, 'pets', so there would be one class; if class folders are in "
            "that, give --images images/pets; if it is the only class, --classes pets",
        ),
    ],
)
def test_class_labels_mistakes(found, asked, folders, message):
    with pytest.raises(CategoryError) as caught:
        class_labels(found, asked, folders)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("found", "asked", "folders"),
    [
        *((["cat", "dog"], asked, ()) for asked in (("cat", "cats"), ("cat", "dogs"), ("car", "dog"))),
        (["cat", "dog"], ("dog", "cat", "Cat"), ()),
        ([], ("cat", "dog"), ("images",)),
        ([], (), ("images",)),
        (["cat"], ("cat",), ("images",)),
        (["cat"], (), ()),  # of a table
        (["train", "val"], ("train", "val"), ("images",)),
        (["train", "val"], (), ()),
        (["cat", "train"], (), ("images",)),
        (["trains", "vals"], (), ("images",)),
    ],
)
def test_class_labels_that_may_be_meant(found, asked, folders):
    """A split may lack a class."""
    assert names(class_labels(found, asked, folders)) == list(asked or sorted(found))


def of_classes(*names: str) -> tuple[int, bytes]:
    return 0, pack_block(Block(class_name=ragged_texts(names)))


@pytest.mark.parametrize(
    ("blocks", "asked", "expected"),
    [
        ([of_classes("dog", "cat"), of_classes("dog")], (), ["cat", "dog"]),
        ([of_classes("dog", "cat"), of_classes("dog")], ("cow", "dog"), ["cow", "dog"]),
        ([], (), []),
        ([of_classes("train"), of_classes("val")], (), "the folders in pets are called 'train', 'val', as splits are"),
    ],
)
def test_list_classes(blocks, asked, expected):
    def check() -> None:
        with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
            labels = p | beam.Create(blocks) | ListClasses(asked, ("pets",))
            assert_that(labels, equal_to([LabelMap(tuple(Category(*item) for item in enumerate(expected)))]))

    if isinstance(expected, list):
        check()
    else:
        with pytest.raises(Exception, match=expected):
            check()


def test_class_folders_that_give_no_image(tmp_path):
    for name in ("ant/1.jpg", "bee/0", "bee/1", "dog/more/1.png", "out/x", ".hidden/x", "file"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "cat").mkdir()
    texts = list(folders_without_images([str(tmp_path), "gs://bucket/x", "images.zip"], str(tmp_path / "out")))
    assert len(texts) == 2
    assert re.search(
        "'bee' .* gives no image, .* none of its 2 files, such as 'bee/[01]', is named as images", texts[0]
    )
    assert re.search("'cat' .* it is empty", texts[1])
