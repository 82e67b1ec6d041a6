"""Fingerprints of images, made while records are written or read."""

from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from math import log2

import msgspec
import numpy as np

from recordmill.schemas.block import Block
from recordmill.schemas.problems import FINGERPRINT, FINGERPRINT_VERSION, Fingerprints
from recordmill.transforms.blocks.image_facts import (
    NO_CLASS,
    NO_OFFSET,
    FactColumns,
    RecordPlaces,
    sort_objects,
)
from recordmill.transforms.images.measure_pixels import HASH_SIDE, perceptual_hashes

_PARTS = 4
_HALF = 32
"""Bits of each half of the label digest: the digest of classes, and the digest of boxes."""
_NO_CLASS = (1 << _HALF) - 1


class ImageFingerprints:
    """Collector of the fingerprints of a shard's images. Records without an image are skipped."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._rows: list[bytes] = []

    def add(self, facts: FactColumns, places: RecordPlaces) -> None:
        """Fingerprint images, and whole images in place of tiles."""
        facts = facts.without_tiles()
        is_counted = np.array(list(map(bool, facts.sha256)), bool) & ~facts.is_continuation
        self._names += facts.name.take(np.flatnonzero(is_counted)).texts()
        self._rows.append(fingerprint_images(facts, places)[is_counted].tobytes())

    def collect(self, shard: str) -> Fingerprints:
        """Return the fingerprints of all added images. `shard` is the name of their shard."""
        names = msgspec.Raw(msgspec.json.encode(self._names))
        return Fingerprints(shard, names, b"".join(self._rows), FINGERPRINT_VERSION)


def fingerprint_images(facts: FactColumns, places: RecordPlaces) -> np.ndarray:
    """Return FINGERPRINT [N], a row per image."""
    fingerprints = np.zeros(len(facts), FINGERPRINT)
    digests = bytes.fromhex("".join([sha256[:32] or "0" * 32 for sha256 in facts.sha256]))
    fingerprints["digest"] = np.frombuffer(digests, "<u8").reshape(-1, 2)
    greys = [measures.grey if measures else b"" for measures in facts.measures]
    has_grey = np.array(list(map(bool, greys)), bool)
    if has_grey.any():
        small = np.frombuffer(b"".join(greys), np.uint8).reshape(-1, HASH_SIDE, HASH_SIDE)
        fingerprints["hash"][has_grey] = perceptual_hashes(small)
        fingerprints["form"][has_grey, :-1] = _mean_levels(small)
    fingerprints["form"][:, -1] = [_aspect_level(width, height) for width, height in facts.size_px.tolist()]
    fingerprints["labels"] = label_digests(facts)
    fingerprints["record"] = places.record
    fingerprints["offset"] = places.offset  # NO_OFFSET becomes NO_FINGERPRINT_OFFSET
    fingerprints["bytes"] = np.where(places.offset == NO_OFFSET, places.records, places.bytes)
    return fingerprints


def _mean_levels(grey: np.ndarray) -> np.ndarray:
    """Return the mean levels of 4 x 4 parts of grey images: uint8 [n, 16]."""
    part = HASH_SIDE // _PARTS
    parts = grey.reshape(-1, _PARTS, part, _PARTS, part).sum(axis=(2, 4), dtype=np.uint32) // part**2
    return parts.reshape(-1, _PARTS**2)


@lru_cache(maxsize=4096)
def _aspect_level(width: int, height: int) -> int:
    # Not np.log2: it differs from math.log2 in the last bit.
    return min(255, max(0, 128 + round(80 * log2(width / height)))) if height else 0


def label_digests(facts: FactColumns) -> np.ndarray:
    """Return label digests: uint64 [N]. The upper half is the class of the image, or the digest of its objects'
    classes. The lower half is the digest of the objects' classes and boxes, in hundredths of a pixel; of an image
    without objects, that of the number of pixels of each value of its semantic mask."""
    starts = facts.first_object_of_image
    if starts is not None:
        rows = sort_objects(facts, _hundredths_px(facts)).rows
        classes, boxes = _digest_rows(rows[:, 0], starts), _digest_rows(rows, starts)
        if pixels := facts.pixels:
            for row in np.flatnonzero(np.diff(starts) == 0).tolist():
                boxes[row] = _digest(np.array(sorted(pixels[row].items()), np.int64).tobytes())
        digests = classes << np.uint64(_HALF) | boxes
    else:
        digests = np.full(len(facts), _NO_CLASS << _HALF, np.uint64)
    if facts.source_labels is not None and starts is not None:
        digests = facts.source_labels.copy()
    has_class = facts.image_class != NO_CLASS
    digests[has_class] = facts.image_class[has_class].astype(np.uint64) << np.uint64(_HALF)
    return digests


def _hundredths_px(facts: FactColumns) -> np.ndarray:
    """Return the boxes' edges in hundredths of a pixel: float32 [M, 4]. Label files round: of one box, the fractions of
    COCO's pixels and of YOLO's six decimals differ. COCO's pixels have at most two decimals."""
    sides = facts.size_px[:, [1, 0, 1, 0]].repeat(np.diff(facts.first_object_of_image), axis=0)
    return np.rint(facts.yxyx_frac * (sides * 100.0)).astype(np.float32) + np.float32(0)  # -0.0 as 0.0


def digest_labels(block: Block, class_ids: np.ndarray) -> np.ndarray:
    """Return the label digests of images that are to be divided into tiles, for the column `whole_labels`: int64 [N].

    Args:
        block: Complete images of known size, with objects in pixels.
        class_ids: int64, category ids by class index, in any order.
    """
    low, high = block.boxes_xywh_px[:, :2], block.boxes_xywh_px[:, :2] + block.boxes_xywh_px[:, 2:]
    sides = block.image_size_px[block.image_of_object].astype(np.float64)
    low, high = np.where(low < 0, 0.0, low) / sides, np.where(sides < high, sides, high) / sides
    number, order = len(block), np.argsort(class_ids)
    class_index = np.append(order, len(order))[np.searchsorted(class_ids, block.category_id, sorter=order)]
    facts = FactColumns(
        block.file_name,
        block.image_size_px,
        [""] * number,
        np.zeros(number, np.int64),
        [""] * number,
        np.zeros(number, bool),
        [None] * number,
        np.full(number, NO_CLASS),
        block.first_object_of_image,
        class_index,
        np.concatenate([low[:, ::-1], high[:, ::-1]], axis=1).astype(np.float32),
    )
    return label_digests(facts).view(np.int64)


def _digest_rows(rows: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return a 32-bit digest of each image's rows: uint64 [N]."""
    data, ends = rows.tobytes(), (starts * (rows[:1].nbytes)).tolist()
    return np.array([_digest(data[start:end]) for start, end in pairwise(ends)], np.uint64)


def _digest(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=_HALF // 8).digest(), "big")


def image_class(labels: np.ndarray) -> np.ndarray:
    """Return the class index of each image from label digests. Without image classes it is the digest of classes."""
    return labels >> np.uint64(_HALF)
