"""Side inputs weigh what Beam says that they weigh."""

import os
from array import array

import apache_beam as beam
import msgspec
import objsize
from apache_beam.runners.worker import statecache

from recordmill.launch.runners.run import run
from recordmill.launch.runners.weigh_state import deep_size


class Row(msgspec.Struct):
    name: str
    sizes: list[int]


class Aware(statecache.CacheAware):
    def __init__(self):
        self.counted, self.others = "x" * 1000, "y" * 100_000

    def get_referents_for_cache(self):
        return [self.counted]


def in_beam(value: object) -> int:
    return objsize.get_deep_size(
        value,
        get_size_func=statecache._size_func,
        get_referents_func=statecache._get_referents_func,
        filter_func=statecache._filter_func,
    )


def test_each_value_weighs_the_same():
    shared = [f"own text {number}" for number in range(3)]
    cyclic: list = [shared]
    cyclic.append(cyclic)
    values = [
        [],
        None,
        ["a text of this test"] * 3,
        {"of this test": shared, "again": shared},
        cyclic,
        Row("of this test", [10_000 + number for number in range(50)]),
        [os, Row, len, array("q", range(1000))],
        Aware(),
        [[Aware(), "z" * 5000]],
    ]
    assert [deep_size(value) for value in values] == [in_beam(value) for value in values]


def test_jobs_weigh_so():
    run(lambda pipeline: pipeline | beam.Create([1]), [])
    assert statecache.get_deep_size is deep_size
