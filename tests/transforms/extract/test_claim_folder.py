from pathlib import Path

from recordmill.transforms.extract.claim_folder import claimed
from recordmill.transforms.extract.extract_pieces import STATE, PieceFile
from recordmill.transforms.storage.local_storage import LocalStorage


def test_the_recipe_is_deleted_after_the_pieces(tmp_path, monkeypatch):
    """A run that is killed in between can go on."""
    deleted, delete = [], LocalStorage.delete_folder
    monkeypatch.setattr(LocalStorage, "delete_folder", lambda *of: deleted.append(Path(of[1]).name) or delete(*of))
    with claimed(str(tmp_path), b"recipe"):
        PieceFile(str(tmp_path), "a").commit(faults=(), is_damaged=False)
    assert deleted[:2] == ["pieces", STATE]
    assert list(tmp_path.iterdir()) == []
