"""What says that an extra of the distribution is not installed."""

import sys

import pytest

from recordmill.launch.command_line.verbs import VERBS

ARGUMENTS = {
    "coco": ["--images", "i", "--instances", "x.json", "--output", "o"],
    "embed": ["--images", "i", "--model", "efficientnet-b0", "--weights", "none", "--output", "o"],
    "extract": ["o", "d"],
    "folder": ["--images", "i", "--output", "o"],
    "table": ["--rows", "r.csv", "--output", "o"],
    "verify": ["o"],
}


@pytest.mark.parametrize("verb", sorted(name for name, verb in VERBS.items() if verb.runs_beam))
def test_without_beam_a_verb_that_needs_it_names_the_extra_before_anything_else(verb, recordmill, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    outcome = recordmill(verb, *ARGUMENTS[verb])
    assert outcome.code == 2
    (line,) = outcome.err.splitlines()
    assert verb in line
    assert "pip install 'recordmill[beam]'" in line


def test_without_tensorflow_what_needs_it_names_the_extra(copy_converted, tmp_path, recordmill, monkeypatch):
    copy_converted(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    outcome = recordmill("verify", tmp_path)
    assert outcome.code == 2
    (line,) = outcome.err.splitlines()
    assert "pip install 'recordmill[tensorflow]'" in line
