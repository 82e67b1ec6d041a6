"""Beam looks once at the code of each DoFn for state and timers.

It does so in every method of every DoFn, eight times a job: a fifth of the processor time of a job of a dozen images.
What it finds depends on the DoFn's code alone, and of a plain function without defaults there is nothing to find.
"""

from collections.abc import Callable
from types import FunctionType
from weakref import WeakKeyDictionary

from apache_beam.transforms import userstate
from apache_beam.transforms.core import CallableWrapperDoFn

_SIGNED = {"__signature__", "__wrapped__"}
"""By what a function has another signature than its code."""


def install() -> None:
    """For all jobs of this process."""
    if not isinstance(userstate.get_dofn_specs, Remembered):
        userstate.get_dofn_specs = Remembered(userstate.get_dofn_specs)


class Remembered:
    """`get_dofn_specs`, which looks at the code of one DoFn once."""

    def __init__(self, look: Callable):
        self.look = look
        self.found: WeakKeyDictionary = WeakKeyDictionary()

    def __call__(self, dofn) -> tuple[set, set]:
        # Of `Map` and its like, all but the function is the same.
        code = dofn._process_argspec_fn() if isinstance(dofn, CallableWrapperDoFn) else type(dofn)
        if isinstance(code, FunctionType) and not (
            code.__defaults__ or code.__kwdefaults__ or _SIGNED & vars(code).keys()
        ):
            return set(), set()  # state and timers stand in defaults
        if not isinstance(code, (FunctionType, type)):
            return self.look(dofn)
        if code not in self.found:
            self.found[code] = self.look(dofn)
        return self.found[code]
