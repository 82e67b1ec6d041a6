"""Images whose record would be too large are rejected before anything of them is read."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.schemas.features import FeatureTable
from recordmill.schemas.images import ImageTask
from recordmill.schemas.limits import MAX_RECORD_BYTES
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.examples.estimate_records import RecordEstimate
from recordmill.transforms.runtime import coders  # noqa: F401  for the coder of ImageTask
from recordmill.transforms.runtime.outputs import REJECTED, in_split, route_outputs


class LimitRecords(beam.PTransform):
    """ImageTask stay ImageTask, in the output `tasks`, or become SplitReject in `rejected`; see RecordEstimate for the
    arguments."""

    def __init__(self, table: FeatureTable, max_side: int | None):
        super().__init__()
        self._estimate = RecordEstimate(table, max_side)

    def expand(self, tasks: PCollection[ImageTask]):
        limit = beam.FlatMap(_limit, self._estimate).with_output_types(ImageTask)
        return tasks | "Limit" >> limit.with_outputs(REJECTED, main="tasks")


def _limit(task: ImageTask, estimate: RecordEstimate) -> Iterator[Any]:
    return route_outputs(in_split(task.split, [limit_record(task, estimate)]))


def limit_record(task: ImageTask, estimate: RecordEstimate) -> ImageTask | Rejected:
    """The task, or why no record of it can be read: a mask as PNG has a thousandth of its image's pixels in bytes, even
    where it is empty. What else there is of masks shows only when they are drawn."""
    least = estimate.least_mask_bytes(task)
    if least <= MAX_RECORD_BYTES:
        return task
    detail = (
        f"{len(task.annotations):,} masks of {task.width}x{task.height} pixels take at least "
        f"{least:,} bytes as PNG; a record has at most {MAX_RECORD_BYTES:,}: --masks rle takes far less"
    )
    return task.rejected(Reason.RECORD_TOO_LARGE, detail)
