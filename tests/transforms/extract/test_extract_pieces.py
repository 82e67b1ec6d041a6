import pytest

from recordmill.schemas.plan_report import Fault
from recordmill.transforms.extract.extract_lines import Lines, RecordAt, label_of, line_of
from recordmill.transforms.extract.extract_pieces import (
    PieceFile,
    found_piece,
    lines_of_piece,
    merged_pieces,
    read_piece,
)
from recordmill.transforms.runtime import line_blocks
from tests.transforms.extract.pieces import record, row, write_piece


def test_lines_of_all_kinds_come_back_from_one_file(tmp_path, monkeypatch):
    """Also where they are cut into many blocks."""
    monkeypatch.setattr(line_blocks, "BLOCK_BYTES", 150)
    monkeypatch.setattr(line_blocks, "RUN_BYTES", 900)
    rows = [record(n, n, f"{n}.jpg", instances=(row(100 - n, n),), class_name=f"c\0{n}") for n in range(20)]
    fault = Fault("one", 3, "schema", "a\n'é'")
    write_piece(tmp_path, "one", *rows, faults=(fault,))
    piece = read_piece(str(tmp_path), "one")
    assert len(piece.blocks[Lines.INSTANCES]) > 5
    assert piece.faults.listed == (fault,)
    found = [line for part in merged_pieces(str(tmp_path), [piece], Lines.INSTANCES) for line in part]
    assert [line_of(line)[1:] for line in found] == [
        (RecordAt("one", n), b'{"id":%d}' % (100 - n)) for n in reversed(range(20))
    ]
    labels = sorted(label_of(line) for line in lines_of_piece(str(tmp_path), piece, Lines.LABELS))
    assert labels == [(RecordAt("one", n), f"{n}.jpg", f"c\0{n}") for n in range(20)]
    assert list(lines_of_piece(str(tmp_path), piece, Lines.CAPTIONS)) == []


def lose_a_byte(path):
    path.write_bytes(path.read_bytes()[:-1])


def change_a_byte(path):
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")


@pytest.mark.parametrize("suffix", ["lines", "json"])
@pytest.mark.parametrize("harm", [lambda path: path.unlink(), lose_a_byte, change_a_byte])
def test_a_piece_that_is_not_whole_is_not_found(harm, suffix, tmp_path):
    write_piece(tmp_path, "one", record(0, 4, "a.jpg"))
    assert found_piece(str(tmp_path), "one") == read_piece(str(tmp_path), "one")
    harm(tmp_path / ".recordmill-extract" / "pieces" / f"one.{suffix}")
    assert found_piece(str(tmp_path), "one") is None


def test_the_piece_of_a_damaged_shard_is_made_again(tmp_path):
    write_piece(tmp_path, "one", record(0, 4, "a.jpg"), is_damaged=True)
    assert read_piece(str(tmp_path), "one").is_damaged
    assert found_piece(str(tmp_path), "one") is None


def test_a_piece_that_is_made_again_is_not_found_before_it_is_whole(tmp_path):
    """Its note would tell where lines are in a file that is another."""
    write_piece(tmp_path, "one", record(0, 4, "a.jpg"))
    piece = PieceFile(str(tmp_path), "one")
    assert found_piece(str(tmp_path), "one") is None
    piece.abandon()
    assert [path.name for path in (tmp_path / ".recordmill-extract" / "pieces").iterdir()] == ["one.lines"]
