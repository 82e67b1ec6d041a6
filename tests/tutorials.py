"""Runs the pages of docs/tutorials: commands, and programs in separate processes, in the current folder."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
_BLOCK = re.compile(r"^```(sh|python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MINUTES = 8


def blocks(page: str) -> list[tuple[str, str]]:
    """Return the language and the lines of each block of a page."""
    return _BLOCK.findall((TUTORIALS / f"{page}.md").read_text())


def run_tutorial(
    page: str, recordmill: Callable[..., Any], environment: Mapping[str, str] = {}, **smaller: int
) -> list[str]:
    """Run a page. Commands and programs succeed, and print the lines of the texts after them, in this order.

    Args:
        page: Name of the page without its suffix.
        recordmill: Runs a command, see the fixture.
        environment: More variables of programs.
        smaller: Numbers that replace those of a program's line of constants.

    Returns:
        Output of each program: of the blocks of Python that no command divides.
    """
    outputs = []
    for is_command, part in groupby(_with_texts(page), key=lambda block: block[0] == "sh"):
        if is_command:
            for _, code, texts in part:
                _check(_run_commands(code, recordmill), texts)
        else:
            codes, texts = zip(*((code, text) for _, code, text in part), strict=True)
            outputs.append(_run_program("".join(codes), environment, smaller))
            _check(outputs[-1], "".join(texts))
    return outputs


def _with_texts(page: str) -> Iterator[tuple[str, str, str]]:
    """Yield language, lines, and the text that the next block has, of each block that is run."""
    all_blocks = blocks(page)
    for (kind, code), (next_kind, text) in zip(all_blocks, [*all_blocks[1:], ("", "")], strict=True):
        if kind != "text":
            yield kind, code, text if next_kind == "text" else ""


def _check(printed: str, text: str) -> None:
    lines = iter(printed.splitlines())
    assert [line for line in text.splitlines() if line not in lines] == [], printed


def _run_commands(code: str, recordmill: Callable[..., Any]) -> str:
    """Return what the last command prints."""
    for line in code.replace("\\\n", " ").splitlines():
        name, *arguments = shlex.split(line, comments=True)
        assert name == "recordmill", line
        outcome = recordmill(*arguments)
        assert outcome.code == 0, f"{line}: {outcome.err}"
    return outcome.out


def _run_program(code: str, environment: Mapping[str, str], smaller: Mapping[str, int]) -> str:
    names = ", ".join(smaller)
    if smaller:
        code, replaced = re.subn(
            rf"^{names} = .*$", f"{names} = {', '.join(map(str, smaller.values()))}", code, flags=re.M
        )
        assert replaced == 1, names
    Path("program.py").write_text(code)
    paths = os.pathsep.join(filter(None, (str(TUTORIALS.parents[1]), os.environ.get("PYTHONPATH"))))
    run = subprocess.run(
        [sys.executable, "program.py"],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        timeout=60 * _MINUTES,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout
