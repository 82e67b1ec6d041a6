"""Choose the type of a column from the forms of its values."""

from recordmill.schemas.features import ColumnType
from recordmill.transforms.rows.kinds import KINDS, Seen
from recordmill.transforms.rows.observe_columns import ColumnStats

NUMBERS = {Seen.INT64, Seen.FLOAT, Seen.LARGE, Seen.NOT_FINITE}


def narrowest_type(stats: ColumnStats) -> ColumnType:
    """Return the narrowest type that holds all values unchanged; NaN and infinity hold none."""
    looks = set(stats.seen)
    if looks and looks <= {Seen.INT64, Seen.FLOAT} and stats.is_whole and stats.rounded:
        return ColumnType.INT64  # whole numbers that int64 holds and float32 does not
    if looks & {Seen.FLOAT, Seen.NOT_FINITE} and looks <= NUMBERS:
        return ColumnType.FLOAT
    if looks == {Seen.DATE, Seen.TIMESTAMP}:
        return ColumnType.TIMESTAMP
    if looks == {Seen.ENUM} and stats.distinct is None:
        return ColumnType.BYTES
    return next((kind.type for kind in KINDS if looks == {kind.seen}), ColumnType.BYTES)
