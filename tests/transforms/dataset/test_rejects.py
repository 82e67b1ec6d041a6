import hashlib
import json
import pickle
import random
import shutil
from collections import Counter

import pytest

from recordmill.schemas.rejects import Reason, Rejected, RejectLine
from recordmill.transforms.dataset import rejects as rejects_module
from recordmill.transforms.dataset.rejects import (
    FIRST_OF_REASON,
    Rejects,
    RejectsBuilder,
    count_rejects,
    strip_key,
    write_rejects,
)
from recordmill.transforms.storage.local_storage import LocalUpload
from tests.transforms.dataset.kinds import kind_rejects, rejected


def drawn(number: int, seed: int = 0) -> list[Rejected]:
    chance = random.Random(seed)
    ids = chance.sample(range(-number, 9 * number), number)
    return [
        Rejected(
            "image",
            None if id_ % 50 == 0 else id_,
            Reason.IMAGE_MISSING,
            f"ü {id_}",
            chance.choice([None, 2, 10]),
            id_ % 3,
        )
        for id_ in ids
    ]


def counted(rejects) -> Rejects:
    (found,) = count_rejects(("train", reject) for reject in rejects).values()
    return found


def merged(parts: list[Rejects], chance: random.Random) -> Rejects:
    """Merge parts as a runner may: in any order, as inputs and as accumulators, which are pickled on their way."""
    accumulators = [RejectsBuilder() for _ in range(min(3, len(parts)))]
    for number, part in enumerate(parts):
        accumulators[number if number < len(accumulators) else chance.randrange(len(accumulators))].merge(part)
    chance.shuffle(accumulators)
    merged, *others = pickle.loads(pickle.dumps(accumulators[:1])) + accumulators[1:]
    for builder in others:
        merged.merge(builder.build())
    return merged.build()


def ids(rejects: Rejects) -> list[int | None]:
    return [rejected(line).id for line in rejects.lines()]


@pytest.mark.parametrize("most", [1, 3, 100, 999, 1000, 5000])
def test_kept_rejects_are_independent_of_order_and_bundles(monkeypatch, most):
    monkeypatch.setattr(rejects_module, "MOST_LISTED", most)
    drawn_once = drawn(1000)
    rejects, expected = [*drawn_once, *drawn_once[:20]], counted([*drawn_once, *drawn_once[:20]])
    assert len(expected.lines()) == min(most, 1020)
    for seed in range(10):
        chance = random.Random(seed)
        chance.shuffle(rejects)
        cuts = sorted(chance.sample(range(1, len(rejects)), chance.choice([1, 7, 300])))
        parts = [counted(rejects[start:end]) for start, end in zip([0, *cuts], [*cuts, len(rejects)], strict=True)]
        found = merged(parts, chance)
        assert found.lines() == expected.lines()
        assert (found.number, found.annotations) == (1020, sum(reject.annotations for reject in rejects))


def test_list_within_bound_is_whole_and_in_order():
    rejects = drawn(1000)
    found = counted(rejects)
    assert sorted(map(repr, map(rejected, found.lines()))) == sorted(map(repr, rejects))
    assert ids(found) == sorted((reject.id for reject in rejects), key=lambda id_: (id_ is None, id_ or 0))
    assert len(found.packed) < 40 * len(rejects)


def test_kept_rejects_are_spread_over_all(monkeypatch):
    monkeypatch.setattr(rejects_module, "MOST_LISTED", 1000)
    found = ids(counted(Rejected("image", id_, Reason.IMAGE_MISSING, "") for id_ in range(10_000)))
    tenths = [sum(tenth <= id_ // 1000 < tenth + 1 for id_ in found) for tenth in range(10)]
    assert sum(tenths) == 1000
    assert all(60 < number < 140 for number in tenths)


def test_ids_beyond_64_bits_are_at_their_end_and_come_back():
    wide = [2**70, 5, None, -(2**70), 2**63 - 1, -1, -(2**63), 256]
    found = ids(counted(Rejected("image", id_, Reason.IMAGE_MISSING, "") for id_ in wide))
    assert (set(found[:2]), found[2:5]) == ({-(2**70), -(2**63)}, [-1, 5, 256])
    assert (set(found[5:7]), found[7]) == ({2**63 - 1, 2**70}, None)


def test_line_is_json_that_says_everything():
    kinds = count_rejects([("val", Rejected("annotation", 4, Reason.EMPTY_BOX, 'a "b"\n', 2, 3, "é.jpg"))])
    ((kind, rejects),) = kinds.items()
    (keyed,) = rejects.lines()
    assert kind == ("val", "annotation", "empty_box")
    assert json.loads(strip_key(keyed)) == {
        "split": "val",
        "what": "annotation",
        "id": 4,
        "reason": "empty_box",
        "detail": 'a "b"\n',
        "image_id": 2,
        "annotations": 3,
        "file_name": "é.jpg",
    }


def test_rejects_by_split_and_reason(tmp_path):
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


def test_rejects_of_split_not_written_are_not_dropped(tmp_path):
    with pytest.raises(KeyError, match="tset"):
        write_rejects(str(tmp_path), ["train"], kind_rejects([("tset", Rejected("image", 1, Reason.NO_CLASS, ""))]))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("most", "bound"), [(99, 99), (100_000, 300)])
def test_list_is_bounded_and_tally_is_not(tmp_path, monkeypatch, most, bound):
    monkeypatch.setattr(rejects_module, "MOST_LISTED", most)
    rejects = [("train", Rejected("image", id_, Reason.NO_CLASS, f"n {id_}", None, 2)) for id_ in range(300)]
    few = [("train", Rejected("annotation", id_, Reason.EMPTY_BOX, "")) for id_ in range(5)]
    found = write_rejects(str(tmp_path), ["train"], kind_rejects(rejects) + kind_rejects(few))["train"]
    data = (tmp_path / ".recordmill-train" / "rejects.jsonl").read_bytes()
    assert Counter(json.loads(line)["reason"] for line in data.splitlines()) == {"no_class": bound, "empty_box": 5}
    assert found.tally.counts == {("image", "no_class"): 300, ("annotation", "empty_box"): 5}
    assert found.tally.annotations == 600
    assert write_rejects(str(tmp_path), ["train"], kind_rejects([*few, *rejects[::-1]]))["train"] == found


def test_list_that_cannot_be_written_whole_is_not_there(tmp_path, monkeypatch):
    (tmp_path / ".recordmill-train").mkdir()
    monkeypatch.setattr(LocalUpload, "commit", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_rejects(str(tmp_path), ["train"], kind_rejects([("train", Rejected("image", 1, Reason.NO_CLASS, ""))]))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_state_folder_is_deleted(tmp_path, monkeypatch):
    state = tmp_path / ".recordmill-train"
    state.mkdir()
    commit = LocalUpload.commit
    monkeypatch.setattr(LocalUpload, "commit", lambda given: (shutil.rmtree(state), commit(given)))
    write_rejects(str(tmp_path), ["train"], kind_rejects([("train", Rejected("image", 1, Reason.NO_CLASS, ""))]))
    (line,) = (state / "rejects.jsonl").read_bytes().splitlines()
    assert json.loads(line)["id"] == 1
