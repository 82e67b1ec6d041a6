"""Split assignment of images and rows. It depends only on the image's name or the row's key, so that each keeps its
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
"""Splits by usual names of folders, and by words in file names."""
SPLIT_OF_WORD = SPLIT_OF_FOLDER | {"training": "train", "testing": "test", "dev": "val", "eval": "val"}
"""Splits by names of folders that have class folders."""
USUAL_SPLITS = tuple(dict.fromkeys(SPLIT_OF_FOLDER.values()))

_SPLIT_FILE = re.compile(rf"({'|'.join(SPLIT_OF_FOLDER)})(?:[-_.].*)?")

ONLY_CASE = "which differ only in case, so that some file systems would take their shards for the same files"


def split_of_file(name: str) -> str:
    """Return the split in a file's name; empty without.

    >>> split_of_file("validation-00000-of-00001.parquet"), split_of_file("training.csv")
    ('val', '')
    """
    match = _SPLIT_FILE.fullmatch(name)
    return SPLIT_OF_FOLDER[match[1]] if match else ""


def split_name_fault(name: str) -> str:
    """Return the reason why a split cannot have the name; empty if it can."""
    if not _NAME.fullmatch(name):
        return "must be letters, digits and _: it is part of file names"
    if name == "all":
        return "is what TFDS calls all splits together"
    return "" if len(name) <= _MAX_NAME else f"has {len(name)} characters; file names have room for {_MAX_NAME}"


class SplitShares(msgspec.Struct, frozen=True, dict=True):
    """Shares of the splits of a data set.

    Attributes:
        shares: Splits and the fraction of images of each. Fractions sum to 1.
        seed: Seed of the assignment.
    """

    shares: tuple[tuple[str, Fraction], ...]
    seed: int = 0

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.shares)

    @cached_property
    def borders(self) -> tuple[int, ...]:
        """End of each split but the last, as a position."""
        return tuple(int(share * _PLACES) for share in self._sums[:-1])

    @property
    def _sums(self) -> list[Fraction]:
        return list(accumulate(share for _, share in self.shares))

    def split_of(self, name: str) -> str:
        """Return the split of `name`, by its position only."""
        return self.split_at(self.position(name), self.borders) if self.borders else self.names[0]

    def split_at(self, position: int, borders: tuple[int, ...]) -> str:
        return self.shares[bisect_right(borders, position)][0]

    def position(self, name: str) -> int:
        """Return a hash of the name in 0 .. 2**63 - 1: evenly distributed, and equal on every machine."""
        return _hashed(f"split {self.seed}/{name}")

    def ends(self, images: int, group: str) -> tuple[int, ...]:
        """Return the end of each split but the last, as an index among the ordered images of a group.

        Each share is rounded up or down, by a hash of the group's name. Rounding to the nearest would favour the same
        split in each of many small groups.

        >>> SplitShares((("train", Fraction(4, 5)), ("val", Fraction(1, 5)))).ends(17, "cat")
        (14,)
        """
        rounding = Fraction(_hashed(f"group {self.seed}/{group}"), _PLACES)
        return tuple(min(images, int(share * images + rounding)) for share in self._sums[:-1])

    def __str__(self) -> str:
        """Return the text of --split, with decimal shares."""
        if len(self.shares) == 1:
            return self.names[0]
        return ",".join(f"{name}={float(share)}" for name, share in self.shares)


class Division(msgspec.Struct, frozen=True):
    """Assignment of images to splits, by name or by group.

    Attributes:
        group_from: Regular expression that finds the group in a name, see `find_group`; empty without groups.
        groups: Group by name, for images that a file groups.
        sets: Data sets whose images have these groups. Names of images begin with that of the set, which `group_from`
            does not search. Empty for one data set.
    """

    shares: SplitShares
    group_from: str = ""
    groups: dict[str, str] = {}
    sets: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return self.shares.names

    def has_groups(self, name: str) -> bool:
        """Return False for the image `name` of a data set with its own groups."""
        return not self.sets or name.partition("/")[0] in self.sets

    def group_of(self, name: str) -> str:
        """Return the group of the image `name`; empty if `group_from` finds none. Without `group_from`, an image that
        no file groups is its own group."""
        if self.group_from and self.has_groups(name):
            return find_group(self.group_from, name.partition("/")[2] if self.sets else name)
        return self.groups.get(name, name)

    def split_of(self, name: str) -> str:
        """Return the split of the image `name`. An image without a group is rejected, and has a split for that."""
        return self.shares.split_of(self.group_of(name) or name)

    def fault(self, name: str) -> str:
        """Return the reason why the image `name` cannot be assigned to a split; empty if it can."""
        return "" if self.group_of(name) else f"does not match --group-from {self.group_from}"


def group_fault(pattern: str) -> str:
    """Return the reason why a text is not a regular expression that finds groups; empty if it is one."""
    import regex

    if not pattern:
        return "is empty and finds nothing"
    try:
        _compiled(pattern)
    except regex.error as error:
        return f"is not a regular expression ({error})"
    return ""


def find_group(pattern: str, name: str) -> str:
    """Return the match of a regular expression in a name: its first group, or all of it without a group; empty without
    a match.

    Raises:
        SlowPatternError: The search takes too long, as `(a+)+b` does.

    >>> find_group("patient[0-9]+", "x/patient7_2.jpg"), find_group("^([a-z]+)_", "x/patient7_2.jpg")
    ('patient7', '')
    """
    try:
        match = _compiled(pattern).search(name, timeout=_SEARCH_S)
    except TimeoutError as error:
        raise SlowPatternError(
            f"--group-from {pattern} takes more than {_SEARCH_S} seconds for {name!r}: repetitions within repetitions "
            "do that. Give one without"
        ) from error
    return (match[1 if match.re.groups else 0] or "") if match else ""


@lru_cache
def _compiled(pattern: str) -> Any:
    import regex  # re has no time limit

    return regex.compile(pattern)


def name_id(name: str) -> int:
    """Return an image id, 0 .. 2**63 - 1, for an image that has only a name.

    >>> name_id("Cat/1.jpg")
    2695367441031891898
    """
    # `_hashed`, written out for speed: this runs for every object of label files.
    return int.from_bytes(blake2b(f"image {name}".encode(), digest_size=8).digest(), "big") >> 1


def _hashed(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
