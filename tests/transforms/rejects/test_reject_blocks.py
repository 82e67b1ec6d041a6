"""Rejects in compressed runs, and one order of all."""

import json
import random

import pytest

from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.rejects import reject_blocks
from recordmill.transforms.rejects.reject_blocks import (
    FIRST_RUN,
    line_of,
    merged_runs,
    reject_of,
    reject_runs,
    unique_runs,
)
from recordmill.transforms.rejects.write_rejects import add_tallies
from recordmill.transforms.runtime import line_blocks
from recordmill.transforms.runtime.line_blocks import lines_in


def drawn(number: int, seed: int = 0) -> list[Rejected]:
    chance = random.Random(seed)
    ids = chance.sample(range(-number, 9 * number), number)
    return [
        Rejected(
            chance.choice(["image", "annotation"]),
            None if id_ % 50 == 0 else id_,
            chance.choice([Reason.EMPTY_BOX, Reason.IMAGE_MISSING]),
            f"ü {id_}",
            chance.choice([None, 2, 10]),
            id_ % 3,
        )
        for id_ in ids
    ]


def order(reject: Rejected) -> tuple:
    return reject.what, reject.id is None, reject.id or 0


def merged(runs) -> list[Rejected]:
    return [reject_of(line) for lines in merged_runs("", "train", runs) for line in lines]


@pytest.mark.parametrize("at_once", [1, 7, 4000])
@pytest.mark.parametrize("held", [100_000, 1 << 27])
def test_all_rejects_come_in_one_order_however_they_were_gathered(monkeypatch, at_once, held):
    monkeypatch.setattr(line_blocks, "HELD_BYTES", held)
    monkeypatch.setattr(line_blocks, "BLOCK_BYTES", 20_000)
    monkeypatch.setattr(reject_blocks, "RUN_BYTES", 500_000)
    rejects = drawn(10_000 if at_once > 1 else 1000)
    runs = [run for start in range(at_once) for run in reject_runs("", "train", rejects[start::at_once])]
    assert all(block.size <= 21_000 for run in runs for block in run.blocks)
    found = merged(runs)
    assert sorted(map(repr, found)) == sorted(map(repr, rejects))
    assert [order(reject) for reject in found] == sorted(map(order, rejects))
    assert found == merged(list(reject_runs("", "train", rejects[::-1])))


def test_ids_beyond_64_bits_are_at_their_end_and_come_back():
    ids = [2**70, 5, None, -(2**70), 2**63 - 1, -(2**63)]
    runs = list(reject_runs("", "train", [Rejected("image", id_, Reason.IMAGE_MISSING, "") for id_ in ids]))
    found = [reject.id for reject in merged(runs)]
    assert (set(found[:2]), found[2], set(found[3:5]), found[5]) == ({-(2**70), -(2**63)}, 5, {2**63 - 1, 2**70}, None)


def test_a_line_is_json_that_says_everything():
    (run,) = reject_runs("", "val", [Rejected("annotation", 4, Reason.EMPTY_BOX, 'a "b"\n', 2, 3)])
    (keyed,) = lines_in(run.blocks[0])
    assert json.loads(line_of(keyed)) == {
        "split": "val",
        "what": "annotation",
        "id": 4,
        "reason": "empty_box",
        "detail": 'a "b"\n',
        "image_id": 2,
        "annotations": 3,
    }


def test_runs_double_so_that_the_first_is_early_and_they_are_few():
    lengths = [sum(block.lines for block in run.blocks) for run in reject_runs("", "train", drawn(FIRST_RUN * 10))]
    assert lengths == [FIRST_RUN, FIRST_RUN, 2 * FIRST_RUN, 4 * FIRST_RUN, 2 * FIRST_RUN]


def test_a_run_is_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr(reject_blocks, "RUN_BYTES", 5000)
    assert max(run.tally.counts[("row", "not_text")] for run in reject_runs("", "train", rows(90, "x" * 900))) == 5


def rows(number: int, detail: str) -> list[Rejected]:
    return [Rejected("row", id_, Reason.NOT_TEXT, detail) for id_ in range(number)]


def test_what_a_run_counts_is_that_run_s_alone():
    rejects = drawn(1000)
    runs = list(reject_runs("", "train", rejects))
    tally = add_tallies(run.tally for run in runs)
    assert len(runs) > 3
    for what in ("image", "annotation"):
        of = [reject for reject in rejects if reject.what == what]
        assert tally.reasons(what) == {
            reason.value: sum(reject.reason is reason for reject in of)
            for reason in (Reason.EMPTY_BOX, Reason.IMAGE_MISSING)
        }
        assert reject_of(tally.first[what]).id == min(reject.id for reject in of if reject.id is not None)
    assert sum(tally.reasons("image", "annotation").values()) == 1000
    assert tally.annotations == sum(reject.annotations for reject in rejects)


def test_what_was_gathered_twice_is_there_once():
    rejects = drawn(500)
    runs = [*reject_runs("", "train", rejects), *reject_runs("", "train", rejects[300:] + rejects[:300])]
    once = list(unique_runs("", "train", runs))
    assert sum(sum(run.tally.counts.values()) for run in once) == 500
    assert merged(once) == merged(list(reject_runs("", "train", rejects)))
