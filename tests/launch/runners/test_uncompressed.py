"""What is pickled is not compressed where no other process may read it."""

from concurrent.futures import ProcessPoolExecutor

import pytest
from apache_beam.internal import pickler

from recordmill.launch.runners import own_process, uncompressed
from recordmill.launch.runners.beam_options import beam_options
from tests.faults import warm_process

VALUE = ["a function"] * 3


def pickled(beam_arguments: list[str], is_own: bool) -> tuple[bool, list]:
    """Whether it is done otherwise than before, and what was done before and after, read back."""
    before = pickler.dumps(VALUE)
    if is_own:
        own_process.begin()
    uncompressed.install(beam_options(beam_arguments))
    after = pickler.dumps(VALUE)
    return before != after, [pickler.loads(before), pickler.loads(after)]


@pytest.mark.parametrize(
    ("beam_arguments", "is_own", "is_changed"),
    [
        ([], True, True),
        ([], False, False),
        (["--direct_running_mode=multi_processing"], True, False),
        (["--runner=PrismRunner"], True, False),
    ],
)
def test_where_it_is_not_compressed_and_that_it_can_be_read(beam_arguments, is_own, is_changed):
    with ProcessPoolExecutor(1, warm_process._warm()) as pool:
        assert pool.submit(pickled, beam_arguments, is_own).result() == (is_changed, [VALUE, VALUE])
