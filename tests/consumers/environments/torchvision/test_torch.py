"""`Split.torch`: torchvision's targets, and each record once, whatever the number of workers and ranks."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from recordmill.torch_dataset import torch_example
from tests.recordmill.splits import CONTENTS, draw, write_split

RECORDS = 11


@pytest.fixture
def split(tmp_path):
    contents = CONTENTS["detection"]
    return write_split(tmp_path, contents, [draw(contents, number) for number in range(RECORDS)])


def test_a_picture_of_objects_is_a_pair_as_torchvision_s_detectors_take_it(split):
    for number in range(RECORDS):
        example, (image, target) = split[number], split.torch()[number]
        height, width, _ = example["image"].shape
        assert image.dtype == torch.uint8
        assert np.array_equal(image.numpy().transpose(1, 2, 0), example["image"])
        ymin, xmin, ymax, xmax = example["boxes"].T
        edges = np.stack([xmin * width, ymin * height, xmax * width, ymax * height], -1)
        np.testing.assert_allclose(target["boxes"].numpy(), edges, rtol=1e-6)
        assert target["boxes"].shape == (len(example["labels"]), 4)
        assert target["labels"].tolist() == [label + 1 for label in example["labels"]]
        assert target["iscrowd"].tolist() == example["is_crowd"].tolist()
        assert np.array_equal(target["masks"].numpy(), example["masks"])
        np.testing.assert_allclose(target["keypoints"][..., 0].numpy(), example["keypoints"][..., 0] * width, rtol=1e-6)
        np.testing.assert_allclose(
            target["keypoints"][..., 1].numpy(), example["keypoints"][..., 1] * height, rtol=1e-6
        )
        assert np.array_equal(target["keypoints"][..., 2].numpy(), example["keypoints"][..., 2])
        assert target["image_id"] == number
        assert target["file_name"] == example["file_name"]
        assert {target[name].dtype for name in ("boxes", "keypoints")} == {torch.float32}
        assert {target[name].dtype for name in ("labels", "iscrowd", "image_id")} == {torch.int64}


@pytest.mark.parametrize(
    ("name", "first"), [("classification", "image"), ("float32", "feature"), ("float16", "feature")]
)
def test_of_one_class_the_target_is_its_index(name, first):
    example = {first: np.ones((2, 3, 3), np.float16 if name == "float16" else np.float32), "label": np.int64(5)}
    picture, label = torch_example(example)
    assert picture.shape == ((3, 2, 3) if first == "image" else (2, 3, 3))
    assert (label.dtype, label.item()) == (torch.int64, 5)


@pytest.mark.parametrize("name", ["classification", "float16", "rows", "pixels", "keras", "tfds"])
def test_each_layout_is_read(tmp_path, name):
    contents = CONTENTS[name]
    split = write_split(tmp_path, contents, [draw(contents, number) for number in range(3)])
    given, example = split.torch()[2], split[2]
    if name == "rows":
        assert given.keys() == example.keys()
        assert np.array_equal(given["numbers"].numpy(), example["numbers"])
        assert given["note"] == example["note"].tolist()
    else:
        first = example["image" if "image" in example else "feature"]
        assert given[0].numpy().size == first.size


def ids(batch) -> list[int]:
    return [int(target["image_id"]) for _, target in batch]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_reads_each_record_once(split, workers):
    loader = DataLoader(split.torch(), 3, shuffle=True, num_workers=workers, collate_fn=ids)
    assert sorted(id_ for batch in loader for id_ in batch) == list(range(RECORDS))


def test_several_at_once_are_those_of_one_by_one(split):
    records = split.torch()
    assert ids(records.__getitems__([4, 1, 4])) == ids([records[4], records[1], records[4]]) == [4, 1, 4]


@pytest.mark.parametrize(("ranks", "workers"), [(1, 0), (1, 2), (3, 0), (2, 2)])
def test_workers_of_all_ranks_read_each_record_once_an_epoch(split, ranks, workers):
    orders = []
    for epoch in range(2):
        read = []
        for rank in range(ranks):
            part = split.torch(iterable=True, seed=3, part=(rank, ranks))
            part.set_epoch(epoch)
            loader = DataLoader(part, 2, num_workers=workers, collate_fn=ids)
            read += [id_ for batch in loader for id_ in batch]
        assert sorted(read) == list(range(RECORDS))
        orders.append(read)
    assert orders[0] != orders[1]


def test_without_a_seed_the_order_is_that_of_the_data_set(split):
    assert ids(split.torch(iterable=True)) == list(range(RECORDS))


def test_ranks_are_those_of_torch_distributed(split, tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        assert ids(split.torch(iterable=True)) == list(range(RECORDS))
    finally:
        torch.distributed.destroy_process_group()


def test_a_transform_is_given_both(split):
    records = split.torch(transform=lambda image, target: (image.shape, int(target["image_id"])))
    assert records[4] == (split.torch()[4][0].shape, 4)
    assert [
        id_ for _, id_ in split.torch(iterable=True, transform=lambda image, target: (0, int(target["image_id"])))
    ] == [*range(RECORDS)]
