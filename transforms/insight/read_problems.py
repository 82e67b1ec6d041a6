"""Lines of problems-SPLIT.jsonl, read for the page."""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from recordmill.schemas.problems import ProblemLine, split_problems
from recordmill.transforms.dataset.dataset_folder import read_file

_DECODER = msgspec.json.Decoder(ProblemLine)


def suspicious_annotations(output: str, splits: Iterable[str]) -> dict[tuple[str, str, str], set[int]]:
    """Return the ids of annotations by split, kind of problem and file name. `verify` reports damaged files, which are
    left out."""
    found: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    for split in splits:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            for line in _DECODER.decode_lines(read_file(output, split_problems(split)) or b""):
                if line.id is not None:
                    found[split, line.kind, line.file_name].add(line.id)
    return found
