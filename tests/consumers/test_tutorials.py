"""docs/tutorials that run in the project's own environment."""

from pathlib import Path

import pytest

from tests.tutorials import TUTORIALS, run_tutorial


@pytest.mark.parametrize(("page", "programs"), [("folders_to_keras", 1), ("table_to_tfdata", 1), ("own_pipeline", 2)])
def test_page(page, programs, tmp_path, monkeypatch, recordmill):
    monkeypatch.chdir(tmp_path)
    assert len(run_tutorial(page, recordmill)) == programs


def test_each_page_is_run():
    tests = "".join(path.read_text() for path in Path(__file__).parents[1].rglob("test_*tutorial*.py"))
    assert [page.stem for page in TUTORIALS.glob("*.md") if page.stem not in tests] == []
