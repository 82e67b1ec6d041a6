import re
import subprocess
import sys
from pathlib import Path

import pytest

import recordmill

PUBLIC = {
    *("LAYOUTS", "ConfigError", "FeatureTable", "convert", "JobError", "Manifest", "RecordError", "RecordmillError"),
    *("DataSet", "GlobalOrder", "Split", "__version__", "decode_manifest", "encoders", "open", "parse_spec"),
    "collate",
}


def test_exactly_these_names_are_public():
    assert set(recordmill.__all__) == PUBLIC
    modules = {"beam", "formats"}  # if a test of this process imported them
    assert set(dir(recordmill)) - modules == PUBLIC
    assert recordmill.open.__module__ == "recordmill._data_set"
    assert recordmill.ConfigError is recordmill.schemas.errors.ConfigError


def test_modules_are_private():
    """Completion in editors lists files, not `dir`."""
    modules = {path.stem for path in Path(recordmill.__file__).parent.glob("*.py")}
    assert {name for name in modules if not name.startswith("_")} == {"beam", "formats"}


def test_imports_load_neither_beam_nor_tensorflow():
    code = (
        "import sys\nbefore = set(sys.modules)\nimport recordmill\n"
        "roots = lambda: {name.partition('.')[0] for name in sys.modules.keys() - before}\n"
        "print(sorted(roots() - sys.stdlib_module_names))\n"
        "for name in recordmill.__all__: getattr(recordmill, name)\n"
        "print(sorted(roots() & {'apache_beam', 'tensorflow', 'PIL'}))"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.splitlines() == ["['recordmill']", "[]"]


def test_unknown_name_is_attribute_error():
    with pytest.raises(AttributeError, match="'datasets'"):
        _ = recordmill.datasets


def test_page_of_api_has_each_name():
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")][1:]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == PUBLIC - {"__version__"}
    assert all(value.__doc__ for name in recordmill.__all__ if callable(value := getattr(recordmill, name)))


def parse_spec() -> object:
    return recordmill.parse_spec(recordmill.LAYOUTS["detection"].with_parts(()))


def test_missing_tensorflow_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(
        recordmill.ConfigError,
        match=r'recordmill.parse_spec needs the extra tensorflow. Run: pip install "recordmill\[tensorflow\]"',
    ):
        parse_spec()


def test_missing_beam_is_named():
    code = (
        "import sys\nsys.modules['apache_beam'] = None\nimport recordmill.beam"  # before any other module imports Beam
    )
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert run.stderr.splitlines()[-1].endswith(
        'ConfigError: recordmill.beam needs the extra beam. Run: pip install "recordmill[beam]"'
    )
