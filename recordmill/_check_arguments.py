"""Checks of the arguments of readers. Each error shows the right form of the argument."""

import difflib
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, TypeVar

import msgspec

from recordmill.schemas.errors import ConfigError

_Method = TypeVar("_Method", bound=Callable[..., Any])
_FORMS = {
    "batch": ("a number of records", "32"),
    "seed": ("a whole number", "0"),
    "shard": ("(index, hosts)", "(0, 4)"),
    "part": ("(rank, ranks)", "(0, 4)"),
    "resize": ("(height, width)", "(224, 224)"),
    "pad": ("a number of objects", "100"),
    "threads": ("a number of threads", "2"),
    "threshold": ("a fraction of the records", "0.001"),
}
"""Meaning and an example of each argument that is not a flag."""
_ALSO = {
    **dict.fromkeys(("batch_size", "batchsize"), "batch"),
    **dict.fromkeys(("image_size", "img_size", "size", "target_size"), "resize"),
    **dict.fromkeys(("columns", "features", "fields"), "keys"),
    "drop_last": "drop_remainder",
    "transforms": "transform",
}
"""Arguments of other libraries."""
_LOADER = "DataLoader(split.torch(), {0}={1!r})"
_LIBRARY_CALLS = {
    "tensorflow": {"draft": "split.numpy(resize=(224, 224), draft={1!r}); TensorFlow's graph decodes at full size"},
    "torch": {
        "batch": "DataLoader(split.torch(), batch_size={1!r})",
        **dict.fromkeys(("batch_size", "shuffle", "num_workers", "collate_fn", "sampler", "drop_last"), _LOADER),
    },
    "grain": {
        **dict.fromkeys(("batch", "batch_size"), "grain.MapDataset.source(split.grain()).batch({1!r})"),
        **dict.fromkeys(("shuffle", "seed"), "grain.MapDataset.source(split.grain()).shuffle(seed=0)"),
    },
}
"""Calls of the library that take the argument, by the method of Split."""


def check_names(method: _Method) -> _Method:
    """Return the method with a ConfigError for unknown arguments, which names those that are meant."""
    known = [name for name in inspect.signature(method).parameters if name != "self"]

    @wraps(method)
    def checked(*arguments: Any, **named: Any) -> Any:
        if faults := list(_unknown_faults(method.__name__, named, known)):
            raise ConfigError(f"Split.{method.__name__}: {'; '.join(faults)}")
        return method(*arguments, **named)

    return checked  # type: ignore[return-value]


def _unknown_faults(method: str, named: Mapping[str, Any], known: list[str]) -> Iterator[str]:
    for name, value in named.items():
        if name in known:
            continue
        call = _LIBRARY_CALLS.get(method, {}).get(name)
        near = [_ALSO[name]] if _ALSO.get(name) in known else difflib.get_close_matches(name, known, 1)
        if call:
            cure = f". Write {call.format(name, value)}"
        elif near:
            cure = f". Did you mean {near[0]}={_corrected(near[0], value)}?"
        else:
            cure = f"; the arguments are {', '.join(known)}"
        yield f"unknown argument {name}={value!r}{cure}"


def check_types(reader: Callable[..., Any], **arguments: Any) -> list[Any]:
    """Return the arguments with Python's numbers in place of NumPy's.

    Args:
        reader: Method of Split, whose annotations have the types.

    Raises:
        ConfigError: Arguments have other types.
    """
    converted, faults = [], []
    for name, value in arguments.items():
        try:
            plain = msgspec.to_builtins(value, enc_hook=operator.index)
            converted.append(msgspec.convert(plain, reader.__annotations__[name]))
        except (TypeError, msgspec.ValidationError):
            form = _FORMS[name][0] if name in _FORMS else "True or False"
            faults.append(f"{name}={value!r} must be {form}: {name}={_corrected(name, value)}")
    if faults:
        raise ConfigError(f"Split.{reader.__name__}: {'; '.join(faults)}")
    return converted


def _corrected(name: str, value: Any) -> str:
    """Return the value in the form of the argument, if it can be inferred, or an example."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if name == "resize":
        sizes = value.tolist() if hasattr(value, "tolist") else value
        pair = (sizes, sizes) if is_number else tuple(sizes) if isinstance(sizes, list | tuple) else ()
        return repr(pair) if len(pair) == 2 and all(isinstance(size, int) for size in pair) else _FORMS[name][1]
    if name in _FORMS:
        return repr(value) if is_number and "(" not in _FORMS[name][1] else _FORMS[name][1]
    return repr(value) if isinstance(value, bool) or name in ("keys", "transform") else "True"
