"""Which split a row of a table goes to, and what it is known by."""

import msgspec

from recordmill.schemas.splits import SplitShares


class RowSplits(msgspec.Struct, frozen=True):
    """How rows are divided into splits, and ordered within one.

    Attributes:
        shares: by the hash of what a row is known by; one split takes all.
        key: column that a row is known by, so that it stays in its split whatever else changes; where empty, a row is
            known by its record.
        group: column whose rows of one value go to one split; empty for none.
        column: column that names the split; empty where `shares` decide.
        stratified: column of the classes that are each divided by `shares`; empty where all rows are divided together.
        names: of all splits. A row that cannot be read counts with the first.
        images: folders of pictures, where the key is the path of one; all spellings of it are one key.
    """

    shares: SplitShares
    names: tuple[str, ...]
    key: str = ""
    group: str = ""
    column: str = ""
    stratified: str = ""
    images: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that every row must have a value of."""
        return tuple(dict.fromkeys(name for name in (self.key, self.group, self.column) if name))
