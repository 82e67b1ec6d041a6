"""Paths that change with the run: placeholders of dates in the Params of a DAG.

    gs://bucket/{data_interval_start:%Y/%m/%d}/*

A name is one of NAMES, and what follows the colon is what Python's strftime knows by the same letters everywhere. No
more is evaluated, no attribute and no index. {{ and }} stand for braces.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from recordmill.schemas.errors import ConfigError

NAMES = ("data_interval_start", "data_interval_end", "logical_date")

_DATE = rf"\{{(?:{'|'.join(NAMES)}):(?:%[YymdHMSjGVu]|[^%{{}},])+\}}"

PIECES = rf"(?:[^,{{}}]|\{{\{{|\}}\}}|{_DATE})+"
"""What a path may have in it: no comma, as Airflow passes lists on with commas between their items."""

_TO_FILL = re.compile(r"\{\{|\}\}|\{(\w+):([^{}]+)\}")


def filled(path: str, run: Any) -> str:
    """A path as it is in a run.

    Args:
        path: matches PIECES.
        run: of Airflow, which has an attribute of each name.

    Raises:
        ConfigError: the run has no such date.

    >>> from types import SimpleNamespace
    >>> filled("gs://b/{logical_date:%Y/%m/%d}/{{a}}", SimpleNamespace(logical_date=datetime(2026, 11, 21, 2)))
    'gs://b/2026/11/21/{a}'
    """

    def text(match: re.Match[str]) -> str:
        name, form = match.groups()
        if name is None:
            return match[0][0]
        when: datetime | None = getattr(run, name, None) if name in NAMES else None
        if when is None:
            raise ConfigError(
                f"{path}: this run has no {name}, as it is of no schedule and was triggered without a logical date; "
                "trigger it with one (--logical-date), or with a path that has no placeholder"
            )
        return when.strftime(form)

    return _TO_FILL.sub(text, path)


def all_filled(params: Mapping[str, Any], names: frozenset[str], run: Any) -> dict[str, Any]:
    """Params of a run, in which those called `names` are paths, or lists of them."""

    def value(name: str, given: Any) -> Any:
        if name not in names or not given:
            return given
        return filled(given, run) if isinstance(given, str) else [filled(path, run) for path in given]

    return {name: value(name, given) for name, given in params.items()}
