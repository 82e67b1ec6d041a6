"""Command-line arguments of a benchmark, and its working folder."""

import argparse
import atexit
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path


def read_arguments(description: str, **defaults: int | str) -> tuple[argparse.Namespace, Path]:
    """Parse flags with the names and types of `defaults`, and `--folder`.

    Returns:
        The arguments, and the working folder. Without `--folder` it is a temporary one, deleted when this process ends.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise each process compiles a clone's modules again, 0.2 s
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--folder", help="where data and output go; made and kept (default: a temporary folder)")
    arguments = parser.parse_args()
    beam = importlib.util.find_spec("apache_beam")
    if not beam or not beam.cached or not os.path.exists(beam.cached):
        parser.exit(2, "apache_beam has no bytecode: its import takes twice as long. Install it by `make`.\n")
    if arguments.folder:
        return arguments, Path(arguments.folder)
    folder = Path(tempfile.mkdtemp(prefix="recordmill-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return arguments, folder
