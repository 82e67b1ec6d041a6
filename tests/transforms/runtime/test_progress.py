"""Counters that an operator's alerts may be on."""

import re
from pathlib import Path

from apache_beam.metrics import Metrics

from recordmill.transforms.runtime import progress

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "dataflow.md").read_text()


def test_the_guide_names_every_counter():
    counters = {str(it.metric_name.name) for it in vars(progress).values() if isinstance(it, Metrics.DelegatingCounter)}
    table = GUIDE.partition("| counter |")[2].partition("\n\n")[0]
    named = set(re.findall(r"^\| `(\S+?)`", table, re.M))
    assert counters
    assert named == {*counters, f"{progress._REJECTED}WHAT/REASON"}
