import os

import pytest

from recordmill.transforms.runtime import cores
from recordmill.transforms.runtime.cores import usable_cores


@pytest.fixture
def eight_cores(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(cores, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(cores, "_QUOTA_V1", (tmp_path / "quota", tmp_path / "period"))
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
def test_no_more_than_the_container_s_share(eight_cores, quota, expected):
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
