"""A command `recordmill …` in a separate process, as a user types it."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.engines import servers
from tests.engines.worker_pool import ROOT


class Command:
    """A command that has been started; what it prints goes to files in `folder`."""

    def __init__(self, arguments: Sequence[object], folder: Path, environment: Mapping[str, str] = {}):
        folder.mkdir(parents=True, exist_ok=True)
        self._out, self._err = folder / "out.txt", folder / "err.txt"
        words = [sys.executable, "-m", "recordmill.launch.cli", *map(str, arguments)]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                words,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    def end(self, timeout_s: float = 300) -> "Command":
        """Wait until it has ended.

        Raises:
            TimeoutExpired: it has not, and was killed.
        """
        try:
            self.process.wait(timeout_s)
        finally:
            servers.end(self.process)  # what a runner has started may be left
        return self

    @property
    def code(self) -> int | None:
        return self.process.poll()

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def __repr__(self) -> str:
        return f"exit code {self.code}\n{self.out}\n{self.err}"
