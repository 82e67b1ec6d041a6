import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.block import (
    COLUMNS,
    Block,
    Ragged,
    decode_rows,
    encode_rows,
    join_blocks,
    ragged_bytes,
    ragged_numbers,
    ragged_texts,
    rows_of,
    spans,
    starts_of,
)
from recordmill.schemas.errors import StepError
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
    block.check("test")
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


SQUARE = [0, 0, 1, 1]
WHOLE = Block(
    image_id=np.array([7, 9]),
    file_name=ragged_texts(["a.jpg", "b.jpg"]),
    first_object_of_image=np.array([0, 1, 3]),
    object_id=np.array([5, 6, 4]),
    area_px2=np.ones(3),
)
A, B = "image 7; file name 'a.jpg'", "image 9; file name 'b.jpg'"
OF_B = f"{B}; annotation 4"
XYWH = "; numbers must be finite, and the minimum is (-inf, -inf, 0, 0)"
DATA = np.zeros(3, np.uint8)


@pytest.mark.parametrize(
    ("column", "values", "fault", "image"),
    [
        ("image_id", np.arange(1), "has 1 rows instead of 2", "file name 'b.jpg'"),
        ("image_id", np.arange(2.0), "is float64 [2], not int64 [N]", "image 0.0; file name 'a.jpg'"),
        ("split", np.arange(3), "has 3 rows instead of 2", B),
        ("split", np.array([0, -2]), "has -2; numbers must be finite, and the minimum is -1", B),
        ("split", [0, 1], "is a list, not int64 [N]", A),
        ("image_size_px", np.ones(4, np.int64), "is int64 [4], not int64 [N, 2]", A),
        ("image_size_px", np.array([[1, 1], [1, -1]]), "has [1, -1]; numbers must be finite, and the minimum is 0", B),
        ("is_shared", np.zeros(2, np.int64), "is int64 [2], not bool [N]", A),
        ("file_name", ragged_texts(["a"]), "has 1 rows instead of 2", "image 9"),
        ("class_name", np.arange(2), "is a ndarray, not text [N]", A),
        ("class_name", ragged_bytes(["é".encode(), b"\xe9"]), "has b'\\xe9', which is not UTF-8", B),
        ("labels", ragged_numbers([[1], [2]]), "is float64 [2], not bytes [N]", A),
        ("labels", Ragged(DATA, np.array([0, 2, 2])), "has starts that do not ascend from 0 to 3", B),
        ("labels", Ragged(DATA, np.array([1, 2, 3])), "has starts that do not ascend from 0 to 3", A),
        ("labels", Ragged(DATA, np.array([0, 4, 3])), "has starts that do not ascend from 0 to 3", A),
        ("first_object_of_image", np.array([0, 3]), "has 2 rows instead of 3", B),
        ("first_object_of_image", np.array([1, 1, 3]), "has starts that do not ascend from 0 to 3", A),
        ("first_object_of_image", np.array([0, 4, 3]), "has starts that do not ascend from 0 to 3", A),
        ("first_object_of_image", np.array([0, 1, 2]), "has starts that do not ascend from 0 to 3", B),
        ("object_id", np.arange(2), "has 2 rows instead of 3", B),
        ("category_id", np.arange(3, dtype=np.int32), "is int32 [3], not int64 [M]", f"{A}; annotation 5"),
        ("category_id", np.arange(4), "has 4 rows instead of 3", B),
        ("boxes_xywh_px", np.array([SQUARE, SQUARE, [0, 0, -1.0, 1]]), f"has [0.0, 0.0, -1.0, 1.0]{XYWH}", OF_B),
        ("boxes_xywh_px", np.array([SQUARE, SQUARE, [0, np.nan, 1, 1]]), f"has [0.0, nan, 1.0, 1.0]{XYWH}", OF_B),
        ("area_px2", np.array([1, 2, np.inf]), "has inf; numbers must be finite", OF_B),
        ("keypoints_xyv", ragged_numbers([(), (), (1, 2)]), "has a list whose length is not a multiple of 3", OF_B),
        ("keypoints_xyv", ragged_numbers([(), (), (1,)]), "has a list whose length is not a multiple of 3", OF_B),
        ("keypoints_xyv", ragged_numbers([(), (), (1, np.inf, 2)]), "has inf; numbers must be finite", OF_B),
    ],
)
def test_check(column, values, fault, image):
    WHOLE.check("join")
    with pytest.raises(StepError) as caught:
        WHOLE.replace(**{column: values}).check("join")
    expected = f"step 'join' made a wrong Block: column {column} {fault}; {image}. This is a fault of Recordmill"
    assert str(caught.value) == f"{expected}: please report it"


def test_check_partial_block():
    """Other box formats and faulty keypoints are converted and rejected when partial Blocks are joined."""
    partial = WHOLE.replace(part=np.zeros(2, np.int64), area_px2=np.full(3, np.nan))
    partial.check("read")
    with pytest.raises(StepError, match="column area_px2 has 2 rows instead of 3; image 9"):
        partial.replace(area_px2=np.zeros(2)).check("read")


@pytest.mark.parametrize("name", [name for name, column in COLUMNS.items() if column.axis != "N + 1"])
def test_fill(name):
    """A Block that lacks a column gives rows of fill values, as join_blocks does."""
    fill = COLUMNS[name].fill
    one = Block(file_name=ragged_texts(["c"]), first_object_of_image=np.array([0, 1]))
    one = one.replace(**{name: encode_rows(name, [fill])})
    lacking = WHOLE.replace(**{name: None})
    joined = join_blocks([lacking, one])
    joined.check("join")
    number = 4 if COLUMNS[name].axis == "M" else 3
    assert joined.list_rows(name) == [fill] * number == [*lacking.list_rows(name), fill]
    assert decode_rows(name, getattr(one, name)) == [fill]


def test_every_field_is_a_column():
    assert [*COLUMNS] == [each.name for each in dataclasses.fields(Block)]
    assert [column.name for column in COLUMNS.values()] == [*COLUMNS]


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
