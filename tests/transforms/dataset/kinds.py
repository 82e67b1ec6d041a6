"""Rejects as steps pass them on."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
from apache_beam.pvalue import PCollection

from recordmill.schemas.rejects import Rejected, RejectTally
from recordmill.transforms.dataset.collect_facts import collect_facts
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.dataset.rejects import RejectKind, Rejects, count_rejects, strip_key, tally_rejects


class SplitReject(NamedTuple):
    """A reject and the split that it is missing from."""

    split: str
    reject: Rejected


def kind_rejects(rejected: Iterable[tuple[str, Rejected]]) -> list[tuple[RejectKind, Rejects]]:
    """(split, Rejected) as (RejectKind, Rejects)."""
    return list(count_rejects(rejected).items())


def tally(rejects: Iterable[Rejected]) -> RejectTally:
    return tally_rejects(kind_rejects(("train", reject) for reject in rejects))


def rejected(keyed: bytes) -> Rejected:
    """The reject of a keyed line."""
    line = msgspec.json.decode(strip_key(keyed))
    line.pop("split")
    return msgspec.convert(list(line.values()), Rejected)


def listed(facts: Facts) -> list[SplitReject]:
    """The rejects of Facts, in the order of their lines."""
    return [
        SplitReject(split, rejected(line)) for (split, _, _), of in sorted(facts.rejects.items()) for line in of.lines()
    ]


def applied(elements, transform: beam.PTransform) -> tuple[Any, PCollection]:
    """Return the result of a transform, and the PCollection of the Facts that it hands to the job."""
    with collect_facts() as parts:
        result = elements | transform
    return result, tuple(parts) | "FlattenFacts" >> beam.Flatten()
