import os
from pathlib import Path

import pytest

from recordmill.transforms.extract.extract_pieces import (
    STATE,
    PieceFile,
    claim_target,
    find_finished_piece,
    read_shard_piece,
)
from recordmill.transforms.storage.local_storage import LocalStorage, TemporaryName
from tests.transforms.extract.pieces import record, write_piece


def lose_a_byte(path):
    path.write_bytes(path.read_bytes()[:-1])


def change_a_byte(path):
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")


@pytest.mark.parametrize("suffix", ["records", "json"])
@pytest.mark.parametrize("harm", [lambda path: path.unlink(), lose_a_byte, change_a_byte])
def test_piece_not_whole_is_not_found(harm, suffix, tmp_path):
    write_piece(tmp_path, "one", record(0, 4, "a.jpg"))
    assert find_finished_piece(str(tmp_path), "one") == read_shard_piece(str(tmp_path), "one")
    harm(tmp_path / ".recordmill-extract" / "pieces" / f"one.{suffix}")
    assert find_finished_piece(str(tmp_path), "one") is None


def test_piece_of_damaged_shard_is_made_again(tmp_path):
    write_piece(tmp_path, "one", record(0, 4, "a.jpg"), is_damaged=True)
    assert read_shard_piece(str(tmp_path), "one").is_damaged
    assert find_finished_piece(str(tmp_path), "one") is None


def test_piece_made_again_is_not_found_before_it_is_whole(tmp_path):
    """Its note is of a file that is replaced."""
    write_piece(tmp_path, "one", record(0, 4, "a.jpg"))
    piece = PieceFile(str(tmp_path), "one")
    assert find_finished_piece(str(tmp_path), "one") is None
    piece.abandon()
    assert [path.name for path in (tmp_path / ".recordmill-extract" / "pieces").iterdir()] == ["one.records"]


def test_the_recipe_is_deleted_after_the_pieces(tmp_path, monkeypatch):
    """A run that is killed in between can go on, as one that is killed before."""
    deleted, delete = [], LocalStorage.delete_folder
    monkeypatch.setattr(LocalStorage, "delete_folder", lambda *of: deleted.append(Path(of[1]).name) or delete(*of))

    def interrupted():
        with claim_target(str(tmp_path), b"recipe") as finished:
            PieceFile(str(tmp_path), "a").commit(faults=(), is_damaged=False)
            (tmp_path / "train").mkdir()
            left = TemporaryName.make("1.jpg").replace(f"-{os.getpid()}-", f"-{1 << 30}-")  # no process has this id
            (tmp_path / "train" / left).touch()
            raise KeyboardInterrupt(finished)

    with pytest.raises(KeyboardInterrupt, match="None"):
        interrupted()
    assert list((tmp_path / "train").iterdir()) == []
    with claim_target(str(tmp_path), b"recipe") as finished:
        assert finished == 1
    assert deleted[:2] == ["pieces", STATE]
    assert [path.name for path in tmp_path.iterdir()] == ["train"]
