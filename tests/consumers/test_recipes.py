"""Every command of docs/recipes.md does what the page says, in its order."""

import shlex
from pathlib import Path

import recordmill
from recordmill.launch.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"


def test_recipes_run_in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = PAGE.read_text().replace("\\\n", " ").splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("    recordmill ")]
    assert [main(command[1:]) for command in commands] == [0] * 11
    with_records = [command for command in commands if "--output" in command and "--labels-only" not in command]
    outputs = [command[command.index("--output") + 1] for command in with_records]
    assert outputs == ["annotations", "images", "rows", "features", "texts", "sized", "labelled", "sparse"]
    for output in outputs:
        assert next(iter(recordmill.open(output)["train"].tensorflow()))
        assert output == "images" or main(["verify", output]) == 0
