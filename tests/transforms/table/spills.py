"""Sorted files of records."""

import numpy as np
import pyarrow as pa

from recordmill.transforms.table.spill_rows import Spill, record_orders, sort_records, write_spill

VALUES = [f"row {number}".encode() for number in range(1000)]


def records(values: list[bytes], orders=None) -> pa.Table:
    made = record_orders(0, values) if orders is None else np.array(orders, np.uint64)
    lines = np.arange(1, len(values) + 1)
    return sort_records(pa.table({"order": made, "line": lines, "record": pa.array(values, pa.large_binary())}))


def spills(output, *parts: list[bytes]) -> list[Spill]:
    return [
        write_spill(str(output), "train", f"{number}.csv", f"rows-{number:05d}-00000", records(part))
        for number, part in enumerate(parts)
    ]
