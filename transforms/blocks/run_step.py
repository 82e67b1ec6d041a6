"""Run steps on Blocks: order as an array operation, and errors that name the image."""

import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np

from recordmill.schemas.block import Block
from recordmill.schemas.errors import RecordmillError, StepError
from recordmill.transforms.blocks.image_tasks import labels_of, source_image_ids
from recordmill.transforms.blocks.pack_block import pack_block

HASH_BITS = 63  # Beam's integers are signed, 64 bits


def hash_images(image_ids: np.ndarray, seed: int) -> np.ndarray:
    """Return a hash of each image id: int64, evenly distributed, equal on every machine.

    >>> hash_images(np.array([139]), 0).tolist()
    [4972096885692211845]
    """
    start = blake2b(b"%d/" % seed, digest_size=8)

    def digest(image_id: int) -> bytes:
        state = start.copy()
        state.update(b"%d" % image_id)
        return state.digest()

    digests = b"".join([digest(image_id) for image_id in image_ids.tolist()])
    return (np.frombuffer(digests, ">u8").astype(np.uint64) >> np.uint64(64 - HASH_BITS)).astype(np.int64)


def hash_in_order(block: Block, seed: int) -> np.ndarray:
    """Return the hash that `image_order` sorts images by: int64 [N]. All tiles of an image have the image's."""
    return hash_images(source_image_ids(block), seed)


def ranges_of(hashes: np.ndarray, bits: int) -> np.ndarray:
    """Return the range of hashes of each image, of 2 ** bits: int64. Ranges are in the order of images."""
    return hashes >> (HASH_BITS - bits)


def image_order(block: Block, hashes: np.ndarray) -> np.ndarray:
    """Return the indices that sort images: by hash, then by id; and tiles of an image by y, then x. Rows of a table
    with one id are sorted by content, name and position."""
    if block.tile_xy_px is not None:
        return np.lexsort((*block.tile_xy_px.T, source_image_ids(block), hashes))
    order = np.lexsort((block.image_id, hashes))
    if block.labels is None or not (np.diff(block.image_id[order]) == 0).any():
        return order
    row_names = zip((labels.row for labels in labels_of(block)), block.file_name.texts(), strict=True)
    rows = [(row.record, name, row.place) if row else (b"", "", "") for row, name in row_names]
    numbers, ids = hashes.tolist(), block.image_id.tolist()
    return np.array(sorted(order.tolist(), key=lambda image: (numbers[image], ids[image], rows[image])), np.int64)


FORESEEN = (RecordmillError, OSError, MemoryError)
"""Exceptions that a step raises on purpose, or that the machine causes. They are not bugs of Recordmill."""
_SHOWN = 5

Result = TypeVar("Result")


def run_step(
    step: str, function: Callable[[list[Block]], Result], blocks: list[Block], sources: Sequence[str] = ()
) -> Result:
    """Return `function(blocks)`. After an exception that is not FORESEEN, run it again on halves of the images.

    Args:
        step: Name of the step, for the message.
        function: Function without side effects.
        sources: Paths of the job's input files, by the column `source`.

    Raises:
        StepError: The function has a bug. The error names the step and the image.
        RecordmillError, OSError, MemoryError: Errors of the function, unchanged.
    """
    try:
        return function(blocks)
    except FORESEEN:
        raise
    except Exception as error:  # any other exception is a bug, and ends the job
        ids = np.unique(np.concatenate([block.image_id for block in blocks if block.image_id is not None]))
        images, cause = fewest(lambda half: function(_with_images(blocks, half)), ids, error)
        raise step_error(step, cause, _with_images(blocks, images), sources) from cause


def fewest(run: Callable[[np.ndarray], object], images: np.ndarray, error: Exception) -> tuple[np.ndarray, Exception]:
    """Halve the images as long as `run` fails with one half; return the remaining images, and their exception. A
    FORESEEN exception of a half does not show the bug.

    Args:
        images: int64 [N], ids or rows, the argument of `run`.
        error: Exception of `run` with all of them.

    >>> fewest(lambda half: [1 // image for image in half.tolist()], np.array([3, 0, 2, 1]), ZeroDivisionError())[0]
    array([0])
    """
    while len(images) > 1:
        for half in (images[: len(images) // 2], images[len(images) // 2 :]):
            try:
                run(half)
            except FORESEEN:
                continue
            except Exception as raised:  # any: this is the error to isolate
                images, error = half, raised
                break
        else:
            break
    return images, error


def step_error(step: str, error: Exception, blocks: Sequence[Block], sources: Sequence[str] = ()) -> StepError:
    """Return an error with the step, and the images and objects of the Blocks. With debug logging, write the Blocks to
    files."""
    values_by_kind: dict[str, list[set[Any]]] = {
        "image": [set(block.image_id.tolist()) for block in blocks if block.image_id is not None],
        "file name": [set(block.file_name.texts()) for block in blocks if block.file_name is not None],
        "annotation": [set(block.object_id.tolist()) for block in blocks if block.object_id is not None],
        "input": [
            {sources[source] for source in block.source.tolist()}
            for block in blocks
            if sources and block.source is not None
        ],
    }
    parts = [f"step {step!r} failed with {type(error).__name__}: {' '.join(str(error).split())}"]
    for what, values in values_by_kind.items():
        if unique := sorted(set().union(*values), key=str):
            more = f" and {len(unique) - _SHOWN} more" * (len(unique) > _SHOWN)
            parts.append(f"{what} {', '.join(map(repr, unique[:_SHOWN]))}{more}")
    return StepError(
        f"{'; '.join(parts)}. This is a fault of Recordmill: please report it{_describe_saved_blocks(blocks)}"
    )


def _with_images(blocks: Sequence[Block], images: np.ndarray) -> list[Block]:
    """Return Blocks with these images. Blocks of files stay complete."""
    reduced = [block if block.image_id is None else block.take(np.isin(block.image_id, images)) for block in blocks]
    return [block for block in reduced if len(block)]


def _describe_saved_blocks(blocks: Sequence[Block]) -> str:
    """With debug logging, write the Blocks to files. Return the end of the message, which names them."""
    if not logging.getLogger().isEnabledFor(logging.DEBUG):
        return " (--debug keeps its Blocks)"
    paths = []
    for block in blocks:
        descriptor, path = tempfile.mkstemp(".block", "recordmill-")
        with os.fdopen(descriptor, "wb") as file:
            file.write(pack_block(block))
        paths.append(path)
    return f" with what `python -m recordmill.transforms.blocks {' '.join(paths)}` prints"
