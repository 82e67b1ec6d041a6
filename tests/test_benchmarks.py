"""Calculations of the benchmarks, besides their measurements."""

from pathlib import Path

import pytest

BAD = "000000000007.jpg"
SOME = b"some bytes of the image"


@pytest.fixture
def benchmark(monkeypatch):
    """Imports a module of benchmarks/."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    return __import__


def test_free_cores_take_next_bundle(benchmark):
    of = benchmark("simulate_workers")
    steps = [of.Step("read", 1, 7), of.Step("write", 5, 2)]
    assert of.simulate(steps, of.Cluster(workers=2, cores=2)) == {"read": 7, "write": 4}
    assert of.predicted(steps, of.Cluster(2, 2, start_s=10, step_s=0.5)) == 10 + 7.5 + 4.5


def test_step_waits_for_its_network_and_its_requests(benchmark):
    of = benchmark("simulate_workers")
    cluster = of.Cluster(workers=2, cores=2, bytes_a_second=100, latency_s=0.1)
    slow = of.Step("write", 4, processor_s=1, bytes=150)  # two bundles share a worker's 100 bytes a second
    assert of.simulate([slow], cluster) == {"write": 3}
    assert of.simulate([slow._replace(bundles=2)], cluster) == {"write": 1.5}
    assert of.simulate([of.Step("write", 4, 1, requests=64, in_flight=32)], cluster) == {"write": pytest.approx(1.2)}


@pytest.mark.parametrize(
    ("status", "said", "written", "some", "expected"),
    [
        (1, BAD.encode(), SOME, SOME, "stops"),
        (0, b"", b"x" + SOME, SOME, "written"),
        (0, b"", b"other", SOME, "left out"),
        (0, f"cannot read {BAD}".encode(), b"other", SOME, "left out, named"),
        (0, b"", BAD.encode(), None, "left out, named"),
    ],
)
def test_answers_of_peers_to_bad_picture(benchmark, tmp_path, status, said, written, some, expected):
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "file").write_bytes(written)
    assert benchmark("compare_peers").answer(status, said, tmp_path, BAD, some) == expected


def test_samples_in_work_are_counted(benchmark):
    writing = "main (launch/cli.py:1);write (/code/transforms/shards/write_shards.py:7)"
    stacks = f"{writing} 5\n{writing};deflate (zlib.c) 2\nmain (launch/cli.py:1) 8\n"
    assert benchmark("threads").samples(stacks) == 7
