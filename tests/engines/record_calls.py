"""Notes which functions of our package run in a worker, and of which file they are.

    record_calls.add_to(site_packages(python))
    with running_pool(python, log, {"RECORDED_CALLS": str(folder)}) as pool: ...
    record_calls.read(folder)

`add_to` copies this file into the worker's environment, where Python imports it as it starts: so it imports nothing
that an environment may lack.
"""

import os
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType

PACKAGE = "recordmill"

Call = tuple[str, int]
"""A function: its file, and the line it begins at."""


def add_to(site_packages: Path) -> None:
    """Have every process of the environment with these packages note its calls where RECORDED_CALLS says."""
    (site_packages / "record_calls.py").write_bytes(Path(__file__).read_bytes())
    (site_packages / "record_calls.pth").write_text("import record_calls; record_calls.start()\n")


def read(folder: Path) -> set[Call]:
    """What all processes noted."""
    lines = [line for path in folder.glob("*.calls") for line in path.read_text().splitlines()]
    return {(file, int(line)) for file, line in (text.rsplit(":", 1) for text in lines)}


def start() -> None:
    """Note calls in this thread, where Beam tears DoFns down, and in those that are yet to be started."""
    folder = os.environ.get("RECORDED_CALLS")
    if not folder or "apache_beam.runners.worker.worker_pool_main" in sys.orig_argv:  # which only starts workers
        return
    output = open(os.path.join(folder, f"{os.getpid()}.calls"), "a", buffering=1)  # noqa: SIM115  until the process ends
    seen: dict[int, CodeType] = {}  # by id, which nothing else has while the object is kept

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or id(code) in seen:
            return
        seen[id(code)] = code
        if _is_ours(code.co_filename):
            output.write(f"{code.co_filename}:{code.co_firstlineno}\n")

    sys.setprofile(note)
    threading.setprofile(note)


def _is_ours(file: str) -> bool:
    """Whether a file is of a package that is called as ours is, wherever it is."""
    folder = os.path.dirname(file)
    while os.path.exists(os.path.join(os.path.dirname(folder), "__init__.py")):
        folder = os.path.dirname(folder)
    return os.path.basename(folder) == PACKAGE
