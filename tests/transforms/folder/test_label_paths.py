"""Image files whose paths tell their class become image rows."""

from fractions import Fraction

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.annotations import AnnotatedImage, ImageLabels, ImageRow
from recordmill.schemas.image_labels import PathLabels
from recordmill.schemas.images import ImageRef, JoinSide, UnreferencedFile
from recordmill.schemas.rejects import Reason, Rejected, SplitReject
from recordmill.schemas.splits import Division, SplitShares, name_id
from recordmill.transforms.folder.label_paths import LabelPaths, label_path

HALVES = Division(SplitShares((("a", Fraction(1, 2)), ("b", Fraction(1, 2)))))
FOLDER, NAME = PathLabels(), PathLabels("_")


def row(name: str, class_name: str) -> AnnotatedImage:
    return AnnotatedImage(
        ImageRow(name_id(name), name), HALVES.split_of(name), labels=ImageLabels(class_name=class_name)
    )


def rejected(name: str, reason: Reason, detail: str) -> SplitReject:
    return SplitReject(HALVES.split_of(name), Rejected("image", name_id(name), reason, detail))


@pytest.mark.parametrize(
    ("rule", "name", "class_name"),
    [
        (FOLDER, "cat/1.jpg", "cat"),
        (FOLDER, "cat/more/1.PNG", "cat"),
        (FOLDER, "été 2/日本.jpg", "été 2"),
        (NAME, "big_cat_0.jpg", "big_cat"),
        (NAME, "x/y/cat_0.jpg", "cat"),
    ],
)
def test_an_image_has_its_class_and_the_split_and_id_of_its_name(rule, name, class_name):
    assert label_path(name, rule, HALVES) == row(name, class_name)


@pytest.mark.parametrize("rule", [FOLDER, NAME])
@pytest.mark.parametrize("name", ["notes.txt", "cat/Thumbs.db", "cat/._a_1.jpg", ".cat/a_1.jpg"])
def test_other_files_are_unlisted(rule, name):
    assert label_path(name, rule, HALVES) == UnreferencedFile(name)


@pytest.mark.parametrize(
    ("rule", "name", "detail"),
    [
        (FOLDER, "1.jpg", "'1.jpg' is in no folder"),
        (NAME, "cat/1.jpg", "'cat/1.jpg' has no '_' after its class"),
        (NAME, "_1.jpg", "'_1.jpg' has no '_' after its class"),
        (PathLabels("::"), "cat:1.jpg", "'cat:1.jpg' has no '::' after its class"),
    ],
)
def test_an_image_that_tells_no_class_is_rejected(rule, name, detail):
    assert label_path(name, rule, HALVES) == rejected(name, Reason.NO_CLASS, detail)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("cat/a\nb.jpg", "has a control character"),
        ("cat\x7f/1.jpg", "has a control character"),
        ("\\cat/1.jpg", "is an absolute path"),
        ("C:x/1.jpg", "is an absolute path"),
        ("a\\..\\b/1.jpg", "has .. in it"),
        ("a\n.jpg", "has a control character"),
    ],
)
def test_a_name_that_would_be_unsafe_in_a_table_is_so_here(name, fault):
    assert label_path(name, FOLDER, HALVES) == rejected(name, Reason.UNSAFE_FILE_NAME, f"{name!r} {fault}")


def test_the_transform_has_an_output_for_each_and_images_keep_their_file():
    names = ("cat/1.jpg", "2.jpg", "dog/notes.txt")
    files = {name: ImageRef(f"images/{name}", 7, "1") for name in names}
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        listed = p | beam.Create([(name, JoinSide(file=file)) for name, file in files.items()])
        labelled = listed | LabelPaths(FOLDER, HALVES)
        images = [("cat/1.jpg", JoinSide(row("cat/1.jpg", "cat"), files["cat/1.jpg"]))]
        assert_that(labelled.images, equal_to(images), "Images")
        no_class = rejected("2.jpg", Reason.NO_CLASS, "'2.jpg' is in no folder")
        assert_that(labelled.rejected, equal_to([no_class]), "Rejected")
        assert_that(labelled.unlisted, equal_to([UnreferencedFile("dog/notes.txt")]), "Unlisted")


def test_an_image_is_where_its_group_is_and_rejected_where_its_name_gives_none():
    division = Division(HALVES.shares, "p[0-9]+")
    for number in range(9):
        assert label_path(f"cat/p{number}_1.jpg", FOLDER, division).split == HALVES.split_of(f"p{number}")
    detail = "'cat/1.jpg' has nothing that --group-from p[0-9]+ finds"
    assert label_path("cat/1.jpg", FOLDER, division) == rejected("cat/1.jpg", Reason.NO_GROUP, detail)
    assert label_path("1.jpg", FOLDER, division).reject.reason is Reason.NO_CLASS
