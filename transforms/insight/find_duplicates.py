"""Group duplicate images of all splits by their fingerprints."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, groupby
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.problems import (
    FINGERPRINT,
    NO_FINGERPRINT_OFFSET,
    NO_HASH,
    Agreement,
    DuplicateGroup,
    DuplicateImage,
    Fingerprints,
    Likeness,
    SplitDuplicates,
)
from recordmill.transforms.insight.fingerprint_images import image_class

NEAR_BITS = 8
"""Maximum number of differing bits of two near hashes, see docs/decisions/0028-duplicates.md."""

_BANDS = range(0, 64, 16)
"""First bits of the four bands of a hash. Two hashes that differ in fewer than 8 bits have a band that differs in at
most 1 bit. So do 96 % of those that differ in 8 bits."""
_FLIPS = (0, *(1 << bit for bit in range(16)))
_SURE_BITS = 24
"""Minimum number of common set bits of hashes of detailed images. Drawings of a few flat shapes have fewer: half of
their frequencies are 0."""
_NEAR_FORM = 4
"""Maximum difference of any value of two forms, of 256 steps, for images without much detail."""
_MOST_COMPARED = 1024
"""Maximum number of next hashes of a band that a hash is compared with. Data with more equal bands (a million icons)
then takes minutes, not days, and has large groups anyway. Equal hashes are ordered by form."""
_PAIRS_AT_ONCE = 1 << 16
_ROWS_AT_ONCE = 1 << 17
_BITS_SET = np.array([number.bit_count() for number in range(1 << 16)], np.uint8)


def near_groups(hashes: np.ndarray, forms: np.ndarray) -> np.ndarray:
    """Return the index of the first image of each image's group. Each image of a group is near at least one other.

    Args:
        hashes: uint64 [n].
        forms: uint8 [n, m], see `recordmill.schemas.problems.FINGERPRINT`.

    Returns:
        int64 [n].
    """
    has_detail = bits_set(hashes) >= _SURE_BITS + NEAR_BITS  # any near hash then has _SURE_BITS bits in common
    earliest, kind = _group_equal_rows(hashes, np.where(has_detail[:, None], 0, forms))
    hashes, forms = hashes[earliest], forms[earliest]
    first = np.arange(len(hashes))
    for one, other in _near_pairs(hashes):
        # If the hashes have too few bits in common, the forms must be near, too.
        is_sure = bits_set(hashes[one] & hashes[other]) >= _SURE_BITS
        difference = np.abs(forms[one].astype(np.int16) - forms[other]).max(axis=1, initial=0)
        is_near = is_sure | (difference <= _NEAR_FORM)
        _merge_groups(first, one[is_near], other[is_near])
    np.minimum.at(earliest, first, earliest.copy())
    return earliest[first[kind]]


def _group_equal_rows(number: np.ndarray, more: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Group equal rows to kinds.

    Args:
        number, more: Columns of the rows, [n] and [n, m], such as hashes and forms.

    Returns:
        int64 [k], the index of the first row of each kind, in the order of values; int64 [n], the kind of each row.
    """
    order = np.lexsort((*more.T[::-1], number))  # stable
    is_new = np.ones(len(order), bool)
    is_new[1:] = number[order[1:]] != number[order[:-1]]
    is_new[1:] |= (more[order[1:]] != more[order[:-1]]).any(axis=1)
    kind = np.empty(len(order), np.int64)
    kind[order] = np.cumsum(is_new) - 1
    return order[is_new], kind


def _merge_groups(first: np.ndarray, one: np.ndarray, other: np.ndarray) -> None:
    """Merge the groups of pairs in `first`, in place."""
    while True:
        ends = first[one], first[other]
        low = np.minimum(*ends)
        if all(np.array_equal(end, low) for end in ends):
            break
        for end in ends:
            np.minimum.at(first, end, low)
        while not np.array_equal(first, shorter := first[first]):
            first[:] = shorter


def _near_pairs(hashes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield pairs of indices of near hashes, as two arrays. Some pairs are yielded more than once."""
    for band in _BANDS:
        turned = hashes << np.uint64(48 - band) | hashes >> np.uint64(band + 16)  # the band is in the highest bits
        order = np.argsort(turned, kind="stable")
        turned = turned[order]
        bounds = np.searchsorted(turned >> np.uint64(48), np.arange((1 << 16) + 1))  # of each value of the band
        for begin in range(0, len(order), _ROWS_AT_ONCE):
            rows = np.arange(begin, min(begin + _ROWS_AT_ONCE, len(order)))
            values = (turned[rows] >> np.uint64(48)).astype(np.int64)
            for flip in _FLIPS:
                # Compare with later hashes of an equal band, and with bands of a larger value: each pair once.
                if flip:
                    smaller = values < values ^ flip
                    chosen, targets = rows[smaller], values[smaller] ^ flip
                    starts = bounds[targets]
                else:  # equal hashes are compared in the first band only
                    chosen, targets = rows, values
                    starts = rows + 1 if band == _BANDS[0] else np.searchsorted(turned, turned[rows], "right")
                for one, other in _range_pairs(
                    chosen, starts, np.minimum(bounds[targets + 1], starts + _MOST_COMPARED)
                ):
                    near = bits_set(turned[one] ^ turned[other]) <= NEAR_BITS
                    if near.any():
                        yield order[one[near]], order[other[near]]


def _range_pairs(rows: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield each row with each index of its range, in chunks of about _PAIRS_AT_ONCE pairs."""
    lengths = ends - starts
    total = np.cumsum(lengths)
    begin = 0
    while begin < len(lengths):
        before = total[begin] - lengths[begin]
        end = max(begin + 1, int(np.searchsorted(total, before + _PAIRS_AT_ONCE, "right")))
        number = lengths[begin:end]
        one = np.repeat(np.arange(begin, end), number)
        within = np.arange(len(one)) - np.repeat(total[begin:end] - number - before, number)
        yield rows[one], starts[one] + within
        begin = end


def bits_set(numbers: np.ndarray) -> np.ndarray:
    """Return the number of set bits of each uint64."""
    if hasattr(np, "bitwise_count"):  # NumPy 2
        return np.bitwise_count(numbers)
    parts = numbers.astype("<u8").view("<u2").reshape(-1, 4)
    return _BITS_SET[parts].sum(1, dtype=np.uint8)


_LEAST_CLASS = 5
"""Minimum number of images of a class for `copied_classes`. In a smaller class most may be copies by chance."""


class DuplicateFindings(NamedTuple):
    """Duplicates of all splits.

    Attributes:
        groups: Groups across splits first, then exact before near groups.
        splits: Numbers of duplicates by split.
        copied: See `copied_classes`.
        conflicts: Number of different images whose exact copies have different labels.
        hashes: Perceptual hashes of the images of near groups, by shard and record.
    """

    groups: Sequence[DuplicateGroup]
    splits: Mapping[str, SplitDuplicates]
    copied: Mapping[int, int]
    conflicts: int
    hashes: Mapping[tuple[str, int], int]


def find_duplicates(fingerprints: Mapping[str, Iterable[Fingerprints]], has_classes: bool) -> DuplicateFindings:
    """Return the duplicates of all images.

    Fingerprints of 10 million images have 0.7 GB, and few images have a copy. So fingerprints are read twice: first the
    columns that show which images may have a copy, then the rows of those images.

    Args:
        fingerprints: Fingerprints of the shards of each split; iterated twice.
        has_classes: True if each image has one class.
    """
    splits = sorted(fingerprints)
    may_have_copy = _may_have_copies(shard for split in splits for shard in fingerprints[split])
    images = _Images(((split, shard) for split in splits for shard in fingerprints[split]), may_have_copy)
    classes = image_class(images.rows["labels"])
    copied = copied_classes(images.first_copy, classes, images.unique_counts) if has_classes else {}
    groups = sorted(
        images.groups(),
        key=lambda group: (
            not group.is_leak,
            group.kind is Likeness.NEAR,
            group.labels is Agreement.SAME,
            group.images,
        ),
    )
    counts = {split: images.counts(split) for split in splits}
    return DuplicateFindings(groups, counts, copied, images.conflicts(), images.hashes())


def _may_have_copies(shards: Iterable[Fingerprints]) -> np.ndarray:
    """Return bool [n]: another image has the same first half of the digest, or a near hash."""
    digests, hashes = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
    for shard in shards:
        digests.append(shard.array["digest"][:, 0].copy())
        hashes.append(shard.array["hash"].copy())
    has_copy = _is_repeated(np.concatenate(digests))
    del digests  # of 10 million images, each column has 80 MB
    column = np.concatenate(hashes)
    del hashes
    return has_copy | _is_repeated_or_near(column)


def _is_repeated(values: np.ndarray) -> np.ndarray:
    ordered = np.sort(values)
    return _is_in(values, np.unique(ordered[1:][ordered[1:] == ordered[:-1]]))


def _is_repeated_or_near(hashes: np.ndarray) -> np.ndarray:
    """Return bool [n]: the hash occurs more than once, or is near another hash."""
    values, number = np.unique(hashes[hashes != NO_HASH], return_counts=True)
    is_like = number > 1
    del number
    for one, other in _near_pairs(values):
        is_like[one] = is_like[other] = True
    return _is_in(hashes, values[is_like])


def _is_in(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Return bool [n]: the value is in the sorted `ordered`."""
    positions = np.searchsorted(ordered, values)
    return np.append(ordered, 0)[positions] == values if len(ordered) else np.zeros(len(values), bool)


class _Images:
    """Images that may have copies, as arrays.

    Attributes:
        rows: FINGERPRINT [n].
        first_copy: int64 [n], index of the first image with the same digest.
        unique_counts: Number of all other images, by class index.
    """

    def __init__(self, shards: Iterable[tuple[str, Fingerprints]], may_have_copy: np.ndarray):
        parts, numbers, versions, begin = [np.zeros(0, FINGERPRINT)], [], [], 0
        self._shards: list[tuple[str, str]] = []  # split and file
        self._names: list[str] = []
        self.unique_counts: Counter[int] = Counter()
        for split, shard in shards:
            rows = shard.array
            is_chosen = may_have_copy[begin : begin + len(rows)]
            begin += len(rows)
            classes, counts = np.unique(image_class(rows["labels"][~is_chosen]), return_counts=True)
            self.unique_counts.update(dict(zip(classes.tolist(), counts.tolist(), strict=True)))
            parts.append(rows[is_chosen])
            numbers.append(len(parts[-1]))
            versions.append(shard.version)
            self._shards.append((split, shard.shard))
            self._names += compress(msgspec.json.decode(shard.names, type=list[str]), is_chosen) if numbers[-1] else ()
        self.rows = np.concatenate(parts)
        self._shard = np.repeat(np.arange(len(numbers)), numbers)
        self._splits = sorted({split for split, _ in self._shards})
        split_numbers = np.array([self._splits.index(split) for split, _ in self._shards], np.int64)
        self._split = split_numbers[self._shard]
        first, kind = _group_equal_rows(self.rows["digest"][:, 0], self.rows["digest"][:, 1:])
        self.first_copy = first[kind]
        self._group = self._find_near_groups()
        number = len(self.rows)
        self._has_copy = np.bincount(self.first_copy, minlength=number)[self.first_copy] > 1
        self._has_like = np.bincount(self._group, minlength=number)[self._group] > 1
        self._is_near = _varies(self._group, self.first_copy)
        self._is_leak = _varies(self._group, self._split)
        classes = image_class(self.rows["labels"])
        is_mixed = _varies(self.first_copy, np.array(versions, np.int64)[self._shard])
        labels = np.where(is_mixed, classes, self.rows["labels"])  # versions have other digests of equal boxes
        self._conflicts = _varies(self.first_copy, labels)
        self._differs = np.where(self._is_near, _varies(self._group, classes), _varies(self._group, labels))

    def _find_near_groups(self) -> np.ndarray:
        """Return int64 [n], the index of the first image with the same or a near image."""
        hashes = np.zeros(len(self.rows), np.uint64)
        forms = np.zeros_like(self.rows["form"])
        has_hash = self.rows["hash"] != NO_HASH  # some copies may not have been decoded
        hashes[self.first_copy[has_hash]] = self.rows["hash"][has_hash]
        forms[self.first_copy[has_hash]] = self.rows["form"][has_hash]
        hashed = np.flatnonzero(hashes != NO_HASH)
        group = np.arange(len(self.rows))
        group[hashed] = hashed[near_groups(hashes[hashed], forms[hashed])]
        return group[self.first_copy]

    def counts(self, split: str) -> SplitDuplicates:
        is_in_split = self._split == (self._splits.index(split) if split in self._splits else -1)
        kinds = (self._has_copy, self._has_like & ~self._has_copy, self._is_leak, self._differs, self._conflicts)
        return SplitDuplicates(*(int((is_in_split & kind).sum()) for kind in kinds))

    def conflicts(self) -> int:
        """Return the number of different images whose exact copies have different labels."""
        return len(np.unique(self.first_copy[self._conflicts]))

    def hashes(self) -> dict[tuple[str, int], int]:
        """Return the hashes of the images of near groups, by shard and record."""
        rows = self.rows[self._is_near]
        shards = (self._shards[index][1] for index in self._shard[self._is_near].tolist())
        return dict(zip(zip(shards, rows["record"].tolist(), strict=True), rows["hash"].tolist(), strict=True))

    def groups(self) -> Iterator[DuplicateGroup]:
        members = np.flatnonzero(self._has_like)
        ordered = members[np.argsort(self._group[members], kind="stable")].tolist()
        for _, group in groupby(ordered, lambda index: self._group[index]):
            indices = list(group)
            yield DuplicateGroup(
                Likeness.NEAR if self._is_near[indices[0]] else Likeness.EXACT,
                Agreement.DIFFER if self._differs[indices[0]] else Agreement.SAME,
                tuple(sorted(map(self._image, indices))),
            )

    def _image(self, index: int) -> DuplicateImage:
        split, shard = self._shards[self._shard[index]]
        record, offset, size = (int(self.rows[name][index]) for name in ("record", "offset", "bytes"))
        image = split, self._names[index], shard, record
        return (
            DuplicateImage(*image, records=size)
            if offset == NO_FINGERPRINT_OFFSET
            else DuplicateImage(*image, offset, size)
        )


def _varies(group: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return bool [n]: the values in the image's group differ. A group is the index of its first image."""
    varies = np.zeros(len(group), bool)
    varies[group[values != values[group]]] = True
    return varies[group]


def copied_classes(
    images: np.ndarray, classes: np.ndarray, unique_counts: Mapping[int, int] = MappingProxyType({})
) -> dict[int, int]:
    """Return classes whose images are mostly copies of other classes' images, with the number of copies. An example is
    a folder of all images next to the folders of classes. A class, once found, is ignored from then on.

    Args:
        images: int64 [n], equal for equal images.
        classes: uint64 [n], class indices.
        unique_counts: Number of further images, without a copy, by class index.

    >>> copied_classes(np.array([0, 1, 2, 3, 4, 5] * 2), np.array([7] * 6 + [1, 1, 1, 2, 2, 2]))
    {7: 6}
    """
    pairs = np.unique(np.stack([images.astype(np.int64), classes.astype(np.int64)], axis=1), axis=0)
    copies_by_class: dict[int, int] = {}
    while len(pairs):
        _, image, number = np.unique(pairs[:, 0], return_inverse=True, return_counts=True)
        indices, class_numbers = np.unique(pairs[:, 1], return_inverse=True)
        totals = np.bincount(class_numbers) + [unique_counts.get(index, 0) for index in indices.tolist()]
        copies = np.bincount(class_numbers[number[image] > 1], minlength=len(indices))
        copies[(2 * copies <= totals) | (totals < _LEAST_CLASS)] = 0
        if not copies.any():
            break
        most = int(copies.argmax())
        copies_by_class[int(indices[most])] = int(copies[most])
        pairs = pairs[pairs[:, 1] != indices[most]]
    return copies_by_class
