"""Records that nobody could read are known before an image is."""

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.annotations import Annotation
from recordmill.schemas.features import Part
from recordmill.schemas.images import ImageRef, ImageTask
from recordmill.schemas.layouts import DETECTION, KERAS
from recordmill.schemas.limits import MAX_RECORD_BYTES
from recordmill.schemas.rejects import Reason, Rejected, SplitReject
from recordmill.transforms.examples.estimate_records import RecordEstimate
from recordmill.transforms.examples.limit_records import LimitRecords, limit_record
from recordmill.transforms.runtime.outputs import REJECTED

OBJECT = Annotation(1, 1, (0.0, 0.0, 10.0, 10.0), 100.0, False)
AS_PNG, AS_RLE = (DETECTION.with_parts((part,)) for part in (Part.MASK_PNG, Part.MASK_RLE))


def task(objects: int, side: int = 13_000) -> ImageTask:
    return ImageTask(7, "a.jpg", side, side, ImageRef("a.jpg", 5), "train", (OBJECT,) * objects)


# zlib makes of 13,000 x 13,000 zeros 167,161 bytes.
@pytest.mark.parametrize(("objects", "fits"), [(13_500, False), (3063, False), (3062, True)])
def test_as_many_masks_as_a_record_holds_if_they_are_empty(objects, fits):
    limited = limit_record(task(objects), RecordEstimate(AS_PNG))
    if fits:
        assert limited == task(objects)
    else:
        assert (limited.what, limited.id, limited.reason) == ("image", 7, Reason.RECORD_TOO_LARGE)
        assert limited.annotations == objects
        assert f"{objects:,} masks of 13000x13000 pixels take at least" in limited.detail


@pytest.mark.parametrize(
    "estimate",
    [RecordEstimate(AS_PNG, 1000), RecordEstimate(AS_RLE), RecordEstimate(KERAS)],
    ids=["shrunk", "rle", "keras"],
)
def test_what_has_no_such_masks_passes(estimate):
    assert limit_record(task(13_500), estimate) == task(13_500)


def test_the_transform():
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        limited = p | beam.Create([task(1), task(13_500)]) | LimitRecords(AS_PNG, None)
        detail = (
            "'a.jpg': 13,500 masks of 13000x13000 pixels take at least 2,256,676,557 bytes as PNG; a record has at "
            f"most {MAX_RECORD_BYTES:,}: --masks rle takes far less"
        )
        reject = Rejected("image", 7, Reason.RECORD_TOO_LARGE, detail, annotations=13_500)
        assert_that(limited.tasks, equal_to([task(1)]), "Tasks")
        assert_that(limited[REJECTED], equal_to([SplitReject("train", reject)]), "Rejected")
