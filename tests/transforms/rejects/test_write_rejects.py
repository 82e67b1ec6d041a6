"""The list of a split's rejects."""

import hashlib
import json
import shutil
from collections import Counter

import pytest

from recordmill.schemas.rejects import Reason, Rejected, RejectLine
from recordmill.transforms.rejects import write_rejects as module
from recordmill.transforms.rejects.write_rejects import FIRST_OF_REASON, rejects_path, write_rejects
from tests.transforms.rejects.runs import split_runs


def test_each_split_has_its_list_and_the_first_of_each_reason_are_known(tmp_path):
    few = [("train", Rejected("annotation", id_, Reason.EMPTY_BOX, f"n {id_}")) for id_ in range(5)]
    many = [("train", Rejected("image", id_, Reason.NO_CLASS, f"n {id_}")) for id_ in reversed(range(3000))]
    last = [("train", Rejected("image", 9999, Reason.EMPTY_BOX, "last"))]
    found = write_rejects(str(tmp_path), ["train", "val"], split_runs(many[::2] + few + last + many[1::2]))
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
        write_rejects(str(tmp_path), ["train"], split_runs([("tset", Rejected("image", 1, Reason.NO_CLASS, ""))]))
    assert not list(tmp_path.iterdir())


def test_a_list_that_cannot_be_made_whole_is_not_there(tmp_path):
    ((_, run),) = split_runs([("train", Rejected("image", 1, Reason.NO_CLASS, ""))])
    damaged = type(run)(run.tally, tuple(type(block)(1, 1, block.first, block.last, b"") for block in run.blocks))
    with pytest.raises(Exception):  # noqa: B017, PT011  whatever unpacks
        write_rejects(str(tmp_path), ["train"], [("train", damaged)])
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert rejects_path(str(tmp_path), "train").startswith(str(tmp_path))


def test_another_run_deletes_the_folder_of_the_state_while_the_list_is_written(tmp_path, monkeypatch):
    def merged_runs(*of_split):
        yield from merged(*of_split)
        shutil.rmtree(tmp_path / ".recordmill-train", ignore_errors=True)

    merged = module.merged_runs
    monkeypatch.setattr(module, "merged_runs", merged_runs)
    write_rejects(str(tmp_path), ["train"], split_runs([("train", Rejected("image", 1, Reason.NO_CLASS, ""))]))
    (line,) = (tmp_path / ".recordmill-train" / "rejects.jsonl").read_bytes().splitlines()
    assert json.loads(line)["id"] == 1
