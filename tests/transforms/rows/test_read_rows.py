import csv
import gzip
import io
import re
import zipfile

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv as arrow_csv

from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.features import ColumnType
from recordmill.schemas.inputs.file_kinds import LFS_POINTER
from recordmill.schemas.inputs.tables import Column, RowsFile, RowsReading, rows_format
from recordmill.schemas.rejects import Reason
from recordmill.transforms.rows import read_csv, row_batch
from recordmill.transforms.rows.convert_columns import convert_column
from recordmill.transforms.rows.observe_columns import TableStats, observe
from recordmill.transforms.rows.read_json import read_json_lines
from recordmill.transforms.rows.read_rows import read_rows, read_texts
from recordmill.transforms.storage.resolve import storage_for
from recordmill.transforms.table.choose_schema import choose_schema
from recordmill.transforms.table.table_options import TableOptions


def read(path, data: bytes = b"", columns=(), encoding="utf-8", **how):
    """Columns, numbers of rows, and (number, reason) of bad ones."""
    if data:
        path.write_bytes(data)
    cells: dict = {}
    lines, bad = [], []
    for batch in read_rows(RowsFile(str(path), 0, ""), RowsReading(columns, encoding, **how)):
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
        (b'a,b,c\n\n1,,""\n\n', {"a": ["1"], "b": [None], "c": [None]}),
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
    ("data", "row"),
    [
        (b'1,"x"y,z\n', 1),
        (b'\n1,x,z\n\n2,5" disk,"z"\n3,x,"y"\r\n4,"a ""b"" c","d" \n5,x,y\n', 4),
        (b'1,"x,y\n2,"z",w\n', 1),  # a quote that is not closed
        (b'1,x,5" y\n2,"x\ny\n', 2),
        (b'1,x,y\r2,x,"say \\"hi\\""\r', 2),
        (b'1,"x\n' * 100_000, 1),
        (b'1,"a\nb",5" x\n' * 50_000 + b'1,"a""\n","y"z\n', 50_001),
    ],
)
def test_text_after_closing_quote_is_refused_with_its_row(tmp_path, monkeypatch, data, row):
    for step in (1, 7, 1 << 20) if len(data) < 1000 else (1 << 20,):
        monkeypatch.setattr(read_csv, "_BLOCK_BYTES", max(step, 200))
        monkeypatch.setattr(read_csv, "_HEAD_STEP", step)
        with pytest.raises(AnnotationFileError, match=rf"x.csv row {row:,}[ :].*(closing quote|not closed)"):
            read(tmp_path / "x.csv", b"a,b,c\n" + data)


@pytest.mark.parametrize(
    "data",
    [
        b'"a","b"\n"",""""\n"x ""y""","\n"\n',
        b'a,b\n5" disk,3""\n"x",5" by "6"\n"",y"\n',
        b'a,b\n"C:\\dir\\",x\n"\r\n""",y\n',
    ],
)
def test_strict_csv_equals_python_s_csv(tmp_path, data):
    rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
    for size in (1, 2, 3, 1 << 20):
        stream = read_csv._StrictQuotes(io.BytesIO(data), b",", b"")
        assert b"".join(iter(lambda stream=stream, size=size: stream.read(size), b"")) == data
        assert (stream.fault, stream.is_open) == ("", False)
    cells, _, _ = read(tmp_path / "x.csv", data)
    assert [list(cells), *([cell or "" for cell in row] for row in zip(*cells.values(), strict=True))] == rows


@pytest.mark.parametrize(
    ("name", "data", "how"),
    [
        ("x.csv", b"a;b\n1;x,y\n", {}),
        ("x.csv", b"sep=;\r\na;b\r\n1;x,y\r\n", {}),
        ("x.csv", b"\xef\xbb\xbfsep=\t\na\tb\n1\tx,y\n", {}),
        ("x.csv", b"a|b\r1|x,y\r", {}),  # old Macs' line ends
        ("x.csv", b"a\rb\r", {"cells": {"a": ["b"]}}),
        ("x.tsv", b"a\tb\n1\tx,y\n", {}),
        ("x.csv", b"a^b\n1^x,y\n", {"delimiter": "^"}),
        ("x.csv", b'"a;b;c",b\n1,x\n', {"cells": {"a;b;c": ["1"], "b": ["x"]}}),
    ],
)
def test_delimiters_and_line_ends(tmp_path, name, data, how):
    how = dict(how)
    expected = how.pop("cells", {"a": ["1"], "b": ["x,y"]})
    assert read(tmp_path / name, data, **how)[0] == expected


@pytest.mark.parametrize(("codec", "ending"), [("gzip", "gz"), ("bz2", "bz2"), ("zstd", "zst")])
def test_compressed_files(tmp_path, codec, ending):
    with pa.CompressedOutputStream(str(tmp_path / "packed"), codec) as out:
        out.write(b'{"a": 1}\n' * 3)
    packed = (tmp_path / "packed").read_bytes()
    assert rows_format(f"x.jsonl.{ending}") == "json"
    assert read(tmp_path / f"x.jsonl.{ending}", packed)[0] == {"a": [1, 1, 1]}
    with pytest.raises(AnnotationFileError, match="damaged or truncated"):
        read(tmp_path / f"x.jsonl.{ending}", packed[:-4])


def test_only_some_columns_and_tabs(tmp_path):
    assert read(tmp_path / "x.tsv", b"a\tb\n1\tx,y\n", ("b",)) == ({"b": ["x,y"]}, [1], [])


def test_malformed_rows_are_rejects(tmp_path):
    cells, lines, bad = read(tmp_path / "x.csv", b"a,b\n1\n\n3,4\n5,6,7\n8,9\n\xe9,x\n")
    assert (cells, lines) == ({"a": ["3", "8"], "b": ["4", "9"]}, [2, 4])
    assert sorted(bad) == [(1, Reason.MALFORMED_ROW), (3, Reason.MALFORMED_ROW), (5, Reason.NOT_TEXT)]


@pytest.mark.parametrize(
    ("row", "reasons"),
    [
        (b"caf\xe9", {2: Reason.MALFORMED_ROW}),
        (b"caf\xe9,1,2", {2: Reason.MALFORMED_ROW}),
        (b"caf\xe9,1", {2: Reason.NOT_TEXT}),
        (b'"caf\xe9\n\xff",1', {2: Reason.NOT_TEXT}),
    ],
)
def test_rows_that_are_not_utf_8_are_rejects(tmp_path, row, reasons):
    cells, _, bad = read(tmp_path / "a.csv", b"a,b\n\xc3\xa9,2\n" + row + b"\n\xef\xb7\x90e9,4\n")
    assert dict(bad) == reasons
    assert cells["a"] == ["é", "\ufdd0e9"]


def test_a_json_row_with_a_key_twice_is_a_reject(tmp_path):
    *_, bad = read(tmp_path / "a.jsonl", b'{"a": 1, "b": {"c": 2, "c": 3}}\n{"a": "x:y"}\n{"a": 1, "a": 2}\n')
    assert bad == [(1, Reason.MALFORMED_ROW), (3, Reason.MALFORMED_ROW)]


def test_a_column_of_parquet_whose_name_is_not_utf_8_is_an_error(tmp_path):
    data = io.BytesIO()
    pq.write_table(pa.table({"name": [1]}), data)
    with pytest.raises(AnnotationFileError, match=r"a\.parquet has a column whose name is not UTF-8"):
        read(tmp_path / "a.parquet", data.getvalue().replace(b"name", b"n\xe9me"))


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-be", "UTF8", "utf-8-sig"])
def test_another_encoding(tmp_path, encoding):
    data = 'é,b\r\n"ü\nö",2\r\n'.encode(encoding)
    expected = ({"é": ["ü\nö"], "b": ["2"]}, [1], [])
    assert read(tmp_path / "x.csv", data, encoding=encoding) == expected
    assert read(tmp_path / "x.csv.gz", gzip.compress(data), encoding=encoding) == expected


def test_text_not_of_encoding_is_named_with_it(tmp_path):
    with pytest.raises(AnnotationFileError, match=r"If it is not in utf-8, give its --encoding"):
        read(tmp_path / "x.csv", "a\n1\n".encode("utf-16"))
    with pytest.raises(AnnotationFileError, match=r"If it is not in utf-16"):
        read(tmp_path / "x.csv", ("a\n1\n" + "2\n" * 10_000).encode("utf-16")[:-1], encoding="utf-16")


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"\n", "must name the columns"),
        (b"a,a\n1,2\n", "'a' twice. Rename one"),
        (b"0.5,0.5,cat\n1,2,dog\n", "'0.5' twice. The first line looks like a row"),
        (b"a,\n1,2\n", "column 2 has no name"),
        (b'"a;b"\n1;2\n', "one column, 'a;b': are its cells separated by ';'[?]"),
        (b"\xe9,b\n1,2\n", "first line cannot be read"),
        (b'a,b\n1,2\n3,"4\n5,6\n', "row 2 has a quote that is not closed"),
        (b'a,b,c\n1,2,3\n1,"2,3\n4\n5', "row 2 has a quote that is not closed"),
        (
            b'a,b,c\n1,"2,3\n4,5,6\n4,5,6"\n7,8,9\n',
            "row 1 has 2 cells instead of 3, and .* 2 more lines, of which 1 look",
        ),
        ("a,b\n1,2\n".encode("utf-16-be"), "utf-16-be"),
        ("a,b\n1,2\n".encode("utf-16-le"), "utf-16-le"),
        (b'{"a": 1, "b": "x,y"}\n{"a": 2}\n', "is not a table but JSON Lines. Call it .jsonl"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS"),
        (b",".join(b"c%d" % number for number in range(100_000)) + b"\n1\n", "100,000 columns"),
        (b"a,b\n1," + b"x" * (40 << 20) + b"\n2,y\n", "longer than 16 MB"),
    ],
)
def test_csv_file_that_cannot_be_read(tmp_path, data, fault):
    with pytest.raises(AnnotationFileError, match=fault):
        read(tmp_path / "x.csv", data)


@pytest.mark.parametrize(
    ("data", "columns", "comment"),
    [
        (b"# exported by X\nid,name\n1,cat\n2,dog\n", ["id", "name"], "# exported by X"),
        (b"\xef\xbb\xbf# a, b\r\n#\r\nid;name\r\n1;cat\r\n", ["id", "name"], "# a, b\r\n#"),
        (b"# a, b\nid,name\n1,cat\n", ["id", "name"], "# a, b"),
        (b"# a,b\n1,2\n3,4\n", ["# a", "b"], ""),  # numpy's savetxt
        (b"#chrom,gene\nchr1,x\nchr1,y\n", ["#chrom", "gene"], ""),
        (b"# only this\n", ["# only this"], ""),
        (b"id,#\n1,2\n", ["id", "#"], ""),
    ],
)
def test_first_lines_that_begin_with_a_hash(tmp_path, data, columns, comment):
    (tmp_path / "x.csv").write_bytes(data)
    (batch,) = read_rows(RowsFile(str(tmp_path / "x.csv")), RowsReading())
    assert (list(batch.columns), batch.comment) == (columns, comment)


def test_comment_before_a_line_of_other_cells_than_the_rows_is_refused(tmp_path):
    with pytest.raises(AnnotationFileError, match="begins with #, the next has 2 cells, and the rows have 3"):
        read(tmp_path / "x.csv", b"# a\nb,c\n1,2,3\n4,5,6\n")


@pytest.mark.parametrize(
    ("data", "unnamed"),
    [
        (b"5.1,3.5,setosa\n4.9,3.0,setosa\n", "5.1,3.5,setosa"),
        (b"img1.jpg;cat\nimg2.jpg;dog\n", "img1.jpg;cat"),
        (b"x,red\ny,blue\nz,red\n", "x,red"),
        (b"7,red\n8,blue\n", "7,red"),
        (b"id,name\n1,cat\nid,name\n2,dog\n", ""),
        (b"country,2019,2020\nnl,1,2\n", ""),
        (b"0,1,2\n5,6,7\n", ""),  # pandas' columns without names
        (b"id,image_v1.5\n1,2\n", ""),
    ],
)
def test_first_line_that_looks_like_a_row(tmp_path, data, unnamed):
    (tmp_path / "x.csv").write_bytes(data)
    (batch,) = read_rows(RowsFile(str(tmp_path / "x.csv")), RowsReading())
    assert batch.unnamed == unnamed


def zip_of(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, "text")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "cure"),
    [
        (zip_of("[Content_Types].xml", "xl/workbook.xml"), "an Excel workbook. Save it as CSV"),
        (zip_of("docProps/app.xml", "xl/workbook.xml"), "an Excel workbook. Save it as CSV"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504), "an Excel workbook of an old version. Save it as CSV"),
        (zip_of("rows.csv"), "a .zip archive. Name the file in it, archive.zip/rows.csv"),
        (LFS_POINTER + b".github.com/spec/v1\noid sha256:4d\n", "a Git LFS pointer, not the file. Run git lfs pull"),
        (b"<!DOCTYPE html>\n<html></html>\n", "a web page. The download probably failed. Download it again"),
        (b"\x89PNG\r\n\x1a\n", "an image. Give a file of rows"),
    ],
)
@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.parquet"])
def test_file_of_another_kind_is_named_with_its_cure(tmp_path, name, data, cure):
    with pytest.raises(AnnotationFileError, match=re.escape(f"{name} is not ") + f".* but {re.escape(cure)}"):
        read(tmp_path / name, data)


@pytest.mark.parametrize(
    ("name", "data", "cure"),
    [
        ("x.parquet", b"a,b\n1,2\n", "CSV. Call it .csv"),
        ("x.parquet", b'{"a": 1}\n{"a": 2}\n', "JSON Lines. Call it .jsonl"),
        ("x.parquet", gzip.compress(b"PAR1", mtime=0), "compressed by gzip. Unpack it"),
        ("x.csv", b"PAR1\x15\x04", "a Parquet table. Call it .parquet"),
    ],
)
def test_ending_of_another_format_of_rows_is_named(tmp_path, name, data, cure):
    with pytest.raises(AnnotationFileError, match=re.escape(f"but {cure}")):
        read(tmp_path / name, data)


def test_a_file_cut_short(tmp_path):
    whole = gzip.compress(b"a,b\n" + b"1,2\n" * 1000)
    with pytest.raises(AnnotationFileError, match="damaged or truncated"):
        read(tmp_path / "x.csv.gz", whole[:-20])
    pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "x.parquet")
    with pytest.raises(AnnotationFileError, match="not a Parquet file"):
        read(tmp_path / "x.parquet", (tmp_path / "x.parquet").read_bytes()[:-20])


def test_json_lines(tmp_path):
    data = b'{"a": 1, "b": {"c": "x"}}\n\nnot json\n[1]\n{"b": {"c": null}, "b.c": 1}\n{"d": [1, 2], "a": null}\n'
    cells, lines, bad = read(tmp_path / "x.jsonl", data)
    assert cells == {"a": [1, None], "b.c": ["x", None], "d": [None, [1, 2]]}
    assert (lines, bad) == ([1, 6], [(line, Reason.MALFORMED_ROW) for line in (3, 4, 5)])


def test_half_of_surrogate_pair_is_no_text(tmp_path):
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
        ([[{"b": 1}, {"a": 2}], ["x"], []], ColumnType.BYTES, [[b'{"b":1}', b'{"a":2}'], [b"x"], []]),
        ([7, 1.5, "x"], ColumnType.BYTES, [[b"7"], [b"1.5"], [b"x"]]),  # Arrow takes it for 7.0 beside 1.5
        ([7, 1.5, None, 2.0], ColumnType.FLOAT, [[7.0], [1.5], None, [2.0]]),
        ([1 << 64, 1.5], ColumnType.FLOAT, [[float(1 << 64)], [1.5]]),
        ([(1 << 53) + 1, 0.5], ColumnType.FLOAT, [[float(1 << 53)], [0.5]]),
    ],
)
def test_json_of_mixed_types_is_same_in_any_batches(values, type_, texts):
    data = b"".join(msgspec.json.encode({"a": value}) + b"\n" for value in values)
    examples = []
    for batch_rows in (1, 9):
        batches = list(read_json_lines("x.jsonl", io.BytesIO(data), RowsReading(), batch_rows))
        stats = TableStats()
        for batch in batches:
            stats.add(observe(batch, 0))
        options = TableOptions(data=("x.jsonl",), output="out")
        chosen = choose_schema(stats, options, {}, None, (RowsFile("x.jsonl", 0, ""),))
        (column,) = chosen.schema.columns
        cells_by_line = {}
        for batch in batches:
            (feature, faults) = convert_column(column, batch.columns.get("a"), len(batch.lines), {})
            assert not faults
            ends = zip(feature.ends, feature.ends[1:], strict=False)
            cells = [list(feature.values[begin:end].tolist()) for begin, end in ends]
            absent = [False] * len(cells) if feature.absent is None else feature.absent
            lines_and_cells = zip(batch.lines.tolist(), cells, absent, strict=True)
            cells_by_line |= {line: None if gone else cell for line, cell, gone in lines_and_cells}
        assert (column.type, [cells_by_line[line] for line in sorted(cells_by_line)]) == (type_, texts)
        assert bool(chosen.warnings) == (type_ is ColumnType.BYTES or (1 << 53) + 1 in values), "it is told"
        examples.append(stats.columns["a"].first)
    assert examples[0] == examples[1], "of the same rows"


@pytest.mark.parametrize("batch_rows", [1, 9])
def test_list_in_column_of_texts_is_its_json(batch_rows):
    """Whatever the types beside it, which decide how a batch holds its lists."""
    values = [[[1], [2, 3]], [[2.5, "x"]], [1, "é"], None, 7]
    data = b"".join(msgspec.json.encode({"a": value}) + b"\n" for value in values)
    batches = read_json_lines("x.jsonl", io.BytesIO(data), RowsReading(texts=("a",)), batch_rows)
    features = [
        convert_column(Column("a", "a", ColumnType.BYTES), b.columns.get("a"), len(b.lines), {}) for b in batches
    ]
    texts = [text for feature, _ in features for text in feature.values.to_pylist()]
    assert texts == [b"[[1],[2,3]]", b'[[2.5,"x"]]', '[1,"é"]'.encode(), b"7"]


def test_list_keeps_values_of_other_rows(tmp_path):
    """Columns beside a list may be keys, and keep their types."""
    data = b'{"a": "x", "b": [1]}\n{"a": ["y"], "b": 2}\n{\n{"a": null, "b": 3}\n{"a": "z"}\n'
    batches = list(read_json_lines("x.jsonl", io.BytesIO(data), RowsReading(), 9))
    values_by_line = {
        line: cell for batch in batches for line, cell in zip(batch.lines, batch.columns["a"].to_pylist(), strict=True)
    }
    assert values_by_line == {1: "x", 2: ["y"], 4: None, 5: "z"}
    assert [row.line for batch in batches for row in batch.bad] == [3]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b'[{"a": 1}]', "one JSON array"),
        (LFS_POINTER + b".github.com/spec/v1\noid sha256:4d\n", "is not JSON but a Git LFS pointer"),
        ('{"a": 1}'.encode("utf-16"), "is not JSON but text in UTF-16. Save it as UTF-8"),
        (b'{\r\n  "a": 1\r\n}\r\n', "JSON value over several lines"),
        (b'{"id": {"0": 1, "1": 2}, "x": {"0": 1.5, "1": null}}', "columns of a data frame instead of rows"),  # pandas
        (b'{"columns": ["a"], "index": [0], "data": [[1]]}', "columns of a data frame instead of rows"),
        (
            b"".join(b'{"a": {"b": {"k%d": 1}}}\n' % number for number in range(1001)),
            "line 1,000: column 'a.b' is an object with 1,000 different keys",
        ),
    ],
)
def test_json_not_one_object_line_is_named(tmp_path, data, fault):
    with pytest.raises(AnnotationFileError, match=fault):
        read(tmp_path / "x.json", data)


def test_object_with_many_keys_may_be_left_out(tmp_path):
    data = b"".join(b'{"a": {"k%d": 1}, "b": 1}\n' % number for number in range(1001))
    assert read(tmp_path / "x.jsonl", data, columns=("b",))[0] == {"b": [1] * 1001}


def test_nan_in_json_is_number_as_in_other_files(tmp_path):
    data = b'{"x": 1.5}\n{"x": NaN}\n{"x": -Infinity, "y": "\\ud800"}\n{"x": Nan}\n'
    cells, lines, bad = read(tmp_path / "x.jsonl", data)
    assert (str(cells), lines) == ("{'x': [1.5, nan]}", [1, 2])
    assert bad == [(3, Reason.MALFORMED_ROW), (4, Reason.MALFORMED_ROW)]
    data = b'{"kind": NaN, "x": NaN}\n{"kind": "cat", "x": "y"}\n'  # a name is missing, a text is nan
    assert read(tmp_path / "x.jsonl", data, names=("kind",))[0] == {"kind": [None, "cat"], "x": ["nan", "y"]}


def parquet(path, columns: dict, names=(), metadata=None):
    """The columns of a file, its bad rows, and the names that numbers stand for."""
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path, use_deprecated_int96_timestamps=False)
    (batch,) = read_rows(RowsFile(str(path), 0, ""), RowsReading(names=names))
    cells = {name: array.to_pylist() for name, array in batch.columns.items()}
    return cells, [(row.line, row.reason) for row in batch.bad], batch.names


@pytest.mark.parametrize(
    ("array", "cells"),
    [
        (pa.ListArray.from_arrays([0, 1, 3], pa.array(["u", "v", "u"]).dictionary_encode()), [["u"], ["v", "u"]]),
        (pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2)), [[1.0, 2.0], None, [3.0, 4.0]]),
        (pa.array([[1], None, [2, 3]], pa.large_list(pa.int8())), [[1], None, [2, 3]]),
        (pa.array(["u" * 20, None], pa.string_view()), ["u" * 20, None]),
        (pa.array([b"\xff" * 20, None], pa.binary_view()), [b"\xff" * 20, None]),
        (
            pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12, dtype=np.float32).reshape(2, 2, 3)),
            [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]],
        ),
        (
            pa.ExtensionArray.from_storage(
                pa.fixed_shape_tensor(pa.int8(), (1, 2)), pa.array([[1, 2], None], pa.list_(pa.int8(), 2))
            ),
            [[[1, 2]], None],
        ),
    ],
)
def test_types_of_arrow(tmp_path, array, cells):
    enum = pa.array(["u"] * len(cells)).dictionary_encode()
    enums = pa.ListArray.from_arrays(range(len(cells) + 1), enum)
    pq.write_table(pa.table({"a": array, "e": enum, "l": enums}), tmp_path / "x.parquet")
    (batch,) = read_rows(RowsFile(str(tmp_path / "x.parquet"), 0, ""), RowsReading())
    assert batch.columns["a"].to_pylist() == cells
    assert pa.types.is_dictionary(batch.columns["e"].type)
    assert pa.types.is_dictionary(batch.columns["l"].type.value_type)


SECONDS = pa.array([5, None, 6], pa.duration("s"))
ENUM = pa.array(["u", "v", "u"]).dictionary_encode()


@pytest.mark.parametrize(
    ("array", "type_"),
    [
        (SECONDS, pa.duration("s")),
        (pa.array([5000, None, 6000], pa.duration("ns")), pa.duration("ns")),
        (pa.ListArray.from_arrays([0, 1, 1, 3], SECONDS), pa.large_list(pa.duration("s"))),
        (pa.array([0, None, 1], pa.timestamp("us", "Europe/Berlin")), pa.timestamp("us", "Europe/Berlin")),
        (ENUM, pa.dictionary(pa.int32(), pa.large_string())),
        (pa.ListArray.from_arrays([0, 1, 1, 3], ENUM), pa.large_list(pa.dictionary(pa.int32(), pa.large_string()))),
    ],
)
@pytest.mark.parametrize("fixed", [{}, {"f": pa.array([[1], None, [2]], pa.list_(pa.int8(), 1))}])
def test_types_hold_in_several_row_groups_and_beside_lists_of_fixed_size(tmp_path, array, type_, fixed):
    struct = pa.StructArray.from_arrays([array], ["m"])
    pq.write_table(pa.table({"a": array, "s": struct} | fixed), tmp_path / "x.parquet", row_group_size=1)
    (batch,) = read_rows(RowsFile(str(tmp_path / "x.parquet"), 0, ""), RowsReading())
    for name in ("a", "s.m"):
        assert batch.columns[name].type == type_
        assert batch.columns[name].to_pylist() == array.to_pylist()


@pytest.mark.parametrize("columns", [(), ("kind",)])
@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.parquet"])
def test_columns_in_names_of_folders_are_read(tmp_path, name, columns):
    path = write_rows(tmp_path / name, {"x": [1, 2]})
    file = RowsFile(path, partitions=(("kind", "cat"), ("year", 2026), ("gone", None)))
    (batch,) = read_rows(file, RowsReading(columns))
    assert {name: array.to_pylist() for name, array in batch.columns.items() if name != "x"} == (
        {"kind": ["cat", "cat"]} if columns else {"kind": ["cat", "cat"], "year": [2026, 2026], "gone": [None, None]}
    )


@pytest.mark.parametrize(
    ("cells", "value", "result"),
    [
        ([1, 1], 1, [1, 1]),
        ([1.0, None], 1, [1, 1]),
        (["cat", "cat"], "cat", ["cat", "cat"]),
        ([None, None], "cat", ["cat", "cat"]),
        ([1, 2], 1, "2"),
        (["cat", "dog"], "cat", "'dog'"),
        (["cat", "cat"], None, "'cat'"),
        (["x", "x"], 1, "'x'"),
    ],
)
@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.parquet"])
def test_column_of_file_has_the_value_of_its_folder(tmp_path, name, cells, value, result):
    file = RowsFile(write_rows(tmp_path / name, {"n": [1, 2], "k": cells}), partitions=(("k", value),))
    if isinstance(result, list):
        (batch,) = read_rows(file, RowsReading())
        values = batch.columns["k"].to_pylist()
        assert values == (list(map(str, cells)) if name == "x.csv" and None not in cells else result)
        return
    with pytest.raises(AnnotationFileError, match=rf"column k has .*{result}.*, and the folder k={value} says another"):
        list(read_rows(file, RowsReading()))


def write_rows(path, columns: dict[str, list]) -> str:
    """A table as a file of the format that its name says."""
    table = pa.table(columns)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".jsonl":
        path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in table.to_pylist()))
    else:
        arrow_csv.write_csv(table, path)
    return str(path)


def test_timestamps_of_spark_do_not_wrap(tmp_path):
    """Spark's timestamps have 96 bits, and Arrow reads them as nanoseconds by default."""
    table = pa.table({"t": pa.array([253_402_300_799_000_000], pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "x.parquet", use_deprecated_int96_timestamps=True)
    (batch,) = read_rows(RowsFile(str(tmp_path / "x.parquet"), 0, ""), RowsReading())
    assert batch.columns["t"].cast(pa.int64()).to_pylist() == [253_402_300_799_000_000]


def test_names_are_texts_and_nan_is_none(tmp_path):
    columns = {
        "kind": pa.array([b"a", b"\xff", b"\xfe", b"b"]),
        "n": [1.0, 2.0, 3.0, float("nan")],
        "raw": [b"\xff"] * 4,
    }
    cells, bad, _ = parquet(tmp_path / "x.parquet", columns, ("kind", "n"))
    assert cells == {"kind": ["a", "b"], "n": [1.0, None], "raw": [b"\xff"] * 2}
    assert bad == [(2, Reason.NOT_TEXT), (3, Reason.NOT_TEXT)]
    path = tmp_path / "images.parquet"
    pq.write_table(pa.table({"image": [b"\x89PNG\r\n\x1a\n"]}), path)
    (batch,) = read_rows(RowsFile(str(path), 0, ""), RowsReading(names=("image",)))
    assert "Without --images" in batch.bad[0].detail


def test_numbers_of_class_label_are_names(tmp_path):
    features = {"label": {"names": ["dog", "cat", "bird"], "_type": "ClassLabel"}, "x": {"_type": "Value"}}
    metadata = {"huggingface": msgspec.json.encode({"info": {"features": features}})}
    columns = {"label": [1, 0, -1, None, 3], "x": [1, 2, 3, 4, 5]}
    cells, bad, names = parquet(tmp_path / "x.parquet", columns, metadata=metadata)
    assert cells == {"label": ["cat", "dog", None, None], "x": [1, 2, 3, 4]}
    assert (bad, names) == ([(5, Reason.UNKNOWN_CLASS)], {"label": ("dog", "cat", "bird")})


def test_class_labels_in_lists_and_structs_are_names(tmp_path):
    of = {"names": ["dog", "cat"], "_type": "ClassLabel"}
    features = {"tags": {"feature": of, "_type": "List"}, "objects": {"feature": {"category": of}}, "old": [of]}
    metadata = {"huggingface": msgspec.json.encode({"info": {"features": features}})}
    columns = {"tags": [[1, 0], None, [2]], "objects": [{"category": [1]}] * 3, "old": [[], [0], [1]]}
    cells, bad, _ = parquet(tmp_path / "x.parquet", columns, metadata=metadata)
    assert cells == {"tags": [["cat", "dog"], None], "objects.category": [["cat"]] * 2, "old": [[], ["dog"]]}
    assert bad == [(3, Reason.UNKNOWN_CLASS)]


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


def test_types_of_parquet_without_python_type(tmp_path):
    fine = pa.array([[1_500], None], pa.list_(pa.timestamp("ns", "UTC")))
    pairs = pa.array([[1.5, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2))
    pq.write_table(
        pa.table({"t": fine, "t0": pa.array([1_500, None], pa.timestamp("ns")), "p": pairs}), tmp_path / "x.parquet"
    )
    (batch,) = read_rows(RowsFile(str(tmp_path / "x.parquet"), 0, ""), RowsReading())
    assert batch.cut == {"t": 1, "t0": 1}
    assert {name: array.type for name, array in batch.columns.items()} == {
        "t": pa.large_list(pa.timestamp("us", "UTC")),
        "t0": pa.timestamp("us"),
        "p": pa.large_list(pa.float32()),
    }
    assert batch.columns["t0"].cast(pa.int64()).to_pylist() == [1, None]
    assert batch.columns["p"].to_pylist() == pairs.to_pylist()


def test_cell_no_record_could_hold_is_reject(tmp_path, monkeypatch):
    monkeypatch.setattr(row_batch, "MAX_RECORD_BYTES", 10)
    cells, bad, _ = parquet(
        tmp_path / "x.parquet", {"n": [1, 2, 3], "s": ["a", "b" * 11, "c"], "b": [b"", b"", b"d" * 12]}
    )
    assert (cells, bad) == (
        {"n": [1], "s": ["a"], "b": [b""]},
        [(2, Reason.RECORD_TOO_LARGE), (3, Reason.RECORD_TOO_LARGE)],
    )


def test_parquet_texts_not_in_utf_8(tmp_path):
    values = pa.array([b"a", b"\xff", b"b", b"\xfe"])
    texts = pa.StringArray.from_buffers(4, *values.buffers()[1:])
    columns = {"n": [1, 2, 3, 4], "s": texts, "l": pa.ListArray.from_arrays([0, 1, 2, 3, 4], texts)}
    columns["o"] = pa.ListArray.from_arrays([0, 1, 2, 3, 4], pa.StructArray.from_arrays([texts], ["x"]))
    columns["e"] = texts.slice(1).dictionary_encode().take(pa.array([1, 0, 1, 1]))
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    cells, lines, bad = read(tmp_path / "x.parquet")
    assert cells == {
        "n": [1, 3],
        "s": ["a", "b"],
        "l": [["a"], ["b"]],
        "o": [[{"x": "a"}], [{"x": "b"}]],
        "e": ["b", "b"],
    }
    assert (lines, bad) == ([1, 3], [(2, Reason.NOT_TEXT), (4, Reason.NOT_TEXT)])


def test_fields_of_labels_in_parquet_that_are_not_utf_8_are_rejects(tmp_path):
    values = pa.array([b"a", b"\xff", b"b", b"\xfe"])
    texts = pa.StringArray.from_buffers(4, *values.buffers()[1:])
    pq.write_table(pa.table({"name": ["1", "2", "3", None], "s": texts}), tmp_path / "x.parquet")
    _, rows = read_texts(str(tmp_path / "x.parquet"), lambda _: ["name"])
    assert [(row.cells, row.fault) for row in rows] == [(("1",), ""), (("2",), ""), (("3",), ""), (("",), "")]
    _, rows = read_texts(str(tmp_path / "x.parquet"), lambda _: ["name"], has_values=True)
    assert [(row.cells, dict(row.values)) for row in rows] == [
        (("1",), {"s": "a"}),
        ((), {}),
        (("3",), {"s": "b"}),
        ((), {}),
    ]


@pytest.mark.parametrize(
    "table",
    [pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a.b", "a.b"]), pa.table({"a": [{"b": 1}], "a.b": [2]})],
)
def test_name_of_two_columns_of_parquet_is_named(tmp_path, table):
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(AnnotationFileError, match=r"names the column 'a\.b' twice. Rename one"):
        read(tmp_path / "x.parquet")


def test_file_that_changes_while_it_is_read_is_not_mixed(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"a\n1\n")
    file = storage_for(str(path)).stat(str(path))
    rows = RowsFile(str(path), file.size_bytes, file.version)
    assert len(list(read_rows(rows, RowsReading()))) == 1
    batches = read_rows(rows, RowsReading())
    next(batches)
    path.write_bytes(b"a\n2\n3\n")
    with pytest.raises(AnnotationFileError, match="was changed while"):
        list(batches)
