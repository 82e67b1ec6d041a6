"""Dates in paths."""

from datetime import datetime
from types import SimpleNamespace

import pytest

from recordmill.launch.services.airflow_dates import NAMES, all_filled, filled
from recordmill.schemas.errors import ConfigError

RUN = SimpleNamespace(
    data_interval_start=datetime(2026, 11, 20), data_interval_end=datetime(2026, 11, 21), logical_date=None, secret="x"
)


def test_dates_are_filled_in():
    path = "gs://b/{data_interval_start:%Y/%m/%d}/to-{data_interval_end:%j %H%M%S}/{{x}}"
    assert filled(path, RUN) == "gs://b/2026/11/20/to-325 000000/{x}"


def test_a_run_without_that_date_is_told_so():
    with pytest.raises(ConfigError, match=r"gs://b/\{logical_date:%Y\}: this run has no logical_date"):
        filled("gs://b/{logical_date:%Y}", RUN)


def test_nothing_else_of_a_run_is_looked_at():
    """Whatever a pattern has let through."""
    assert "secret" not in NAMES
    with pytest.raises(ConfigError):
        filled("gs://b/{secret:%Y}", RUN)


def test_lists_and_single_paths_of_the_names_that_are_given():
    day = "{data_interval_end:%d}"
    params = {"images": [f"/a/{day}", "/b"], "output": f"/o/{day}", "name": day, "schema": None, "rows": []}
    expected = {"images": ["/a/21", "/b"], "output": "/o/21", "name": day, "schema": None, "rows": []}
    assert all_filled(params, frozenset({"images", "output", "schema", "rows"}), RUN) == expected
