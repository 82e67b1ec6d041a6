"""Beam without the clients of services that a command does not use, where a process runs that command alone.

Beam imports those of Google Cloud and Hadoop with itself, a fifth of the processor time that its import takes.
It does without any that is not installed, and so it is told that they are not.
"""

import sys
from collections.abc import Sequence

from recordmill.launch.runners import known_beam

_CLIENTS = (
    "apache_beam.io.gcp.bigquery",
    "apache_beam.io.gcp.gcsfilesystem",
    "apache_beam.io.hadoopfilesystem",
)


def import_light_beam(arguments: Sequence[str]) -> None:
    """Beam's import, when it comes, leaves out what a command of these arguments cannot use."""
    if is_local(arguments):
        sys.meta_path.insert(0, _NotInstalled())


def is_local(arguments: Sequence[str]) -> bool:
    """Whether a command reads and writes files of this machine only, and has Beam run it in this process.

    >>> is_local(["coco", "--output", "/data"]), is_local(["coco", "--output=gs://bucket"]), is_local(["coco", "--"])
    (True, False, False)
    """
    return not any(argument == "--" or "://" in argument for argument in arguments)


class _NotInstalled:
    """A finder that stands before all others."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        # Who asks later has them.
        if name in _CLIENTS and _is_being_imported("apache_beam") and known_beam.is_known():
            raise ModuleNotFoundError(f"{name} is not used by this command", name=name)


def _is_being_imported(name: str) -> bool:
    """As the import system notes it itself."""
    return name in sys.modules and getattr(sys.modules[name].__spec__, "_initializing", False)
