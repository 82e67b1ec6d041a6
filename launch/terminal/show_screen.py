"""Screen of `show`: a data set, and its records as a table."""

import io
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from recordmill.schemas.dataset.manifest import Manifest, SplitManifest
from recordmill.schemas.features import Part
from recordmill.schemas.sizes import number_text, printable, size_text
from recordmill.transforms.dataset.fact_lines import data_set_lines
from recordmill.transforms.show.choose_records import Record
from recordmill.transforms.show.describe_values import describe_list, describe_record
from recordmill.transforms.show.find_shards import Shard, Shards
from recordmill.transforms.storage.resolve import storage_for

PLAIN_WIDTH = 120
"""Default width, for example in a pipe."""
_CLASSES_SHOWN = 20
_LONGEST_NAME = 30
_LEAST_VALUE = 26
_LONGEST_FEATURE = 36
_LAYOUTS = {
    "detection": "layout detection, which the Object Detection API and Model Garden read",
    "classification": "layout classification, which Model Garden reads",
    "tfds": "layout tfds, as COCO is in TensorFlow Datasets",
    "keras": "layout keras, of the recipe at keras.io",
    "unknown": "a layout that is not known; what is alike in many is recognised",
}
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def screen_width() -> int:
    return shutil.get_terminal_size((PLAIN_WIDTH, 40)).columns


def has_blocks() -> bool:
    """Return True if the terminal's encoding has block characters."""
    is_utf = isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower().replace("-", "") == "utf8"
    return is_utf and sys.stdout.isatty()


def print_overview(console: Console, path: str, shards: Shards) -> None:
    """Return the lines of a data set, without its records."""
    if shards.manifest is None or not shards.is_whole:
        lines = files_lines(path, shards.shards)
    else:
        splits = {shard.split for shard in shards.shards}
        lines = overview_lines(path, shards.manifest, sorted(splits), screen_width(), has_blocks())
    for line in lines:
        console.print(line)
    console.print()


def files_lines(path: str, shards: Sequence[Shard]) -> Iterator[str]:
    """Return the lines of files without a manifest, or of some files."""
    sizes = [storage_for(shard.path).size(shard.path) or 0 for shard in shards]
    known = [shard.records for shard in shards if shard.records is not None]
    records = f", {sum(known):,} records" if len(known) == len(shards) else ""
    yield f"{printable(path)}: {number_text(len(shards), 'file')} of {size_text(sum(sizes))}{records}"


def overview_lines(path: str, manifest: Manifest, names: Sequence[str], width: int, blocks: bool) -> Iterator[str]:
    """Return the lines of a manifest.

    Args:
        names: of the splits.
        width: of the screen, in columns.
        blocks: whether bars are drawn by block characters, and not by #.
    """
    splits = {name: manifest.splits[name] for name in names}
    kinds = ", ".join(_kinds(manifest, splits.values()))
    yield f"{manifest.name} in {printable(path)}: layout {manifest.layout}{f', with {kinds}' if kinds else ''}"
    yield from data_set_lines(path, manifest, names)
    if manifest.categories:
        yield ""
        yield from _class_lines(manifest, splits, width, blocks)


def _kinds(manifest: Manifest, splits: Iterable[SplitManifest]) -> Iterator[str]:
    yield from (part.value.replace("_", " ") for part in Part if part in manifest.parts)
    yield from (f"{encoder.column} as {encoder.form.value}" for encoder in manifest.encoders)
    if any(split.compression for split in splits):
        yield "GZIP"


def padded(text: str, width: int) -> str:
    """Return a text padded or cut to a width. A letter may take two columns."""
    if cell_len(text) > width:
        text = set_cell_size(text, max(0, width - 1)).rstrip() + "…"
    return set_cell_size(text, width)


def _class_lines(manifest: Manifest, splits: dict[str, SplitManifest], width: int, blocks: bool) -> Iterator[str]:
    """Return lines of the classes with the most objects, or images, with numbers and bars."""
    names = [printable(category.name) for category in manifest.categories]
    # An edited manifest may have fewer.
    counts = [(*split.class_counts, *[0] * len(names))[: len(names)] for split in splits.values()]
    totals = [sum(numbers[index] for numbers in counts) for index in range(len(names))]
    order = sorted(range(len(names)), key=lambda index: -totals[index])
    shown, others = order[:_CLASSES_SHOWN], order[_CLASSES_SHOWN:]
    name_width = min(_LONGEST_NAME, max(cell_len(names[index]) for index in shown))
    columns = [[f"{numbers[index]:,}" for index in shown] for numbers in counts]
    widths = [max(map(len, (name, *column))) for name, column in zip(splits, columns, strict=True)]
    heads = "  ".join(f"{name:>{width_}}" for name, width_ in zip(splits, widths, strict=True))
    yield f"{padded(f'{len(names):,} classes', max(name_width, 11))}  {heads}"
    name_width = max(name_width, 11)
    room = max(0, min(60, width - name_width - sum(widths) - 2 * len(widths) - 3))
    for row, index in enumerate(shown):
        numbers = "  ".join(f"{column[row]:>{width_}}" for column, width_ in zip(columns, widths, strict=True))
        length = bar(totals[index], totals[shown[0]], room, blocks)
        yield f"{padded(names[index], name_width)}  {numbers}  {length}".rstrip()
    if others:
        span = {totals[others[0]], totals[others[-1]]}
        yield f"and {len(others):,} more, with {' to '.join(f'{number:,}' for number in sorted(span))} each"
    if empty := sum(not total for total in totals):
        yield f"{empty:,} classes have none"


def bar(number: int, largest: int, width: int, blocks: bool) -> str:
    """Return a bar with the length of its number's share of the largest. A number above 0 has at least one character.

    >>> bar(5, 10, 8, blocks=False), bar(1, 1000, 8, blocks=False), bar(0, 10, 8, blocks=True)
    ('####', '#', '')
    """
    if not number or not width:
        return ""
    if not blocks:
        return "#" * max(1, round(width * number / largest))
    eighths = max(1, round(8 * width * number / largest))
    return (_EIGHTHS[8] * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def print_records(console: Console, records: Iterable[Record], width: int, name_layout: bool) -> None:
    """Yield records as tables, side by side; records before a damaged one, and then its error.

    Args:
        name_layout: whether to say of which layout they are, where that has not been said.
    """
    waiting, layout = iter(records), ""
    while True:
        shown: list[Record] = []
        try:
            shown.extend(islice(waiting, records_side_by_side(width)))
        finally:
            if name_layout and shown and shown[0].table.layout != layout:
                layout = shown[0].table.layout
                console.print(_LAYOUTS.get(layout, f"layout {layout}"))
            for line in record_lines(shown, width) if shown else ():
                console.print(line)
        if not shown:
            return


def records_side_by_side(width: int) -> int:
    """Return the number of records that fit side by side.

    >>> records_side_by_side(80), records_side_by_side(200)
    (1, 3)
    """
    return max(1, min(3, (width - _LONGEST_FEATURE - 14) // _LEAST_VALUE))


def record_lines(records: Sequence[Record], width: int) -> Iterator[str]:
    """Return a table with a row per feature: name, type, and its values in each record."""
    described = [
        [
            *describe_record(record.found, record.table, record.meanings),
            *(describe_list(name, steps, record.meanings.get(name, ())) for name, steps in record.lists.items()),
        ]
        for record in records
    ]
    types = {row.name: row.type for rows in described for row in rows}
    values = [{row.name: row.text for row in rows} for rows in described]
    names = sorted(types)
    name_width = min(_LONGEST_FEATURE, max(map(cell_len, ("feature", *map(printable, names)))))
    type_width = max(map(len, ("type", *types.values())))
    room = max(8, (width - name_width - type_width - 2 - 2 * len(records)) // len(records))
    wheres = (record.shard.split or os.path.basename(record.shard.path) for record in records)
    heads = [f"{where} {record.number}" for where, record in zip(wheres, records, strict=True)]
    rows = [("feature", "type", heads)]
    rows += [(name, types[name], [each.get(name, "(none)") for each in values]) for name in names]
    for name, type_, cells in rows:
        shown = (padded(_begin(cell), room) for cell in cells)
        yield "  ".join([padded(printable(name), name_width), padded(type_, type_width), *shown]).rstrip()


def _begin(text: str) -> str:
    """Return the start of a text on one line."""
    return printable(text[:1000].replace("\n", " "))
