import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import pytest

from recordmill.transforms.runtime.look_ahead import BYTES_AHEAD, look_ahead


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
