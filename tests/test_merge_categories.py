"""Categories of several files become one label map."""

from itertools import permutations

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from schemas.coco import AnnotationFile, Category
from schemas.errors import CategoryError
from schemas.labels import LabelMap
from transforms.merge_categories import MergeCategories, merge_categories, select_categories

CAT, DOG, BIRD = Category(17, "cat", "animal"), Category(18, "dog", "animal"), Category(0, "bird")


def file(path: str, *categories: Category) -> AnnotationFile:
    return AnnotationFile(path, 1, 1, categories)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], ()),
        ([file("a.json")], ()),
        ([file("a.json", DOG, BIRD, CAT)], (BIRD, CAT, DOG)),
        ([file("a.json", DOG), file("b.json", CAT, DOG), file("c.json", BIRD)], (BIRD, CAT, DOG)),
        ([file("a.json", CAT, CAT)], (CAT,)),
        ([file("a.json", CAT, Category(20, "cat"))], (CAT, Category(20, "cat"))),
    ],
)
def test_categories_are_in_order_of_their_ids(files, expected):
    for order in permutations(files):
        assert merge_categories(order) == LabelMap(expected)


def test_of_rows_that_agree_on_the_name_that_of_the_first_file_stands():
    other = Category(17, "cat", "pet")
    for files in ([file("a.json", CAT), file("b.json", other)], [file("b.json", other), file("a.json", CAT)]):
        assert merge_categories(files) == LabelMap((CAT,))


@pytest.mark.parametrize(
    "files", [[file("a.json", CAT), file("b.json", Category(17, "dog"))], [file("a.json", CAT, Category(17, "dog"))]]
)
def test_an_id_with_two_names_is_an_error(files):
    with pytest.raises(CategoryError, match=r"category id 17 is 'cat' in a\.json and 'dog' in [ab]\.json"):
        merge_categories(reversed(files))


ALL = LabelMap((BIRD, CAT, DOG, Category(20, "cat")))


@pytest.mark.parametrize(
    ("names", "expected"),
    [((), ALL.categories), (("dog",), (DOG,)), (("dog", "cat"), (CAT, DOG, Category(20, "cat")))],
)
def test_select_categories(names, expected):
    assert select_categories(ALL, names) == LabelMap(expected)


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        (("dgo",), "did you mean 'dog'"),
        (("cat", "zebra"), "there are: bird, cat, dog"),
        (("Dog",), "did you mean 'dog'"),
    ],
)
def test_a_name_that_no_category_has_is_an_error(names, hint):
    with pytest.raises(CategoryError) as caught:
        select_categories(ALL, names)
    assert f"--categories {names[-1]!r}: no category has that name" in str(caught.value)
    assert hint in str(caught.value)


def test_a_name_is_looked_for_where_there_are_none():
    with pytest.raises(CategoryError, match="there are: none"):
        select_categories(LabelMap(()), ("dog",))


@pytest.mark.parametrize(("files", "expected"), [([file("b.json", DOG), file("a.json", CAT)], (CAT, DOG)), ([], ())])
def test_the_transform_gives_one_label_map(files, expected):
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        merged = p | beam.Create(files) | MergeCategories()
        assert_that(merged, equal_to([LabelMap(expected)]))
