"""Fingerprints of splits become groups of images that show the same.

All is in memory, as arrays: some 150 bytes an image, see docs/decisions/0028-duplicates.md.
"""

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
from recordmill.transforms.duplicates.fingerprint_images import image_class
from recordmill.transforms.duplicates.near_groups import near_groups

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
        """Of each image the index of the first of those that show the same."""
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
        """Of indices in ascending order; names are decoded shard by shard."""
        of_shard = np.split(members, np.searchsorted(members, self._bounds[1:-1]))
        for (split, shard), begin, indices in zip(self._shards, self._bounds[:-1].tolist(), of_shard, strict=False):
            names = msgspec.json.decode(shard.names, type=list[str]) if len(indices) else []
            for index in indices.tolist():
                row = self.rows[index]
                place = (int(row[name]) for name in ("record", "offset", "bytes"))
                yield DuplicateImage(split, names[index - begin], shard.shard, *place)


def _first_of_equal(pictures: np.ndarray) -> np.ndarray:
    """Of each of uint64 [n, 2] the index of the first that is equal."""
    order = np.lexsort((pictures[:, 1], pictures[:, 0]))  # stable
    ordered = pictures[order]
    starts = np.ones(len(order), bool)
    starts[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    first = np.empty(len(order), np.int64)
    first[order] = order[np.flatnonzero(starts)][np.cumsum(starts) - 1]
    return first


def _varies(group: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Of each image whether the values in its group are not all the same; groups are indices of their first images."""
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
