"""Fingerprints of splits become groups of images that show the same."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.duplicates import (
    FINGERPRINT,
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
"""Hashes that differ in so many bits at the most are near: see docs/decisions/0028-duplicates.md."""

_BANDS = range(0, 64, 16)
"""Hashes are cut into four bands. Of two that differ in less than 8 bits, one band differs in one bit at the most. So
it is with 96 % of those that differ in 8."""
_FLIPS = np.array([0, *(1 << bit for bit in range(16))], np.uint64)
_SURE_BITS = 24
"""Hashes with so many bits in common are of pictures full of detail. Those of drawings of a few flat shapes have less:
half of their frequencies are 0."""
_NEAR_FORM = 4
"""Steps of the 256 that every part of a form may be apart by, of pictures without much detail."""
_MOST = 1024
"""Hashes that one is compared with, of the next ones of a band: data of which more are equal there (a million icons)
takes minutes so, not days, and their groups are long anyway. Of one hash, the next ones are those of the next form."""
_PAIRS_AT_ONCE = 1 << 16
_BITS_SET = np.array([number.bit_count() for number in range(1 << 16)], np.uint8)


def near_groups(hashes: np.ndarray, forms: np.ndarray) -> np.ndarray:
    """For each picture the index of the first of its group. Pictures of a group are near another of it, not all of them
    near each other.

    Args:
        hashes: uint64 [n].
        forms: uint8 [n, m], see `recordmill.schemas.duplicates.FINGERPRINT`.

    Returns:
        int64 [n].
    """
    is_sure = bits_set(hashes) >= _SURE_BITS + NEAR_BITS  # so that of all that are near enough bits are common
    earliest, kind = _kinds(hashes, np.where(is_sure[:, None], 0, forms))
    hashes, forms = hashes[earliest], forms[earliest]
    first = np.arange(len(hashes))
    for one, other in _near_pairs(hashes):
        alike = _are_alike(hashes, forms, one, other)
        _join(first, one[alike], other[alike])
    np.minimum.at(earliest, first, earliest.copy())
    return earliest[first[kind]]


def _kinds(hashes: np.ndarray, forms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Group equal hash and form to kinds: int64 [k], the index of the first of each kind, in the order of hash and
    form; and int64 [n], the kind of each."""
    order = np.lexsort((*forms.T[::-1], hashes))  # stable
    is_new = np.ones(len(order), bool)
    is_new[1:] = hashes[order[1:]] != hashes[order[:-1]]
    is_new[1:] |= (forms[order[1:]] != forms[order[:-1]]).any(axis=1)
    kind = np.empty(len(order), np.int64)
    kind[order] = np.cumsum(is_new) - 1
    return order[is_new], kind


def _are_alike(hashes: np.ndarray, forms: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Whether pictures whose hashes are near are of the same form, too, where their hashes say too little."""
    is_sure = bits_set(hashes[one] & hashes[other]) >= _SURE_BITS
    apart = np.abs(forms[one].astype(np.int16) - forms[other]).max(axis=1, initial=0)
    return is_sure | (apart <= _NEAR_FORM)


def _join(first: np.ndarray, one: np.ndarray, other: np.ndarray) -> None:
    """Let the groups of pairs be the same, in place."""
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
    """Indices of the one and the other of hashes that are near each other; some pairs more than once."""
    for band in _BANDS:
        values = hashes >> np.uint64(band) & np.uint64(0xFFFF)
        order = np.lexsort((hashes, values))
        ordered, sorted_hashes = values[order], hashes[order]
        for flip in _FLIPS:
            starts, ends = (np.searchsorted(ordered, ordered ^ flip, side) for side in ("left", "right"))
            # Each pair once: of equal bands the later hashes, of others those of the larger value.
            if flip:
                starts = np.where(ordered < ordered ^ flip, starts, ends)
            else:  # and of equal hashes in one band only
                starts = np.arange(1, len(ordered) + 1) if band == _BANDS[0] else _ends_of_runs(sorted_hashes)
            for one, other in _ranges(starts, np.minimum(ends, starts + _MOST)):
                near = bits_set(sorted_hashes[one] ^ sorted_hashes[other]) <= NEAR_BITS
                if near.any():
                    yield order[one[near]], order[other[near]]


def _ends_of_runs(values: np.ndarray) -> np.ndarray:
    """Return for each value the index after the last equal neighbour.

    >>> _ends_of_runs(np.array([5, 5, 7]))
    array([2, 2, 3])
    """
    ends = np.append(np.flatnonzero(values[1:] != values[:-1]) + 1, len(values))
    return np.repeat(ends, np.diff(ends, prepend=0))


def _ranges(starts: np.ndarray, ends: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Every index with each of its range, some at a time."""
    lengths = ends - starts
    total = np.cumsum(lengths)
    begin = 0
    while begin < len(lengths):
        before = total[begin] - lengths[begin]
        end = max(begin + 1, int(np.searchsorted(total, before + _PAIRS_AT_ONCE, "right")))
        number = lengths[begin:end]
        one = np.repeat(np.arange(begin, end), number)
        within = np.arange(len(one)) - np.repeat(total[begin:end] - number - before, number)
        yield one, starts[one] + within
        begin = end


def bits_set(numbers: np.ndarray) -> np.ndarray:
    """How many bits are set in each uint64."""
    if hasattr(np, "bitwise_count"):  # of numpy 2
        return np.bitwise_count(numbers)
    parts = numbers.astype("<u8").view("<u2").reshape(-1, 4)
    return _BITS_SET[parts].sum(1, dtype=np.uint8)


_ENOUGH = 5
"""Pictures of a class, of which most being copies is no chance."""


class Found(NamedTuple):
    """The duplicates of some splits.

    Attributes:
        groups: those that are in several splits first, then exact before near ones.
        splits: how many of each split.
        copied: see `copied_classes`.
    """

    groups: Sequence[DuplicateGroup]
    splits: Mapping[str, SplitDuplicates]
    copied: Mapping[int, int]


def find_duplicates(fingerprints: Mapping[str, Sequence[Fingerprints]], has_classes: bool) -> Found:
    """
    Args:
        fingerprints: of the shards of each split.
        has_classes: whether each image has one class.
    """
    splits = sorted(fingerprints)
    images = _Images([(split, shard) for split in splits for shard in fingerprints[split]])
    copied = copied_classes(images.picture, image_class(images.rows["labels"])) if has_classes else {}
    groups = sorted(
        images.groups(),
        key=lambda each: (not each.is_leak, each.kind is Likeness.NEAR, each.labels is Agreement.SAME, each.images),
    )
    return Found(groups, {split: images.counts(split) for split in splits}, copied)


class _Images:
    """Images as arrays.

    Attributes:
        rows: FINGERPRINT [n].
        picture: of each the index of the first image with the same picture.
    """

    def __init__(self, shards: Sequence[tuple[str, Fingerprints]]):
        self._shards = shards
        parts = [np.zeros(0, FINGERPRINT), *(shard.array for _, shard in shards)]
        self.rows = np.concatenate(parts)
        self._bounds = np.cumsum([len(part) for part in parts])
        self._splits = sorted({split for split, _ in shards})
        of_shards = np.array([self._splits.index(split) for split, _ in shards], np.int64)
        self._split = np.repeat(of_shards, np.diff(self._bounds))
        self.picture = _first_of_equal(self.rows["picture"])
        self._group = self._groups_of_near()
        number = len(self.rows)
        self._has_copy = np.bincount(self.picture, minlength=number)[self.picture] > 1
        self._has_like = np.bincount(self._group, minlength=number)[self._group] > 1
        self._is_near = _varies(self._group, self.picture)
        self._is_leak = _varies(self._group, self._split)
        labels = self.rows["labels"]
        self._differs = np.where(self._is_near, _varies(self._group, image_class(labels)), _varies(self._group, labels))

    def _groups_of_near(self) -> np.ndarray:
        """Return for each image the index of the first one with the same contents."""
        hashes = np.zeros(len(self.rows), np.uint64)
        forms = np.zeros_like(self.rows["form"])
        seen = self.rows["hash"] != NO_HASH  # not every copy need have been looked at
        hashes[self.picture[seen]], forms[self.picture[seen]] = self.rows["hash"][seen], self.rows["form"][seen]
        looked_at = np.flatnonzero(hashes != NO_HASH)
        group = np.arange(len(self.rows))
        group[looked_at] = looked_at[near_groups(hashes[looked_at], forms[looked_at])]
        return group[self.picture]

    def counts(self, split: str) -> SplitDuplicates:
        of = self._split == (self._splits.index(split) if split in self._splits else -1)
        which = (self._has_copy, self._has_like & ~self._has_copy, self._is_leak, self._differs)
        return SplitDuplicates(*(int((of & each).sum()) for each in which))

    def groups(self) -> Iterator[DuplicateGroup]:
        members = np.flatnonzero(self._has_like)
        found = dict(zip(members.tolist(), self._described(members), strict=True))
        ordered = members[np.argsort(self._group[members], kind="stable")].tolist()
        for _, of_group in groupby(ordered, lambda index: self._group[index]):
            indices = list(of_group)
            yield DuplicateGroup(
                Likeness.NEAR if self._is_near[indices[0]] else Likeness.EXACT,
                Agreement.DIFFER if self._differs[indices[0]] else Agreement.SAME,
                tuple(sorted(found[index] for index in indices)),
            )

    def _described(self, members: np.ndarray) -> Iterator[DuplicateImage]:
        """Yield the names of ascending indices, decoded shard by shard."""
        of_shard = np.split(members, np.searchsorted(members, self._bounds[1:-1]))
        for (split, shard), begin, indices in zip(self._shards, self._bounds[:-1].tolist(), of_shard, strict=False):
            names = msgspec.json.decode(shard.names, type=list[str]) if len(indices) else []
            for index in indices.tolist():
                row = self.rows[index]
                place = (int(row[name]) for name in ("record", "offset", "bytes"))
                yield DuplicateImage(split, names[index - begin], shard.shard, *place)


def _first_of_equal(pictures: np.ndarray) -> np.ndarray:
    """Return for each of uint64 [n, 2] the index of the first equal one."""
    order = np.lexsort((pictures[:, 1], pictures[:, 0]))  # stable
    ordered = pictures[order]
    starts = np.ones(len(order), bool)
    starts[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    first = np.empty(len(order), np.int64)
    first[order] = order[np.flatnonzero(starts)][np.cumsum(starts) - 1]
    return first


def _varies(group: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return for each image whether the values in its group differ. Groups are indices of their first images."""
    varies = np.zeros(len(group), bool)
    varies[group[values != values[group]]] = True
    return varies[group]


def copied_classes(pictures: np.ndarray, classes: np.ndarray) -> dict[int, int]:
    """Classes most of whose pictures are other classes' pictures, too, and how many are: a folder of all pictures
    beside folders of the classes. What is found to be one does not count against the others.

    Args:
        pictures: int64 [n], equal for equal pictures.
        classes: uint64 [n], class indices.

    >>> copied_classes(np.array([0, 1, 2, 3, 4, 5] * 2), np.array([7] * 6 + [1, 1, 1, 2, 2, 2]))
    {7: 6}
    """
    pairs = np.unique(np.stack([pictures.astype(np.int64), classes.astype(np.int64)], axis=1), axis=0)
    found: dict[int, int] = {}
    while len(pairs):
        _, which, number = np.unique(pairs[:, 0], return_inverse=True, return_counts=True)
        indices, of_class = np.unique(pairs[:, 1], return_inverse=True)
        all_of, copies = np.bincount(of_class), np.bincount(of_class[number[which] > 1], minlength=len(indices))
        copies[(2 * copies <= all_of) | (all_of < _ENOUGH)] = 0
        if not copies.any():
            break
        most = int(copies.argmax())
        found[int(indices[most])] = int(copies[most])
        pairs = pairs[pairs[:, 1] != indices[most]]
    return found
