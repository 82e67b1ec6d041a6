"""Runs of rejects that are too large to pass from step to step, in files of their split's state.

A runner holds what passes between steps several times: ten million rejects, 264 MB of compressed runs, took a local job
1.5 GB.
"""

from collections.abc import Sequence
from hashlib import blake2b
from itertools import accumulate

import msgspec

from recordmill.schemas.dataset_files import RECIPE, reject_run, state_folder
from recordmill.schemas.errors import EndedElsewhereError
from recordmill.schemas.line_blocks import BlockPlace, LineBlock
from recordmill.transforms.runtime.line_blocks import packed_lines
from recordmill.transforms.storage.resolve import storage_for

INLINE_BYTES = 1 << 16
"""Of a run, compressed, that pass from step to step, at the most: some 2,500 rejects."""


def in_a_file(output: str, split: str, blocks: Sequence[LineBlock]) -> Sequence[LineBlock]:
    """Blocks of a run; in a file, where they are large.

    The file is named by its bytes: a bundle that is tried again, or twice at once, and a rerun write the same one.

    Args:
        output: the data set's folder.
    """
    packed = list(map(packed_lines, blocks))
    if sum(map(len, packed)) <= INLINE_BYTES:
        return blocks
    data = b"".join(packed)
    storage = storage_for(output)
    name = reject_run(blake2b(data, digest_size=16).hexdigest())
    path = storage.join(output, f"{state_folder(split)}/{name}")
    storage.write(path, data)
    ends = accumulate(map(len, packed))
    return [
        msgspec.structs.replace(block, packed=BlockPlace(path, end - len(each), len(each)))
        for block, each, end in zip(blocks, packed, ends, strict=True)
    ]


def ended_elsewhere(folder: str, what: str, missing: FileNotFoundError) -> EndedElsewhereError:
    """What to raise where a file of a split's state is gone, which holds `what`. What this run has written since into
    the state's folder is deleted, unless yet another run has begun there: without a recipe none goes on with it."""
    storage = storage_for(folder)
    if storage.size(storage.join(folder, RECIPE)) is None:
        storage.delete_folder(folder)
    return EndedElsewhereError(
        f"{missing.filename} is gone, with {what}: another run of this job that is done deletes it. Run again: what is "
        "done is kept"
    )
