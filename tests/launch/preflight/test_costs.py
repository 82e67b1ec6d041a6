"""What a job costs, from what there is to do and list prices."""

from pathlib import Path

import pytest
from apache_beam.testing.load_tests import dataflow_cost_consts as beams

from recordmill.launch.preflight import prices
from recordmill.launch.preflight.costs import (
    Cost,
    Fleet,
    Work,
    advice,
    cost_lines,
    costs,
    requests_exceed_machines,
    with_costs,
)
from recordmill.launch.runners.machines import Machine
from recordmill.transforms.storage.gcs_storage import BucketPlace

FLEET = Fleet(10, Machine(2, 8.0), 25)
GIB = 2**30
MILLION = Work(1_000_000, 100 * GIB, 4_500_000_000, 700)


def usd(found: list[Cost]) -> dict[str, float | None]:
    return {cost.part: cost.usd and round(cost.usd, 4) for cost in found}


def test_each_part_of_a_million_images():
    """1,000,000 / 200 / 3600 = 1.389 vCPU-hours of work, and 10 workers x 2 vCPUs x 5 minutes."""
    vcpu_hours = 1.38889 + 1.66667
    assert usd(costs(MILLION, FLEET)) == {
        "vCPUs": round(vcpu_hours * 0.056, 4),
        "memory": round(vcpu_hours * 4 * 0.003557, 4),
        "disks": round(vcpu_hours / 2 * 25 * 0.000054, 4),
        "shuffle": 0.055,  # 4.5 GB of annotations, 0.5 of names
        "requests": 0.419,  # 1,000,000 class B, and 1,000 listings with 4 x 700 writes of class A
        "storage": 2.0,
    }


def test_what_is_not_listed_or_in_archives_takes_fewer_requests():
    def requests(**changed) -> str:
        return next(cost.what for cost in costs(MILLION._replace(**changed), FLEET) if cost.part == "requests")

    assert requests() == "1,000,000 reads (class B), 3,800 listings and writes (class A)"
    assert requests(is_listed=False) == "1,000,000 reads (class B), 2,800 listings and writes (class A)"
    assert requests(is_zipped=True) == "13,000 reads (class B), 2,800 listings and writes (class A)"


@pytest.mark.parametrize(
    ("place", "region", "added"),
    [
        (BucketPlace("us-central1", storage_class="STANDARD"), "us-central1", {}),
        (BucketPlace("us-east1"), "us-central1", {"transfer": 2.0}),
        (BucketPlace("us"), "us-central1", {"transfer": 2.0}),
        (BucketPlace("us", ("us-east1", "us-west1")), "us-central1", {"transfer": 2.0}),
        (BucketPlace("us", ("us-east1", "us-west1")), "us-west1", {}),
        (BucketPlace("eu"), "us-central1", {"transfer": None}),
        (BucketPlace("us"), "europe-west4", {"transfer": None}),
        (BucketPlace("us-central1", storage_class="NEARLINE"), "us-central1", {"retrieval": 1.0}),
        (BucketPlace("us-central1", storage_class="COLDLINE"), "us-central1", {"retrieval": 2.0}),
        (BucketPlace("us-west1", storage_class="ARCHIVE"), "us-central1", {"transfer": 2.0, "retrieval": 5.0}),
    ],
)
def test_buckets_elsewhere_and_cold_ones_cost_by_the_gib(place, region, added):
    without, found = usd(costs(MILLION, FLEET)), usd(costs(MILLION, FLEET, [place], region))
    assert {part: found[part] for part in found.keys() - without.keys()} == added


def test_from_a_number_of_images_on_requests_cost_more_than_machines():
    limit = requests_exceed_machines(MILLION, FLEET)

    def difference(images: int) -> float:
        work = MILLION._replace(
            images=images,
            **{name: getattr(MILLION, name) * images // 10**6 for name in ("bytes", "annotation_bytes", "shards")},
        )
        found = usd(costs(work, FLEET))
        return found["requests"] - found["vCPUs"] - found["memory"] - found["disks"]

    assert 300_000 < limit < 400_000
    assert abs(difference(limit)) < 0.001
    assert difference(limit // 2) < 0 < difference(limit * 2)
    assert requests_exceed_machines(MILLION._replace(is_zipped=True), FLEET) is None
    assert requests_exceed_machines(Work(0, 0, 0, 0), FLEET) is None


def test_archives_are_advised_from_there_on():
    limit = requests_exceed_machines(MILLION, FLEET)
    assert f"from {limit:,} such images on" in advice(MILLION, FLEET)
    assert advice(MILLION._replace(is_zipped=True), FLEET) == ""
    assert advice(MILLION._replace(images=1000, shards=1), FLEET) == ""


def test_the_sum_is_of_what_is_paid_once():
    lines = dict(cost_lines(MILLION, FLEET, [], "us-central1"))
    once = sum(cost.usd for cost in costs(MILLION, FLEET) if cost.part != "storage")
    assert lines["on Dataflow"].startswith(f"${once:,.2f}; list prices of us-central1 of {prices.READ_ON}")
    assert "10 workers of 2 vCPUs" in lines["on Dataflow"]
    far = dict(cost_lines(MILLION, FLEET, [BucketPlace("eu")], "us-central1"))
    assert far["on Dataflow"].startswith(f"${once:,.2f}, and what has no price here")
    assert far["transfer"].startswith("price not known: up to 100.0 GiB from eu to us-central1")


def test_prices_of_machines_are_those_that_beam_knows():
    assert beams.VCPU_PER_HR_BATCH == prices.VCPU_USD_AN_HOUR
    assert beams.MEM_PER_GB_HR_BATCH == prices.MEMORY_USD_A_GB_HOUR
    assert beams.PD_PER_GB_HR == prices.DISK_USD_A_GB_HOUR
    assert beams.SHUFFLE_PER_GB_BATCH == prices.SHUFFLE_USD_A_GB


@pytest.mark.parametrize("name", ["dataflow.md", "scaling.md"])
def test_the_page_has_the_table(name):
    page = (Path(__file__).parents[3] / "docs" / name).read_text(encoding="utf-8")
    assert "| vCPUs | " in page
    assert with_costs(page, name) == page
