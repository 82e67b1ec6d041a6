"""A command as a process."""

import re
import signal
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


def ended(*arguments: str) -> tuple[int, bytes, bytes]:
    """Exit code, output and error output of a Python process."""
    process = subprocess.run([sys.executable, *arguments], capture_output=True, timeout=60, check=False)
    return process.returncode, process.stdout, process.stderr


def test_interrupted_command_leaves_threads_behind():
    assert ended("-c", THREAD_LEFT)[:2] == (130, b"told\n")


def test_help_without_verb():
    code, out, err = ended("-m", "recordmill.launch.cli")
    assert (code, out, err[:6]) == (2, b"", b"usage:")


UNFORESEEN = """
from recordmill.launch.cli import command
command(lambda: {}["a\\nb"])
"""


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ([], b"^recordmill: the command failed: KeyError: 'a.*b' [(]--debug shows the traceback[)]\n$"),
        (["--debug"], b"^Traceback (.*\n)*KeyError: 'a.*b'\n$"),
    ],
)
def test_unexpected_error_is_named(flags, told):
    code, _, err = ended("-c", UNFORESEEN, *flags)
    assert code == 1
    assert re.match(told, err)


SIGNAL_WHEN_ALL_IS_DONE = """
import ctypes, os, signal, sys, threading, time
from recordmill.launch import cli
number, when = int(sys.argv[1]), sys.argv[2]

def send():
    os.kill(os.getpid(), number)

def left():
    threading.main_thread().join()  # until the interpreter waits for other threads
    for _ in range(10):  # the first may come as the main thread falls asleep, and not wake it
        send()
        time.sleep(0.1)
    os._exit(100)

if when == "ignored":
    signal.signal(number, signal.SIG_IGN)
if when == "at once":
    cli.silence = send
elif when == "after Python's end":
    libc = ctypes.CDLL(None)
    libc.on_exit(libc["raise"], None)  # is called with the exit code
else:
    threading.Thread(target=left).start()
print("told")
cli.command(lambda: number)
"""


@pytest.mark.parametrize(
    ("number", "when", "code"),
    [
        (signal.SIGINT, "at once", signal.SIGINT),
        (signal.SIGTERM, "a thread is left", signal.SIGTERM),
        (signal.SIGINT, "after Python's end", signal.SIGINT),
        (signal.SIGHUP, "after Python's end", signal.SIGHUP),
        (signal.SIGHUP, "ignored", 100),
    ],
)
def test_late_signal_keeps_exit_code(number, when, code):
    """The command's exit code is the signal's number; it would be negative where the signal has ended it."""
    assert ended("-c", SIGNAL_WHEN_ALL_IS_DONE, str(int(number)), when)[:2] == (code, b"told\n")


def test_old_verb_keeps_flags_of_beam(capfd):
    assert cli.main(["yolo", "--data", "d", "-o", "o", "--", "--runner", "FlinkRunner"]) == 2
    assert capfd.readouterr().err.endswith("recordmill convert d -o o --format yolo -- --runner FlinkRunner\n")


@pytest.mark.parametrize("verb", ["convert", "extract"])
def test_who_interrupts_hears_that_command_goes_on_from_there(verb, monkeypatch, capsys):
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "parse", lambda own: cli.Command(verb, None, None))
    monkeypatch.setattr(cli, "run_command", interrupted)
    assert cli.main([verb]) == cli.INTERRUPTED
    assert capsys.readouterr().err.endswith("Finished shards are kept. Run the same command again to resume\n")
