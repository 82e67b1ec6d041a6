"""The program of docs/training that JAX and Grain run."""

import numpy as np


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
