"""Coders for the structs that cross a shuffle.

MessagePack by msgspec, fields in order and without names: a third faster than pickled elements in a job of 118,287
images (3 shuffles: 3.9 s against 6.0 s), and the same bytes for equal values, so that structs can be keys.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from apache_beam.coders import Coder, registry
from msgspec import msgpack

from recordmill.schemas.encoders import Terms
from recordmill.schemas.shards import ShardKey

pack: Callable[[Any], bytes] = msgpack.Encoder(order="deterministic").encode
"""A struct as MessagePack."""


@cache
def unpacker(struct: Any) -> Callable[[bytes], Any]:
    """What makes a struct of what `pack` made of it."""
    return msgpack.Decoder(struct).decode


class StructCoder(Coder):
    """The coder of a struct."""

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


for _struct in (ShardKey, Terms):
    registry.register_coder(_struct, StructCoder)
