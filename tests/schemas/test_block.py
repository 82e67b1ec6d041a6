from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.block import Block, Ragged, join_blocks, ragged_bytes, ragged_texts, rows_of, spans, starts_of
from tests.transforms.blocks.drawn_blocks import blocks, contents

Model = list[tuple[dict[str, Any], list[dict[str, Any]]]]
"""Values of each image, and of each of its objects."""
_ABSENT = {"split": -1, "file_name": b"", "labels": b"", "segmentation": b"", "keypoints_xyv": b""}


def values_of(columns: Any) -> dict[str, list]:
    found = {}
    for name, column in columns:
        if isinstance(column, Ragged):
            bounds = zip(column.starts.tolist(), column.starts[1:].tolist(), strict=False)
            found[name] = [column.values[start:end].tobytes() for start, end in bounds]
        else:
            found[name] = [row.tobytes() if row.ndim or row.dtype.kind == "f" else row.item() for row in column]
    return found


def model_of(block: Block, names: set[str] | None = None) -> Model:
    """A Block as lists, with the columns `names`, too: of a Block that lacks them, as join_blocks fills them up."""
    block.check()
    images, objects = values_of(block.image_columns()), values_of(block.object_columns())
    for name in (names or set()) - images.keys() - objects.keys():
        is_of_objects = name in OBJECT_COLUMNS
        filled = [_ABSENT.get(name, WIDE.get(name, 0))] * (block.num_objects if is_of_objects else len(block))
        (objects if is_of_objects else images)[name] = filled
    starts = [0] * (len(block) + 1) if block.first_object_of_image is None else block.first_object_of_image.tolist()
    objects_of = [{name: column[row] for name, column in objects.items()} for row in range(block.num_objects)]
    return [
        ({name: column[row] for name, column in images.items()}, objects_of[starts[row] : starts[row + 1]])
        for row in range(len(block))
    ]


OBJECT_COLUMNS = {"object_id", "boxes_xywh_px", "area_px2", "is_crowd", "segmentation", "keypoints_xyv"}
WIDE = {"image_size_px": bytes(16), "boxes_xywh_px": bytes(32), "area_px2": bytes(8)}


@settings(max_examples=100)
@given(blocks(), st.data())
def test_take_and_cut(block, data):
    model = model_of(block)
    rows = data.draw(st.lists(st.integers(0, len(block) - 1), max_size=8)) if len(block) else []
    assert model_of(block.take(np.array(rows, np.int64))) == [model[row] for row in rows]
    mask = np.isin(np.arange(len(block)), rows)
    assert model_of(block.take(mask)) == [model[row] for row in sorted({*rows})]
    start = data.draw(st.integers(0, len(block)))
    end = data.draw(st.integers(start, len(block)))
    assert model_of(block.cut(start, end)) == model[start:end]
    assert (len(block), block.num_objects) == (len(model), sum(len(objects) for _, objects in model))
    assert block.image_of_object.tolist() == [row for row, (_, objects) in enumerate(model) for _ in objects]
    if block.first_object_of_image is not None:
        kept = data.draw(st.lists(st.booleans(), min_size=block.num_objects, max_size=block.num_objects))
        wanted = iter(kept)
        expected = [(image, [each for each in objects if next(wanted)]) for image, objects in model]
        assert model_of(block.take_objects(np.array(kept, bool))) == expected


@settings(max_examples=100)
@given(st.lists(blocks(max_images=3), min_size=1, max_size=4))
def test_join_blocks(parts):
    """A column that some Blocks lack is filled up: with -1 for no split, else with 0, False or nothing."""
    joined = join_blocks(parts)
    names = {name for part in parts for name in contents(part)} - {"first_object_of_image"}
    assert model_of(joined) == [row for part in parts for row in model_of(part, names)]
    for number, part in enumerate(parts):
        before = sum(map(len, parts[:number]))
        again = model_of(joined.cut(before, before + len(part)))
        assert again == model_of(part, names)
    cuts = [joined.cut(0, len(joined) // 2), joined.cut(len(joined) // 2, len(joined))]
    assert contents(join_blocks(cuts)) == contents(joined)


IMAGES = {"image_id": np.array([1, 2]), "first_object_of_image": np.array([0, 1, 3])}


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({**IMAGES, "object_id": np.arange(3)}, None),
        ({**IMAGES, "object_id": np.arange(2)}, "column object_id has 2 rows for 3 objects"),
        ({**IMAGES, "split": np.arange(3)}, "column split has 3 rows for 2 images"),
        ({**IMAGES, "file_name": ragged_texts(["a"])}, "column file_name has 1 rows for 2 images"),
        ({**IMAGES, "first_object_of_image": np.array([0, 3])}, "first_object_of_image has 2 rows"),
        ({**IMAGES, "first_object_of_image": np.array([1, 1, 3])}, "starts of first_object_of_image do not ascend"),
        ({**IMAGES, "first_object_of_image": np.array([0, 4, 3])}, "starts of first_object_of_image do not ascend"),
        ({**IMAGES, "labels": Ragged(np.zeros(3, np.uint8), np.array([0, 2, 2]))}, "from 0 to 3"),
        ({**IMAGES, "labels": Ragged(np.zeros(3, np.uint8), np.array([1, 2, 3]))}, "starts of labels do not ascend"),
        ({**IMAGES, "labels": Ragged(np.zeros(3, np.uint8), np.array([0, 4, 3]))}, "starts of labels do not ascend"),
    ],
)
def test_check(columns, fault):
    if fault is None:
        Block(**columns).check()
        return
    with pytest.raises(ValueError, match=fault):
        Block(**columns).check()


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_ragged_texts(texts):
    column = ragged_texts(texts)
    assert (column.texts(), rows_of(column)) == (texts, len(texts))
    assert ragged_bytes([text.encode() for text in texts]).rows() == column.rows()


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5))))
def test_spans(bounds):
    starts, lengths = (np.array(column, np.int64) for column in (zip(*bounds, strict=True) if bounds else ([], [])))
    assert spans(starts, lengths).tolist() == [n for start, length in bounds for n in range(start, start + length)]
    assert np.diff(starts_of(lengths)).tolist() == lengths.tolist()
