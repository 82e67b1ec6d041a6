"""What Beam looks at while a pipeline is built, so that its author learns of a mistake, is not looked at in a job.

It reads and parses the source code of every function, keeps a traceback for every type hint, and lists the options of a
class each time that one of them is asked for: a tenth of the processor time of a job of ten images.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import core
from apache_beam.typehints import decorators


class _Changes:
    """Of Beam's inside: made by the first of several threads that build pipelines, and undone by the last."""

    def __init__(self) -> None:
        self.lock, self.users = Lock(), 0
        self.before: tuple = ()

    def make(self) -> None:
        options: Any = PipelineOptions
        with self.lock:
            self.users += 1
            if self.users == 1:
                self.before = (
                    core._check_fn_use_yield_and_return,
                    decorators.TRACEBACK_LIMIT,
                    options._visible_option_list,
                )
                core._check_fn_use_yield_and_return = _is_not_checked
                decorators.TRACEBACK_LIMIT = 0
                options._visible_option_list = _listed_once(options._visible_option_list)

    def undo(self) -> None:
        options: Any = PipelineOptions
        with self.lock:
            self.users -= 1
            if self.users == 0:
                (
                    core._check_fn_use_yield_and_return,
                    decorators.TRACEBACK_LIMIT,
                    options._visible_option_list,
                ) = self.before


_changes = _Changes()


@contextmanager
def built_quickly() -> Iterator[None]:
    """While the block runs, pipelines are built without that, in all threads. The pipelines are the same."""
    _changes.make()
    try:
        yield
    finally:
        _changes.undo()


def _is_not_checked(_: Callable) -> bool:
    return False


def _listed_once(names_of: Callable[[PipelineOptions], list[str]]) -> Callable[[PipelineOptions], list[str]]:
    found: dict[type, list[str]] = {}

    def names(options: PipelineOptions) -> list[str]:
        of = type(options)  # whose flags alone decide them
        if of not in found:
            found[of] = names_of(options)
        return found[of]

    return names
