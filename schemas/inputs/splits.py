"""Assignment of images and rows to splits. It depends on the image's name or the row's key only, so each keeps its
split when others are added."""

import re
from bisect import bisect_right
from fractions import Fraction
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import accumulate
from typing import Any

import msgspec

from recordmill.schemas.errors import SlowPatternError

_PLACES = 1 << 63
_SEARCH_S = 10
_MAX_NAME = 80
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]*")

SPLIT_OF_FOLDER = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
"""Splits by the folders, and the words in names of files, that tools give them."""
USUAL_SPLITS = tuple(dict.fromkeys(SPLIT_OF_FOLDER.values()))

_SPLIT_FILE = re.compile(rf"({'|'.join(SPLIT_OF_FOLDER)})(?:[-_.].*)?")

ONLY_CASE = "which differ only in case, so that some file systems would take their shards for the same files"


def split_of_file(name: str) -> str:
    """Return the split that a file's name begins with; empty without one.

    >>> split_of_file("validation-00000-of-00001.parquet"), split_of_file("training.csv")
    ('val', '')
    """
    found = _SPLIT_FILE.fullmatch(name)
    return SPLIT_OF_FOLDER[found[1]] if found else ""


def split_name_fault(name: str) -> str:
    """Why there can be no split of that name; empty for a good one."""
    if not _NAME.fullmatch(name):
        return "must be letters, digits and _: it is part of file names"
    if name == "all":
        return "is what TFDS calls all splits together"
    return "" if len(name) <= _MAX_NAME else f"has {len(name)} characters; file names have room for {_MAX_NAME}"


class SplitShares(msgspec.Struct, frozen=True, dict=True):
    """How a data set is divided into splits.

    Attributes:
        shares: splits and the fraction of images that each gets; they sum to 1.
        seed: another seed gives another division.
    """

    shares: tuple[tuple[str, Fraction], ...]
    seed: int = 0

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.shares)

    @cached_property
    def borders(self) -> tuple[int, ...]:
        """The position at which each split but the last ends."""
        return tuple(int(share * _PLACES) for share in self._sums[:-1])

    @property
    def _sums(self) -> list[Fraction]:
        return list(accumulate(share for _, share in self.shares))

    def split_of(self, name: str) -> str:
        """The split of the image called `name`, by its position and nothing else."""
        return self.split_at(self.position(name), self.borders) if self.borders else self.names[0]

    def split_at(self, position: int, borders: tuple[int, ...]) -> str:
        return self.shares[bisect_right(borders, position)][0]

    def position(self, name: str) -> int:
        """A hash of the name in 0 .. 2**63 - 1: evenly distributed, and the same on every machine."""
        return _hashed(f"split {self.seed}/{name}")

    def ends(self, images: int, group: str) -> tuple[int, ...]:
        """The index, among the ordered images of a group, at which each split but the last ends.

        Each split gets its share, rounded up or down; which of the two depends on a hash of the group's name. So the
        shares also hold over many small groups, where rounding to the nearest would favour the same split in each.

        >>> SplitShares((("train", Fraction(4, 5)), ("val", Fraction(1, 5)))).ends(17, "cat")
        (14,)
        """
        rounding = Fraction(_hashed(f"group {self.seed}/{group}"), _PLACES)
        return tuple(min(images, int(share * images + rounding)) for share in self._sums[:-1])

    def __str__(self) -> str:
        """Text of --split, for decimal shares."""
        if len(self.shares) == 1:
            return self.names[0]
        return ",".join(f"{name}={float(share)}" for name, share in self.shares)


class Division(msgspec.Struct, frozen=True):
    """Assignment of images to splits, by name or by group.

    Attributes:
        group_from: regular expression that finds the group in a name, see `find_group`; empty where there are none.
        groups: by name, of images that are in a group by a list.
    """

    shares: SplitShares
    group_from: str = ""
    groups: dict[str, str] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return self.shares.names

    def group_of(self, name: str) -> str:
        """The group of the image called `name`; empty where its name gives none. Without groups, and of images in no
        list, the name itself."""
        return find_group(self.group_from, name) if self.group_from else self.groups.get(name, name)

    def split_of(self, name: str) -> str:
        """The split of the image called `name`, also of one that gives no group, which is rejected."""
        return self.shares.split_of(self.group_of(name) or name)

    def fault(self, name: str) -> str:
        """Why the image called `name` cannot be divided; empty where it can."""
        return "" if self.group_of(name) else f"has nothing that --group-from {self.group_from} finds"


class RowSplits(msgspec.Struct, frozen=True):
    """Assignment of rows to splits, and their order within a split.

    Attributes:
        shares: by the hash of what a row is known by; one split takes all.
        key: column that identifies a row, so that it keeps its split if other columns change; where empty, a row is
            known by its record.
        group: column whose rows of one value go to one split; empty for none.
        column: column that names the split; empty where `shares` decide.
        stratified: column of the classes that are each divided by `shares`; empty where all rows are divided together.
        is_ranked: each split gets its share of rows in the order of their hashes.
        names: of all splits. A row that cannot be read counts with the first.
        images: folders of pictures, where the key is the path of one; all spellings of it are one key.
    """

    shares: SplitShares
    names: tuple[str, ...]
    key: str = ""
    group: str = ""
    column: str = ""
    stratified: str = ""
    is_ranked: bool = False
    images: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that every row must have a value of."""
        return tuple(dict.fromkeys(name for name in (self.key, self.group, self.column) if name))


def group_fault(pattern: str) -> str:
    """Why a text is no regular expression that finds groups; empty for a good one."""
    import regex

    if not pattern:
        return "is empty and finds nothing"
    try:
        _compiled(pattern)
    except regex.error as error:
        return f"is no regular expression ({error})"
    return ""


def find_group(pattern: str, name: str) -> str:
    """Return the match of a regular expression in a name: its first group, or all of it without a group; empty without
    a match.

    Raises:
        SlowPatternError: it takes too long, as `(a+)+b` does.

    >>> find_group("patient[0-9]+", "x/patient7_2.jpg"), find_group("^([a-z]+)_", "x/patient7_2.jpg")
    ('patient7', '')
    """
    try:
        match = _compiled(pattern).search(name, timeout=_SEARCH_S)
    except TimeoutError as error:
        raise SlowPatternError(
            f"--group-from {pattern} takes more than {_SEARCH_S} seconds for {name!r}: repetitions within repetitions "
            "do that; give one without"
        ) from error
    return (match[1 if match.re.groups else 0] or "") if match else ""


@lru_cache
def _compiled(pattern: str) -> Any:
    import regex  # not re, which cannot be stopped

    return regex.compile(pattern)


def name_id(name: str) -> int:
    """An image id, 0 .. 2**63 - 1, for an image that has only a name.

    >>> name_id("Cat/1.jpg")
    2695367441031891898
    """
    return _hashed(f"image {name}")


def _hashed(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
