import gzip
import io
import re

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.features import ColumnType
from recordmill.schemas.inputs.tables import RowsFile
from recordmill.schemas.rejects import Reason
from recordmill.transforms.storage.resolve import storage_for
from recordmill.transforms.table import read_csv_rows
from recordmill.transforms.table.choose_schema import ColumnChoice, choose_schema
from recordmill.transforms.table.convert_columns import convert_column
from recordmill.transforms.table.observe_columns import TableStats, observe
from recordmill.transforms.table.read_csv_rows import _QuoteCounter, read_csv
from recordmill.transforms.table.read_json_rows import read_json
from recordmill.transforms.table.read_rows import read_rows


def read(path, data: bytes = b"", columns=(), encoding="utf-8"):
    """Columns, numbers of rows, and (number, reason) of bad ones."""
    if data:
        path.write_bytes(data)
    cells: dict = {}
    lines, bad = [], []
    for batch in read_rows(RowsFile(0, str(path), 0, ""), columns, encoding):
        for name, array in batch.columns.items():
            cells.setdefault(name, []).extend(array.to_pylist())
        lines += batch.lines.tolist()
        bad += [(row.line, row.reason) for row in batch.bad]
    return cells, lines, bad


@pytest.mark.parametrize(
    ("data", "cells"),
    [
        (b"a,b\n1,x\n2,y\n", {"a": ["1", "2"], "b": ["x", "y"]}),
        (b'\xef\xbb\xbfa,"b\nc"\r\n1,"x\n,""y"\r\n', {"a": ["1"], "b\nc": ['x\n,"y']}),
        (b"a,b\n\n1,\n\n", {"a": ["1"], "b": [""]}),
        (b'a,b\n1,5" disk\n2,=cmd()\n', {"a": ["1", "2"], "b": ['5" disk', "=cmd()"]}),
        (b"a,b\n1,\0\n", {"a": ["1"], "b": ["\0"]}),
        (b"a;b,c\n1,2\n", {"a;b": ["1"], "c": ["2"]}),
    ],
)
def test_csv(tmp_path, data, cells):
    assert read(tmp_path / "x.csv", data)[0] == cells
    assert read(tmp_path / "y.csv.gz", gzip.compress(data))[0] == cells
    assert read(tmp_path / "z.csv", gzip.compress(data))[0] == cells, "known by its bytes"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b'1,x,"y\n3,x,y\n4,x,y"z\n', "x.csv has .*[(]2 in cells of 1 rows[)], the first in row 10, column c;"),
        (b'2,"x\r\n3,z" x,y\r\n4,"x\r5,z",y\r\n', "[(]2 in cells of 2 rows[)], the first in row 10, column b;"),
        (b'1,x,"y\n3,x,y\n4,x,y"z\n' + b'1,"x\ny\nz",y\n' * 3, "[(]2 in cells of 1 rows"),
        (b'1,x,"y\n3,x,y\n4,x,y"z\n' + b'1,"x\ny\nz",y\n' * 4, None),  # most are of several lines
        (b'1,x,"y\n3,x,y\n4"\n', None),
        (b'1,"Main St\nTown, IL",x\n' * 4, None),  # so many are no mistake
        (b'1,x,"y\n3,x,y,z\n4,x,y"z\n', None),
        (b'1,x,"y\n3,x\n4,x,y"z\n', None),
        (b'"1\n2",x,y\n', None),
    ],
)
def test_lines_of_a_cell_that_look_like_rows_are_told(data, told, monkeypatch):
    monkeypatch.setattr(read_csv_rows, "_BATCH_ROWS", 10)
    found = told_of_cells(b"a,b,c\n" + b"1,x,y\n" * 9 + data)
    assert bool(found) == bool(told)
    assert not told or re.search(told, found[0])


def told_of_cells(data: bytes) -> list[str]:
    """Where the column `a` alone is read."""
    stats = TableStats()
    for batch in read_csv("x.csv", io.BytesIO(data), ",", "utf-8", ("a",)):
        stats.add(observe(batch, 0))
    warnings = choose_schema(stats, ColumnChoice(), (RowsFile(0, "x.csv", 0, ""),)).warnings
    return [text for text in warnings if "look like rows" in text]


@pytest.mark.parametrize(("data", "number"), [(b'1,"a \\"b\\""\n2,x\n', 2), (b'1,"a ""b"" \\ "\n', 0)])
def test_quotes_after_a_backslash_are_counted(data, number, monkeypatch):
    monkeypatch.setattr(read_csv_rows, "_BATCH_ROWS", 1)
    for size in (1, 1 << 20):
        stream = _QuoteCounter(io.BytesIO(data))
        while stream.read(size):
            pass
        assert stream.escaped == number
    stats = TableStats()
    for _ in range(2):
        for batch in read_csv("x.csv", io.BytesIO(b"a,b\n" + data), ",", "utf-8", ()):
            stats.add(observe(batch, 0))
    warnings = choose_schema(stats, ColumnChoice(), (RowsFile(0, "x.csv", 0, ""),)).warnings
    assert [f"(number: {2 * number})" in text for text in warnings if "backslash" in text] == [True] * bool(number)


def test_of_so_few_rows_that_most_have_such_cells_nothing_is_told():
    assert not told_of_cells(b"a,b,c\n" + b'1,"x\n2,y",z\n' * 3)


def test_of_one_column_a_very_long_cell_is_told():
    assert told_of_cells(b'a\n1\n2\n3\n"4\n' + b"5\n" * 99 + b'6"\n')
    assert not told_of_cells(b'a\n1\n2\n3\n"4\n' + b"5\n" * 98 + b'6"\n')


def test_only_some_columns_and_tabs(tmp_path):
    assert read(tmp_path / "x.tsv", b"a\tb\n1\tx,y\n", ("b",)) == ({"b": ["x,y"]}, [1], [])


def test_rows_that_are_none_are_told_with_their_numbers_and_the_others_stay(tmp_path):
    cells, lines, bad = read(tmp_path / "x.csv", b"a,b\n1\n\n3,4\n5,6,7\n8,9\n\xe9,x\n")
    assert (cells, lines) == ({"a": ["3", "8"], "b": ["4", "9"]}, [2, 4])
    assert sorted(bad) == [(1, Reason.MALFORMED_ROW), (3, Reason.MALFORMED_ROW), (5, Reason.NOT_TEXT)]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-be", "UTF8", "utf-8-sig"])
def test_another_encoding(tmp_path, encoding):
    data = 'é,b\r\n"ü\nö",2\r\n'.encode(encoding)
    found = ({"é": ["ü\nö"], "b": ["2"]}, [1], [])
    assert read(tmp_path / "x.csv", data, encoding=encoding) == found
    assert read(tmp_path / "x.csv.gz", gzip.compress(data), encoding=encoding) == found


def test_a_text_that_is_not_of_the_encoding_is_told_with_it(tmp_path):
    with pytest.raises(AnnotationFileError, match=r"is its encoding utf-8\? --encoding gives another"):
        read(tmp_path / "x.csv", "a\n1\n".encode("utf-16"))
    with pytest.raises(AnnotationFileError, match=r"is its encoding utf-16\?"):
        read(tmp_path / "x.csv", ("a\n1\n" + "2\n" * 10_000).encode("utf-16")[:-1], encoding="utf-16")


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"\n", "must name the columns"),
        (b"a,a\n1,2\n", "'a' twice"),
        (b"a,\n1,2\n", "column 2 has no name"),
        (b"a;b\n1;2\n", "one column, 'a;b': are its cells separated by ';'[?]"),
        (b"a\tb\n1\t2\n", r"are its cells separated by '\\t'"),
        (b"\xe9,b\n1,2\n", "first line cannot be read"),
        (b'a,b\n1,2\n3,"4\n5,6\n', "row 2 has a quote that is not closed"),
        (b'a,b,c\n1,2,3\n1,"2,3\n4\n5', "row 2 has a quote that is not closed"),
        (
            b'a,b,c\n1,"2,3\n4,5,6\n4,5,"6\n7,8,9\n',
            "row 1 has 2 cells .* 3 columns, and .* 2 more lines, of which 1 look",
        ),
        ("a,b\n1,2\n".encode("utf-16-be"), "utf-16-be"),
        ("a,b\n1,2\n".encode("utf-16-le"), "utf-16-le"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS"),
        (b",".join(b"c%d" % number for number in range(100_000)) + b"\n1\n", "100,000 columns"),
        (b"a,b\n1," + b"x" * (40 << 20) + b"\n2,y\n", "longer than 16 MB"),
    ],
)
def test_a_csv_file_that_cannot_be_read(tmp_path, data, fault):
    with pytest.raises(AnnotationFileError, match=fault):
        read(tmp_path / "x.csv", data)


def test_a_file_cut_short(tmp_path):
    whole = gzip.compress(b"a,b\n" + b"1,2\n" * 1000)
    with pytest.raises(AnnotationFileError, match="cut short"):
        read(tmp_path / "x.csv.gz", whole[:-20])
    pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "x.parquet")
    with pytest.raises(AnnotationFileError, match="no Parquet file"):
        read(tmp_path / "x.parquet", (tmp_path / "x.parquet").read_bytes()[:-20])


def test_json_lines(tmp_path):
    data = b'{"a": 1, "b": {"c": "x"}}\n\nnot json\n[1]\n{"b": {"c": null}, "b.c": 1}\n{"d": [1, 2], "a": null}\n'
    cells, lines, bad = read(tmp_path / "x.jsonl", data)
    assert cells == {"a": [1, None], "b.c": ["x", None], "d": [None, [1, 2]]}
    assert (lines, bad) == ([1, 6], [(line, Reason.MALFORMED_ROW) for line in (3, 4, 5)])


def test_half_of_a_surrogate_pair_is_no_text(tmp_path):
    """No UTF-8 has it, and neither has a record."""
    data = b'{"a": "x \\ud800 y"}\n{"a": "\\ud83d\\ude00"}\n'
    assert read(tmp_path / "x.jsonl", data) == ({"a": ["\U0001f600"]}, [2], [(1, Reason.MALFORMED_ROW)])


@pytest.mark.parametrize(
    ("values", "type_", "texts"),
    [
        ([1.5, True, None, "x"], ColumnType.BYTES, [[b"1.5"], [b"true"], None, [b"x"]]),
        ([2.5, True], ColumnType.BYTES, [[b"2.5"], [b"true"]]),  # Arrow takes it for 1.0
        ([[1, 2], 3, [], None], ColumnType.INT64, [[1, 2], [3], [], None]),
        ([[2.5, True], [], 7], ColumnType.BYTES, [[b"2.5", b"true"], [], [b"7"]]),
        ([[[1], {"a": 2}], ["x"], []], ColumnType.BYTES, [[b"[1]", b'{"a":2}'], [b"x"], []]),
        ([1 << 64, 1.5], ColumnType.FLOAT, [[float(1 << 64)], [1.5]]),
        ([(1 << 53) + 1, 0.5], ColumnType.FLOAT, [[float(1 << 53)], [0.5]]),
    ],
)
def test_json_of_mixed_types_is_the_same_in_any_batches(values, type_, texts):
    data = b"".join(msgspec.json.encode({"a": value}) + b"\n" for value in values)
    examples = []
    for batch_rows in (1, 9):
        batches = list(read_json("x.jsonl", io.BytesIO(data), (), batch_rows))
        stats = TableStats()
        for batch in batches:
            stats.add(observe(batch, 0))
        chosen = choose_schema(stats, ColumnChoice(), (RowsFile(0, "x.jsonl", 0, ""),))
        (column,) = chosen.schema.columns
        found = {}
        for batch in batches:
            (feature, faults) = convert_column(column, batch.columns.get("a"), len(batch.lines), True, {})
            assert not faults
            ends = zip(feature.ends, feature.ends[1:], strict=False)
            cells = [list(feature.values[begin:end].tolist()) for begin, end in ends]
            absent = [False] * len(cells) if feature.absent is None else feature.absent
            of_rows = zip(batch.lines.tolist(), cells, absent, strict=True)
            found |= {line: None if gone else cell for line, cell, gone in of_rows}
        assert (column.type, [found[line] for line in sorted(found)]) == (type_, texts)
        assert bool(chosen.warnings) == (type_ is ColumnType.BYTES), "it is told"
        examples.append(stats.columns["a"].first)
    assert examples[0] == examples[1], "of the same rows"


def test_a_list_does_not_change_what_the_values_beside_it_are(tmp_path):
    """They may be what rows are known by."""
    data = b'{"a": "x", "b": [1]}\n{"a": ["y"], "b": 2}\n{\n{"a": null, "b": 3}\n{"a": "z"}\n'
    batches = list(read_json("x.jsonl", io.BytesIO(data), (), 9))
    found = {
        line: cell for batch in batches for line, cell in zip(batch.lines, batch.columns["a"].to_pylist(), strict=True)
    }
    assert found == {1: "x", 2: ["y"], 4: None, 5: "z"}
    assert [row.line for batch in batches for row in batch.bad] == [3]


@pytest.mark.parametrize(
    ("data", "fault"), [(b'[{"a": 1}]', "one JSON array"), (b'{\r\n  "a": 1\r\n}\r\n', "JSON over several lines")]
)
def test_json_that_is_not_one_object_a_line_is_named(tmp_path, data, fault):
    with pytest.raises(AnnotationFileError, match=fault):
        read(tmp_path / "x.json", data)


def test_parquet(tmp_path):
    nested = pa.array(
        [{"x": 1, "y": {"z": "u"}}, None], pa.struct({"x": pa.int8(), "y": pa.struct({"z": pa.string()})})
    )
    table = pa.table({"s": nested, "l": [[1.5], []], "e": pa.array(["u", "v"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "x.parquet")
    cells, lines, _ = read(tmp_path / "x.parquet")
    assert cells == {"s.x": [1, None], "s.y.z": ["u", None], "l": [[1.5], []], "e": ["u", "v"]}
    assert lines == [1, 2]
    assert read(tmp_path / "x.parquet", columns=("s.y.z",))[0] == {"s.y.z": ["u", None]}


def test_what_parquet_has_and_python_has_not(tmp_path):
    fine = pa.array([[1_500], None], pa.list_(pa.timestamp("ns", "UTC")))
    pairs = pa.array([[1.5, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2))
    pq.write_table(
        pa.table({"t": fine, "t0": pa.array([1_500, None], pa.timestamp("ns")), "p": pairs}), tmp_path / "x.parquet"
    )
    (batch,) = read_rows(RowsFile(0, str(tmp_path / "x.parquet"), 0, ""))
    assert {name: array.type for name, array in batch.columns.items()} == {
        "t": pa.list_(pa.timestamp("us", "UTC")),
        "t0": pa.timestamp("us"),
        "p": pa.list_(pa.float32()),
    }
    assert batch.columns["t0"].cast(pa.int64()).to_pylist() == [1, None]
    assert batch.columns["p"].to_pylist() == pairs.to_pylist()


def test_texts_of_parquet_that_are_no_utf_8_are_told_with_their_row_and_the_others_stay(tmp_path):
    values = pa.array([b"a", b"\xff", b"b", b"\xfe"])
    texts = pa.StringArray.from_buffers(4, *values.buffers()[1:])
    columns = {"n": [1, 2, 3, 4], "s": texts, "l": pa.ListArray.from_arrays([0, 1, 2, 3, 4], texts)}
    columns["e"] = texts.slice(1).dictionary_encode().take(pa.array([1, 0, 1, 1]))
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    cells, lines, bad = read(tmp_path / "x.parquet")
    assert cells == {"n": [1, 3], "s": ["a", "b"], "l": [["a"], ["b"]], "e": ["b", "b"]}
    assert (lines, bad) == ([1, 3], [(2, Reason.NOT_TEXT), (4, Reason.NOT_TEXT)])


@pytest.mark.parametrize(
    "table",
    [pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a.b", "a.b"]), pa.table({"a": [{"b": 1}], "a.b": [2]})],
)
def test_a_name_of_two_columns_of_parquet_is_told(tmp_path, table):
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(AnnotationFileError, match=r"names the column 'a\.b' twice; rename one"):
        read(tmp_path / "x.parquet")


def test_a_file_that_changes_while_it_is_read_is_not_mixed(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"a\n1\n")
    found = storage_for(str(path)).stat(str(path))
    rows = RowsFile(0, str(path), found.size_bytes, found.version)
    assert len(list(read_rows(rows))) == 1
    batches = read_rows(rows)
    next(batches)
    path.write_bytes(b"a\n2\n3\n")
    with pytest.raises(AnnotationFileError, match="was changed while"):
        list(batches)
