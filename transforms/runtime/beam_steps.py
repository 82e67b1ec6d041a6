"""Base classes of Beam steps: a coder of structs, a DoFn with threads. Also words of errors, versions of libraries."""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache, update_wrapper
from importlib.metadata import version
from typing import Any

import apache_beam as beam
from apache_beam.coders import Coder, registry
from apache_beam.pipeline import AppliedPTransform
from msgspec import msgpack

from recordmill.schemas.containers import CONTAINERS, TFRECORD
from recordmill.schemas.errors import translated_errors
from recordmill.schemas.layouts import FEATURES, TABLE
from recordmill.schemas.shards import ShardKey
from recordmill.transforms.runtime.threads import usable_cores

pack: Callable[[Any], bytes] = msgpack.Encoder(order="deterministic").encode
"""Encode a struct as MessagePack."""


@cache
def unpacker(struct: Any) -> Callable[[bytes], Any]:
    """Return the decoder of a struct's `pack`ed bytes."""
    return msgpack.Decoder(struct).decode


class StructCoder(Coder):
    """Beam coder of a msgspec Struct."""

    def __init__(self, struct: type):
        self._struct = struct
        self._decode = unpacker(struct)

    @classmethod
    def from_type_hint(cls, struct, registry):
        return cls(struct)

    def encode(self, value):
        return pack(value)

    def decode(self, encoded):
        return self._decode(encoded)

    def is_deterministic(self):
        return True

    def to_type_hint(self):
        return self._struct

    def __reduce__(self):
        return StructCoder, (self._struct,)

    def __eq__(self, other):
        return isinstance(other, StructCoder) and self._struct is other.to_type_hint()

    def __hash__(self):
        return hash(self._struct)


registry.register_coder(ShardKey, StructCoder)


def translate_errors(step: AppliedPTransform, translate: Callable[[str], str]) -> None:
    """Translate the messages of errors that the DoFns of a step raise on purpose, and those of all steps in it."""
    for part in step.parts:
        translate_errors(part, translate)
    if isinstance(step.transform, beam.ParDo):
        do_fn = step.transform.fn
        do_fn.process = _TranslatedProcess(do_fn.process, translate)


class _TranslatedProcess:
    """The method `process` of a DoFn, whose errors are translated. Beam sees the arguments of the original."""

    def __init__(self, process: Callable[..., Iterable[Any] | None], translate: Callable[[str], str]):
        update_wrapper(self, process)
        self._process, self._translate = process, translate

    def __call__(self, *arguments: Any, **keywords: Any) -> Iterator[Any]:
        with translated_errors(self._translate):
            yield from self._process(*arguments, **keywords) or ()


_DISTRIBUTIONS = ("recordmill", "pillow", "pycocotools")
_PILLOW_LIBRARIES = ("jpg", "jpg_2000", "libjpeg_turbo", "libtiff", "webp", "zlib", "zlib_ng", "avif")
"""Libraries that are bundled with Pillow, by Pillow's names."""


@lru_cache
def library_versions(layout: str, container: str = TFRECORD) -> dict[str, str]:
    """Return versions of this process's libraries, by name. Missing libraries are skipped, and so are those that the
    layout's records and the container's files do not depend on."""
    from PIL import features  # slow to import, and only needed to make records

    versions = {name: version(name) for name in _DISTRIBUTIONS}
    versions |= {f"pillow/{name}": text for name in _PILLOW_LIBRARIES if (text := features.version(name))}
    if layout == FEATURES.layout:
        import keras
        import tensorflow as tf

        versions |= {"keras": keras.__version__, "tensorflow": tf.__version__}
        # Pillow uses TensorFlow's zlib if that was loaded first. Decompression does not depend on it.
        versions = {name: text for name, text in versions.items() if name not in ("pillow/zlib", "pillow/zlib_ng")}
    if layout == TABLE.layout:
        versions["pyarrow"] = version("pyarrow")
    return versions | _container_versions(container) | {"zlib": zlib.ZLIB_RUNTIME_VERSION}


def _container_versions(container: str) -> dict[str, str]:
    package = CONTAINERS[container].package
    return {package: version(package)} if package else {}


def repacked_versions(
    made_by: Mapping[str, str], source: str, container: str, layout: str, gzip: bool
) -> dict[str, str]:
    """Return the versions that made the records of shards, with those of this process that write another container.

    Args:
        made_by: Versions of the shards, whose container is `source`.
    """
    record_packages = {"pyarrow"} if layout == TABLE.layout else set()
    dropped = {CONTAINERS[source].package} - record_packages
    versions = {name: text for name, text in made_by.items() if name not in dropped} | _container_versions(container)
    return versions | ({"zlib": zlib.ZLIB_RUNTIME_VERSION} if gzip else {})


class ThreadedDoFn(beam.DoFn):
    """Base of steps with a thread pool, from setup() to teardown(): `self.pool`, with `self.threads` threads.

    Args:
        threads: Number of threads; None for the number of cores where the step runs.
    """

    def __init__(self, threads: int | None):
        self._given_threads = threads

    def setup(self):
        self.threads = self._given_threads or usable_cores()
        self.pool = ThreadPoolExecutor(self.threads, type(self).__name__)

    def teardown(self):
        self.pool.shutdown(cancel_futures=True)
