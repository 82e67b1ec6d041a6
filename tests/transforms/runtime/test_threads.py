import os
import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import pytest

from recordmill.transforms.runtime import threads
from recordmill.transforms.runtime.threads import BYTES_AHEAD, Budget, look_ahead, usable_cores


@pytest.fixture
def eight_cores(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(threads, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(threads, "_QUOTA_V1", (tmp_path / "quota", tmp_path / "period"))
    return tmp_path


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ("max 100000", 8),
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("10000 100000", 1),
        ("1600000 100000", 8),
        ("", 8),
    ],
)
def test_no_more_than_container_s_share(eight_cores, quota, expected):
    (eight_cores / "cpu.max").write_text(quota)
    assert usable_cores() == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1", 8), ("300000", 3)])
def test_version_1_of_control_groups(eight_cores, quota, expected):
    (eight_cores / "quota").write_text(f"{quota}\n")
    (eight_cores / "period").write_text("100000\n")
    assert usable_cores() == expected


def test_without_a_bound_all(eight_cores, monkeypatch):
    assert usable_cores() == 8
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert usable_cores() == 5


class AtOnce(Executor):
    """Executor that runs each call at once."""

    def submit(self, function, *arguments):
        future = Future()
        future.set_result(function(*arguments))
        return future


@pytest.mark.parametrize("number", [0, 1, 5, 100])
def test_results_are_in_order_of_items(number):
    with ThreadPoolExecutor(2) as pool:
        assert list(look_ahead(str, range(number), pool, 2)) == [str(item) for item in range(number)]


def test_threads_bound_items_ahead():
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


def test_as_much_is_ahead_after_gigabytes_as_in_beginning():
    started: list[int] = []
    results = look_ahead(started.append, range(40), AtOnce(), 8, lambda _: BYTES_AHEAD // 4)
    assert [len(started) - written for written, _ in enumerate(results)] == [4] * 37 + [3, 2, 1]


def test_error_comes_where_its_result_would():
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


def test_error_stops_new_work():
    """A job that has failed would go on reading images that nobody wants."""
    pool = Pending()
    with pytest.raises(PermissionError, match=r"0\.jpg"):
        next(look_ahead(str, range(10), pool, 2))
    assert [future.cancelled() for future in pool.futures] == [False, True, True, True]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_end_in_forked_process_takes_no_lock_of_future(monkeypatch):
    """A thread that held the lock at the fork does not exist in the child, which would wait for ever."""
    cancelled: list[Future] = []
    monkeypatch.setattr(Future, "cancel", lambda future: cancelled.append(future))
    with ThreadPoolExecutor(1) as pool:
        results = look_ahead(str, range(9), pool, 1)
        next(results)
        child = os.fork()
        if not child:
            results.close()
            os._exit(len(cancelled))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        results.close()
        assert len(cancelled) == 1


def test_threads_never_hold_more_than_total():
    budget = Budget(10)
    held: list[int] = []
    most: list[int] = []
    lock = threading.Lock()

    def hold(amount: int) -> None:
        with budget.part(amount):
            with lock:
                held.append(amount)
                most.append(sum(held))
            with lock:
                held.remove(amount)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(hold, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] * 50))
    assert max(most) <= 10
    assert len(most) == 500


def test_part_waits_for_room_and_goes_on_when_there_is():
    budget = Budget(10)
    entered = threading.Event()

    def hold() -> None:
        with budget.part(6):
            entered.set()

    with budget.part(6):
        thread = threading.Thread(target=hold)
        thread.start()
        assert not entered.wait(0.1)
    assert entered.wait(5)
    thread.join()


def test_more_than_total_is_granted_alone():
    with Budget(10).part(11):
        pass


def test_part_is_given_back_when_its_holder_fails():
    budget = Budget(10)
    with pytest.raises(ValueError, match="broken"), budget.part(10):
        raise ValueError("broken")
    with budget.part(10):
        pass
