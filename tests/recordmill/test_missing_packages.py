"""What a package is missing for is named, with the command that installs it."""

import importlib
import sys

import pytest

import recordmill
from recordmill.schemas.errors import ConfigError


def parse_spec() -> object:
    return recordmill.parse_spec(recordmill.LAYOUTS["detection"].with_parts(()))


@pytest.mark.parametrize(
    ("package", "use", "cure"),
    [
        ("tensorflow", parse_spec, 'recordmill.parse_spec needs pip install "recordmill[tensorflow]"'),
        ("apache_beam", lambda: importlib.import_module("recordmill.beam"), 'needs pip install "recordmill[beam]"'),
    ],
)
def test_a_missing_package_is_named(monkeypatch, package, use, cure):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "recordmill.beam", raising=False)
    with pytest.raises(ConfigError, match=cure.replace("[", r"\[")):
        use()
