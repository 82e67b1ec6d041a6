import pytest

from recordmill.transforms.table.find_equal_keys import equal_keys_warning, slices
from recordmill.transforms.table.spill_rows import RANGES, record_orders, write_spill
from tests.transforms.table.spills import records


def spill(output, split: str, source: str, keys: list[int], number: int = 0):
    orders = record_orders(0, [str(key).encode() for key in keys])
    rows = records([b"x"] * len(keys), orders)
    return write_spill(str(output), split, source, f"rows-{source}-{number}", rows)


@pytest.mark.parametrize("rows", [10, 1000, 1 << 20])
def test_keys_of_several_rows(tmp_path, rows):
    """7 is in one file, and split, three times; 8 in two splits, to and fro; 9 in two pieces of one file; 500..509 in
    two files."""
    own = list(range(1000, 3000))
    spills = [
        spill(tmp_path, "train", "a", [7, *own[:1000], 7, 7, 9, *range(500, 510)]),
        spill(tmp_path, "train", "a", [9, 8], 1),
        spill(tmp_path, "train", "b", [*own[1000:], *range(500, 510)]),
        spill(tmp_path, "val", "a", [8]),
        spill(tmp_path, "train", "c", [8]),
    ]
    parts = list(slices(rows, spills))
    assert [first for first, _ in parts] == [0, *(end for _, end in parts[:-1])]
    assert parts[-1][1] == RANGES
    assert {10: 200 < len(parts) < 400, 1000: len(parts) == 3, 1 << 20: len(parts) == 1}[rows]
    text = equal_keys_warning(spills, str(tmp_path), "id", True, rows)
    assert equal_keys_warning(spills[::-1], str(tmp_path), "id", True, rows) == text
    keys = {record_orders(0, [str(key).encode()]).tolist()[0]: key for key in (7, 8, 9, *range(500, 510))}
    places = {7: [("a", 1), ("a", 1002)], 8: [("a", 1), ("a", 2)], 9: [("a", 1), ("a", 1004)]}
    places |= {key: [("a", 1005 + key - 500), ("b", 1001 + key - 500)] for key in range(500, 510)}
    one, other = (f"{path} row {line:,}" for path, line in places[keys[min(keys)]])
    number = 3 + 3 + 2 + 20
    assert text.startswith(f"--key id: {number} rows share 13 keys, for example {one} and {other}. All are kept.")
    assert text.endswith(" The rows of 1 keys are in several splits: --group-column id keeps them in one.")
    assert equal_keys_warning(spills, str(tmp_path), "id", False).endswith(" The rows of 1 keys are in several splits.")


def test_unique_keys_have_no_warning(tmp_path):
    spills = [spill(tmp_path, "train", "a", list(range(100))), spill(tmp_path, "val", "b", list(range(100, 200)))]
    assert equal_keys_warning(spills, str(tmp_path), "id") == ""
    assert equal_keys_warning([], str(tmp_path), "id") == ""
