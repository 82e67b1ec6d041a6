import json
import re
import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.inputs.json_text import quote_nan
from recordmill.transforms.coco.cut_blocks import Cut, JsonBlock, NotJsonError, cut_blocks, whole_rows, whole_value
from recordmill.transforms.coco.file_fields import has_data

TEXTS = st.sampled_from(["", "}, {", '"}]', "\\", "]}", "NaN", "é\u2028", '\\"}, {"id": 1}'])
VALUES = st.recursive(
    st.integers(-9, 9) | st.floats(allow_nan=True) | TEXTS | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
ROWS = st.lists(st.dictionaries(st.sampled_from(["id", "x", "}, {"]), VALUES, max_size=3) | VALUES, max_size=9)


def cut(data: bytes, size: int) -> list[JsonBlock]:
    pieces = (data[start : start + size] for start in range(0, len(data), size))
    return list(cut_blocks("in/a.json", pieces, size))


def decoded(text: bytes) -> list:
    """NaN as text, which equals itself."""
    return json.loads(quote_nan(b"[%b]" % text))


@given(ROWS, ROWS, VALUES, st.permutations(["images", "annotations", "info"]), st.integers(1, 90), st.booleans())
def test_blocks_hold_all_rows_in_order_at_their_offsets(images, annotations, info, order, size, is_wide):
    document = {"images": images, "annotations": annotations, "info": info}
    data = json.dumps({key: document[key] for key in order}, indent=1 if is_wide else None).encode()
    blocks = cut(data, size)
    for list_, rows in (("images", images), ("annotations", annotations)):
        list_blocks = [block for block in blocks if block.list == list_]
        decoded_blocks = [decoded(block.text) for block in list_blocks]
        assert [row for block_rows in decoded_blocks for row in block_rows] == decoded(json.dumps(rows).encode()[1:-1])
        assert [block.first_row for block in list_blocks] == [
            sum(map(len, decoded_blocks[:index])) for index in range(len(decoded_blocks))
        ]
        assert all(data[block.start :].startswith(block.text) for block in list_blocks)
    (rest,) = (block for block in blocks if not block.list)
    assert rest == blocks[-1]
    is_told = has_data(msgspec.Raw(quote_nan(json.dumps(info).encode())))
    assert json.loads(rest.text) == {"images": [], "annotations": [], "info": is_told}


def test_unread_list_is_not_held():
    row = b'{"subject": 1, "object": 2}'
    pieces = [b'{"categories": [{"id": 1}], "relations": [', *[row + b","] * 40_000, row, b'], "zeros": ["", 0, []]}']
    tracemalloc.start()
    try:
        (rest,) = cut_blocks("a.json", pieces, 1 << 14)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert json.loads(rest.text) == {"categories": [{"id": 1}], "relations": True, "zeros": False}
    assert peak < len(row) * 40_000 / 4


def test_blocks_are_no_larger_than_was_asked_for_unless_row_is():
    row = {"id": 1, "segmentation": {"counts": [1, 2], "size": [3, 4]}}
    data = json.dumps({"images": [], "annotations": [row] * 500 + [{**row, "x": "y" * 5000}] + [row] * 500}).encode()
    sizes = [len(block.text) for block in cut(data, 1000) if block.list]
    assert len(sizes) > 50
    assert [size for size in sizes if size > 2000] == [max(sizes)]


GOOD = json.dumps({"info": {"a": [1]}, "images": [{"id": 1, "x": "}, {"}, {"id": 2}] * 4, "annotations": []})


@pytest.mark.parametrize("size", [1, 7, 40, 1000])
@pytest.mark.parametrize(
    "data",
    [
        *(GOOD[:end] for end in range(0, len(GOOD), 5)),
        GOOD.replace('"id": 2}, ', '"id": 2},, ', 3),
        GOOD.replace('"id": 2}, ', '"id": NaN},\n, ', 1),
        GOOD.replace('{"a": [1]}', "{'a': 1}"),
        GOOD.replace('"images":', '"images"'),
        GOOD.replace("}], ", "}, "),
        GOOD.replace('"annotations": []', '"images": []'),
        GOOD + "x",
        GOOD + GOOD,
        "[1, 2] 3",
    ],
)
def test_fault_has_same_place_in_all_blocks(data, size):
    def fault(size: int) -> str:
        with pytest.raises(AnnotationFileError) as caught:
            cut(data.encode(), size)
        return re.sub(r"near .*?;", "", str(caught.value))

    assert fault(size) == fault(5000)


@pytest.mark.parametrize("text", ["", "}, {", '"}]', "\\", '\\"}'])
@pytest.mark.parametrize("more", [[], [0], [[{}]]])
def test_rows_of_hundreds_of_objects_are_cut(text, more):
    row = {"segments_info": [{"id": index, "x": text} for index in range(500)], "y": [text]}
    size = len(json.dumps(row))
    rows = [row, *more] * 6
    blocks = [block for block in cut(json.dumps({"annotations": rows}).encode(), size + 300) if block.list]
    assert max(len(block.text) for block in blocks) < 2.5 * size
    assert [block_row for block in blocks for block_row in decoded(block.text)] == rows


@pytest.mark.parametrize("end", ['"annotations": [{"id": 1, "caption": "cut \\ud83d"}]', '"categories": ["\\ud83d"]'])
@pytest.mark.parametrize("block_bytes", [16, 1 << 20])
def test_half_surrogate_pair_at_end(end, block_bytes):
    text = b'{"images": [], %b}' % end.encode()
    assert b"".join(block.text for block in cut_blocks("a.json", [text], block_bytes)).count(b"ud83d") == 1


def test_key_none_is_named_before_rest_is_read():
    def pieces():
        yield b"{'images': [" + b" " * 64
        raise AssertionError("read on")

    with pytest.raises(AnnotationFileError, match="column 2"):
        list(cut_blocks("a.json", pieces(), 64))


@pytest.mark.parametrize("block_bytes", [20, 40, 1 << 20])
def test_trailing_comma_is_named_wherever_it_was_cut(block_bytes):
    text = b'{"images":[{"id":1,"file_name":"a.jpg"},],"annotations":[]}'
    pieces = [text[start : start + block_bytes] for start in range(0, len(text), block_bytes)]
    with pytest.raises(AnnotationFileError, match="trailing comma"):
        list(cut_blocks("a.json", pieces, block_bytes))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b'\xef\xbb\xbf{"images": x}', "line 1, column 12 (byte 14), near 'x}';"),
        (b'{"images": [,{"id": 1}]}', "line 1, column 13 (byte 12), near ',{\"id\": 1}';"),
        (b'{"images": [], "ab\\qc": 1}', "line 1, column 21 (byte 20)"),  # as msgspec counts it
        (b'{"images\xa2: "x": 1}', "line 1, column 2 (byte 1)"),
    ],
)
def test_fault_is_named_with_its_place(text, place):
    with pytest.raises(AnnotationFileError) as caught:
        cut(text, 100)
    assert place in str(caught.value)


def test_unread_field_may_be_repeated():
    (rest,) = cut(b'{"info": 1, "info": 0}', 100)
    assert rest.text == b'{"info":false}'


# Where a text can be cut

FOUR = [{"id": 1, "x": "}, {"}, {"id": 2, "y": [{}, {}, {}, {}, {"z": '"}'}]}, 3, {"id": 4, "x": "\\\\"}]
TEXT = json.dumps(FOUR).encode()[1:]
ENDS = [len(json.dumps(FOUR[: number + 1]).encode()) - 2 for number in range(len(FOUR))]


@pytest.mark.parametrize("size", range(len(TEXT)))
def test_list_is_cut_behind_its_last_whole_row_object(size):
    numbers = [number for number in (0, 1, 3) if ENDS[number] <= size]
    assert whole_rows(b"", TEXT[:size]) == (Cut(ENDS[numbers[-1]], numbers[-1] + 1) if numbers else None)


@pytest.mark.parametrize("text", ["", "}, {", "\\", '"}', '\\"}'])
def test_list_is_cut_between_rows_of_many_objects(text):
    row = json.dumps({"id": 1, "y": [{"x": text}] * 9}).encode()
    whole = b", ".join([row] * 3)
    assert whole_rows(b"", b"%b, %b" % (whole, row[:-1])) == Cut(len(whole), 3)


def test_list_that_has_ended_is_cut_behind_its_last_row():
    assert whole_rows(b"", TEXT + b', "categories": [{}]}') == Cut(ENDS[3], 4)
    assert whole_rows(b"", b'1, [2]], "info') == Cut(6, 2)


def test_text_is_cut_at_border_of_rows_unless_within_text():
    assert whole_rows(b'}, {"id":', TEXT[:-1]) == Cut(ENDS[0], 1)
    assert whole_rows(b"}, {", TEXT[: ENDS[0]]) == Cut(ENDS[0], 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [(b'{"a": "}"} , 1', Cut(10)), (b'{"a": 1', None), (b"12 ", Cut(2)), (b"tru", None), (b"[1] ]", Cut(3))],
)
def test_a_value_is_cut_where_it_ends(text, expected):
    assert whole_value(text) == expected


@pytest.mark.parametrize(("text", "offset"), [(b'{"id": 1}, {"id" 2}, {"id": 3}', 17), (b"{'id': 1}, {}", 1)])
def test_fault_is_named_with_its_offset(text, offset):
    with pytest.raises(NotJsonError) as caught:
        whole_rows(b"", text)
    assert caught.value.args[1] == offset
    with pytest.raises(NotJsonError) as caught:
        whole_value(b"[" + text)
    assert caught.value.args[1] == offset + 1


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        (b'{"NaN": NaN, "x": -Infinity}', b'{"NaN": "NaN", "x": "-Infinity"}'),
        (b'["a\\"NaN\\\\", NaN, "\\\\"]', b'["a\\"NaN\\\\", "NaN", "\\\\"]'),
        (b'["NaN', b'["NaN'),
    ],
)
def test_words_within_texts_are_left_alone(text, quoted):
    assert quote_nan(text) == quoted
