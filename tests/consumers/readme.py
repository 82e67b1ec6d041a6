"""README.md's commands and programs."""

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_README = (Path(__file__).parents[2] / "README.md").read_text()
_BLOCKS = re.findall(r"^```(sh|text|python)\n(.*?)^```$", _README, re.MULTILINE | re.DOTALL)


def run_blocks(recordmill: Callable[..., Any], is_run: Callable[[str, str], bool]) -> list[str]:
    """Run the blocks of README.md in their order, in the current folder.

    Args:
        recordmill: The fixture that runs a command.
        is_run: Returns True for the kind and the code of a block to run.

    Returns:
        Kinds of the blocks that ran.
    """
    printed = ""
    blocks = [(kind, code) for kind, code in _BLOCKS if is_run(kind, code)]
    for kind, code in blocks:
        if kind == "python":
            subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        elif kind == "text":  # what the command before it prints
            assert printed.startswith(code)
        else:
            for line in code.splitlines():
                outcome = recordmill(*shlex.split(line, comments=True)[1:])
                assert outcome.code == 0, f"{line}: {outcome.err}"
                printed = outcome.out
    return [kind for kind, _ in blocks]
