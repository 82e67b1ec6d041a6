"""Programs of docs/training that Keras runs: they train, on what the records hold."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image


@pytest.fixture(autouse=True)
def _repeatable():
    keras.utils.set_random_seed(0)


@pytest.fixture
def without_graphs():
    """Graphs of large models take minutes, and two steps seconds. Those of tf.data are still made."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.usefixtures("without_graphs")
def test_the_keras_recipe(run_program):
    left = run_program("keras_recipe", SIZE=32, BATCH=8, STEPS=2)
    assert np.isfinite(left["history"].history["loss"]).all()
    assert left["model"].output_shape == (None, 12)
    (picture,) = Path().glob("category *.png")
    with Image.open(picture) as image:
        assert image.size == (left["picture"].shape[1], left["picture"].shape[0])


def test_a_classifier_learns(run_program):
    keras.utils.set_random_seed(0)  # of weights, which the page draws at random
    left = run_program("keras_classifier", SIZE=64, BATCH=32, EPOCHS=20)
    history = left["history"].history
    assert history["loss"][-1] < history["loss"][0] / 2
    assert history["val_accuracy"][-1] > 0.6


def test_tpu_host_reads_its_part_in_static_shapes(run_program):
    left = run_program("keras_tpu", SIZE=32, BATCH=16, STEPS=5)
    assert np.isfinite(left["history"].history["loss"]).all()
    for host in range(left["hosts"]):
        batches = left["batches"](host)
        image, label = batches.element_spec
        assert image.shape == (8, 32, 32, 3)
        assert label.shape == (8,)
        assert sum(1 for _ in batches) == len(left["data"]["train"]) // 2 // 8


@pytest.mark.usefixtures("without_graphs")
def test_a_detector_in_keras_hub(run_program):
    left = run_program("keras_hub_detector", SIZE=128, BATCH=2, STEPS=2)
    assert np.isfinite(left["history"].history["loss"]).all()
    images, targets = next(iter(left["batches"].map(left["prepare"])))
    assert images.shape == (2, 128, 128, 3)
    found = left["model"].label_encoder(images=images, gt_boxes=targets["boxes"], gt_classes=targets["labels"])
    classes = set(np.unique(found[1].numpy())) - {-1.0, -2.0}  # background, and what is left out
    assert classes
    assert classes <= set(targets["labels"].numpy().ravel().tolist())
