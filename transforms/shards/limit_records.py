"""Reject images whose records would be too large to read."""

from collections.abc import Sequence

import numpy as np

from recordmill.schemas.block import Block
from recordmill.schemas.inputs.images import MAX_RECORD_BYTES
from recordmill.schemas.rejects import Reason
from recordmill.transforms.blocks.image_tasks import stream_tasks
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.encoders.estimate_records import RecordEstimate


def limit_records(block: Block, estimate: RecordEstimate, splits: Sequence[str], facts: FactsBuilder) -> Block:
    """Drop images whose records would be too large to read.

    An empty PNG mask has 1 byte per 1,000 pixels. The actual size is known only once masks are drawn."""
    least = estimate.least_mask_bytes(block)
    is_too_large = least > MAX_RECORD_BYTES
    if not is_too_large.any():
        return block
    for size, task in zip(least[is_too_large].tolist(), stream_tasks(block.take(is_too_large), splits), strict=True):
        detail = (
            f"{len(task.annotations):,} masks of {task.width}x{task.height} pixels take at least "
            f"{size:,} bytes as PNG; a record has at most {MAX_RECORD_BYTES:,}: --masks rle takes far less"
        )
        facts.reject(task.split, task.rejected(Reason.RECORD_TOO_LARGE, detail))
    return block.take(np.flatnonzero(~is_too_large))
