"""Beam looks once at the code of each DoFn for state and timers, and at each function for its arguments.

It does so in every method of every DoFn, eight times a job: a fifth of the processor time of a job of a dozen images.
What it finds depends on the DoFn's code alone, and of a plain function without defaults there is nothing to find.
"""

from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

from apache_beam.transforms import core, userstate
from apache_beam.transforms.core import CallableWrapperDoFn

_SIGNED = {"__signature__", "__wrapped__"}
"""By what a function has another signature than its code."""


def install() -> None:
    """For all jobs of this process."""
    if not isinstance(userstate.get_dofn_specs, Remembered):
        userstate.get_dofn_specs = Remembered(userstate.get_dofn_specs)
        of_functions: Any = core
        of_functions.get_function_args_defaults = RememberedArguments(core.get_function_args_defaults)


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


class RememberedArguments:
    """`get_function_args_defaults`, which looks once at a function, and once more as a method."""

    def __init__(self, look: Callable):
        self.look = look
        self.found: dict[type, WeakKeyDictionary] = {FunctionType: WeakKeyDictionary(), MethodType: WeakKeyDictionary()}

    def __call__(self, function) -> tuple[list[str], list]:
        code = function.__func__ if isinstance(function, MethodType) else function
        if not isinstance(code, FunctionType) or _SIGNED & vars(code).keys():
            return self.look(function)
        found = self.found[type(function)]
        if code not in found:
            found[code] = self.look(function)
        names, defaults = found[code]
        return list(names), list(defaults)
