import re
from pathlib import Path

from apache_beam.metrics import Metrics

from recordmill.transforms.runtime import progress

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "dataflow.md").read_text()


def test_guide_names_every_counter():
    counters = {str(it.metric_name.name) for it in vars(progress).values() if isinstance(it, Metrics.DelegatingCounter)}
    table = GUIDE.partition("| counter |")[2].partition("\n\n")[0]
    named = set(re.findall(r"^\| `(\S+?)`", table, re.M))
    assert counters
    assert named == {*counters, f"{progress._REJECTED}WHAT/REASON"}


def test_step_lasts_until_next_one_and_may_come_again(monkeypatch):
    clock = iter([10.0, 12.0, 12.0, 13.0, 13.0, 17.0, 17.0, 18.5, 18.5, 20.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(progress, "_times", progress._Times())
    monkeypatch.setattr(progress, "_progress", progress.Progress(planned_at=1.0))
    for step in ("listing", "reading", "reading", "listing"):
        progress.set_step(step)
    progress.count_planned(7, 1)
    assert progress.step_seconds() == {"starting": 2.0, "listing": 2.5, "reading": 4.0, "writing": 1.5}
