"""tf.train.Example is read without TensorFlow: by protobuf, from a description of its messages.

Source: tensorflow/core/example/{example,feature}.proto, as in `recordmill.schemas.example`. The messages have a pool of
their own, in which TensorFlow's of the same shape are not.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from recordmill.schemas.features import FeatureKind

Values = list[bytes] | np.ndarray
"""Of a feature: float32 or int64, or bytes."""

_PACKAGE = "recordmill"
_FIELD = descriptor_pb2.FieldDescriptorProto
_LISTS = {
    FeatureKind.BYTES: _FIELD.TYPE_BYTES,
    FeatureKind.FLOAT: _FIELD.TYPE_FLOAT,
    FeatureKind.INT64: _FIELD.TYPE_INT64,
}


def parse_example(record: bytes) -> dict[str, tuple[FeatureKind, Values]]:
    """The values of a record by the names of its features, without those that hold no list.

    Raises:
        google.protobuf.message.DecodeError: it is no tf.train.Example.
    """
    example = _example_class()()
    example.ParseFromString(record)
    found = {}
    for name, feature in example.features.feature.items():
        if kind := feature.WhichOneof("kind"):
            found[name] = FeatureKind(kind), _values(FeatureKind(kind), getattr(feature, kind))
    return found


def _values(kind: FeatureKind, of: Any) -> Values:
    if kind is FeatureKind.BYTES:
        return list(of.value)
    if kind is FeatureKind.INT64:
        return np.fromiter(of.value, np.int64, len(of.value))
    packed = of.SerializeToString()  # whose end is all numbers; one by one they would take a hundred times as long
    return np.frombuffer(packed, "<f4", len(of.value), len(packed) - 4 * len(of.value))


@cache
def _example_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="recordmill/example.proto", package=_PACKAGE, syntax="proto3")
    for kind, type_ in _LISTS.items():
        _message(file, f"{kind.value}List").field.add(name="value", number=1, label=_FIELD.LABEL_REPEATED, type=type_)
    feature = _message(file, "Feature")
    feature.oneof_decl.add(name="kind")
    for number, kind in enumerate(_LISTS, 1):
        _add(feature, kind.value, number, f"{kind.value}List", oneof_index=0)
    features = _message(file, "Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_STRING)
    _add(entry, "value", 2, "Feature")
    _add(features, "feature", 1, "Features.FeatureEntry", label=_FIELD.LABEL_REPEATED)
    _add(_message(file, "Example"), "features", 1, "Features")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Example"))


def _message(file: Any, name: str) -> Any:
    return file.message_type.add(name=name)


def _add(message: Any, name: str, number: int, type_name: str, **more: Any) -> None:
    settings: Mapping[str, Any] = {"label": _FIELD.LABEL_OPTIONAL, "type": _FIELD.TYPE_MESSAGE, **more}
    message.field.add(name=name, number=number, type_name=f".{_PACKAGE}.{type_name}", **settings)
