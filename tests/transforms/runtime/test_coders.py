import pickle

import pytest
from apache_beam.coders import registry

from recordmill.schemas.encoders import Terms
from recordmill.schemas.shards import ShardKey
from recordmill.transforms.runtime import coders  # noqa: F401  registers them

VALUES = [ShardKey("train", 3, 128), Terms(["ü 🐈\x00", ""], [1, 1 << 62], [1, 2], 2)]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_struct_coder(value):
    coder = registry.get_coder(type(value))
    encoded = coder.encode(value)
    assert (coder.decode(encoded), type(coder.decode(encoded))) == (value, type(value))
    copy = pickle.loads(pickle.dumps(coder))  # as workers get it
    assert (copy, hash(copy), copy.encode(value)) == (coder, hash(coder), encoded)
    assert coder.is_deterministic()  # Beam groups by a key's bytes
    assert coder.as_deterministic_coder("Step") is coder


def test_coders_differ():
    assert registry.get_coder(ShardKey) != registry.get_coder(Terms)
