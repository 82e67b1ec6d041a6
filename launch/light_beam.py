"""Beam without the clients of services that a command does not use, where a process runs that command alone.

Beam imports those of Google Cloud and Hadoop with itself, a fifth of the processor time that its import takes.
It does without any that is not installed, and so it is told that they are not.
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType

from recordmill.launch.runners import known_beam

_CLIENTS = (
    "apache_beam.io.aws.clients.s3",
    "apache_beam.io.aws.s3filesystem",
    "apache_beam.io.azure.blobstoragefilesystem",
    "apache_beam.io.gcp.bigquery",
    "apache_beam.io.gcp.gcsfilesystem",
    "apache_beam.io.hadoopfilesystem",
    "apitools",
    "google.cloud.dataflow",
    "pyarrow",  # by which Beam learns of Arrow's types; who reads Parquet imports it later
)
_LATER = "apache_beam.io.mongodbio", "httplib2", "yaml"
"""What Beam imports at once and looks into when it uses them."""

_CHANGED = {*_CLIENTS, *_LATER}

_OF_IMPORT = {"__all__", "__cached__", "__file__", "__path__", "__warningregistry__"}
"""What modules are asked for without being used: of the first, Beam asks `mongodbio`."""


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

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        # Who asks later has them.
        if name not in _CHANGED or not _is_being_imported("apache_beam") or not known_beam.is_known():
            return None
        if name in _CLIENTS:
            raise ModuleNotFoundError(f"{name} is not used by this command", name=name)
        spec = PathFinder.find_spec(name, path)
        if spec and spec.loader:
            spec.loader = _Later(spec.loader)
        return spec


class _Later(Loader):
    """Python's `LazyLoader` loads a module as soon as it is imported a second time."""

    def __init__(self, loader: Loader):
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _ModuleToLoad(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


class _ModuleToLoad(ModuleType):
    """A module that is executed when it is asked for what it does not have. Other threads wait for that; what it asks
    of itself meanwhile, it has or has not."""

    _lock = RLock()

    def __getattr__(self, name: str) -> object:
        with self._lock:
            if self.__class__ is _ModuleToLoad and name not in _OF_IMPORT and "_executed" not in vars(self):
                vars(self)["_executed"] = True
                try:
                    self.__loader__.loader.exec_module(self)  # type: ignore[union-attr]
                    self.__class__ = ModuleType  # type: ignore[assignment]
                finally:
                    del vars(self)["_executed"]
        return ModuleType.__getattribute__(self, name)


def _is_being_imported(name: str) -> bool:
    """As the import system notes it itself."""
    return name in sys.modules and getattr(sys.modules[name].__spec__, "_initializing", False)
