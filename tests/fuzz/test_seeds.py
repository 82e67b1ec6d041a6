"""The files that are mutated are valid, and a mutant is the same whenever it is made."""

import random

import pytest

from recordmill.schemas.errors import RecordmillError
from tests.fuzz.__main__ import mutant, read_mutant
from tests.fuzz.targets import Target, file_targets, write_files

TARGETS = {target.name: target for target in file_targets()}


@pytest.mark.parametrize("name", TARGETS)
def test_files_are_valid(tmp_path, name):
    write_files(tmp_path, TARGETS[name].files)
    TARGETS[name].read(tmp_path, random.Random(1))


def test_a_mutant_is_known_by_its_numbers():
    target = TARGETS["voc"]
    first, again, other = (mutant(1, target, case)[0] for case in (3, 3, 4))
    assert first == again
    assert first != target.files
    assert first != other


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "fault"),
    [(RecordmillError("a"), ""), (KeyError("a"), "KeyError: 'a'"), (MemoryError("a"), "MemoryError: a")],
)
def test_other_exceptions_are_faults(tmp_path, error, fault):
    target = Target("a", {"a.txt": b"0 1\n"}, lambda *_: _raise(error))
    assert read_mutant(1, target, 0, tmp_path).partition("\n")[2] == fault
