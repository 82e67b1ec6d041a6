import pytest

from recordmill.transforms.table.find_equal_keys import EqualKeys, equal_keys_warning, find_equal_keys, slices
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
    total = find_equal_keys(spills, str(tmp_path), rows)
    assert total[:3] == (13, 3 + 3 + 2 + 20, 1)
    assert find_equal_keys(spills[::-1], str(tmp_path), rows) == total
    one, other = total.example
    keys = {record_orders(0, [str(key).encode()]).tolist()[0]: key for key in (7, 8, 9, *range(500, 510))}
    places = {7: [("a", 1), ("a", 1002)], 8: [("a", 1), ("a", 2)], 9: [("a", 1), ("a", 1004)]}
    places |= {key: [("a", 1005 + key - 500), ("b", 1001 + key - 500)] for key in range(500, 510)}
    assert [one, other] == places[keys[min(keys)]]
    text = equal_keys_warning(total, "id")
    assert text.startswith(f"--key id: 28 rows have 13 keys between them, {one[0]} row {one[1]:,} and {other[0]} row")
    assert "Those of 1 are in several splits" in text


def test_where_each_has_its_own_there_is_nothing_to_tell(tmp_path):
    spills = [spill(tmp_path, "train", "a", list(range(100))), spill(tmp_path, "val", "b", list(range(100, 200)))]
    assert find_equal_keys(spills, str(tmp_path)) == EqualKeys()
    assert equal_keys_warning(EqualKeys(), "id") == ""
    assert find_equal_keys([], str(tmp_path)) == EqualKeys()
