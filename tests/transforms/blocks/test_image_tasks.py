import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from recordmill.schemas.block import Block, ragged_texts, taken
from recordmill.schemas.inputs.annotations import ImageLabels
from recordmill.schemas.inputs.images import ImageRef, ImageTask
from recordmill.transforms.blocks.image_tasks import each_task, image_tasks, labels_of
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from tests.transforms.blocks.drawn_blocks import SPLITS, tasks
from tests.transforms.blocks.of_tasks import block_of_tasks


@settings(max_examples=100)
@given(tasks())
def test_block_of_tasks(images):
    block = block_of_tasks(images, SPLITS)
    block.check()
    assert image_tasks(block, SPLITS) == images
    if images:
        assert image_tasks(unpack_block(pack_block(block)), SPLITS) == images
    assert list(each_task(block, SPLITS)) == images
    continued = block.replace(is_continuation=block.image_id > 5)
    assert image_tasks(continued, SPLITS) == [
        msgspec.structs.replace(task, is_continuation=task.image_id > 5) for task in images
    ]


def test_more_tasks_than_are_made_at_a_time():
    block = Block(**{name: taken(column, np.zeros(130, np.int64)) for name, column in ONE.image_columns()})
    many = block.replace(image_id=np.arange(130))
    assert [task.image_id for task in each_task(many, SPLITS)] == list(range(130))


ONE = block_of_tasks([ImageTask(0, "a", None, None, ImageRef("x", 1), "val", ())], SPLITS)


@pytest.mark.parametrize("names", [[], ["é", ""]])
def test_class_names(names):
    block = Block(class_name=ragged_texts(names))
    assert labels_of(block) == [ImageLabels(class_name=name) for name in names]
