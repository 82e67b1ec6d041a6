"""Images are fingerprinted as their records are written or read."""

from collections.abc import Sequence
from hashlib import blake2b
from math import log2

import msgspec
import numpy as np

from recordmill.schemas.duplicates import FINGERPRINT, FINGERPRINT_VERSION, Fingerprints
from recordmill.transforms.images.measure_pixels import HASH_SIDE, perceptual_hashes
from tests.oracles.image_facts import ImageFacts, RecordPlace

_AT_ONCE = 1024
"""Images that are hashed together: numpy takes as long for one as for dozens."""
_PARTS = 4
_HALF = 32
"""Bits of the label digest that stand for classes, and for places."""
_NO_CLASS = (1 << _HALF) - 1

Placed = tuple[ImageFacts, RecordPlace]


class ImageFingerprints:
    """Fingerprints the images of a shard that have a picture."""

    def __init__(self) -> None:
        self._pending: list[Placed] = []
        self._names: list[str] = []
        self._rows: list[bytes] = []

    def add(self, facts: ImageFacts, place: RecordPlace) -> None:
        if not facts.sha256 or facts.is_continuation:
            return
        self._pending.append((facts, place))
        if len(self._pending) == _AT_ONCE:
            self._fingerprint()

    def of_shard(self, shard: str) -> Fingerprints:
        """Of all images; `shard` is the name of the file that their records are in."""
        self._fingerprint()
        names = msgspec.Raw(msgspec.json.encode(self._names))
        return Fingerprints(shard, names, b"".join(self._rows), FINGERPRINT_VERSION)

    def _fingerprint(self) -> None:
        self._names += [facts.name for facts, _ in self._pending]
        self._rows.append(fingerprint_images(self._pending).tobytes())
        self._pending = []


def fingerprint_images(images: Sequence[Placed]) -> np.ndarray:
    """FINGERPRINT [n]."""
    found = np.zeros(len(images), FINGERPRINT)
    pictures = b"".join(bytes.fromhex(facts.sha256[:32]) for facts, _ in images)
    found["picture"] = np.frombuffer(pictures, "<u8").reshape(-1, 2)
    has_grey = np.array([bool(facts.measures and facts.measures.grey) for facts, _ in images], bool)
    grey = b"".join(facts.measures.grey for facts, _ in images if facts.measures)
    small = np.frombuffer(grey, np.uint8).reshape(-1, HASH_SIDE, HASH_SIDE)
    found["hash"][has_grey] = perceptual_hashes(small)
    found["form"][has_grey, :-1] = _levels(small)
    found["form"][:, -1] = [_shape(facts.width, facts.height) for facts, _ in images]
    found["labels"] = [label_digest(facts) for facts, _ in images]
    for index, name in enumerate(RecordPlace._fields):
        found[name] = [place[index] for _, place in images]
    return found


def _levels(grey: np.ndarray) -> np.ndarray:
    """Mean levels of 4 x 4 parts of grey pictures: uint8 [n, 16]."""
    part = HASH_SIDE // _PARTS
    parts = grey.reshape(-1, _PARTS, part, _PARTS, part).sum(axis=(2, 4), dtype=np.uint32) // part**2
    return parts.reshape(-1, _PARTS**2)


def _shape(width: int, height: int) -> int:
    return min(255, max(0, 128 + round(80 * log2(width / height)))) if height else 0


def label_digest(facts: ImageFacts) -> int:
    """A number of 64 bits of which the upper half is the image's class, or of equal objects' classes the same, and the
    lower of equal boxes of equal classes."""
    if facts.image_class is not None:
        return facts.image_class << _HALF
    if facts.boxes is None:
        return _NO_CLASS << _HALF
    classes = np.asarray(facts.classes, "<f8").reshape(-1, 1)
    # As records have them, so that those that are read back give the same.
    edges = np.array(facts.boxes, "<f4").reshape(4, -1).T.astype("<f8")
    rows = np.hstack([classes, edges])
    ordered = rows[np.lexsort(rows.T[::-1])]
    return _digest(ordered[:, 0]) << _HALF | _digest(ordered)


def image_class(labels: np.ndarray) -> np.ndarray:
    """The class index of each image, of their label digests, where each has one."""
    return labels >> np.uint64(_HALF)


def _digest(numbers: np.ndarray) -> int:
    return int.from_bytes(blake2b(numbers.tobytes(), digest_size=_HALF // 8).digest(), "big")
