"""Lines in sorted, compressed blocks."""

import random

import pytest

from recordmill.transforms.runtime import line_blocks
from recordmill.transforms.runtime.line_blocks import BLOCK_LINES, LineSorter, lines_in, merged_lines


def sorted_in_parts(lines: list[bytes], parts: int) -> list:
    blocks = []
    for part in range(parts):
        sorter = LineSorter()
        for line in lines[part::parts]:
            sorter.add(line)
        blocks += sorter.blocks()
    return blocks


@pytest.mark.parametrize("held", [1000, 1 << 20])
def test_all_lines_are_merged_and_few_are_held(monkeypatch, held):
    """A thousand parts that have lines of everywhere are merged through a few long runs, where they are too many."""
    monkeypatch.setattr(line_blocks, "HELD_LINES", held)
    monkeypatch.setattr(line_blocks, "RUN_LINES", 4 * BLOCK_LINES)
    overlapping: list[int] = []
    sweep = line_blocks._sweep

    def seen(blocks):
        overlapping.append(line_blocks._most_overlapping(blocks))
        return sweep(blocks)

    monkeypatch.setattr(line_blocks, "_sweep", seen)
    lines = [b"%08d" % number for number in random.Random(0).sample(range(10**8), 20_000)] + [b"", b"a\n", b"a\n"]
    found = list(merged_lines(sorted_in_parts(lines, 1000)))
    assert [line for part in found for line in part] == sorted(lines)
    assert overlapping[0] <= (3 * BLOCK_LINES if held == 1000 else 20_003)
    assert len(found) > 1 or held == 1000


def test_what_does_not_overlap_is_held_a_few_blocks_at_once():
    lines = [b"%08d" % number for number in range(100 * BLOCK_LINES)]
    sorter = LineSorter()
    for line in lines:
        sorter.add(line)
    blocks = sorter.blocks()
    assert (len(blocks), {block.lines for block in blocks}) == (100, {BLOCK_LINES})
    assert [line for block in blocks for line in lines_in(block)] == lines
    parts = list(merged_lines(blocks))
    assert len(parts) == 4
    assert [line for part in parts for line in part] == lines


def test_of_nothing_there_is_nothing():
    assert LineSorter().blocks() == ()
    assert list(merged_lines([])) == []
