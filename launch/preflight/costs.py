"""What a job costs on Dataflow, by parts: from the plan's numbers, list prices, and a rate that is assumed."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recordmill.launch.preflight import prices
from recordmill.launch.runners.machines import Machine

if TYPE_CHECKING:
    from recordmill.transforms.storage.gcs_storage import BucketPlace  # which imports Google's client

IMAGES_A_SECOND = 200
"""Of a vCPU that reads, checks and writes. Assumed: nothing was measured on Dataflow."""
START_HOURS = 5 / 60
"""That a worker takes to start and to stop; assumed likewise."""
_SHUFFLED_BYTES_AN_IMAGE = 500
"""Of its name and place, besides annotations; assumed likewise."""
_REQUESTS_A_MEMBER = 0.013
"""Of a .zip, see docs/performance.md."""
_NAMES_A_LISTING = 1000
_WRITES_A_SHARD = 4
"""The shard, its note, its move, and its part of a few files of a split."""
_GIB, _GB = 2**30, 10**9
_AMERICA = ("us", "nam", "northamerica-")


class Work(NamedTuple):
    """What there is to do.

    Attributes:
        bytes: of the images, as they are read and written.
        annotation_bytes: of the files that say what is in them.
        is_zipped: the images are members of .zip files.
        is_listed: folders of images are listed.
    """

    images: int
    bytes: int
    annotation_bytes: int
    shards: int
    is_zipped: bool = False
    is_listed: bool = True


class Fleet(NamedTuple):
    """Workers."""

    workers: int
    machine: Machine
    disk_gb: int


class Cost(NamedTuple):
    """Of a part: `what` is how much of it there is, `usd` None where its price is not known here."""

    part: str
    what: str
    usd: float | None


def costs(work: Work, fleet: Fleet, sources: "Iterable[BucketPlace]" = (), region: str = "") -> list[Cost]:
    """What a job costs, and what it wrote costs a month.

    Args:
        sources: where images are read from, if they are not near to `region` or have to be retrieved.
    """
    hours = _machine_hours(work, fleet)
    vcpu_hours, memory, disk = hours * fleet.machine.vcpus, hours * fleet.machine.memory_gb, hours * fleet.disk_gb
    shuffled = (work.annotation_bytes + work.images * _SHUFFLED_BYTES_AN_IMAGE) / _GB
    reads, writes = _requests(work)
    gib = work.bytes / _GIB
    requests = reads * prices.CLASS_B_USD + writes * prices.CLASS_A_USD
    return [
        Cost("vCPUs", f"{vcpu_hours:,.1f} hours", vcpu_hours * prices.VCPU_USD_AN_HOUR),
        Cost("memory", f"{memory:,.1f} GB-hours", memory * prices.MEMORY_USD_A_GB_HOUR),
        Cost("disks", f"{disk:,.0f} GB-hours", disk * prices.DISK_USD_A_GB_HOUR),
        Cost("shuffle", f"{shuffled:,.1f} GB", shuffled * prices.SHUFFLE_USD_A_GB),
        Cost("requests", f"{reads:,} reads (class B), {writes:,} listings and writes (class A)", requests),
        *_of_places(sources, region, gib),
        Cost("storage", f"{gib:,.1f} GiB, a month", gib * prices.STORAGE_USD_A_GIB_MONTH),
    ]


def _machine_hours(work: Work, fleet: Fleet) -> float:
    return work.images / IMAGES_A_SECOND / 3600 / fleet.machine.vcpus + fleet.workers * START_HOURS


def _requests(work: Work) -> tuple[int, int]:
    """Of class B, and of class A."""
    reads = round(work.images * (_REQUESTS_A_MEMBER if work.is_zipped else 1))
    listings = -(-work.images // _NAMES_A_LISTING) if work.is_listed and not work.is_zipped else 0
    return reads, listings + work.shards * _WRITES_A_SHARD


def _of_places(sources: "Iterable[BucketPlace]", region: str, gib: float) -> Iterator[Cost]:
    """What reading from these buckets costs besides requests; of several, as if each had everything."""
    from recordmill.launch.preflight.check_regions import is_near

    for place in sources:
        if not is_near(place, region):
            where = " and ".join(place.regions) or place.location
            is_american = all(each.startswith(_AMERICA) for each in (where, region))
            price = gib * prices.TRANSFER_USD_A_GIB if is_american else None
            yield Cost("transfer", f"up to {gib:,.1f} GiB from {where} to {region}", price)
        if price := prices.RETRIEVAL_USD_A_GIB.get(place.storage_class):
            yield Cost("retrieval", f"up to {gib:,.1f} GiB of class {place.storage_class}", gib * price)


def requests_exceed_machines(work: Work, fleet: Fleet) -> int | None:
    """The number of images, of the size of these, from which on requests cost more than machines; None if never."""
    if not work.images:
        return None
    start = _machines_usd(costs(Work(0, 0, 0, 0), fleet))
    found = costs(work, fleet)
    request = next(cost.usd or 0 for cost in found if cost.part == "requests")
    per_image = (request - _machines_usd(found) + start) / work.images
    return round(start / per_image) if per_image > 0 else None


def _machines_usd(found: Iterable[Cost]) -> float:
    return sum(cost.usd or 0 for cost in found if cost.part in ("vCPUs", "memory", "disks"))


def advice(work: Work, fleet: Fleet) -> str:
    """What would be cheaper; empty where nothing is known."""
    limit = None if work.is_zipped else requests_exceed_machines(work, fleet)
    if limit is None or work.images < limit:
        return ""
    return (
        f"from {limit:,} such images on, requests cost more than machines: of pictures in .zip files, one request "
        f"reads {round(1 / _REQUESTS_A_MEMBER)} (--images gs://…/images.zip)"
    )


def assumptions(fleet: Fleet) -> str:
    """What the numbers rest on."""
    return (
        f"list prices of {prices.REGION} of {prices.READ_ON}, without discounts; assumed: {fleet.workers} workers of "
        f"{fleet.machine.vcpus} vCPUs, {IMAGES_A_SECOND} images a second and vCPU, {START_HOURS * 60:.0f} minutes to "
        "start and stop a worker"
    )


def cost_lines(work: Work, fleet: Fleet, sources: "Iterable[BucketPlace]", region: str) -> Iterator[tuple[str, str]]:
    """Labels and texts for a person."""
    found = costs(work, fleet, sources, region)
    once = sum(cost.usd or 0 for cost in found if cost.part != "storage")
    unknown = "" if all(cost.usd is not None for cost in found) else ", and what has no price here"
    yield "on Dataflow", f"${once:,.2f}{unknown}; {assumptions(fleet)}"
    for cost in found:
        yield cost.part, f"{_usd(cost)}: {cost.what}"
    yield "FlexRS", "as much of vCPUs and memory at prices of its own: https://cloud.google.com/dataflow/pricing"
    if text := advice(work, fleet):
        yield "advice", text


def _usd(cost: Cost) -> str:
    return "price not known" if cost.usd is None else f"${cost.usd:,.2f}"


# docs/dataflow.md and docs/scaling.md

_PAGE = re.compile(r"(<!-- costs -->\n).*?(<!-- end of costs -->)", re.DOTALL)
_IMAGE_BYTES, _ANNOTATION_BYTES, _SHARD_BYTES = 163_000, 4_200, 150_000_000
"""Of an image of train2017, and of its annotations; and of a shard."""


def _example(images: int, workers: int, is_zipped: bool = False) -> tuple[Work, Fleet]:
    shards = -(-images * _IMAGE_BYTES // _SHARD_BYTES)
    work = Work(images, images * _IMAGE_BYTES, images * _ANNOTATION_BYTES, shards, is_zipped)
    return work, Fleet(workers, Machine(2, 8.0), 25)


_COLUMNS: Mapping[str, Mapping[str, tuple[Work, Fleet]]] = {
    "dataflow.md": {
        "118,287 images, 3 workers": _example(118_287, 3),
        "118,287, 10 workers": _example(118_287, 10),
        "1 million, 10 workers": _example(10**6, 10),
        "10 million, 20 workers": _example(10**7, 20),
        "the same in .zip files": _example(10**7, 20, is_zipped=True),
    },
    "scaling.md": {
        "118,287 images, 3 workers": _example(118_287, 3),
        "10 million, 20 workers": _example(10**7, 20),
        "1 billion, 200 workers": _example(10**9, 200),
        "1 billion in .zip files, 200 workers": _example(10**9, 200, is_zipped=True),
    },
}
"""By page, what its table shows."""


def with_costs(page: str, name: str) -> str:
    """The page of that file name with its table of costs as it is now."""
    return _PAGE.sub(lambda match: f"{match[1]}{_table(_COLUMNS[name])}{match[2]}", page)


def _table(columns: Mapping[str, tuple[Work, Fleet]]) -> str:
    found = [costs(*column) for column in columns.values()]
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for row in zip(*found, strict=True):
        lines.append(f"| {row[0].part} | {' | '.join(f'{_usd(cost)}: {cost.what}' for cost in row)} |")
    once = (sum(cost.usd or 0 for cost in each if cost.part != "storage") for each in found)
    lines.append(f"| **once** | {' | '.join(f'**${usd:,.2f}**' for usd in once)} |")
    limits = (requests_exceed_machines(*column) for column in columns.values())
    cells = (f"{limit:,} images" if limit else "never" for limit in limits)
    lines.append(f"| requests cost more than machines from | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(with_costs(path.read_text(encoding="utf-8"), path.name), encoding="utf-8")
