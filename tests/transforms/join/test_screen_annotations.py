"""Which annotations stay with their image."""

import apache_beam as beam
import msgspec
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.annotations import (
    Annotation,
    Caption,
    Category,
    ImageLabels,
    PanopticAnnotation,
    Segment,
    StuffAnnotation,
)
from recordmill.schemas.images import ImageRef, ImageTask
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.rejects import Count, Metric, Reason, Rejected, SplitCount, SplitReject
from recordmill.transforms.join.screen_annotations import (
    Filters,
    KnownCategories,
    ScreenAnnotations,
    known_categories,
    screen_annotations,
)

KNOWN = KnownCategories({1: "cat", 2: "dog"})
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
        (Filters(categories=("cat",)), (CAT,), [Count(Metric.FILTERED_CATEGORY, 2)]),
        (Filters(categories=("cat", "dog")), (CAT, SMALL_DOG, DOGS), []),
        (Filters(crowd=False), (CAT, SMALL_DOG), [Count(Metric.FILTERED_CROWD, 1)]),
        (Filters(min_area_px2=1.0), (CAT, SMALL_DOG, DOGS), []),
        (Filters(min_area_px2=1.1), (CAT, DOGS), [Count(Metric.FILTERED_AREA, 1)]),
        (
            Filters(categories=("dog",), crowd=False, min_area_px2=100.0),
            (),
            [Count(Metric.FILTERED_CATEGORY, 1), Count(Metric.FILTERED_AREA, 1), Count(Metric.FILTERED_CROWD, 1)],
        ),
    ],
)
def test_filters(filters, kept, counted):
    assert list(screen_annotations(task(CAT, SMALL_DOG, DOGS), KNOWN, filters)) == [*counted, task(*kept)]


@pytest.mark.parametrize("filters", [Filters(), Filters(categories=("dog",)), Filters(min_area_px2=1e9)])
def test_an_annotation_of_no_known_category_is_rejected_whatever_is_wanted(filters):
    reject = Rejected("annotation", 13, Reason.UNKNOWN_CATEGORY, "no category has the id 3", 7)
    assert list(screen_annotations(task(STRANGER), KNOWN, filters)) == [reject, task()]


def test_an_area_that_is_none_costs_no_object_where_no_area_was_asked_for():
    """Some tools write -1 where they know none."""
    unknown = msgspec.structs.replace(CAT, area_px2=-1.0)
    assert list(screen_annotations(task(unknown), KNOWN, Filters())) == [task(unknown)]
    assert list(screen_annotations(task(unknown), KNOWN, Filters(min_area_px2=1.0))) == [
        Count(Metric.FILTERED_AREA, 1),
        task(),
    ]


def test_an_image_without_annotations_stays():
    assert list(screen_annotations(task(), KNOWN, Filters(("cat",), False, 5.0))) == [task()]


# Regions and panoptic segments

SEGMENTED = KnownCategories({1: "cat"}, frozenset({1, 92}))
GRASS, SKY = StuffAnnotation(3, 92, b"[]"), StuffAnnotation(4, 93, b"[]")
CAPTIONS = (Caption(5, "a cat"),)


def panoptic(*category_ids: int) -> PanopticAnnotation:
    segments = tuple(Segment(place, id_, False) for place, id_ in enumerate(category_ids, 1))
    return PanopticAnnotation("p.png", "p.png", segments)


def labelled(*annotations: Annotation, **labels) -> ImageTask:
    return msgspec.structs.replace(task(*annotations), labels=ImageLabels(**labels))


def test_regions_and_segments_of_known_categories_stay_with_captions_and_lvis_s_lists():
    whole = labelled(CAT, captions=CAPTIONS, regions=(GRASS,), panoptic=(panoptic(1, 92, 92),), neg_category_ids=(7,))
    assert list(screen_annotations(whole, SEGMENTED, Filters())) == [whole]


def test_a_region_of_no_known_category_is_rejected_and_the_others_stay():
    reject = Rejected("annotation", 4, Reason.UNKNOWN_CATEGORY, "no category has the id 93", 7)
    found = list(screen_annotations(labelled(CAT, captions=CAPTIONS, regions=(SKY, GRASS)), SEGMENTED, Filters()))
    assert found == [reject, labelled(CAT, captions=CAPTIONS, regions=(GRASS,))]


def test_a_panoptic_row_with_a_segment_of_no_known_category_is_rejected_whole():
    reject = Rejected("annotation", None, Reason.UNKNOWN_CATEGORY, "no category has the id 2, 93", 7)
    found = list(screen_annotations(labelled(panoptic=(panoptic(93, 1, 2, 93),)), SEGMENTED, Filters()))
    assert found == [reject, labelled()]


def test_a_class_of_objects_is_no_segment_and_the_other_way_round():
    stranger = msgspec.structs.replace(CAT, category_id=92)
    known = KnownCategories({1: "cat"}, frozenset({92}))
    found = list(screen_annotations(labelled(stranger, panoptic=(panoptic(1),)), known, Filters()))
    assert [(item.id, item.reason) for item in found[:2]] == [
        (stranger.id, Reason.UNKNOWN_CATEGORY),
        (None, Reason.UNKNOWN_CATEGORY),
    ]
    assert found[2:] == [labelled()]


def test_filters_are_about_objects_alone():
    whole = labelled(CAT, regions=(GRASS,), panoptic=(panoptic(92),), captions=CAPTIONS)
    kept = labelled(regions=(GRASS,), panoptic=(panoptic(92),), captions=CAPTIONS)
    found = list(screen_annotations(whole, SEGMENTED, Filters(min_area_px2=1e9)))
    assert found == [Count(Metric.FILTERED_AREA, 1), kept]


def test_known_categories_are_those_of_the_label_map():
    labels = LabelMap((Category(1, "cat"),), (Category(1, "cat"), Category(92, "grass")))
    assert known_categories(labels) == SEGMENTED


def test_the_transform_sorts_its_outputs():
    labels = LabelMap((Category(1, "cat"), Category(2, "dog")))
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        known = p | "Labels" >> beam.Create([labels])
        tasks = p | "Tasks" >> beam.Create([task(CAT, STRANGER, DOGS)])
        screened = tasks | ScreenAnnotations(known, Filters(crowd=False))
        reject = Rejected("annotation", 13, Reason.UNKNOWN_CATEGORY, "no category has the id 3", 7)
        assert_that(screened.tasks, equal_to([task(CAT)]), "Tasks left")
        assert_that(screened.rejected, equal_to([SplitReject("train", reject)]), "Rejected")
        crowd = SplitCount("train", Count(Metric.FILTERED_CROWD, 1))
        assert_that(screened.counted, equal_to([crowd]), "Counted")
