"""What ends a command from outside, as far as this process shows it: tests/engines has the whole of it."""

import signal
from collections.abc import Iterator

import pytest

from recordmill.launch.runners.signals import TERMINATING, Terminated, terminated_as_by_ctrl_c


@pytest.fixture(params=TERMINATING)
def number(request) -> Iterator[int]:
    before = signal.getsignal(request.param)
    yield request.param
    signal.signal(request.param, before)


def test_signal_ends_what_is_within_and_is_named(number):
    signal.signal(number, signal.SIG_DFL)
    with terminated_as_by_ctrl_c() as signals, pytest.raises(Terminated):
        signal.raise_signal(number)
    assert signals == [number]
    assert signal.getsignal(number) is signal.SIG_DFL


def test_signal_ignored_stays_so(number):
    """As nohup has it: the terminal may be closed."""
    signal.signal(number, signal.SIG_IGN)
    with terminated_as_by_ctrl_c():
        assert signal.getsignal(number) is signal.SIG_IGN
    assert signal.getsignal(number) is signal.SIG_IGN
