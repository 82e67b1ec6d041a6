"""Steps that report Facts, and the job that collects the Facts of all its steps."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection, TaggedOutput

from recordmill.transforms.dataset.facts import Facts, FactsBuilder

_MAIN, _FACTS = "main", "facts"
_COLLECTED: ContextVar[list[PCollection] | None] = ContextVar("collected", default=None)


@contextmanager
def collect_facts() -> Iterator[list[PCollection]]:
    """Collect the PCollections of Facts of all steps that are applied in the `with` block. An inner block has a list of
    its own, whose PCollections it may `hand_over` to the outer one."""
    collected: list[PCollection] = []
    token = _COLLECTED.set(collected)
    try:
        yield collected
    finally:
        _COLLECTED.reset(token)


def hand_over(facts: PCollection) -> None:
    """Add a PCollection of Facts to those of the job.

    Raises:
        RuntimeError: No job collects Facts, so these would be lost.
    """
    collected = _COLLECTED.get()
    if collected is None:
        raise RuntimeError("a step that reports Facts is applied outside of `with collect_facts()`")
    collected.append(facts)


class WithFacts(beam.PTransform):
    """Apply a function to each element, and hand the Facts that it reports to the job.

    Args:
        step: Function of an element, a FactsBuilder and `args`, which yields elements and TaggedOutputs, or returns
            None. Or a DoFn, with such a function as `process`.
        args: Further arguments, which may be side inputs.
        types: Element type of the main output.
        tags: Names of further outputs.

    Returns:
        PCollection of the elements; with tags a tuple of it and of the PCollections of the tags.
    """

    def __init__(
        self, step: Callable[..., Any] | beam.DoFn, *args: Any, types: Any = Any, tags: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self._step, self._args, self._types, self._tags = step, args, types, tags

    def expand(self, elements):  # Beam accepts no type hints of several outputs, and warns of them
        step = beam.ParDo(_FactsFn(self._step), *self._args).with_output_types(self._types)
        outputs = elements | "Step" >> step.with_outputs(_FACTS, *self._tags, main=_MAIN)
        hand_over(outputs[_FACTS])
        return (outputs[_MAIN], *(outputs[tag] for tag in self._tags)) if self._tags else outputs[_MAIN]

    def default_label(self):
        return getattr(self._step, "__name__", type(self._step).__name__)


class _FactsFn(beam.DoFn):
    """Run a function or a DoFn with a FactsBuilder, and emit its Facts."""

    def __init__(self, step: Callable[..., Any] | beam.DoFn):
        self._do_fn = step if isinstance(step, beam.DoFn) else _Plain()
        self._function = None if isinstance(step, beam.DoFn) else step

    def setup(self):
        self._do_fn.setup()

    def process(self, element, *args):
        facts = FactsBuilder()
        yield from (self._function or self._do_fn.process)(element, facts, *args) or ()
        if (built := facts.build()) != _NO_FACTS:
            yield TaggedOutput(_FACTS, built)

    def teardown(self):
        self._do_fn.teardown()


class _Plain(beam.DoFn):
    """Stand for a function, which has no setup and teardown."""


_NO_FACTS = Facts()
