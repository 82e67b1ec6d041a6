"""Write the index of a shard of any container. Nothing here imports Beam."""

from collections import deque
from collections.abc import Callable

from recordmill.schemas.errors import RecordError
from recordmill.transforms.containers.container import Contents, container_of
from recordmill.transforms.records.shard_index import store_index, with_progress


def index_container_shard(
    path: str, records: int | None, container: str, contents: Contents, read: Callable[[int], object]
) -> bool:
    """Write the index of a shard of any container, unless it exists. Return True if it was written.

    Args:
        records: Number of records in the manifest; None if unknown.
        read: Progress callback; its argument is the number of records since the last call.

    Raises:
        RecordError: A record is damaged, or the number of records differs.
        OSError: The file cannot be read, or the index cannot be written.
    """
    reader = container_of(container).read(path, contents)
    try:
        deque(with_progress(reader.records(), read), maxlen=0)
    except RecordError as error:
        raise RecordError(f"{path}: record {error.record}: {error.detail}", None, error.reason) from error
    return store_index(path, reader.index() or b"", reader.examples, records)
