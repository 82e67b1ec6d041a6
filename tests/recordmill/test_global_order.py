import random
from itertools import islice

import numpy as np
import pytest

from recordmill._global_order import GlobalOrder, HostOrder


@pytest.mark.parametrize("records", [1, 2, 3, 4, 5, 16, 17, 255, 4097, 5000])
def test_each_epoch_has_each_record_once(records):
    numbers = GlobalOrder(records, seed=3).numbers(np.arange(3 * records)).reshape(3, records)
    assert np.array_equal(np.sort(numbers), np.tile(np.arange(records), (3, 1)))


@pytest.mark.parametrize(
    ("order", "positions", "numbers"),
    [
        (GlobalOrder(1000, seed=7), range(6), [99, 838, 300, 135, 787, 874]),
        (GlobalOrder(1000, seed=7), [1_000_000_000_000], [545]),
        (GlobalOrder(3, shuffle=False), range(7), [0, 1, 2, 0, 1, 2, 0]),
    ],
)
def test_order_is_same_for_ever(order, positions, numbers):
    """A run that resumes with another version of anything goes on in the same order."""
    assert order.numbers(np.array(positions)).tolist() == numbers


def test_epochs_and_seeds_differ():
    first = GlobalOrder(500, seed=1).numbers(np.arange(1000))
    second = GlobalOrder(500, seed=2).numbers(np.arange(500))
    assert (first[:500] != first[500:]).sum() > 450
    assert (first[:500] != second).sum() > 450


def test_every_record_is_as_often_at_every_position():
    counts = np.zeros((10, 10))
    for seed in range(1000):
        counts[np.arange(10), GlobalOrder(10, seed).numbers(np.arange(10))] += 1
    assert ((counts - 100) ** 2 / 100).sum() < 130  # chi square of 81 degrees of freedom: 1 in 2,000 is above that


def test_neighbours_in_data_set_are_none_in_order():
    numbers = GlobalOrder(10_000, seed=5).numbers(np.arange(10_000))
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.03
    assert (abs(np.diff(numbers)) == 1).sum() < 10


def interleaved(hosts: list[HostOrder], rounds: int | None = None) -> list[int]:
    """Numbers that hosts read in turn."""
    turns = iter(lambda: [number for host in hosts if (number := next(host, None)) is not None], [])
    return [number for turn in islice(turns, rounds) for number in turn]


@pytest.mark.parametrize("hosts", [1, 2, 3, 8])
@pytest.mark.parametrize("epochs", [1, 2])
def test_any_number_of_hosts_has_same_order(hosts, epochs):
    order = GlobalOrder(10_001, seed=1)
    numbers = interleaved([order.of_host(host, hosts, epochs=epochs) for host in range(hosts)])
    assert numbers == order.numbers(np.arange(epochs * 10_001)).tolist()


@pytest.mark.parametrize(
    ("order", "least"), [(GlobalOrder(20_011, shuffle=False), 1000), (GlobalOrder(511, seed=4), 20)]
)
def test_stops_lose_and_repeat_nothing(order, least):
    """The first without shuffling, which takes no time."""
    chosen = random.Random(0)
    numbers: list[int] = []
    position = stops = 0
    while position < order.records:
        count = chosen.choice([1, 2, 3, 4, 8])
        hosts = [order.of_host(host, count, start=position) for host in range(count)]
        numbers += interleaved(hosts, chosen.randrange(10))
        (position,) = {host.position for host in hosts}
        stops += 1
    assert stops > least
    assert numbers == order.numbers(np.arange(order.records)).tolist()


def test_hosts_continue_alike_at_end():
    hosts = [GlobalOrder(10).of_host(host, 4) for host in range(4)]
    assert [len(list(host)) for host in hosts] == [3, 3, 2, 2]
    assert {host.position for host in hosts} == {10}
    assert list(GlobalOrder(10).of_host(0, 4, start=10)) == []


@pytest.mark.parametrize("start", [10, 11, 25])
def test_beyond_end_position_stays_where_it_was(start):
    """A run may continue with fewer epochs than before."""
    host = GlobalOrder(10).of_host(0, 4, start=start)
    assert host.position == start
    assert list(host) == []
    assert host.position == start


def test_without_end_epoch_follows_epoch():
    host = GlobalOrder(3, seed=1).of_host(1, 2, epochs=None)
    assert [next(host) for _ in range(9)] == GlobalOrder(3, seed=1).numbers(np.arange(1, 19, 2)).tolist()
    assert host.position == 18


def test_no_records():
    assert list(GlobalOrder(0).of_host()) == []
    assert list(GlobalOrder(0).of_host(epochs=None)) == []
    with pytest.raises(ValueError, match="position 0 is out of range"):
        GlobalOrder(0).numbers(np.array([0]))


@pytest.mark.parametrize(
    ("host", "hosts", "start", "epochs"), [(2, 2, 0, 1), (-1, 2, 0, 1), (0, 0, 0, 1), (0, 1, -1, 1), (0, 1, 0, -1)]
)
def test_of_host_out_of_range(host, hosts, start, epochs):
    with pytest.raises(ValueError, match="counted from 0"):
        GlobalOrder(3).of_host(host, hosts, start=start, epochs=epochs)
