import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageRules, ImageTask
from recordmill.schemas.rejects import Rejected
from recordmill.transforms.images.load_images import load_image
from recordmill.transforms.sample.draw_scene import encoded
from tests.conftest import SHARED_DATA

NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (24, 32, 3), np.uint8))


SEEDS = [
    *(encoded(NOISE, format_) for format_ in ("JPEG", "PNG", "WEBP", "BMP", "TIFF")),
    encoded(NOISE.convert("P"), "GIF"),
    encoded(NOISE, "JPEG", progressive=True),
    encoded(NOISE.quantize(8), "PNG"),
]


@st.composite
def mutated(draw) -> bytes:
    """A good file that somebody has flipped, cut, joined or lied in."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.sampled_from(["flip", "set", "cut", "drop", "join", "repeat", "marker"])):
            case "flip":
                data[place : place + 1] = bytes(byte ^ 1 << draw(st.integers(0, 7)) for byte in data[place : place + 1])
            case "set":
                data[place : place + 2] = draw(st.binary(min_size=2, max_size=2))
            case "cut":
                del data[place:]
            case "drop":
                del data[place : place + draw(st.integers(1, 40))]
            case "join":
                data[place:] = draw(st.sampled_from(SEEDS))[place:]
            case "repeat":
                data[place:place] = data[place : place + draw(st.integers(1, 60))]
            case "marker":
                data[place : place + 2] = bytes((0xFF, draw(st.integers(0, 255))))
    return bytes(data)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutated(), st.sampled_from(["keep", "jpeg", "png"]), st.sampled_from([None, 20]))
def test_written_image_decodes_to_its_size(tmp_path, data, format_, max_side):
    path = tmp_path / "image"
    path.write_bytes(data)
    task = ImageTask(1, "a", None, None, ImageFile(str(path), len(data)), "train", ())
    loaded = load_image(task, ImageRules("decode", format_, max_side))
    if not isinstance(loaded, Rejected):
        image = tf.io.decode_image(loaded.data, channels=3, expand_animations=False)
        assert image.shape == (loaded.height, loaded.width, 3)
        assert max_side is None or max(loaded.width, loaded.height) <= max_side


@pytest.mark.skipif(not SHARED_DATA.exists(), reason="the real data sets are not on this machine")
def test_pngsuite(tmp_path):
    """175 files, those that begin with x broken on purpose: exactly these are rejected, and so would TensorFlow."""
    rejected = set()
    paths = sorted((SHARED_DATA / "pngsuite" / "png").glob("*.png"))
    for path in paths:
        task = ImageTask(1, path.name, None, None, ImageFile(str(path), path.stat().st_size), "train", ())
        loaded = load_image(task, ImageRules("decode"))
        if isinstance(loaded, Rejected):
            rejected.add(path.name)
            with pytest.raises(tf.errors.InvalidArgumentError):
                tf.io.decode_image(path.read_bytes(), channels=3, expand_animations=False)
        else:
            image = tf.io.decode_image(loaded.data, channels=3, expand_animations=False)
            assert image.shape == (loaded.height, loaded.width, 3)
            assert loaded.data == path.read_bytes()
    assert rejected == {path.name for path in paths if path.name.startswith("x")}
    assert (len(paths), len(rejected)) == (175, 14)
