"""Beam in tests, without what takes a third of the time of a small job and changes nothing of what comes out.

It looks for state and timers in every method of every DoFn, eight times a job: what it finds depends on the DoFn's code
alone, so it looks once. And it weighs side inputs, to keep no more than 100 MB of them: first it goes through all
modules that have been imported, each time.
"""

import sys
from collections.abc import Callable
from types import FunctionType
from weakref import WeakKeyDictionary


def install() -> None:
    """Where Beam has been imported; it has been by then wherever it costs much."""
    if "apache_beam.transforms.core" in sys.modules:
        from apache_beam.runners.worker import statecache
        from apache_beam.transforms import userstate

        if not isinstance(userstate.get_dofn_specs, Remembered):
            userstate.get_dofn_specs = Remembered(userstate.get_dofn_specs)
            statecache.get_deep_size = sys.getsizeof


class Remembered:
    """`get_dofn_specs`, which looks at the code of one DoFn once."""

    def __init__(self, look: Callable):
        self.look = look
        self.found: WeakKeyDictionary = WeakKeyDictionary()

    def __call__(self, dofn) -> tuple[set, set]:
        from apache_beam.transforms.core import CallableWrapperDoFn

        # Of `Map` and its like, all but the function is the same.
        code = dofn._process_argspec_fn() if isinstance(dofn, CallableWrapperDoFn) else type(dofn)
        if isinstance(code, FunctionType) and not (code.__defaults__ or code.__kwdefaults__ or code.__dict__):
            code = code.__code__  # of closures, which are made anew for each job
        elif not isinstance(code, (FunctionType, type)):
            return self.look(dofn)
        if code not in self.found:
            self.found[code] = self.look(dofn)
        return self.found[code]
