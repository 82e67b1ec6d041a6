"""Beam without what a command does not use, where a process runs that command alone.

Beam imports clients of Google Cloud and Hadoop with itself, checkers of types, ciphers and formats of files: a third
of the processor time that its import takes. It does without any client that is not installed, and so it is told that
they are not; of the rest it keeps names, which are looked into when they are used.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType, NoneType
from typing import TYPE_CHECKING, Any

from recordmill.launch.runners import known_beam

if TYPE_CHECKING:
    from importlib.abc import Loader  # which imports much of what --help does without
else:
    Loader = object

_CLIENTS = (
    "absl",  # whose flags Beam pickles in a way of their own
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
_LATER = "apache_beam.io.avroio", "apache_beam.io.mongodbio", "dateutil.parser", "httplib2", "proto", "yaml"
"""What Beam imports at once and looks into when it uses them."""

_OF_IMPORT = {"__all__", "__cached__", "__file__", "__path__", "__warningregistry__"}
"""What modules are asked for without being used: of the first, Beam asks `mongodbio`."""


def import_light_beam(arguments: Sequence[str]) -> None:
    """Beam's import, when it comes, leaves out what a command of these arguments cannot use."""
    if is_local(arguments):
        sys.meta_path.insert(0, _BeamFinder)


def is_local(arguments: Sequence[str]) -> bool:
    """Whether a command reads and writes files of this machine only, and has Beam run it in this process.

    >>> is_local(["coco", "--output", "/data"]), is_local(["coco", "--output=gs://bucket"]), is_local(["coco", "--"])
    (True, False, False)
    """
    return not any(argument == "--" or "://" in argument for argument in arguments)


class _BeamFinder:
    """Stands before all other finders."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        return _found(name, path, _Beam) if name == "apache_beam" else None


class _Beam(Loader):
    """Loads Beam, and meanwhile there are stand-ins for other modules; who asks for those later has them."""

    def __init__(self, loader: Loader):
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__:
            module.__spec__.loader = self._loader
        with _without_the_rest() if known_beam.is_known() else nullcontext():
            self._loader.exec_module(module)


@contextmanager
def _without_the_rest() -> Iterator[None]:
    sys.meta_path.insert(0, _RestFinder)
    try:
        yield
    finally:
        sys.meta_path.remove(_RestFinder)
        for name in _STAND_INS:
            if name in sys.modules and isinstance(sys.modules[name].__loader__, _StandIn):
                del sys.modules[name]


class _RestFinder:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        if name in _CLIENTS:
            raise ModuleNotFoundError(f"{name} is not used by this command", name=name)
        if name in _LATER:
            return _found(name, path, _Later)
        if name in _STAND_INS:
            return ModuleSpec(name, _StandIn(), is_package=True)
        return None


def _found(name: str, path: Sequence[str] | None, loader: Callable[[Loader], Loader]) -> ModuleSpec | None:
    """As Python finds a module, with another loader in place of its own."""
    spec = PathFinder.find_spec(name, path)
    if spec and spec.loader:
        spec.loader = loader(spec.loader)
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


class _StandIn(Loader):
    """Modules of which Beam takes names as it is imported."""

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(_STAND_INS[module.__name__])


def _called_later(module: str, name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(import_module(module), name)(*args, **kwargs)

    return call


def _is_subhint(hint: object, of: object) -> bool:
    """beartype's, as Beam calls it, which takes hints that beartype does not know for no subhints."""
    if of is NoneType and isinstance(hint, type):  # asked of each function that takes something or nothing
        return hint is of
    from beartype.door import is_subhint
    from beartype.roar import BeartypeDoorException

    try:
        return is_subhint(hint, of)
    except BeartypeDoorException:
        return False


_STAND_INS: dict[str, dict[str, Any]] = {
    "beartype": {},
    "beartype.door": {"is_subhint": _is_subhint},
    "beartype.roar": {"BeartypeDoorException": ()},  # which none is
    "cryptography": {},
    "cryptography.fernet": {"Fernet": _called_later("cryptography.fernet", "Fernet")},
    "fastavro": {
        name: _called_later("fastavro", name) for name in ("parse_schema", "schemaless_reader", "schemaless_writer")
    },
}
