"""A command as a process."""

import subprocess
import sys

import pytest

from recordmill.launch import cli

THREAD_LEFT = """
import threading
from recordmill.launch.cli import command
threading.Thread(target=threading.Event().wait).start()
print("told")
command(lambda: 130)
"""


def test_an_interrupted_command_ends_though_a_step_has_left_a_thread():
    ended = subprocess.run([sys.executable, "-c", THREAD_LEFT], stdout=subprocess.PIPE, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (130, b"told\n")


@pytest.mark.parametrize("verb", ["coco", "extract"])
def test_who_interrupts_hears_that_the_command_goes_on_from_there(verb, monkeypatch, capsys):
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "parse", lambda own: cli.Command(verb, None, None))
    monkeypatch.setattr(cli, "require_beam", lambda verb: None)
    monkeypatch.setitem(cli._COMMANDS, verb, interrupted)
    assert cli.main([verb]) == cli.INTERRUPTED
    assert capsys.readouterr().err.endswith("finished shards stay, and the same command goes on from there\n")
