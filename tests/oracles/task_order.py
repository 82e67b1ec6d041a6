"""The order of the images of a split, one image at a time."""

from hashlib import blake2b

from recordmill.schemas.inputs.images import ImageTask

_HASH_BITS = 63

Order = tuple[int, int]
"""(hash, image id): what images are sorted by."""
TaskOrder = tuple[Order, bytes, str, str]


def image_order(seed: int, image_id: int) -> Order:
    """The sort key of an image in its split."""
    digest = blake2b(f"{seed}/{image_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - _HASH_BITS), image_id


def task_order(seed: int, task: ImageTask) -> TaskOrder:
    """The sort key of a task in its split; of rows of a table with one id, their content's order."""
    row = task.labels.row
    more = (row.record, task.file_name, row.place) if row else (b"", "", "")
    return image_order(seed, task.image_id), *more
