"""RF-DETR's reader of shards has the boxes, classes and masks of a folder of tars."""

import numpy as np
import pytest
from rfdetr.datasets.webdataset.load import WebDatasetDetection


@pytest.mark.parametrize("masks", ["none", "rle"])
def test_every_sample(truth, converted, masks):
    folder = converted(truth, "--container", "webdataset", "--masks", masks, "--num-shards", 2)
    samples = WebDatasetDetection(folder, "train", None, include_masks=masks == "rle")
    assert samples.total_samples == len(truth.image_ids)
    assert samples.class_names == [category["name"] for category in sorted(truth.categories, key=lambda row: row["id"])]
    ids = {label: category for category, label in samples.cat2label.items()}
    seen = []
    for image, target in samples:
        image_id = int(target["image_id"])
        seen.append(image_id)
        row = truth.row(image_id)
        assert image.size == (row["width"], row["height"])
        objects = [object_ for object_ in truth.annotations(image_id) if not object_["iscrowd"]]  # it leaves crowds out
        is_read = [not object_["iscrowd"] for object_ in truth.annotations(image_id)]
        order = np.lexsort(truth.boxes_xyxy_px(image_id)[is_read].T)
        boxes = target["boxes"].numpy()
        np.testing.assert_allclose(boxes[np.lexsort(boxes.T)], truth.boxes_xyxy_px(image_id)[is_read][order], atol=1e-3)
        assert sorted(ids[label] for label in target["labels"].tolist()) == sorted(
            object_["category_id"] for object_ in objects
        )
        if masks == "rle":
            assert target["masks"].shape == (len(objects), row["height"], row["width"])
    assert sorted(seen) == sorted(truth.image_ids)
