"""The order of a split's images: that of a stable hash of (seed, image id), whose space is cut into ranges."""

from hashlib import blake2b

from recordmill.schemas.images import ImageTask
from recordmill.schemas.shards import TaskOrder

_RANGE_BITS = 12
RANGES = 1 << _RANGE_BITS
_HASH_BITS = 63  # Beam's integers are signed, 64 bits

Order = tuple[int, int]
"""(hash, image id): what images are sorted by."""


def image_order(seed: int, image_id: int) -> Order:
    """The sort key of an image in its split: a hash, evenly distributed and the same on every machine, and its id.

    >>> image_order(0, 139)
    (4972096885692211845, 139)
    """
    digest = blake2b(f"{seed}/{image_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - _HASH_BITS), image_id


def task_order(seed: int, task: ImageTask) -> TaskOrder:
    """The sort key of a task in its split; of rows that are known by one key, their content's order."""
    row = task.labels.row
    more = (row.record, task.file_name, row.place) if row else (b"", "", "")
    return image_order(seed, task.image_id), *more


def hash_range(order: Order) -> int:
    """The range, 0..RANGES-1, that an image falls into; ranges are in the order of images."""
    return order[0] >> (_HASH_BITS - _RANGE_BITS)
