"""Work done ahead comes out in order, within bounds, and with its errors."""

import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial

import pytest

from recordmill.transforms.runtime import look_ahead as look_ahead_module
from recordmill.transforms.runtime.look_ahead import BYTES_AHEAD, look_ahead, look_ahead_if_idle


class AtOnce(Executor):
    """Has done what it is given as soon as it is given."""

    def submit(self, function, *arguments):
        future = Future()
        future.set_result(function(*arguments))
        return future


@pytest.mark.parametrize("number", [0, 1, 5, 100])
def test_results_are_in_the_order_of_the_items(number):
    with ThreadPoolExecutor(2) as pool:
        assert list(look_ahead(str, range(number), pool, 2)) == [str(item) for item in range(number)]


def test_threads_bound_the_items_ahead():
    taken = []

    def items():
        for item in range(100):
            taken.append(item)
            yield item

    with ThreadPoolExecutor(2) as pool:
        results = look_ahead(str, items(), pool, 2)
        assert next(results) == "0"
        assert taken == [0, 1, 2, 3, 4]  # four ahead, and the one that asked for the first result


@pytest.mark.parametrize("size", [BYTES_AHEAD // 3, BYTES_AHEAD, 2 * BYTES_AHEAD])
def test_bytes_bound_the_items_ahead(size):
    started: list[int] = []
    turn = threading.Lock()

    def note(item: int) -> int:
        with turn:
            started.append(item)
        return item

    with ThreadPoolExecutor(8) as pool:
        for written, _ in enumerate(look_ahead(note, range(20), pool, 8, lambda _: size)):
            with turn:
                assert len(started) - written <= max(1, BYTES_AHEAD // size) + 1
    assert sorted(started) == list(range(20))


def test_as_much_is_ahead_after_gigabytes_as_in_the_beginning():
    started: list[int] = []
    results = look_ahead(started.append, range(40), AtOnce(), 8, lambda _: BYTES_AHEAD // 4)
    assert [len(started) - written for written, _ in enumerate(results)] == [4] * 37 + [3, 2, 1]


def test_an_error_comes_where_its_result_would():
    with ThreadPoolExecutor(2) as pool:
        results = look_ahead(lambda item: 1 // item, [1, 1, 0, 1], pool, 2)
        assert [next(results), next(results)] == [1, 1]
        with pytest.raises(ZeroDivisionError):
            next(results)


class Pending(Executor):
    """Fails with the first that it is given, and never comes to the others."""

    def __init__(self):
        self.futures: list[Future] = []

    def submit(self, function, *arguments):
        self.futures.append(Future())
        if len(self.futures) == 1:
            self.futures[0].set_exception(PermissionError("0.jpg"))
        return self.futures[-1]


def test_after_an_error_nothing_more_is_begun():
    """A job that has failed would go on reading images that nobody wants."""
    pool = Pending()
    with pytest.raises(PermissionError, match=r"0\.jpg"):
        next(look_ahead(str, range(10), pool, 2))
    assert [future.cancelled() for future in pool.futures] == [False, True, True, True]


class Clock:
    """Of a machine on which time passes when the test says so."""

    def __init__(self):
        self.lasted = self.worked = 0.0

    def perf_counter(self) -> float:
        return self.lasted

    def thread_time(self) -> float:
        return self.worked

    def work(self, item: float, share: float) -> float:
        self.lasted += item
        self.worked += item * share
        return item


class Counting(AtOnce):
    def __init__(self):
        self.items: list[float] = []

    def submit(self, function, *arguments):
        self.items += arguments
        return super().submit(function, *arguments)


@pytest.mark.parametrize(("share", "in_threads"), [(1.0, 0), (0.8, 0), (0.7, 10), (0.0, 10)])
def test_threads_work_ahead_from_where_this_one_waits(monkeypatch, share, in_threads):
    clock, pool = Clock(), Counting()
    monkeypatch.setattr(look_ahead_module, "time", clock)
    items = [0.02] * 13  # as 0.05 s are looked at, three of them
    assert list(look_ahead_if_idle(partial(clock.work, share=share), items, pool, 2)) == items
    assert len(pool.items) == in_threads


def test_a_disk_that_becomes_slow_is_seen(monkeypatch):
    clock, pool = Clock(), Counting()
    monkeypatch.setattr(look_ahead_module, "time", clock)
    items = [0.06] * 100 + [0.07] * 5
    list(look_ahead_if_idle(lambda item: clock.work(item, 1.0 if item == 0.06 else 0.5), items, pool, 2))
    assert pool.items == [0.07] * 4
