"""README.md's commands and programs, in its order, in an empty folder."""

from tests.consumers.readme import run_blocks


def test_readme(tmp_path, monkeypatch, recordmill):
    """All but the program of Grain, which the environment of JAX runs."""
    monkeypatch.chdir(tmp_path)
    kinds = run_blocks(recordmill, lambda kind, code: "grain" not in code)
    assert kinds == ["sh", "text", "python", "python", "sh", "sh"]
