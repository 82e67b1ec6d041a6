"""Images whose record would be too large are rejected before anything of them is read."""

from collections.abc import Sequence

import numpy as np

from recordmill.schemas.block import Block
from recordmill.schemas.limits import MAX_RECORD_BYTES
from recordmill.schemas.rejects import Reason
from recordmill.transforms.blocks.image_tasks import BlockTasks
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.examples.estimate_records import RecordEstimate


def limit_records(block: Block, estimate: RecordEstimate, splits: Sequence[str], facts: FactsBuilder) -> Block:
    """Drop images of which no record can be read.

    A mask as PNG has a thousandth of its image's pixels in bytes, even if it is empty. What else masks take shows only
    when they are drawn."""
    least = estimate.least_mask_bytes(block)
    is_too_large = least > MAX_RECORD_BYTES
    if not is_too_large.any():
        return block
    for size, task in zip(least[is_too_large].tolist(), BlockTasks(block.take(is_too_large), splits), strict=True):
        detail = (
            f"{len(task.annotations):,} masks of {task.width}x{task.height} pixels take at least "
            f"{size:,} bytes as PNG; a record has at most {MAX_RECORD_BYTES:,}: --masks rle takes far less"
        )
        facts.reject(task.split, task.rejected(Reason.RECORD_TOO_LARGE, detail))
    return block.take(np.flatnonzero(~is_too_large))
