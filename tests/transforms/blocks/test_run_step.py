"""A fault of ours is pinned to one image, and its Blocks can be printed."""

import logging
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.block import Block, join_blocks, ragged_texts
from recordmill.schemas.errors import CategoryError, StepError
from recordmill.transforms.blocks import __main__ as printer
from recordmill.transforms.blocks.image_tasks import image_tasks
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.blocks.run_step import hash_images, image_order, ranges_of, run_step
from tests.transforms.blocks.drawn_blocks import IDS, SPLITS, tasks
from tests.transforms.blocks.of_tasks import block_of_tasks

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
    hashes = hash_images(block.image_id, seed)
    hash_of = dict(zip(block.image_id.tolist(), hashes.tolist(), strict=True))

    def order(task):
        row = task.labels.row
        content = (row.record, task.file_name, row.place) if row else ()
        return hash_of[task.image_id], task.image_id, content

    ordered = image_tasks(block.take(image_order(block, hashes)), SPLITS)
    assert list(map(order, ordered)) == sorted(map(order, found))
    if not are_rows:
        assert ordered == sorted(found, key=order)


IDS = np.arange(9)
ROWS = Block(image_id=IDS, source=IDS * 0, file_name=ragged_texts([f"{id_}\n.jpg" for id_ in IDS.tolist()]))
OBJECTS = Block(
    image_id=IDS[::-1],
    source=IDS * 0 + 1,
    first_object_of_image=np.arange(0, 20, 2),
    object_id=100 + np.arange(18),
    boxes_xywh_px=np.ones((18, 4)),
)
FILES = Block(file_name=ragged_texts(["x.jpg"]), file_bytes=np.ones(1, np.int64))


BUG = ZeroDivisionError("of\nours")


def failing(ids: set[int], error: Exception = BUG):
    def step(blocks: list[Block]) -> Block:
        rows = [block for block in blocks if block.image_id is not None]
        assert len(blocks) == len(rows) + 1  # files stay
        if ids <= set(join_blocks(rows).image_id.tolist()):
            raise error
        return join_blocks(rows)

    return step


@pytest.mark.parametrize("image", [0, 4, 8])
def test_one_image(image):
    with pytest.raises(StepError) as caught:
        run_step("join", failing({image}), [ROWS, FILES, OBJECTS], ["a.json", "b.json"])
    objects = 116 - 2 * image
    assert str(caught.value).startswith(
        f"step 'join' failed with ZeroDivisionError: of ours; image {image}; file name '{image}\\n.jpg', 'x.jpg'; "
        f"annotation {objects}, {objects + 1}; input 'a.json', 'b.json'. This is a fault of Recordmill"
    )


def test_images_that_fail_only_together():
    with pytest.raises(StepError, match="image 0, 1, 2, 3, 4 and 4 more; file name"):
        run_step("join", failing({0, 8}), [ROWS, FILES])


def test_our_errors_for_some_images_pass():
    def step(blocks: list[Block]) -> None:
        ids = set(join_blocks(blocks).image_id.tolist())
        if len(ids) < len(IDS) and 0 in ids:
            raise OSError(28, "full")
        if 8 in ids:
            raise BUG

    with pytest.raises(StepError, match="failed with ZeroDivisionError: of ours; image 8; "):
        run_step("join", step, [ROWS])


@pytest.mark.parametrize("error", [CategoryError("two"), OSError(28, "full"), MemoryError()])
def test_our_errors_pass(error):
    with pytest.raises(type(error)) as caught:
        run_step("join", failing({1}, error), [ROWS, FILES])
    assert caught.value is error


def test_blocks_are_kept_and_printed(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    logger = logging.getLogger()
    monkeypatch.setattr(logger, "level", logging.DEBUG)
    logger.manager._clear_cache()
    with pytest.raises(StepError) as caught:
        run_step("join", failing({4}), [ROWS, FILES, OBJECTS])
    _, paths = re.split("recordmill.transforms.blocks ", str(caught.value).partition("` prints")[0])
    found = [unpack_block(Path(path).read_bytes()) for path in paths.split()]
    assert [len(block) for block in found] == [1, 1, 1]
    printer.main(paths.split())
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["1", "images"],
        ["image_id", "source", "file_name"],
        ["4", "0", "4\\n.jpg"],
        ["0", "objects"],
        ["1", "images"],
        ["file_name", "file_bytes"],
        ["x.jpg", "1"],
        ["0", "objects"],
        ["1", "images"],
        ["image_id", "source"],
        ["4", "1"],
        ["2", "objects"],
        ["image", "object_id", "boxes_xywh_px"],
        *(["0", str(id_), "[1.0,", "1.0,", "1.0,", "1.0]"] for id_ in (108, 109)),
    ]
