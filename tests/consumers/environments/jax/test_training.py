"""The programs of docs/training that JAX and Grain run."""

import numpy as np

from tests.consumers.conftest import ANY_CONTAINER

pytestmark = ANY_CONTAINER


def test_classifier_learns_and_goes_on_where_it_was(run_program):
    left = run_program("jax_classifier", SIZE=16, BATCH=16, STEPS=120)
    assert np.mean(left["history"][-10:]) < left["history"][0] * 0.8
    record = left["data"]["train"][7]
    assert np.array_equal(left["prepare"](record)["image"].shape, (16, 16, 3))
    following = next(left["iterator"])
    again = iter(left["batches"])
    again.set_state(left["state"])
    batch = next(again)
    assert np.array_equal(batch["image"], following["image"])
    assert np.array_equal(batch["label"], following["label"])


def test_detector_batches_have_centre_of_each_object(run_program):
    left = run_program("jax_detector_batches", SIZE=32, BATCH=4, OBJECTS=50, CELLS=32, STEPS=2, PROCESSES=0)
    source = left["data"]["train"].grain(keys=["image", "boxes", "labels"], resize=(32, 32), pad=50)
    most = [len(set(zip(*cells_of(source[number], 32), strict=True))) for number in range(len(source))]
    for images, heat in left["main"]():
        assert images.shape == (4, 32, 32, 3)
        assert 0 < images.mean() < 1
        assert heat.shape == (4, 32, 32, left["data"].num_classes)
        assert {int(centres) for centres in heat.sum((1, 2, 3))} <= set(most)


def cells_of(example, cells):
    is_object = example["labels"] >= 0
    ymin, xmin, ymax, xmax = example["boxes"][is_object].T
    row, column = (np.clip(edges / 2 * cells, 0, cells - 1).astype(int) for edges in (ymin + ymax, xmin + xmax))
    return row.tolist(), column.tolist(), example["labels"][is_object].tolist()
