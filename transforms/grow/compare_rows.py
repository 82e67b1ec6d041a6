"""Rows of images that `--add` compares: those of a data set, and those that a job would write."""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from hashlib import blake2b
from itertools import pairwise

import numpy as np

from recordmill.schemas.block import are_among
from recordmill.transforms.join.match_blocks import name_keys

COMPARED_ROW = [
    ("whole", "S16"),
    ("name", "<u8"),
    ("image", "<u8", 2),
    ("labels", "<u8", 2),
    ("records", "<u4"),
    ("shard", "<u4"),
    ("split", "<u2"),
]
"""NumPy dtype of an image, or a tile, of a shard: digest of its split and of the name of the whole image; hash of its
own name; `image`, `labels` and `records` of `recordmill.schemas.image_records.IMAGE_ROW`; index of the shard among
those of the split; index of the split. All 16 bytes of `whole` count: S16 pads with zero bytes."""

IMAGE_SUM = [("whole", "S16"), ("image", "<u8", 2), ("labels", "<u8", 2), ("records", "<i8")]
"""NumPy dtype of a whole image: sums of its rows. A stored image that several shards have counts once."""

OUTCOME_ROW = [("whole", "S16"), ("outcome", "u1"), ("shard", "<u4")]
"""NumPy dtype of the Outcome of an image. One that is not PRESENT has a row for each shard with its records."""


class Outcome(IntEnum):
    """Difference of an image of a job from the image with its name in a data set."""

    PRESENT = 1  # none
    LABELS = 2  # labels, masks or fields
    IMAGE = 3  # bytes of the stored image


_BUCKET_BITS = 8
"""Images are compared in 2 ** 8 buckets."""


def digest_names(split: str, names: Sequence[str]) -> np.ndarray:
    """Return a digest of each name in a split: S16 [N]. All spellings of a name have one, see `name_key`.

    >>> digests = digest_names("train", ["a.jpg", "./a.jpg"])
    >>> bool(digests[0] == digests[1]), bool(digests[0] == digest_names("val", ["a.jpg"])[0])
    (True, False)
    """
    start = blake2b(f"{split}/".encode(), digest_size=16)
    digests = []
    for key in name_keys(names):
        digest = start.copy()
        digest.update(key.encode(errors="surrogatepass"))
        digests.append(digest.digest())
    return np.frombuffer(b"".join(digests), "S16")


def compared_rows(
    split: str, index: int, names: Sequence[str], wholes: Sequence[str], rows: np.ndarray, shard: int = 0
) -> np.ndarray:
    """Return COMPARED_ROW [N].

    Args:
        index: Index of the split.
        names, wholes: Names in records, and those of whole images, which are equal without tiles.
        rows: IMAGE_ROW [N].
    """
    compared = np.zeros(len(rows), COMPARED_ROW)
    compared["whole"] = digest_names(split, wholes)
    own = compared["whole"] if names is wholes else digest_names(split, names)
    compared["name"] = np.ascontiguousarray(own).view("<u8")[::2]
    for column in ("image", "labels", "records"):
        compared[column] = rows[column]
    compared["shard"], compared["split"] = shard, index
    return compared


def cut_to_buckets(wholes: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each bucket with the indices of its images: int64.

    Args:
        wholes: S16 [N].
    """
    buckets = np.ascontiguousarray(wholes).view("u1").reshape(-1, 16)[:, 0] >> (8 - _BUCKET_BITS)
    order = np.argsort(buckets, kind="stable")
    borders = [0, *(np.flatnonzero(np.diff(buckets[order])) + 1).tolist(), len(order)]
    for start, end in pairwise(borders):
        if start < end:
            yield int(buckets[order[start]]), order[start:end]


def sum_rows(rows: np.ndarray) -> np.ndarray:
    """Return IMAGE_SUM of each whole image, in the order of `whole`.

    Args:
        rows: COMPARED_ROW.
    """
    # A row without a record has no image, so the first row of each name has it if any row has.
    rows = rows[np.lexsort((rows["records"] == 0, rows["name"], rows["whole"]))]
    is_first = np.ones(len(rows), bool)
    is_first[1:] = rows["whole"][1:] != rows["whole"][:-1]
    starts = np.flatnonzero(is_first)
    is_repeated = ~is_first
    is_repeated[1:] &= rows["name"][1:] == rows["name"][:-1]
    sums = np.zeros(len(starts), IMAGE_SUM)
    if len(starts):
        sums["whole"] = rows["whole"][starts]
        sums["image"] = np.add.reduceat(np.where(is_repeated[:, None], 0, rows["image"]), starts, axis=0)
        sums["labels"] = np.add.reduceat(rows["labels"], starts, axis=0)
        sums["records"] = np.add.reduceat(rows["records"].astype(np.int64), starts)
    return sums


def known_images(rows: np.ndarray) -> np.ndarray:
    """Return the images that have a record: S16, ascending."""
    return np.unique(rows["whole"][rows["records"] > 0])


def compare_images(reference: np.ndarray, made: np.ndarray) -> np.ndarray:
    """Return the outcome of images that a data set has: OUTCOME_ROW, in the order of `whole`.

    Args:
        reference: COMPARED_ROW of the data set.
        made: COMPARED_ROW of the job. Images that have no record in `reference`, but have one now, have no outcome.
    """
    new, old = sum_rows(made), sum_rows(reference)
    new = new[are_among(new["whole"], old["whole"])]
    old = old[np.searchsorted(old["whole"], new["whole"])]
    is_known = (old["records"] > 0) | (new["records"] == 0)  # others are written for the first time
    new, old = new[is_known], old[is_known]
    # An image without a record is not read.
    has_images = new["image"].any(axis=1) & old["image"].any(axis=1)
    is_other = has_images & (new["image"] != old["image"]).any(axis=1)
    differs = (new["labels"] != old["labels"]).any(axis=1) | (new["records"] != old["records"])
    outcome = np.where(is_other, Outcome.IMAGE, np.where(differs, Outcome.LABELS, Outcome.PRESENT))
    shards = reference[reference["records"] > 0]
    shards = shards[are_among(shards["whole"], new["whole"][outcome != Outcome.PRESENT])][["whole", "shard"]]
    shards = np.unique(shards)
    present = new["whole"][outcome == Outcome.PRESENT]
    rows = np.zeros(len(present) + len(shards), OUTCOME_ROW)
    rows["whole"] = np.concatenate([present, shards["whole"]])
    rows["outcome"] = outcome[np.searchsorted(new["whole"], rows["whole"])]
    rows["shard"][len(present) :] = shards["shard"]
    return rows[np.argsort(rows["whole"], kind="stable")]
