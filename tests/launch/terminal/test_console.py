import io

import pytest
from rich.console import Console

from recordmill.launch.terminal import console as module
from recordmill.launch.terminal.console import searching, terminal


def printed(monkeypatch, is_terminal: bool, quiet_seconds: float = 0.0) -> str:
    """Text on the terminal while a search reads many records and finds one."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=is_terminal, width=80)
    monkeypatch.setattr(module, "terminal_of_errors", lambda: console)
    monkeypatch.setattr(module, "_QUIET_SECONDS", quiet_seconds)
    with searching() as search:

        def items():
            search.read(123_456)
            yield "a record"

        for _ in search.pausing(items()):
            stream.write("<record>")
    return stream.getvalue()


def test_search_that_takes_while_says_how_far_it_is(monkeypatch):
    before, after = printed(monkeypatch, is_terminal=True).split("<record>")
    assert "123,456 records read" in before
    assert before.endswith("\x1b[2K") or "\x1b[2K" in before.rpartition("read")[2]  # the line is gone
    assert "read" not in after


@pytest.mark.parametrize(("is_terminal", "quiet_seconds"), [(False, 0.0), (True, 99.0)])
def test_nothing_is_said_in_pipe_or_at_once(monkeypatch, is_terminal, quiet_seconds):
    assert "records read" not in printed(monkeypatch, is_terminal, quiet_seconds)


def test_a_long_line_is_not_wrapped(capsys):
    terminal().print("x" * 2000)
    assert capsys.readouterr().out == "x" * 2000 + "\n"
