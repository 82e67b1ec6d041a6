"""Digests of records without their images and ids, see `recordmill.schemas.dataset.image_records`."""

from hashlib import blake2b

import numpy as np

from recordmill.schemas.features import FeatureKind, FeatureTable
from recordmill.transforms.records.example import Buffer, read_varint

_IMAGE_SOURCES = ("encoded", "pixels", "sha256", "format", "height", "width", "channels", "id", "number")
_SKIPPED = frozenset(f"image.{name}" for name in _IMAGE_SOURCES) | {
    "captions.id",
    "objects.id",
    "tile.image_id",
    "tile.image_number",
}
"""Sources of features that digests skip: the image, what follows from its bytes, and ids, which an export may number
again."""
_DIGEST_BYTES = 16
_FLOAT_BYTES = 4


class RecordDigests:
    """Digests of serialised tf.Examples of one table, and the annotation ids in them, in the order of `add`."""

    def __init__(self, table: FeatureTable):
        self._skipped = {feature.name.encode(): feature for feature in table.features if feature.source in _SKIPPED}
        self._digests: list[bytes] = []
        self._ids: list[bytes] = []
        ids = [feature for feature in table.features if feature.source == "objects.id"]
        self._ids_key = ids[0].name.encode() if ids else None
        self._are_floats = bool(ids) and ids[0].kind is FeatureKind.FLOAT

    def __len__(self) -> int:
        return len(self._digests)

    def add(self, *record: Buffer) -> None:
        """Digest a record in one or several parts. Only the data of a feature may continue in the next part."""
        digest, ids = blake2b(digest_size=_DIGEST_BYTES), b""
        _, place = read_varint(record[0], 1)
        start = place  # of the bytes that are not digested yet
        for part in record:
            size = len(part)
            while place < size:
                # Lengths below 128 are read here: two calls for each feature would take most of the time.
                length, entry = part[place + 1], place + 2
                if length > 127:
                    length, entry = read_varint(part, place + 1)
                key_length, key = part[entry + 1], entry + 2
                if key_length > 127:
                    key_length, key = read_varint(part, entry + 1)
                end, key_end = entry + length, key + key_length
                name = part[key:key_end]
                if name in self._skipped:
                    if start < place:
                        digest.update(part[start:place])
                    start = end
                    if name == self._ids_key:
                        ids = _packed_numbers(part, key_end)
                place = end
            if start < size:
                digest.update(part[start:size])
            # The next part begins with the rest of the last feature.
            start, place = max(start - size, 0), place - size
        self._digests.append(digest.digest())
        self._ids.append(ids)

    def digests(self) -> np.ndarray:
        """Return the digest of each record: uint64 [n, 2]."""
        return np.frombuffer(b"".join(self._digests), "<u8").reshape(-1, 2)

    def annotation_ids(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the annotation ids of all records, int64, and their number in each record: int64 [n]."""
        data = np.frombuffer(b"".join(self._ids), np.uint8)
        sizes = np.array(list(map(len, self._ids)), np.int64)
        if self._are_floats:
            return data.view("<f4").astype(np.int64), sizes // _FLOAT_BYTES
        is_last = data < 128
        numbers = np.concatenate(([0], np.cumsum(is_last)))
        ends = np.cumsum(sizes)
        return _varint_values(data, is_last), numbers[ends] - numbers[ends - sizes]


def _packed_numbers(record: Buffer, place: int) -> bytes:
    """Return the packed numbers of a Feature, which begins at `place` in its map entry."""
    size, place = read_varint(record, place + 1)
    size, place = read_varint(record, place + 1)
    if not size:
        return b""
    size, place = read_varint(record, place + 1)
    return bytes(record[place : place + size])


def _varint_values(data: np.ndarray, is_last: np.ndarray) -> np.ndarray:
    """Return the numbers of consecutive varints: int64.

    >>> data = np.array([5, 172, 2], np.uint8)
    >>> _varint_values(data, data < 128).tolist()
    [5, 300]
    """
    starts = np.concatenate(([0], np.flatnonzero(is_last)[:-1] + 1)) if len(data) else np.zeros(0, np.int64)
    index = np.arange(len(data)) - np.repeat(starts, np.diff(starts, append=len(data)))
    septets = (data & 127).astype(np.uint64) << (7 * index).astype(np.uint64)
    return np.add.reduceat(septets, starts).view(np.int64) if len(data) else np.zeros(0, np.int64)
