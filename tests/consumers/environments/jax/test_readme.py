"""README.md's program of Grain, in an empty folder."""

from tests.consumers.readme import run_blocks


def test_readme(tmp_path, monkeypatch, recordmill):
    monkeypatch.chdir(tmp_path)
    kinds = run_blocks(recordmill, lambda kind, code: "convert my_dataset -o" in code or "grain" in code)
    assert kinds == ["sh", "python"]
