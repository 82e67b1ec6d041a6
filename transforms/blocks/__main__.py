"""Print packed Blocks as tables: python -m recordmill.transforms.blocks FILE…"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from recordmill.schemas.block import Block, Ragged
from recordmill.transforms.blocks.pack_block import unpack_block

_WIDEST = 40


def block_lines(block: Block) -> Iterator[str]:
    """Return a table of the images of a Block, and one of its objects with the row of their image."""
    yield f"{len(block)} images"
    yield from _table({name: _cells(column) for name, column in block.image_columns()})
    yield f"{block.num_objects} objects"
    if block.num_objects:
        objects = {name: _cells(column) for name, column in block.object_columns()}
        yield from _table({"image": _cells(block.image_of_object)} | objects)


def _cells(column: Any) -> list[str]:
    if not isinstance(column, Ragged):
        return [_cell(row) for row in column.tolist()]
    if column.values.dtype == "u1":
        return [_cell(row.decode(errors="backslashreplace")) for row in column.rows()]
    return [_cell(column.cut(row, row + 1).values.tolist()) for row in range(len(column.lengths))]


def _cell(value: Any) -> str:
    text = repr(str(value))[1:-1]  # without control characters
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}…"


def _table(columns: dict[str, list[str]]) -> Iterator[str]:
    widths = [max(map(len, (name, *cells))) for name, cells in columns.items()]
    for row in (tuple(columns), *zip(*columns.values(), strict=True)):
        yield _line(row, widths)


def _line(cells: Iterable[str], widths: Iterable[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def main(paths: Iterable[str]) -> None:
    for path in paths:
        print(*block_lines(unpack_block(Path(path).read_bytes())), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
