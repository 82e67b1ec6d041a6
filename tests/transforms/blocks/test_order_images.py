import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.blocks.image_tasks import image_tasks
from recordmill.transforms.blocks.order_images import hash_images, image_order, ranges_of
from tests.oracles.block_of_tasks import block_of_tasks
from tests.oracles.task_order import image_order as scalar_order
from tests.oracles.task_order import task_order
from tests.transforms.blocks.drawn_blocks import IDS, SPLITS, tasks

INT64_MAX = (1 << 63) - 1


@pytest.mark.parametrize(
    ("seed", "image_id", "hashed"),
    [
        (0, 139, 4972096885692211845),
        (1, 139, 7612023283703258603),
        (0, -1, 1036271949232448158),
        (0, INT64_MAX, 2985157815886775743),
    ],
)
def test_hash_images(seed, image_id, hashed):
    """The same everywhere, for ever."""
    assert hash_images(np.array([image_id]), seed).tolist() == [hashed]


@given(st.integers(), st.lists(IDS | st.sampled_from([INT64_MAX, -INT64_MAX - 1])), st.integers(1, 14))
def test_ranges_of(seed, ids, bits):
    """Ranges are in the order of images."""
    hashes = hash_images(np.array(ids, np.int64), seed)
    assert hashes.tolist() == [scalar_order(seed, id_)[0] for id_ in ids]
    assert ranges_of(hashes, bits).tolist() == [hash_ * (1 << bits) >> 63 for hash_ in hashes.tolist()]


def test_ranges_are_even():
    eighths = np.bincount(ranges_of(hash_images(np.arange(8000), 0), 3))
    assert (abs(eighths - 1000) < 100).all()


@settings(max_examples=50)
@given(tasks(), tasks(unique=False), st.booleans(), st.integers(0, 3))
def test_image_order(images, rows, are_rows, seed):
    """By hash and id; rows of a table with one id by their content, name and place."""
    found = [task for task in rows if task.labels.row] if are_rows else images
    block = block_of_tasks(found, SPLITS)
    ordered = image_tasks(block.take(image_order(block, hash_images(block.image_id, seed))), SPLITS)
    assert [task_order(seed, task) for task in ordered] == sorted(task_order(seed, task) for task in found)
    if not are_rows:
        assert ordered == sorted(found, key=lambda task: task_order(seed, task))
