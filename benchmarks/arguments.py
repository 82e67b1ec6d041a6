"""What a benchmark is told on its command line, and the folder that it works in."""

import argparse
import atexit
import os
import shutil
import tempfile
from pathlib import Path


def read_arguments(description: str, **defaults: int | str) -> tuple[argparse.Namespace, Path]:
    """Flags by name with their defaults, and --folder.

    Returns:
        what was given; and the folder, a temporary one that goes with this process if none was given.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each process would compile a clone's modules anew, 0.2 s
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--folder", help="where data and output go; made and kept (default: a temporary folder)")
    arguments = parser.parse_args()
    if arguments.folder:
        return arguments, Path(arguments.folder)
    folder = Path(tempfile.mkdtemp(prefix="recordmill-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return arguments, folder
