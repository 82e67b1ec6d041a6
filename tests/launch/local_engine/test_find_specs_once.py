"""Search of steps for state and timers."""

import apache_beam as beam
from apache_beam.transforms import userstate

from recordmill.launch.local_engine.find_specs_once import specs_found_once


def test_each_class_is_searched_once(monkeypatch):
    steps = [beam.Map(str).dofn, beam.DoFn(), beam.Map(int).dofn, beam.DoFn()]
    searched = []

    def find(step: beam.DoFn) -> tuple[set, set]:
        searched.append(type(step))
        return {searched[-1]}, set()

    monkeypatch.setattr(userstate, "get_dofn_specs", find)
    with specs_found_once():
        assert [userstate.get_dofn_specs(step) for step in steps] == [({type(step)}, set()) for step in steps]
    assert searched == [type(steps[0]), beam.DoFn]
    assert userstate.get_dofn_specs is find
