"""Which of our functions a job's proto sends to workers, and which functions the code gives to Beam."""

import ast
import base64
import bz2
import io
import pickle
import re
import zlib
from collections.abc import Iterator
from functools import reduce
from importlib import import_module
from types import FunctionType
from typing import Any

import apache_beam as beam
from apache_beam.coders import Coder

from tests.engines.record_calls import PACKAGE
from tests.test_layering import FILES, parsed, reached

# Beam compresses every pickle and writes it in base 64: functions by bz2, coders, after their class's name, by zlib.
_PICKLE = re.compile(rb"(?:QlpoOTFBWSZTW|(?<=\$)eN[o-r])[A-Za-z0-9+/]+")
_LIFE = {
    *("setup", "start_bundle", "process", "finish_bundle", "teardown"),
    *("create_accumulator", "add_input", "merge_accumulators", "compact", "extract_output"),
    *("encode", "decode"),
}
"""Methods that Beam calls in workers."""
_TAKE_A_FUNCTION = {
    *("Map", "FlatMap", "MapTuple", "FlatMapTuple", "Filter", "ParDo"),
    *("CombinePerKey", "CombineGlobally", "CombineValues", "GroupBy", "Partition"),
}
_IN_THE_LAUNCHER = {f"recordmill.transforms.metadata.{name}" for name in ("report_plan", "count_classes")}
"""Modules of steps that no job has that is sent anywhere: a dry run is made where the command is."""


class _Names(pickle.Unpickler):
    """Notes what a pickle names."""

    def __init__(self, data: bytes):
        super().__init__(io.BytesIO(data))
        self.found: set[tuple[str, str]] = set()

    def find_class(self, module: str, name: str) -> Any:
        self.found.add((module, name))
        return super().find_class(module, name)


def functions_in(proto: bytes) -> set[FunctionType]:
    """Functions of ours, and methods of our DoFns, CombineFns and coders, in the pickles of a pipeline's proto."""
    found: set[tuple[str, str]] = set()
    for match in _PICKLE.finditer(proto):
        names = _Names(_decompressed(match.group()))
        names.load()
        found |= names.found
    ours = [(module, name) for module, name in found if module.partition(".")[0] == PACKAGE]
    named = [reduce(getattr, name.split("."), import_module(module)) for module, name in ours]
    return {function for value in named for function in _functions_of(value)}


def _decompressed(text: bytes) -> bytes:
    """What follows the compressed data and looks like base 64, too, is dropped."""
    data = base64.b64decode(text[: len(text) - (len(text) % 4 == 1)] + b"==")
    return (bz2.BZ2Decompressor() if data.startswith(b"BZh") else zlib.decompressobj()).decompress(data)


def functions_in_code() -> set[FunctionType]:
    """What the modules of both conversions give to Beam, and every DoFn, CombineFn and coder that they define."""
    modules = (
        reached("recordmill.pipelines.coco")
        | reached("recordmill.pipelines.folder")
        | {"recordmill.pipelines.coco", "recordmill.pipelines.folder"}
    )
    return {
        function
        for name in modules & FILES.keys() - _IN_THE_LAUNCHER
        if name.startswith(("recordmill.pipelines.", "recordmill.transforms."))
        for value in (*_given_to_beam(name), *_classes(name))
        for function in _functions_of(value)
    }


def _given_to_beam(name: str) -> Iterator[Any]:
    module = import_module(name)
    for node in ast.walk(parsed(name)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TAKE_A_FUNCTION:
            first = node.args[0]
            assert isinstance(first, ast.Name | ast.Call), f"{name}:{first.lineno}: a function that cannot be found"
            if isinstance(first, ast.Name) and hasattr(module, first.id):  # else a variable, of a DoFn, or a builtin
                yield getattr(module, first.id)


def _classes(name: str) -> Iterator[type]:
    for value in vars(import_module(name)).values():
        if isinstance(value, type) and value.__module__ == name:
            yield value


def _functions_of(value: Any) -> Iterator[FunctionType]:
    """Those that Beam calls in a worker."""
    if isinstance(value, FunctionType) and value.__module__.partition(".")[0] == PACKAGE:
        yield value
    elif isinstance(value, type) and issubclass(value, beam.DoFn | beam.CombineFn | Coder):
        for base in value.__mro__:
            if base.__module__.partition(".")[0] == PACKAGE:
                yield from (method for name, method in vars(base).items() if name in _LIFE)


def place_of(function: FunctionType) -> tuple[str, int]:
    """The function's file, as it is installed, and the line it begins at."""
    return f"{function.__module__.replace('.', '/')}.py", function.__code__.co_firstlineno
