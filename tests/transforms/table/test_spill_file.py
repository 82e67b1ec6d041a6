import numpy as np
import pytest

from recordmill.schemas.errors import EndedElsewhereError
from recordmill.transforms.table.spill_rows import RANGES, read_piece, spill_path
from tests.transforms.table.spills import VALUES, records, spills


def test_records_of_one_order_are_ordered_by_their_bytes():
    one = records([b"c", b"a", b"\xff", b"b", b"z"], [7, 7, 7, 7, 1 << 62])
    assert one.to_pydict() == {
        "order": [7, 7, 7, 7, 1 << 62],
        "line": [2, 4, 1, 3, 5],
        "record": [b"a", b"b", b"c", b"\xff", b"z"],
    }


def test_digest_is_of_records_and_orders(tmp_path):
    one, other, moved = spills(tmp_path, VALUES[:9], VALUES[:10], VALUES[:9])
    again = spills("", VALUES[:9])
    assert one.digest == moved.digest == again[0].digest != other.digest


def test_file_that_was_cut_is_no_end_of_records(tmp_path):
    (made,) = spills(tmp_path, VALUES)
    path = spill_path(str(tmp_path), made.split, made.name)
    with open(path, "r+b") as file:
        file.truncate(file.seek(0, 2) - 1)
    with pytest.raises(OSError, match="cut short"):
        read_piece(path, made.piece(0, RANGES))
    assert len(read_piece(path, made.piece(0, 1))) == int(np.frombuffer(made.rows_before, np.int64)[1])


def test_another_run_is_done_and_has_deleted_rows(tmp_path):
    """What this run has written since is of no use to any."""
    first, _ = spills(tmp_path, VALUES, VALUES[:1])
    state = tmp_path / ".recordmill-train"
    (state / "rows-00000-00000").unlink()
    with pytest.raises(EndedElsewhereError, match=rf"{state}/rows-00000-00000 is gone, with rows .* Run again"):
        read_piece(f"{state}/rows-00000-00000", first.piece(0, RANGES))
    assert not state.exists()
