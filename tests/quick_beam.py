"""Beam looks for state and timers in every method of every DoFn, eight times a job: a third of the time that a small
job takes. What it finds depends on the DoFn's code alone, so in tests it looks once."""

import sys
from collections.abc import Callable
from types import FunctionType
from weakref import WeakKeyDictionary


def install() -> None:
    """Where Beam has been imported; it has been by then wherever it costs much."""
    if "apache_beam.transforms.core" in sys.modules:
        from apache_beam.transforms import userstate

        if not isinstance(userstate.get_dofn_specs, _Remembered):
            userstate.get_dofn_specs = _Remembered(userstate.get_dofn_specs)


class _Remembered:
    """`get_dofn_specs`, which looks at the code of one DoFn once."""

    def __init__(self, look: Callable):
        self._look = look
        self._found: WeakKeyDictionary = WeakKeyDictionary()

    def __call__(self, dofn) -> tuple[set, set]:
        from apache_beam.transforms.core import CallableWrapperDoFn

        # Of `Map` and its like, all but the function is the same.
        code = dofn._process_argspec_fn() if isinstance(dofn, CallableWrapperDoFn) else type(dofn)
        if not isinstance(code, (FunctionType, type)):
            return self._look(dofn)
        if code not in self._found:
            self._found[code] = self._look(dofn)
        return self._found[code]
