"""What the summary says of pictures that are in a data set more than once."""

import os
from collections.abc import Iterator, Sequence

import msgspec

from recordmill.launch.terminal.error_stream import printable
from recordmill.schemas.duplicates import DUPLICATES
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.sizes import number_text

_CLASSES_SHOWN = 5


def duplicate_lines(folder: str, manifest: Manifest, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Labels and texts, of splits that have just been written: first what is in several splits."""
    found = manifest.duplicates
    if found is msgspec.UNSET:
        return
    file = os.path.join(folder, DUPLICATES)
    of = {name: found.splits[name] for name in names if name in found.splits}
    if any(each.leaked for each in of.values()):
        leaked = ", ".join(f"{each.leaked:,} of {name}" for name, each in found.splits.items() if each.leaked)
        yield (
            "LEAKAGE",
            f"{number_text(found.leaks, 'picture')} in several splits, exactly or nearly ({leaked}): a model is "
            f"measured by what it was trained on. --groups {file} keeps each in one split, in the next run, into "
            "another --output",
        )
    for name, each in of.items():
        if each.exact or each.near:
            differ = f"; with other labels there: {each.labels_differ:,}" if each.labels_differ else ""
            text = f"{each.exact:,} images of {name} are there again exactly, {each.near:,} nearly{differ}; see {file}"
            yield "duplicates", text
    if missing := ", ".join(name for name in manifest.splits if name not in found.splits):
        yield (
            "duplicates",
            f"{missing} was not compared: its fingerprints are missing or damaged; convert again with --overwrite",
        )
    for name, number in list(found.copied_classes.items())[:_CLASSES_SHOWN]:
        copies = f"{number:,} pictures of the class {name} are of other classes, too: does its folder hold theirs?"
        yield "duplicates", printable(copies)
    if (more := len(found.copied_classes) - _CLASSES_SHOWN) > 0:
        yield "duplicates", f"and so it is with {more:,} classes more, which manifest.json has in copied_classes"
