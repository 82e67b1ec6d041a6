"""Model Garden's decoder reads the layout `detection`, in a separate environment with another TensorFlow."""

import hashlib
import os
import subprocess
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.consumers.coco_truth import Truth, assert_boxes_equal

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("MODEL_GARDEN_PYTHON", ROOT / ".venv-model-garden/bin/python"))
SCRIPT = Path(__file__).with_name("decode_with_model_garden.py")


def decode(shards: list[Path], folder: Path) -> list[dict[str, np.ndarray]]:
    """Records as the decoder reads them."""
    assert PYTHON.exists(), f"{PYTHON} is not there; `make test-consumers` makes it"
    folder.mkdir()
    command = [PYTHON, SCRIPT, folder, *shards]
    run = subprocess.run([str(part) for part in command], check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return [dict(np.load(path)) for path in sorted(folder.iterdir())]


@pytest.fixture(scope="module")
def decoded(truths, converted, tmp_path_factory) -> dict[Truth, list[dict[str, np.ndarray]]]:
    """Records of all data sets, by one process, whose imports take longer than these data sets."""
    folders = [converted(truth, "--masks", "both", "--fields", "all", "--num-shards", 3) for truth in truths.values()]
    shards = [shard for folder in folders for shard in sorted(folder.glob("*.tfrecord-*"))]
    records = iter(decode(shards, tmp_path_factory.mktemp("decoded") / "npz"))
    found = {truth: list(islice(records, len(truth.image_ids))) for truth in truths.values()}
    assert list(records) == []
    return found


def test_every_record(truth, decoded):
    examples = {int(example["source_id"].item()): example for example in decoded[truth]}
    assert set(examples) == truth.image_ids
    for image_id, example in examples.items():
        row = truth.row(image_id)
        size = (row["height"], row["width"])
        assert (example["height"], example["width"]) == size
        pixels = tf.io.decode_image(truth.path(image_id).read_bytes(), channels=3).numpy()
        assert tuple(example["image_shape"]) == (*size, 3)
        assert example["image_sha256"] == hashlib.sha256(pixels.tobytes()).hexdigest()
        assert_boxes_equal(example["groundtruth_boxes"], truth.boxes_yxyx_frac(image_id))
        assert example["groundtruth_classes"].tolist() == truth.values(image_id, "category_id")
        assert example["groundtruth_is_crowd"].tolist() == [bool(c) for c in truth.values(image_id, "iscrowd")]
        np.testing.assert_allclose(example["groundtruth_area"], truth.values(image_id, "area"), rtol=1e-6)
        expected = truth.masks(image_id)
        assert tuple(example["mask_shape"]) == expected.shape
        assert set(example["mask_values"]) <= {0.0, 1.0}
        unpacked = np.unpackbits(example["mask_bits"], count=expected.size).reshape(expected.shape)
        assert (unpacked == expected).all(axis=(1, 2)).tolist() == [True] * len(expected)
