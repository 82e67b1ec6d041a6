"""Rejects as steps pass them on."""

from collections.abc import Iterable

from recordmill.schemas.rejects import Rejected, RejectRun, RejectTally
from recordmill.transforms.rejects.reject_blocks import reject_of, reject_runs
from recordmill.transforms.rejects.write_rejects import add_tallies
from recordmill.transforms.runtime.line_blocks import lines_in


def split_runs(rejected: Iterable[tuple[str, Rejected]]) -> list[tuple[str, RejectRun]]:
    """(split, Rejected) as (split, RejectRun)."""
    items = list(rejected)
    return [
        (split, run)
        for split in dict(items)
        for run in reject_runs("", split, (reject for of, reject in items if of == split))
    ]


def tally(rejects: Iterable[Rejected]) -> RejectTally:
    return add_tallies(run.tally for run in reject_runs("", "train", rejects))


def rejects_in(of_split: tuple[str, RejectRun]) -> list[tuple[str, Rejected]]:
    split, run = of_split
    return [(split, reject_of(line)) for block in run.blocks for line in lines_in(block)]
