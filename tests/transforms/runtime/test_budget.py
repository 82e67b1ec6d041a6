import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from recordmill.transforms.runtime.look_ahead import Budget


def test_threads_never_hold_more_than_the_total():
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


def test_a_part_waits_for_room_and_goes_on_when_there_is():
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


def test_more_than_the_total_is_granted_alone():
    with Budget(10).part(11):
        pass


def test_a_part_is_given_back_when_its_holder_fails():
    budget = Budget(10)
    with pytest.raises(ValueError, match="broken"), budget.part(10):
        raise ValueError("broken")
    with budget.part(10):
        pass
