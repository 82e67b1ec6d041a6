"""Rejects as steps pass them on."""

from collections.abc import Iterable

import msgspec

from recordmill.schemas.rejects import Rejected, RejectTally
from recordmill.transforms.rejects.bounded_rejects import RejectKind, Rejects, count_rejects, line_of
from recordmill.transforms.rejects.write_rejects import tally_rejects


def kind_rejects(rejected: Iterable[tuple[str, Rejected]]) -> list[tuple[RejectKind, Rejects]]:
    """(split, Rejected) as (RejectKind, Rejects)."""
    return list(count_rejects(rejected).items())


def tally(rejects: Iterable[Rejected]) -> RejectTally:
    return tally_rejects(kind_rejects(("train", reject) for reject in rejects))


def rejects_in(of_kind: tuple[RejectKind, Rejects]) -> list[tuple[str, Rejected]]:
    (split, _, _), rejects = of_kind
    return [(split, rejected(line)) for line in rejects.lines()]


def rejected(keyed: bytes) -> Rejected:
    """The reject of a keyed line."""
    line = msgspec.json.decode(line_of(keyed))
    line.pop("split")
    return msgspec.convert(list(line.values()), Rejected)
