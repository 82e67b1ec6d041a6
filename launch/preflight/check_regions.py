"""Are buckets where the job runs? Bytes that leave a region are slow, and are paid for."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from recordmill.launch.preflight.prices import TRANSFER_USD_A_GIB
from recordmill.schemas.errors import ConfigError

if TYPE_CHECKING:
    from recordmill.transforms.storage.gcs_storage import BucketPlace  # which imports Google's client

_DUAL = {
    "asia1": ("asia-northeast1", "asia-northeast2"),
    "eur4": ("europe-north1", "europe-west4"),
    "eur5": ("europe-west1", "europe-west2"),
    "eur7": ("europe-west2", "europe-west3"),
    "eur8": ("europe-west3", "europe-west6"),
    "nam4": ("us-central1", "us-east1"),
}
"""Dual-regions that have names, https://cloud.google.com/storage/docs/locations: reading in either region is free."""
_MULTI = {"us": "us-", "eu": "europe-", "asia": "asia-"}
"""Multi-regions, and how regions within them are called. The same page: reading is always paid for."""
_PRICE = f"list price ${TRANSFER_USD_A_GIB} a GiB within North America"


def bucket_places(paths: Iterable[str]) -> "dict[str, BucketPlace]":
    """Where the buckets of `paths` are, by their names.

    A bucket whose place cannot be read is left out: that takes a permission which the job does not need.
    """
    from recordmill.transforms.storage.gcs_storage import GcsStorage

    places = {}
    for bucket in sorted({path.split("/")[2] for path in paths if path.startswith("gs://")}):
        try:
            places[bucket] = GcsStorage().place(f"gs://{bucket}")
        except (OSError, ConfigError):
            continue
    return places


def distant_buckets(places: "dict[str, BucketPlace]", region: str) -> Iterator[str]:
    """A line for each bucket from which reading is paid for in `region`, as `europe-west4`."""
    for bucket, place in places.items():
        if is_near(place, region.lower()):
            continue
        where = " and ".join(place.regions) or place.location
        if not place.regions and region.startswith(_MULTI.get(place.location, "-")):
            yield (
                f"gs://{bucket} is in {where}, a multi-region, from which reading is paid for in {region}, too "
                f"({_PRICE}); from a bucket in {region} it is not"
            )
        else:
            yield (
                f"gs://{bucket} is in {where}, the job runs in {region}: every image crosses from one to the other, "
                f"which is slow and is paid for ({_PRICE})"
            )


def is_near(place: "BucketPlace", region: str) -> bool:
    """Whether reading is free; as far as anybody says where the bucket is."""
    return not place.location or region in (place.regions or _DUAL.get(place.location, (place.location,)))
