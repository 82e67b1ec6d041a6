import random
from functools import partial

import pytest

from recordmill.transforms.runtime import line_blocks
from recordmill.transforms.runtime.line_blocks import BlockPlace, LineSorter, lines_in, merged_lines


def sorted_in_parts(lines: list[bytes], parts: int) -> list:
    blocks = []
    for part in range(parts):
        sorter = LineSorter()
        for line in lines[part::parts]:
            sorter.add(line)
        blocks += sorter.blocks()
    return blocks


@pytest.mark.parametrize("held", [60_000, 1 << 27])
def test_all_lines_are_merged_and_few_are_held(monkeypatch, held):
    """A thousand parts that have lines of everywhere are merged through a few long runs, where they are too many."""
    monkeypatch.setattr(line_blocks, "HELD_BYTES", held)
    monkeypatch.setattr(line_blocks, "BLOCK_BYTES", 2_000)
    overlapping: list[int] = []
    sweep = line_blocks._sweep

    def seen(blocks):
        overlapping.append(line_blocks._most_overlapping(blocks))
        return sweep(blocks)

    monkeypatch.setattr(line_blocks, "_sweep", seen)
    lines = [b"%08d" % number for number in random.Random(0).sample(range(10**8), 20_000)] + [b"", b"a\n", b"a\n"]
    found = list(merged_lines(sorted_in_parts(lines, 1000)))
    assert [line for part in found for line in part] == sorted(lines)
    assert max(overlapping) <= (62_000 if held == 60_000 else 20_003 * 56)
    assert len(overlapping) == (1 if held > 60_000 else 1 + 19)


def test_a_run_and_a_block_are_bounded_in_bytes(monkeypatch):
    """Lines of 10 kB, as outlines may be: how they begin is all that is kept of them besides."""
    monkeypatch.setattr(line_blocks, "RUN_BYTES", 100_000)
    monkeypatch.setattr(line_blocks, "BLOCK_BYTES", 25_000)
    lines = [b"%04d%s" % (number, b"x" * 10_000) for number in range(100)]
    sorter = LineSorter()
    for line in reversed(lines):
        sorter.add(line)
    blocks = sorter.blocks()
    assert {block.lines for block in blocks} == {3, 1}
    assert blocks[0].first[:4] == b"0090"  # the first run is of the ten that came first
    assert max(len(block.first) for block in blocks) == 64
    assert [line for part in merged_lines(blocks) for line in part] == lines


def test_blocks_in_a_file_are_read_from_it(tmp_path):
    path = tmp_path / "blocks"
    with open(path, "wb") as file:
        sorter = LineSorter(partial(line_blocks._append, file))
        for line in (b"c", b"a", b"b"):
            sorter.add(line)
        blocks = sorter.blocks()
    assert [line for part in merged_lines(blocks) for line in part] == [b"a", b"b", b"c"]
    assert blocks[0].packed == BlockPlace(str(path), 0, path.stat().st_size)


def test_what_does_not_overlap_is_held_a_few_blocks_at_once():
    lines = [b"%08d" % number for number in range(400_000)]
    sorter = LineSorter()
    for line in lines:
        sorter.add(line)
    blocks = sorter.blocks()
    assert len(blocks) > 80
    assert [line for block in blocks for line in lines_in(block)] == lines
    parts = list(merged_lines(blocks))
    assert max(map(len, parts)) < 170_000
    assert [line for part in parts for line in part] == lines


def test_of_nothing_there_is_nothing():
    assert LineSorter().blocks() == ()
    assert list(merged_lines([])) == []
