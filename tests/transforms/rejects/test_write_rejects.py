import hashlib
import json
import shutil
from collections import Counter

import pytest

from recordmill.schemas.rejects import Reason, Rejected, RejectLine
from recordmill.transforms.rejects import bounded_rejects
from recordmill.transforms.rejects.write_rejects import FIRST_OF_REASON, write_rejects
from recordmill.transforms.storage.local_storage import LocalUpload
from tests.transforms.rejects.kinds import kind_rejects


def test_each_split_has_its_list_and_the_first_of_each_reason_are_known(tmp_path):
    few = [("train", Rejected("annotation", id_, Reason.EMPTY_BOX, f"n {id_}")) for id_ in range(5)]
    many = [("train", Rejected("image", id_, Reason.NO_CLASS, f"n {id_}")) for id_ in reversed(range(3000))]
    last = [("train", Rejected("image", 9999, Reason.EMPTY_BOX, "last"))]
    found = write_rejects(str(tmp_path), ["train", "val"], kind_rejects(many[::2] + few + last + many[1::2]))
    data = (tmp_path / ".recordmill-train" / "rejects.jsonl").read_bytes()
    listed = [(line["what"], line["id"]) for line in map(json.loads, data.splitlines())]
    assert data.count(b"\n") == len(listed)
    assert data.endswith(b"\n")
    assert listed == [
        *(("annotation", id_) for id_ in range(5)),
        *(("image", id_) for id_ in range(3000)),
        ("image", 9999),
    ]
    train = found["train"]
    assert train.sha256 == hashlib.sha256(data).hexdigest()
    assert Counter(line.reason for line in train.first) == {"empty_box": 6, "no_class": FIRST_OF_REASON}
    assert train.first[5:7] == (RejectLine("image", "no_class", "n 0", 0), RejectLine("image", "no_class", "n 1", 1))
    assert train.first[-1].detail == "last"
    assert (found["val"].first, found["val"].sha256) == ((), hashlib.sha256(b"").hexdigest())
    assert (tmp_path / ".recordmill-val" / "rejects.jsonl").read_bytes() == b""


def test_rejects_of_a_split_that_is_not_written_are_not_dropped(tmp_path):
    with pytest.raises(KeyError, match="tset"):
        write_rejects(str(tmp_path), ["train"], kind_rejects([("tset", Rejected("image", 1, Reason.NO_CLASS, ""))]))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("most", "bound"), [(99, 99), (100_000, 300)])
def test_the_list_is_bounded_and_the_tally_is_not(tmp_path, monkeypatch, most, bound):
    monkeypatch.setattr(bounded_rejects, "MOST_LISTED", most)
    rejects = [("train", Rejected("image", id_, Reason.NO_CLASS, f"n {id_}", None, 2)) for id_ in range(300)]
    few = [("train", Rejected("annotation", id_, Reason.EMPTY_BOX, "")) for id_ in range(5)]
    found = write_rejects(str(tmp_path), ["train"], kind_rejects(rejects) + kind_rejects(few))["train"]
    data = (tmp_path / ".recordmill-train" / "rejects.jsonl").read_bytes()
    assert Counter(json.loads(line)["reason"] for line in data.splitlines()) == {"no_class": bound, "empty_box": 5}
    assert found.tally.counts == {("image", "no_class"): 300, ("annotation", "empty_box"): 5}
    assert found.tally.annotations == 600
    assert write_rejects(str(tmp_path), ["train"], kind_rejects([*few, *rejects[::-1]]))["train"] == found


def test_a_list_that_cannot_be_written_whole_is_not_there(tmp_path, monkeypatch):
    (tmp_path / ".recordmill-train").mkdir()
    monkeypatch.setattr(LocalUpload, "commit", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_rejects(str(tmp_path), ["train"], kind_rejects([("train", Rejected("image", 1, Reason.NO_CLASS, ""))]))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_another_run_deletes_the_folder_of_the_state_while_the_list_is_written(tmp_path, monkeypatch):
    state = tmp_path / ".recordmill-train"
    state.mkdir()
    commit = LocalUpload.commit
    monkeypatch.setattr(LocalUpload, "commit", lambda given: (shutil.rmtree(state), commit(given)))
    write_rejects(str(tmp_path), ["train"], kind_rejects([("train", Rejected("image", 1, Reason.NO_CLASS, ""))]))
    (line,) = (state / "rejects.jsonl").read_bytes().splitlines()
    assert json.loads(line)["id"] == 1
