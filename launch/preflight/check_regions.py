"""Warns of buckets in another region than the job: bytes that leave a region are slow and cost money."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from recordmill.schemas.errors import ConfigError


def distant_buckets(paths: Iterable[str], region: str) -> Iterator[str]:
    """Yield a warning for each bucket of `paths` that is not in `region`, such as `europe-west4`.

    A bucket whose metadata the account may not read is skipped: the job itself does not need that permission.
    """
    from recordmill.transforms.storage.gcs_storage import GcsStorage  # imports Google's client

    for bucket in sorted({path.split("/")[2] for path in paths if path.startswith("gs://")}):
        with suppress(OSError, ConfigError):
            regions = GcsStorage().regions(f"gs://{bucket}")
            if regions and region.lower() not in regions:
                yield (
                    f"gs://{bucket} is in {' and '.join(regions)}, the job runs in {region}: every byte crosses "
                    "between them, which is slow and costs money"
                )
