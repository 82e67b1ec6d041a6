"""What a local job takes of memory is said, and refused, before it starts."""

import os

import pytest

from recordmill.launch.command_line.parser import parse
from recordmill.launch.preflight import check_runner as module
from recordmill.launch.preflight.check_runner import check_memory, memory_bytes, memory_needed
from recordmill.schemas.errors import ConfigError
from tests.conftest import coco_flags

GB = 10**9


def options_of(sample, tmp_path, *more):
    return parse([str(word) for word in coco_flags(sample, tmp_path / "out", *more)]).options


@pytest.fixture
def large(tmp_path):
    """An annotation file of 2 GB, none of which is on the disk."""
    path = tmp_path / "large.json"
    path.touch()
    os.truncate(path, 2 * GB)
    return path


def test_what_is_needed_grows_with_all_annotation_files(sample, tmp_path, large):
    small, same = memory_needed(options_of(sample, tmp_path))
    assert 300_000_000 < small <= same < 310_000_000
    least, most = memory_needed(options_of(sample, tmp_path, "--captions", large))
    assert GB / 2 < least < most < 4 * GB
    with_masks = memory_needed(options_of(sample, tmp_path, "--captions", large, "--masks", "png"))
    assert least < with_masks[0] < with_masks[1]
    assert most < with_masks[1]
    packed = tmp_path / "large.json.gz"
    packed.touch()
    os.truncate(packed, GB)
    assert memory_needed(options_of(sample, tmp_path, "--captions", packed))[0] - small == 4 * (least - small)
    assert memory_needed(options_of(sample, tmp_path, "--captions", tmp_path / "none.json")) == (small, same)


@pytest.mark.parametrize(("there", "outcome"), [(64 * GB, "said"), (2 * GB, "doubted"), (GB * 2 // 5, "refused")])
def test_much_is_said_and_too_much_refused(sample, tmp_path, large, monkeypatch, there, outcome):
    monkeypatch.setattr(module, "memory_bytes", lambda: there)
    assert check_memory(options_of(sample, tmp_path)) == ""
    options = options_of(sample, tmp_path, "--captions", large)
    least, most = (number / GB for number in memory_needed(options))
    numbers = f"{least:,.1f} to {most:,.1f} GB"
    if outcome == "refused":
        with pytest.raises(ConfigError, match=rf"(?s){numbers}.*0\.4 GB.*Dataflow"):
            check_memory(options)
        return
    said = check_memory(options)
    assert numbers in said
    assert f"{there / GB:.1f} GB" in said
    assert ("Dataflow" in said) == (outcome == "doubted")


def test_exactly_the_least_is_enough(sample, tmp_path, large, monkeypatch):
    options = options_of(sample, tmp_path, "--captions", large)
    monkeypatch.setattr(module, "memory_bytes", lambda: memory_needed(options)[0])
    assert "if that is not enough" in check_memory(options)


@pytest.mark.parametrize(("limit", "expected"), [("max\n", 8 * GB), ("3000000000\n", 3 * GB), ("64000000000", 8 * GB)])
@pytest.mark.parametrize("version", [0, 1])
def test_a_container_has_its_share(tmp_path, monkeypatch, limit, expected, version):
    paths = tmp_path / "v2", tmp_path / "v1"
    paths[version].write_text(limit)
    monkeypatch.setattr(module, "_LIMITS", paths)
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 1000, "SC_PHYS_PAGES": 8_000_000}.__getitem__)
    assert memory_bytes() == expected


def test_job_is_refused_before_it_starts_and_so_is_plan(recordmill, sample, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "memory_bytes", lambda: 200_000_000)
    for more in ([], ["--dry-run"]):
        outcome = recordmill(*coco_flags(sample, tmp_path / "out", *more))
        assert (outcome.code, outcome.out) == (2, ""), outcome
        assert "0.3 GB" in outcome.err
        assert ("Dataflow" in outcome.err) == (not more)
        assert not (tmp_path / "out").exists()
