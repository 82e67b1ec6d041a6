"""Names of classes in `--class-names`, and in files of a data set."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from recordmill.schemas.errors import ConfigError


def match_names(names: Sequence[str], pattern: str) -> list[re.Match[str]]:
    """Return the matches of `--class-names` with the pattern of names that state a value; [] if none states one.

    Raises:
        ConfigError: Some names state a value, and others do not.

    >>> [match.groups() for match in match_names(["cat=1", "dog=3"], r"(.+)=([0-9]+)")]
    [('cat', '1'), ('dog', '3')]
    """
    matches = [re.fullmatch(pattern, name) for name in names]
    stated = [match for match in matches if match]
    if len(stated) not in (0, len(names)):
        without = next(name for name, match in zip(names, matches, strict=True) if not match)
        raise ConfigError(
            f"--class-names: {without!r} has no value, and others have one. Give all values, as in background=0,cat=7, "
            "or none"
        )
    return stated


def check_distinct(where: str, values: Mapping[str, Sequence[Any]]) -> None:
    """Raise ConfigError if two classes have the same value.

    Args:
        where: File or option that names the classes.
        values: What must differ, such as `name`, and its value of each class.
    """
    for what, own in values.items():
        if repeated := [value for value, number in Counter(own).items() if number > 1]:
            raise ConfigError(f"{where}: two classes have the {what} {repeated[0]!r}. Give each a different {what}")
