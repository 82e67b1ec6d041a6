"""Our messages on standard error are shown; those of libraries and child processes can be hidden."""

import subprocess
import sys

import pytest

CODE = """
import logging, os, subprocess, sys
from recordmill.launch.terminal.error_stream import error_stream, hide_other_output
logging.basicConfig()
try:
    with hide_other_output():
        print("theirs", file=sys.stderr)
        logging.error("their log")
        os.write(2, b"native\\n")
        subprocess.run([sys.executable, "-c", "import sys; print('a child', file=sys.stderr)"])
        print("ours", file=error_stream(), flush=True)
        with hide_other_output():
            print("ours, within", file=error_stream(), flush=True)
        print("theirs again", file=sys.stderr)
        print("not flushed by us", file=error_stream())
        {last}
except ValueError:
    pass
print("after", file=sys.stderr)
print("after, too", file=error_stream())
"""


@pytest.mark.parametrize("last", ["pass", "raise ValueError"])
def test_only_our_messages_are_shown(last):
    ended = subprocess.run([sys.executable, "-c", CODE.format(last=last)], capture_output=True, text=True, check=True)
    assert ended.stderr.splitlines() == ["ours", "ours, within", "not flushed by us", "after", "after, too"]
    assert ended.stdout == ""


def test_nothing_happens_where_standard_error_is_closed():
    code = f"import sys; sys.stderr = None\n{CODE.split('logging.basicConfig()')[0]}with hide_other_output(): print(1)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "1\n"


@pytest.mark.parametrize("flags", [[], ["--debug"]])
def test_debug_shows_output_of_c_code(flags):
    code = """
import os, sys
from recordmill.launch.cli import command
from recordmill.launch.terminal.error_stream import error_stream
def run():
    os.write(2, b"LZWDecode: corrupted\\n")
    print("ours", file=error_stream())
    return 7
command(run)
"""
    ended = subprocess.run([sys.executable, "-c", code, *flags], capture_output=True, text=True, check=False)
    assert ended.returncode == 7
    assert ended.stderr.splitlines() == (["LZWDecode: corrupted", "ours"] if flags else ["ours"])
