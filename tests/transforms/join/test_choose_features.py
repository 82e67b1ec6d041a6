"""What is in a record is what was asked for, and LVIS's lists where the input has them."""

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.coco import AnnotationFile, AnnotationKind
from recordmill.schemas.features import Part
from recordmill.schemas.layouts import DETECTION, KERAS, TFDS
from recordmill.transforms.join.choose_features import ChooseFeatures, choose_features


def file(lvis: bool) -> AnnotationFile:
    return AnnotationFile("a.json", AnnotationKind.INSTANCES, 1, 1, (), lvis)


@pytest.mark.parametrize("asked", [(), (Part.CAPTIONS,), (Part.MASK_PNG, Part.KEYPOINTS)])
@pytest.mark.parametrize(
    ("files", "lvis"),
    [([], ()), ([file(False)], ()), ([file(True)], (Part.LVIS,)), ([file(False), file(True)], (Part.LVIS,))],
)
def test_lvis_s_lists_join_what_was_asked_for_where_a_file_has_them(files, lvis, asked):
    table = choose_features(files, DETECTION.with_parts(asked), DETECTION)
    assert table == DETECTION.with_parts((*asked, *lvis))
    assert table.parts == (*asked, *lvis)


@pytest.mark.parametrize("layout", [KERAS, TFDS])
def test_a_layout_without_room_for_lvis_s_lists_stays_as_it_is(layout):
    asked = layout.with_parts(())
    assert choose_features([file(True)], asked, layout) == asked


@pytest.mark.parametrize(("files", "parts"), [([], ()), ([file(False), file(True)], (Part.LVIS,))])
def test_the_transform_gives_one_table(files, parts):
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        table = p | beam.Create(files) | ChooseFeatures(DETECTION.with_parts(()), DETECTION)
        assert_that(table, equal_to([DETECTION.with_parts(parts)]))
