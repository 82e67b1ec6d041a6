"""The program of docs/training that torchvision runs: it trains, on the boxes of the JSON."""

import numpy as np
import torch

from tests.consumers.coco_truth import Truth
from tests.consumers.conftest import ANY_CONTAINER


@ANY_CONTAINER
def test_a_detector(run_program):
    torch.manual_seed(0)
    left = run_program("torchvision_detector", BATCH=2, STEPS=1)  # a step is slow on a CPU
    assert len(left["history"]) == 1
    assert np.isfinite(left["history"]).all()
    assert all(weights.isfinite().all() for weights in left["model"].parameters())
    truth = Truth("sample/images", "sample/annotations/instances.json")
    names = left["data"].classes
    seen = set()
    pairs = left["data"]["train"].torch()
    for number, example in enumerate(left["data"]["train"][:40]):
        ((image,), (target,)) = left["prepare"]([pairs[number]])
        image_id = int(example["image_id"])
        seen.add(image_id)
        assert np.array_equal((image * 255).round().numpy().transpose(1, 2, 0), example["image"])
        np.testing.assert_allclose(target["boxes"].numpy(), truth.boxes_xyxy_px(image_id), atol=1e-3)
        expected = [truth.coco.cats[id_]["name"] for id_ in truth.values(image_id, "category_id")]
        assert [names[label - 1] for label in target["labels"]] == expected
    assert len(seen) == 40
