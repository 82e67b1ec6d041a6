"""What is no main result leaves by its own output, and rejects are counted on the way."""

from apache_beam.pvalue import TaggedOutput

from recordmill.schemas.images import UnreferencedFile
from recordmill.schemas.rejects import Count, Metric, Reason, Rejected, SplitReject
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.outputs import (
    COUNTED,
    REJECTED,
    UNLISTED,
    route_outputs,
)

REJECT = Rejected("image", 1, Reason.IMAGE_MISSING, "gone")
ITEMS = ["task", REJECT, SplitReject("val", REJECT), Count(Metric.OBJECTS, 2), UnreferencedFile("a.txt")]


def test_items_go_by_their_type():
    found = [(item.tag, item.value) if isinstance(item, TaggedOutput) else item for item in route_outputs(ITEMS)]
    assert found == ["task", *zip((REJECTED, REJECTED, COUNTED, UNLISTED), ITEMS[1:], strict=True)]


def test_rejects_are_counted():
    progress.reset()
    list(route_outputs(ITEMS))
    assert progress.snapshot().rejected == 2
