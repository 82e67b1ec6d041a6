import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.transforms.blocks.pack_block import pack_block
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.folder.choose_classes import WarnOfNestedClasses, nested_classes


def labels(*names: str) -> LabelMap:
    return LabelMap(tuple(Category(index, name) for index, name in enumerate(names)))


PETS = labels("Cat", "Dog", "cleaned")


def test_copy_of_all_classes_is_named_with_its_numbers_and_flag_that_leaves_it_out():
    nested = [(("cleaned", "dog"), 12_499), (("cleaned", "Cat"), 12_499)]
    (text,) = nested_classes(nested, PETS)
    assert text.startswith("class 'cleaned' holds folders named like other classes")
    assert "'Cat' 12,499, 'dog' 12,499" in text
    assert text.endswith("--classes Cat,Dog")


@pytest.mark.parametrize(
    "nested",
    [
        [],
        [(("Cat", "Cat"), 3), (("Cat", "cat"), 3)],  # its own name
        [(("Cat", "side"), 3)],
        [(("other", "Cat"), 3)],  # no class that is asked for
    ],
)
def test_other_folders_are_no_matter(nested):
    assert list(nested_classes(nested, PETS)) == []


def test_of_many_the_first_are_told():
    names = [f"c{number}" for number in range(8)]
    (text,) = nested_classes([(("all", name), 1) for name in names], labels("all", *names))
    assert "'c4' 1 and 3 more" in text
    assert text.endswith("--classes with the others")


def test_warn_of_nested_classes():
    """An image counts once, however deep it is; each split gets the warning."""
    names = ["Cat/1.jpg", "cleaned/Cat/1.jpg", "cleaned/Cat/Cat/2.jpg", "cleaned/x/Dog/3.jpg", "Cat/side/5.jpg"]
    blocks = [(0, pack_block(Block(file_name=ragged_texts(part)))) for part in (names[:2], names[2:])]
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        labelled = p | "Labels" >> beam.Create([PETS])
        warnings = p | "Rows" >> beam.Create(blocks) | WarnOfNestedClasses(labelled, ("train", "val"))
        (text,) = nested_classes([(("cleaned", "Cat"), 2), (("cleaned", "Dog"), 1)], PETS)
        assert_that(warnings, equal_to([Facts(warnings={("train", text), ("val", text)})]))
