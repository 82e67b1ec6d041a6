"""Which annotations stay with their image."""

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from schemas.coco import Annotation, Category
from schemas.images import ImageRef, ImageTask
from schemas.labels import LabelMap
from schemas.rejects import Counted, Reason, Rejected, Tally
from transforms.screen_annotations import Filters, ScreenAnnotations, screen_annotations

NAMES = {1: "cat", 2: "dog"}
CAT = Annotation(10, 1, (0.0, 0.0, 5.0, 5.0), 25.0, False)
SMALL_DOG = Annotation(11, 2, (0.0, 0.0, 1.0, 1.0), 1.0, False)
DOGS = Annotation(12, 2, (0.0, 0.0, 9.0, 9.0), 81.0, True)
STRANGER = Annotation(13, 3, (0.0, 0.0, 9.0, 9.0), 81.0, False)


def task(*annotations: Annotation) -> ImageTask:
    return ImageTask(7, "a.jpg", 40, 30, ImageRef("images/a.jpg", 1), "train", annotations)


@pytest.mark.parametrize(
    ("filters", "kept", "counted"),
    [
        (Filters(), (CAT, SMALL_DOG, DOGS), []),
        (Filters(categories=("cat",)), (CAT,), [Counted(Tally.FILTERED_CATEGORY, 2)]),
        (Filters(categories=("cat", "dog")), (CAT, SMALL_DOG, DOGS), []),
        (Filters(crowd=False), (CAT, SMALL_DOG), [Counted(Tally.FILTERED_CROWD, 1)]),
        (Filters(min_area_px2=1.0), (CAT, SMALL_DOG, DOGS), []),
        (Filters(min_area_px2=1.1), (CAT, DOGS), [Counted(Tally.FILTERED_AREA, 1)]),
        (
            Filters(categories=("dog",), crowd=False, min_area_px2=100.0),
            (),
            [Counted(Tally.FILTERED_CATEGORY, 1), Counted(Tally.FILTERED_AREA, 1), Counted(Tally.FILTERED_CROWD, 1)],
        ),
    ],
)
def test_filters(filters, kept, counted):
    assert list(screen_annotations(task(CAT, SMALL_DOG, DOGS), NAMES, filters)) == [*counted, task(*kept)]


@pytest.mark.parametrize("filters", [Filters(), Filters(categories=("dog",)), Filters(min_area_px2=1e9)])
def test_an_annotation_of_no_known_category_is_rejected_whatever_is_wanted(filters):
    reject = Rejected("annotation", 13, Reason.UNKNOWN_CATEGORY, "no category has the id 3", 7)
    assert list(screen_annotations(task(STRANGER), NAMES, filters)) == [reject, task()]


def test_an_image_without_annotations_stays():
    assert list(screen_annotations(task(), NAMES, Filters(("cat",), False, 5.0))) == [task()]


def test_the_transform_sorts_its_outputs():
    labels = LabelMap((Category(1, "cat"), Category(2, "dog")))
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        known = p | "Labels" >> beam.Create([labels])
        tasks = p | "Tasks" >> beam.Create([task(CAT, STRANGER, DOGS)])
        screened = tasks | ScreenAnnotations(known, Filters(crowd=False))
        reject = Rejected("annotation", 13, Reason.UNKNOWN_CATEGORY, "no category has the id 3", 7)
        assert_that(screened.tasks, equal_to([task(CAT)]), "Tasks left")
        assert_that(screened.rejected, equal_to([reject]), "Rejected")
        assert_that(screened.counted, equal_to([Counted(Tally.FILTERED_CROWD, 1)]), "Counted")
