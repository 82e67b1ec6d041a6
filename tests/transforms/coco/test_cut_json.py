import json

import pytest

from recordmill.transforms.coco.cut_blocks import Cut, NotJsonError, whole_rows, whole_value

ROWS = [{"id": 1, "x": "}, {"}, {"id": 2, "y": [{}, {}, {}, {}, {"z": '"}'}]}, 3, {"id": 4, "x": "\\\\"}]
LIST = json.dumps(ROWS).encode()[1:]
ENDS = [len(json.dumps(ROWS[: number + 1]).encode()) - 2 for number in range(len(ROWS))]


@pytest.mark.parametrize("size", range(len(LIST)))
def test_list_is_cut_behind_its_last_whole_row_object(size):
    numbers = [number for number in (0, 1, 3) if ENDS[number] <= size]
    assert whole_rows(b"", LIST[:size]) == (Cut(ENDS[numbers[-1]], numbers[-1] + 1) if numbers else None)


@pytest.mark.parametrize("text", ["", "}, {", "\\", '"}', '\\"}'])
def test_list_is_cut_between_rows_of_many_objects(text):
    row = json.dumps({"id": 1, "y": [{"x": text}] * 9}).encode()
    whole = b", ".join([row] * 3)
    assert whole_rows(b"", b"%b, %b" % (whole, row[:-1])) == Cut(len(whole), 3)


def test_list_that_has_ended_is_cut_behind_its_last_row():
    assert whole_rows(b"", LIST + b', "categories": [{}]}') == Cut(ENDS[3], 4)
    assert whole_rows(b"", b'1, [2]], "info') == Cut(6, 2)


def test_text_is_cut_at_border_of_rows_unless_within_text():
    assert whole_rows(b'}, {"id":', LIST[:-1]) == Cut(ENDS[0], 1)
    assert whole_rows(b"}, {", LIST[: ENDS[0]]) == Cut(ENDS[0], 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [(b'{"a": "}"} , 1', Cut(10)), (b'{"a": 1', None), (b"12 ", Cut(2)), (b"tru", None), (b"[1] ]", Cut(3))],
)
def test_a_value_is_cut_where_it_ends(text, expected):
    assert whole_value(text) == expected


@pytest.mark.parametrize(("text", "offset"), [(b'{"id": 1}, {"id" 2}, {"id": 3}', 17), (b"{'id': 1}, {}", 1)])
def test_what_is_at_fault_whatever_follows_is_named_with_its_offset(text, offset):
    with pytest.raises(NotJsonError) as caught:
        whole_rows(b"", text)
    assert caught.value.offset == offset
    with pytest.raises(NotJsonError) as caught:
        whole_value(b"[" + text)
    assert caught.value.offset == offset + 1
