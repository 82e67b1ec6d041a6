import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.block import Block, ragged_numbers
from recordmill.transforms.blocks.pack_block import pack_block, pack_parts, unpack_block
from tests.transforms.blocks.drawn_blocks import blocks, contents

pytestmark = pytest.mark.filterwarnings("error")


@settings(max_examples=150)
@given(blocks(least_columns=5), st.data())
def test_pack_parts(block, data):
    keys = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(block), max_size=len(block))), np.int64)
    parts = list(pack_parts(block, keys, data.draw(st.booleans())))
    assert [key for key, _ in parts] == sorted({*keys.tolist()})
    assert {key: contents(unpack_block(packed)) for key, packed in parts} == {
        key: contents(block.take(keys == key)) for key in keys.tolist()
    }
    packed = pack_block(block)
    assert contents(unpack_block(packed)) == contents(block) if len(block) else packed == b""


@pytest.mark.parametrize(
    ("values", "width"),
    [
        ([0, 255], 1),
        ([0, 256], 2),
        ([0, 65_536], 4),
        ([0, (1 << 32) - 1], 4),
        ([-1, (1 << 31) - 1], 4),
        ([-(1 << 31), 0], 4),
        ([-1, 1 << 31], 8),
        ([0, 1 << 32], 8),
        ([0.0, 255.0], 1),
        ([0.25, 2.55], 1),
        ([0.07, 655.35], 2),
        ([-1.5, 0.0], 4),
        ([-0.0, 1.0], 8),
        ([0.005, 1.0], 8),
        ([float("nan"), 1.0], 8),
        ([float("inf"), 1.0], 8),
        ([2.0**31, 0.0], 8),
    ],
)
def test_widths(values, width):
    """Bytes of a value: the fewest that are exact."""
    column = np.array(values * 500)
    block = (
        Block(image_id=column)
        if column.dtype == np.int64
        else Block(part=np.zeros(1000, np.int64), area_px2=column, first_object_of_image=np.arange(1001))
    )
    assert 0 < len(pack_block(block)) - 1000 * width < 150
    assert contents(unpack_block(pack_block(block))) == contents(block)


def test_lists_that_differ_by_the_sign_of_a_zero():
    keypoints = ragged_numbers([(0.0, 1.5, 2.0), (-0.0, 1.5, 2.0)])
    block = Block(image_id=np.zeros(1, np.int64), keypoints_xyv=keypoints, first_object_of_image=np.array([0, 2]))
    assert contents(unpack_block(pack_block(block))) == contents(block)
