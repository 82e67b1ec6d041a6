import json
import pickle
import random

import pytest

from recordmill.schemas.rejects import MOST_LISTED, Reason, Rejected
from recordmill.transforms.rejects import bounded_rejects
from recordmill.transforms.rejects.bounded_rejects import Rejects, RejectsBuilder, count_rejects, line_of
from tests.transforms.rejects.kinds import rejected


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
def test_neither_order_nor_bundles_decide_what_is_kept(monkeypatch, most):
    monkeypatch.setattr(bounded_rejects, "MOST_LISTED", most)
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


def test_a_list_within_the_bound_is_whole_and_in_order():
    rejects = drawn(1000)
    found = counted(rejects)
    assert sorted(map(repr, map(rejected, found.lines()))) == sorted(map(repr, rejects))
    assert ids(found) == sorted((reject.id for reject in rejects), key=lambda id_: (id_ is None, id_ or 0))


def test_what_is_kept_is_spread_over_all(monkeypatch):
    monkeypatch.setattr(bounded_rejects, "MOST_LISTED", 1000)
    found = ids(counted(Rejected("image", id_, Reason.IMAGE_MISSING, "") for id_ in range(10_000)))
    tenths = [sum(tenth <= id_ // 1000 < tenth + 1 for id_ in found) for tenth in range(10)]
    assert sum(tenths) == 1000
    assert all(60 < number < 140 for number in tenths)


def test_a_quarter_of_a_million_are_counted_and_100_000_listed():
    rejects = [Rejected("annotation", id_, Reason.EMPTY_BOX, f"n {id_}", id_ // 7) for id_ in range(250_000)]
    whole = counted(rejects)
    random.Random(1).shuffle(rejects)
    parts = [counted(rejects[start : start + 110_000]) for start in range(0, 250_000, 110_000)]
    found = merged(parts, random.Random(2))
    assert len(found.lines()) == MOST_LISTED == 100_000
    assert found.lines() == whole.lines()
    assert found.number == 250_000
    assert len(found.packed) < 4_000_000


def test_ids_beyond_64_bits_are_at_their_end_and_come_back():
    found = ids(counted(Rejected("image", id_, Reason.IMAGE_MISSING, "") for id_ in WIDE))
    assert (set(found[:2]), found[2], set(found[3:5]), found[5]) == ({-(2**70), -(2**63)}, 5, {2**63 - 1, 2**70}, None)


WIDE = [2**70, 5, None, -(2**70), 2**63 - 1, -(2**63)]


def test_a_line_is_json_that_says_everything():
    kinds = count_rejects([("val", Rejected("annotation", 4, Reason.EMPTY_BOX, 'a "b"\n', 2, 3))])
    ((kind, rejects),) = kinds.items()
    (keyed,) = rejects.lines()
    assert kind == ("val", "annotation", "empty_box")
    assert json.loads(line_of(keyed)) == {
        "split": "val",
        "what": "annotation",
        "id": 4,
        "reason": "empty_box",
        "detail": 'a "b"\n',
        "image_id": 2,
        "annotations": 3,
    }
