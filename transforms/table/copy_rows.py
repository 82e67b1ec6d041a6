"""Records of a table's rows go from sorted files into a shard."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
import pyarrow as pa

from recordmill.schemas.block import Block
from recordmill.schemas.rejects import Metric
from recordmill.transforms.encoders.record_maker import EncodeBlock, EncodedRun, RecordContext
from recordmill.transforms.table.spill_file import read_piece, sort_records, spill_path

_READS = 16
"""Files that are read at once."""
_RUN_ROWS = 1 << 14


class CopyRows(msgspec.Struct, frozen=True, tag=True):
    """A RecordMaker, of Blocks that `recordmill.transforms.table.spill_rows` makes."""

    def start(self, of: RecordContext) -> EncodeBlock:
        return lambda block, split: _copy(block, split, of.output)


def _copy(block: Block, split: str, output: str) -> Iterator[EncodedRun]:
    if not len(block):
        return
    records = read_shard(block, split, output)
    for start in range(0, len(records), _RUN_ROWS):
        run = records[start : start + _RUN_ROWS].to_pylist()
        number = len(run)
        made = ((record,) for record in run)
        yield EncodedRun(made, None, np.ones(number, np.int64), Counter({Metric.IMAGES: number}), [], {}, number, 0, [])


def read_shard(block: Block, split: str, output: str) -> pa.LargeBinaryArray:
    """The shard's records in their order.

    Raises:
        EndedElsewhereError, OSError: see `read_piece`.
    """
    paths = [spill_path(output, split, name) for name in block.file_name.texts()]
    with ThreadPoolExecutor(_READS) as pool:
        parts = list(pool.map(read_piece, paths, block.rows.tolist()))
    first, end = block.ranks[0].tolist()
    return sort_records(pa.concat_tables(parts))["record"].chunk(0).slice(first, end - first)
