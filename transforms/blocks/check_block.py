"""Check the Blocks that steps make: in tests, and with --debug."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from recordmill.schemas.block import Block

SWITCH = "RECORDMILL_CHECK_BLOCKS"
"""Environment variable that switches checks on. Processes of Beam's workers on this machine inherit it."""


@contextmanager
def blocks_checked() -> Iterator[None]:
    """Context manager: switch checks on."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = before or "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SWITCH]


def check_block(block: Block) -> None:
    """Check a Block that the running step of a pipeline has made, if checks are on.

    Raises:
        StepError: See Block.check.
    """
    if SWITCH in os.environ:
        block.check(_running_step())


def _running_step() -> str:
    from apache_beam.runners.worker.statesampler import get_current_tracker  # readers do without Beam

    tracker = get_current_tracker()
    return tracker.current_state().name_context.step_name if tracker else "outside a pipeline"
