"""Rejects that are counted and not kept."""

import random

import pytest

from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.rejects.tally_builder import TallyBuilder
from tests.transforms.rejects.runs import tally


@pytest.mark.parametrize("seed", range(20))
def test_a_tally_is_that_of_the_runs_of_a_job(seed):
    """Also of ids that are there several times, or missing, or beyond 64 bits."""
    chance = random.Random(seed)
    rejects = [
        Rejected(
            chance.choice(["image", "annotation", "row"]),
            chance.choice([None, -(2**70), -3, 4, 2**63, 2**70]) if seed % 2 else chance.choice([None, 2**63, 2**70]),
            chance.choice([Reason.EMPTY_BOX, Reason.IMAGE_MISSING]),
            chance.choice(["", "ü", "z"]),
            chance.choice([None, 2, 10]),
            chance.randrange(3),
        )
        for _ in range(250)
    ]
    builder = TallyBuilder("train")
    for reject in rejects:
        builder.add(reject)
    run = builder.run()
    assert run is not None
    assert (run.tally, run.blocks) == (tally(rejects), ())


def test_of_nothing_there_is_no_tally():
    assert TallyBuilder("train").run() is None
