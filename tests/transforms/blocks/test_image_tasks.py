import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from recordmill.schemas.block import Block, ragged_texts, take_rows
from recordmill.schemas.inputs.annotations import Annotation, ImageLabels
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageTask
from recordmill.transforms.blocks.image_tasks import (
    annotations_of,
    image_tasks,
    labels_of,
    object_columns,
    stream_tasks,
)
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from tests.transforms.blocks.drawn_blocks import SPLITS, tasks
from tests.transforms.blocks.of_tasks import block_of_tasks


@settings(max_examples=100)
@given(tasks())
def test_block_of_tasks(images):
    block = block_of_tasks(images, SPLITS)
    block.check("test")
    assert image_tasks(block, SPLITS) == images
    if images:
        assert image_tasks(unpack_block(pack_block(block)), SPLITS) == images
    assert list(stream_tasks(block, SPLITS)) == images
    continued = block.replace(is_continuation=block.image_id > 5)
    assert image_tasks(continued, SPLITS) == [
        msgspec.structs.replace(task, is_continuation=task.image_id > 5) for task in images
    ]


def test_more_tasks_than_are_made_at_a_time():
    block = Block(**{name: take_rows(column, np.zeros(130, np.int64)) for name, column in ONE.image_columns()})
    many = block.replace(image_id=np.arange(130))
    assert [task.image_id for task in stream_tasks(many, SPLITS)] == list(range(130))


ONE = block_of_tasks([ImageTask(0, "a", None, None, ImageFile("x", 1), "val", ())], SPLITS)


def test_annotation_without_options_has_fill_values():
    objects = [Annotation(7, 3, (0.0, 0.0, 0.0, 0.0), 0.0, False)]
    columns = object_columns(objects)
    assert [*columns] == ["object_id", "category_id", "boxes_xywh_px", "area_px2", "is_crowd"]
    block = Block(image_id=np.array([1]), first_object_of_image=np.array([0, 1]), **columns)
    last = block.replace(in_fractions=np.array([True]))  # so that each column is read
    assert annotations_of(last) == [msgspec.structs.replace(objects[0], in_fractions=True)]
    assert annotations_of(block) == objects


def test_optional_columns_of_objects():
    whole = Annotation(7, 3, (1.0, 2.0, 3.0, 4.0), 5.0, True, b"[]", (1.0, 2.0, 2.0), CORNERS, True, b"{}")
    plain = Annotation(8, 3, (1.0, 2.0, 3.0, 4.0), 5.0, False)
    columns = object_columns([whole, plain])
    assert len(columns) == len(Annotation.__struct_fields__)
    block = Block(image_id=np.array([1]), first_object_of_image=np.array([0, 2]), **columns)
    block.check("test")
    assert annotations_of(block) == [whole, plain]


CORNERS = (0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0)


@pytest.mark.parametrize("names", [[], ["é", ""]])
def test_class_names(names):
    block = Block(class_name=ragged_texts(names))
    assert labels_of(block) == [ImageLabels(class_name=name) for name in names]
