"""The names in a large bucket's folder are cut into ranges, which workers list at the same time: a listing is a chain
of pages of 1,000 names, each of which is asked for by the one before."""

from collections.abc import Callable
from concurrent.futures import Executor
from itertools import pairwise

from recordmill.transforms.storage.interface import NameRange

PARTS = 64
"""Ranges are cut further until there are so many; these may have any number of names."""
PAGE = 1000
"""The most names that come at once."""
_LAST = "\U0010ffff"

FirstNames = Callable[[str, str, int], list[str]]
"""The first names with a prefix, from a name on (empty for all), as many as are asked for or there are."""


def name_ranges(prefix: str, first_names: FirstNames, pool: Executor) -> list[NameRange]:
    """Ranges that have each name with `prefix` once, whatever is written meanwhile; one where there is no full page.

    Prefixes are made longer by the next character in which their names differ, again and again. What is asked for says
    only where a cut is of use: how many names are between two is not known.
    """
    small, rest = [], [prefix]
    while rest and len(rest) < PARTS:
        are_large = list(pool.map(lambda prefix: len(first_names(prefix, "", PAGE)) == PAGE, rest))
        small += [prefix for prefix, is_large in zip(rest, are_large, strict=True) if not is_large]
        large = [prefix for prefix, is_large in zip(rest, are_large, strict=True) if is_large]
        rest = [child for found in pool.map(lambda prefix: _children(prefix, first_names), large) for child in found]
    starts = sorted({*small, *rest})
    bounds = ["", *starts[1:], ""]
    return [NameRange(*bounds_of_one) for bounds_of_one in pairwise(bounds)]


def _children(prefix: str, first_names: FirstNames) -> list[str]:
    """The longer prefixes of names, which differ in their last character, the first that is not of all."""
    prefix = _of_all(prefix, first_names)
    children: list[str] = []
    start, is_end = prefix, False
    while not is_end:
        longer = [name for name in first_names(prefix, start, 2) if name != prefix]
        if not longer or longer[0] < start:  # the latter where a server does not know of `startOffset`
            break
        children.append(longer[0][: len(prefix) + 1])
        start = _after(children[-1])
        is_end = not start
    return children


def _of_all(prefix: str, first_names: FirstNames) -> str:
    """The longest prefix that all names with `prefix` have, by bisection: no name is behind those of the first's that
    have it."""
    names = first_names(prefix, "", 1)
    if not names:  # they have been deleted meanwhile
        return prefix
    (name,) = names
    low, high = len(prefix), len(name)
    while low < high:
        middle = (low + high + 1) // 2
        others = _after(name[:middle])
        is_of_all = not others or not first_names(prefix, others, 1)
        low, high = (middle, high) if is_of_all else (low, middle - 1)
    return name[:low]


def _after(prefix: str) -> str:
    """The least name behind all that begin with `prefix`, in the order of UTF-8; empty where there is none.

    >>> _after("a/b"), _after("a\\ud7ff"), _after("a\\U0010ffff")
    ('a/c', 'a\\ue000', 'b')
    """
    prefix = prefix.rstrip(_LAST)
    if not prefix:
        return ""
    last = prefix[-1]
    return prefix[:-1] + ("\ue000" if last == "\ud7ff" else chr(ord(last) + 1))
