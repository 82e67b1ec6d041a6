"""Beam weighs each side input that a worker keeps, to bound what it keeps; here in a tenth of the time.

It walks through the globals of all modules first, once for each side input, so as not to count what they hold.
"""

import gc
from collections.abc import Callable, Sequence
from typing import Any

from apache_beam.runners.worker import statecache


def install() -> None:
    """For all jobs of this process."""
    statecache.get_deep_size = deep_size


def deep_size(*objects: object) -> int:
    """Bytes of objects and of all that they refer to; classes, modules and functions apart, as Beam does."""
    seen: set[int] = {id(None)}
    size = 0
    found: Sequence[Any] = objects
    while found:
        new = []
        referents: Callable = gc.get_referents
        for each in found:
            of = type(each)
            if id(each) not in seen and not issubclass(of, statecache._TYPES_TO_NOT_MEASURE):
                seen.add(id(each))
                size += statecache._size_func(each)
                new.append(each)
                if issubclass(of, statecache.CacheAware):
                    referents = statecache._get_referents_func
        found = referents(*new)
    return size
