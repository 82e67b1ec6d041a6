"""The compiled template: found again, and nothing that stops a page where it cannot be kept."""

import sys

import pytest
from jinja2 import DictLoader, Environment

from recordmill.transforms.report import compiled_template
from recordmill.transforms.report.compiled_template import CompiledTemplate


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(compiled_template, "cache_from_source", lambda _: str(tmp_path / "module.pyc"))
    return tmp_path


def rendered(text="{{ 6 * 7 }}", **options):
    loader = DictLoader({"page": text})
    environment = Environment(loader=loader, bytecode_cache=CompiledTemplate(options), **options)
    return environment.get_template("page").render()


def test_a_template_is_compiled_once_and_again_when_its_text_changes(folder, monkeypatch):
    assert rendered() == "42"
    assert len(list(folder.iterdir())) == 1
    with monkeypatch.context() as patched:
        patched.setattr(Environment, "_parse", None)
        assert rendered() == "42"
    assert rendered("{{ 6 + 7 }}") == "13"


def test_another_jinja2_compiles_anew(folder, monkeypatch):
    rendered()
    monkeypatch.setattr(compiled_template.jinja2, "__version__", "99")
    rendered()
    assert len(list(folder.iterdir())) == 2


def test_a_template_that_escapes_is_not_one_that_does_not(folder):
    text = "{{ '<' }}"
    assert (rendered(text, autoescape=False), rendered(text, autoescape=True)) == ("<", "&lt;")


@pytest.mark.parametrize("kept", [12, 40])
def test_a_damaged_file_is_replaced(folder, kept):
    rendered()
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:kept])
    assert rendered() == "42"
    assert file.read_bytes() == whole


def test_nothing_is_written_where_python_writes_nothing(folder, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert rendered() == "42"
    assert not list(folder.iterdir())


def test_a_folder_that_cannot_be_written_is_no_fault(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(compiled_template, "cache_from_source", lambda _: str(tmp_path / "none" / "module.pyc"))
    assert rendered() == "42"
