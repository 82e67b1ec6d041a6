"""What is remembered of a DoFn is what Beam finds each time."""

# ruff: noqa: B008  state stands in defaults

from functools import partial, wraps

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.transforms import core, userstate

from recordmill.launch.runners import remember_state

STATE = userstate.CombiningValueStateSpec("sum", VarIntCoder(), sum)
OTHER = userstate.CombiningValueStateSpec("other", VarIntCoder(), sum)


class Plain(beam.DoFn):
    def process(self, element):
        yield element


class Stateful(Plain):
    def process(self, element, state=beam.DoFn.StateParam(STATE)):
        yield element


class Source:
    def stateful(self, element, state=beam.DoFn.StateParam(OTHER)):
        return element

    def plain(self, element):
        return element


def test_each_dofn_has_the_state_that_beam_finds():
    remember_state.install()
    remembered = userstate.get_dofn_specs
    assert isinstance(remembered, remember_state.Remembered)
    functions = (Source().plain, Source().stateful, Source.plain, Source.stateful, str.upper, len)
    dofns = [Plain(), Stateful(), *(each(function).dofn for function in functions for each in (beam.Map, beam.FlatMap))]
    for _ in range(2):
        assert [remembered(dofn) for dofn in dofns] == [remembered.look(dofn) for dofn in dofns]
    assert remembered(Stateful())[0] == {STATE}
    assert {Plain, Stateful} <= set(remembered.found)


def test_functions_without_defaults_are_not_looked_at():
    def look(dofn):
        raise AssertionError(dofn)

    remembered = remember_state.Remembered(look)
    assert remembered(beam.Map(lambda element: element).dofn) == (set(), set())
    for function in (Source.stateful, lambda element, *, state=beam.DoFn.StateParam(STATE): element):
        with pytest.raises(AssertionError):
            remembered(beam.Map(function).dofn)


def test_what_beam_refuses_is_refused_each_time():
    class Twice(beam.DoFn):
        def process(self, element, one=beam.DoFn.StateParam(STATE), other=beam.DoFn.StateParam(STATE)):
            yield element

    remember_state.install()
    for _ in range(2):
        with pytest.raises(ValueError, match="duplicate process method parameters"):
            userstate.get_dofn_specs(Twice())


def test_arguments_are_those_that_beam_finds_and_are_looked_for_once():
    remember_state.install()
    look = core.get_function_args_defaults.look
    looked = []
    remembered = remember_state.RememberedArguments(lambda function: looked.append(function) or look(function))
    source = Source()
    signed = wraps(Source.stateful)(lambda *arguments: None)
    functions = [Source.stateful, source.stateful, source.plain, signed, str.upper, partial(max, 1), len, Plain]
    for function in functions * 2:
        assert remembered(function) == look(function)
        remembered(function)[0].clear()
    assert [looked.count(function) for function in functions] == [1, 1, 1, 4, 4, 4, 4, 4]
