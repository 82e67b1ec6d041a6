"""Summaries of verify and extract."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from recordmill.schemas.dataset.checks import Check, Faults, ShardCheck
from recordmill.schemas.sizes import number_text, printable, size_text

if TYPE_CHECKING:
    from recordmill.transforms.extract.write_documents import ExtractedSplit  # which imports Beam

_FAULTS_SHOWN = 20
_READ = {
    Check.HASHES: "read and parsed",
    Check.DECODE: "read, parsed and decoded",
    Check.TENSORFLOW: "read, parsed and decoded",
}


def print_checks(
    console: Console,
    folder: str,
    checks: Sequence[ShardCheck],
    faults: Faults,
    check: Check = Check.TENSORFLOW,
    unread: int = 0,
) -> None:
    """Print the result of verify: a line per split, and the errors. `unread` shards were skipped."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("split")
    for column in ("shards", "examples", "objects", "size"):
        table.add_column(column, justify="right")
    for split in sorted({each.split for each in checks}):
        of_split = [each for each in checks if each.split == split]
        table.add_row(
            split,
            f"{len(of_split):,}",
            f"{sum(each.examples for each in of_split):,}",
            f"{sum(each.objects for each in of_split):,}",
            size_text(sum(each.bytes for each in of_split)),
        )
    console.print(table)
    _print_faults(console, faults)
    if features := sum(each.features for each in checks):
        most = max(each.difference for each in checks)
        console.print(f"{features:,} features made again: they differ by at most {most:.2g} of their largest number")
    if faults:
        verdict = number_text(len(faults), "fault")
    elif unread:
        read = f"the {len(checks):,} of {len(checks) + unread:,} shards that were read"
        verdict = f"no fault in {read}: every record {_READ[check]}"
    else:
        verdict = f"whole: every record {_READ[check]}"
    console.print(f"{folder}: {verdict}")


def print_extracted(console: Console, folder: str, splits: Sequence["ExtractedSplit"], notes: Sequence[str]) -> None:
    """Print the result of extract: files, contents that records lack, and errors."""
    for split in splits:
        rows = (
            f" for {split.rows:,} entries in the JSON, some of which name one file" if split.rows > split.images else ""
        )
        console.print(f"{split.split}: {split.images:,} images{rows}, {size_text(split.image_bytes)}, are in {folder}")
        for document in split.documents:
            console.print(f"  {os.path.join(folder, document.file)}  {document.annotations:,} annotations")
            if document.shared_ids:
                console.print(
                    f"    of which several share an id (number of such ids: {document.shared_ids:,}); tools that look "
                    "annotations up by id, such as pycocotools, find one of each: renumber them if you evaluate "
                    "with them"
                )
        for counts, what in ((split.lost, "not written"), (split.notes, "note")):
            if counts:
                console.print(
                    f"  {what}: {', '.join(f'{thing} {number:,}' for thing, number in sorted(counts.items()))}"
                )
    for note in notes:
        console.print(note)
    for split in splits:
        _print_faults(console, split.faults)
    if number := sum(len(split.faults) for split in splits):
        console.print(f"{folder}: {number_text(number, 'fault')} in the records; what could be read is extracted")


def _print_faults(console: Console, faults: Faults) -> None:
    for fault in faults.listed[:_FAULTS_SHOWN]:
        console.print(printable(str(fault)))
    if len(faults) > _FAULTS_SHOWN:
        console.print(f"… and {len(faults) - _FAULTS_SHOWN:,} more")
