"""README.md's commands and programs, in its order, in an empty folder."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[4] / "README.md").read_text()
BLOCKS = re.findall(r"^```(sh|text|python)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_readme(tmp_path, monkeypatch, recordmill):
    monkeypatch.chdir(tmp_path)
    printed = ""
    for kind, code in BLOCKS:
        if kind == "python":
            subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        elif kind == "text":  # what the command before it prints
            assert printed.startswith(code)
        else:
            for line in code.splitlines():
                outcome = recordmill(*shlex.split(line, comments=True)[1:])
                assert outcome.code == 0, f"{line}: {outcome.err}"
                printed = outcome.out
    assert {kind for kind, _ in BLOCKS} == {"sh", "text", "python"}
