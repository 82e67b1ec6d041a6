import pickle

import pytest
from apache_beam.coders import registry

from recordmill.schemas.inputs.encoders import Terms
from recordmill.schemas.shards import ShardKey
from recordmill.transforms.encoders import fit_encoder  # noqa: F401  registers the coder of Terms
from recordmill.transforms.extract.extract_shards import ExtractShard
from recordmill.transforms.runtime import beam_steps
from recordmill.transforms.shards.write_shards import _WriteShard
from recordmill.transforms.verify.verify_shards import VerifyShard

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


@pytest.mark.parametrize(
    "make",
    [
        lambda number: ExtractShard("folder", number, "coco", 2),
        lambda number: VerifyShard(number, 2),
        lambda number: _WriteShard(None, number),
    ],
)
@pytest.mark.parametrize(("given", "expected"), [(None, 3), (5, 5)])
def test_number_of_threads(make, given, expected, monkeypatch):
    def not_here() -> int:
        raise AssertionError("counted where the job is submitted")

    monkeypatch.setattr(beam_steps, "usable_cores", not_here)
    shipped = pickle.dumps(make(given))
    monkeypatch.setattr(beam_steps, "usable_cores", lambda: 3)
    worker = pickle.loads(shipped)
    worker.setup()
    assert worker.pool._max_workers == worker.threads == expected
    worker.teardown()
    with pytest.raises(RuntimeError):
        worker.pool.submit(int)


@pytest.mark.parametrize(
    ("layout", "included", "left_out"),
    [
        ("detection", {"pillow", "pillow/zlib", "zlib"}, {"keras", "tensorflow", "pyarrow"}),
        ("table", {"pillow", "pyarrow", "zlib"}, {"keras", "tensorflow"}),
        ("features", {"pillow", "pillow/jpg", "keras", "tensorflow", "zlib"}, {"pyarrow", "pillow/zlib"}),
    ],
)
def test_versions_are_those_that_records_depend_on(layout, included, left_out):
    found = beam_steps.library_versions(layout).keys()
    assert included <= found
    assert not left_out & found
