import os

import numpy as np
import pytest

from recordmill.schemas.block import Block
from recordmill.schemas.errors import StepError
from recordmill.transforms.blocks.check_block import SWITCH, check_block, check_blocks
from recordmill.transforms.blocks.pack_block import pack_block
from recordmill.transforms.join import match_blocks
from tests.conftest import coco_flags

WRONG = Block(image_id=np.array([3, 4]), file_bytes=np.array([1, -1]))


def test_check_block(monkeypatch):
    """On in tests; off by default."""
    with pytest.raises(StepError, match="made a wrong Block: column file_bytes has -1; "):
        pack_block(WRONG)
    monkeypatch.delenv(SWITCH)
    check_block(WRONG)
    assert pack_block(WRONG)
    with check_blocks(), pytest.raises(StepError):
        check_block(WRONG)
    assert SWITCH not in os.environ
    monkeypatch.setenv(SWITCH, "2")
    with check_blocks():
        assert os.environ[SWITCH] == "2"
    assert os.environ[SWITCH] == "2"


def test_debug_checks_blocks(recordmill, sample, tmp_path, monkeypatch):
    """A step that makes a wrong Block ends a job with --debug, with an error that names the step."""
    monkeypatch.delenv(SWITCH)
    match = match_blocks.match_rows

    def match_wrongly(*arguments):
        rows, unlisted = match(*arguments)
        return rows.replace(state=rows.state - 1), unlisted

    monkeypatch.setattr(match_blocks, "match_rows", match_wrongly)
    failed = recordmill(*coco_flags(sample, tmp_path / "debug", "--debug", "--progress", "none"))
    assert failed.code == 1
    expected = (
        "recordmill: step 'JoinImages/MatchRows/Match/Step/ParDo(_FactsFn)' made a wrong Block: column state has -1; "
    )
    assert [line for line in failed.err.splitlines() if line.startswith(expected) and "; file name '" in line]
    plain = recordmill(*coco_flags(sample, tmp_path / "plain", "--progress", "none"))
    assert "made a wrong Block" not in plain.err
    assert SWITCH not in os.environ
