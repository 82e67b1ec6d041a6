"""The order of a split's images as an array operation: a stable hash of (seed, image id), in ranges."""

from hashlib import blake2b

import numpy as np

from recordmill.schemas.block import Block
from recordmill.transforms.blocks.image_tasks import labels_of

HASH_BITS = 63  # Beam's integers are signed, 64 bits


def hash_images(image_ids: np.ndarray, seed: int) -> np.ndarray:
    """A number for each image id: int64, evenly distributed, the same on every machine.

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


def ranges_of(hashes: np.ndarray, bits: int) -> np.ndarray:
    """Which of 2 ** bits ranges of hashes each image falls into: int64. Ranges are in the order of images."""
    return hashes >> (HASH_BITS - bits)


def image_order(block: Block, hashes: np.ndarray) -> np.ndarray:
    """Indices that put images in order: by hash, then by id. Rows of a table with one id: by content, name, place."""
    order = np.lexsort((block.image_id, hashes))
    if block.labels is None or not (np.diff(block.image_id[order]) == 0).any():
        return order
    found = zip((labels.row for labels in labels_of(block)), block.file_name.texts(), strict=True)
    rows = [(row.record, name, row.place) if row else (b"", "", "") for row, name in found]
    numbers, ids = hashes.tolist(), block.image_id.tolist()
    return np.array(sorted(order.tolist(), key=lambda image: (numbers[image], ids[image], rows[image])), np.int64)
