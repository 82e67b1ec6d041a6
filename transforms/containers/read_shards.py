"""Read finished shards back, and list their errors."""

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from recordmill.schemas.dataset.checks import Fault, Faults
from recordmill.schemas.errors import RecordError
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.paths import is_remote
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.containers.container import Contents, ShardReader, container_of
from recordmill.transforms.runtime import progress
from recordmill.transforms.storage.interface import UnreadableFileError
from recordmill.transforms.storage.os_errors import explain_os_error
from recordmill.transforms.storage.resolve import storage_for

LISTED_OF_REASON = 100


class ManifestShard(msgspec.Struct, frozen=True):
    """A shard as the manifest describes it.

    Attributes:
        path: Path of the file.
        table: Features of its records.
        labels: Classes of the data set.
        container: Name of its container.
    """

    path: str
    split: str
    info: ShardInfo
    table: FeatureTable
    labels: LabelMap
    container: str

    def reader(self) -> ShardReader:
        return container_of(self.container).read(self.path, Contents(self.table, self.labels))


def readable_records(shard: ManifestShard, reader: ShardReader, damage: list[Fault]) -> Iterator[bytes]:
    """Yield the records of a shard up to the first damaged one. Errors of the file are appended to `damage`.

    Args:
        reader: Reader of the shard's path.
    """
    file, info = shard.info.file, shard.info
    examples = size = 0
    try:
        if storage_for(shard.path).size(shard.path) is None:
            damage.append(Fault(file, None, "missing", "no such file"))
            return
        for record in reader.records():
            examples += 1
            if examples <= info.examples:
                progress.count_read_record(reader.size - size)
                size = reader.size
            yield record
        if examples != info.examples:
            damage.append(Fault(file, None, "count", f"{examples} records, the manifest says {info.examples}"))
        if reader.sha256.hexdigest() != info.sha256:
            damage.append(Fault(file, None, "sha256", "the file's SHA-256 is not the manifest's"))
    except RecordError as error:
        damage.append(Fault(file, error.record, error.reason, error.detail))
    except Exception as error:  # a damaged GZIP stream raises one of several types
        if is_remote(shard.path) and isinstance(error, OSError) and not isinstance(error, UnreadableFileError):
            raise  # errors of a server are not errors of the shard
        detail = explain_os_error(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        damage.append(Fault(file, None, "unreadable", detail))
    finally:
        progress.count_skipped_images(max(0, info.examples - examples))
        progress.count_finished_shard()


class FaultList:
    """List of the first faults of each reason, with the number of the others: millions of records may be faulty."""

    def __init__(self) -> None:
        self._listed: list[Fault] = []
        self._counts_by_reason: Counter[str] = Counter()
        self._more = 0

    def add(self, faults: Iterable[Fault]) -> None:
        for fault in faults:
            self._counts_by_reason[fault.reason] += 1
            if self._counts_by_reason[fault.reason] <= LISTED_OF_REASON:
                self._listed.append(fault)
            else:
                self._more += 1

    def add_listed(self, faults: Faults) -> None:
        """Add the faults of another list."""
        self.add(faults.listed)
        self._more += faults.more

    def faults(self) -> Faults:
        return Faults(tuple(self._listed), self._more)
