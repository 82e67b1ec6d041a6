"""Are buckets where the job runs? Bytes that leave a region are slow, and are paid for."""

from collections.abc import Iterable, Iterator

from recordmill.schemas.errors import ConfigError


def distant_buckets(paths: Iterable[str], region: str) -> Iterator[str]:
    """A line for each bucket of `paths` that is in another region than `region`, as `europe-west4`.

    A bucket whose location cannot be read is passed over: that takes a permission which the job does not need.
    """
    from recordmill.transforms.storage.gcs_storage import GcsStorage

    buckets = {path.split("/")[2] for path in paths if path.startswith("gs://")}
    for bucket in sorted(buckets):
        try:
            location = GcsStorage().location(f"gs://{bucket}")
        except (OSError, ConfigError):
            continue
        if location and not _covers(location.lower(), region.lower()):
            yield (
                f"gs://{bucket} is in {location}, the job runs in {region}: every image crosses from one to the other, "
                "which is slow and is paid for"
            )


def _covers(location: str, region: str) -> bool:
    """Whether a bucket's location is the region, or has it within.

    >>> _covers("us", "us-central1"), _covers("eu", "europe-west4"), _covers("us-east1", "us-central1")
    (True, True, False)
    """
    wide = {"us": "us-", "eu": "europe-", "asia": "asia-"}
    return location == region or (location in wide and region.startswith(wide[location]))
