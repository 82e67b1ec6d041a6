import csv
import gzip
import sys
from fractions import Fraction
from unicodedata import normalize

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.inputs.images import LABEL_COLUMNS, PATH_COLUMNS, SPLIT_COLUMNS, LabelColumns
from recordmill.schemas.inputs.splits import Division, SplitShares
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.folder import read_labels as module
from recordmill.transforms.folder.read_labels import LabelRow, LabelTable, label_rows, read_labels, table_splits
from tests.transforms.dataset.kinds import SplitReject, listed
from tests.transforms.folder.rows import Row, rows_in

USUAL = LabelColumns()
ALL_TRAIN = Division(SplitShares((("train", Fraction(1)),)))
HALVES = Division(SplitShares((("a", Fraction(1, 2)), ("b", Fraction(1, 2)))))


@pytest.fixture
def rows(tmp_path):
    """Reads a table of these bytes."""

    def read(data: bytes | str, columns: LabelColumns = USUAL) -> list[LabelRow]:
        path = tmp_path / "labels.csv"
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return list(label_rows(str(path), columns))

    return read


def good(line: int, path: str, label: str, split: str | None = None) -> LabelRow:
    return LabelRow(line, path, label, split, "")


TWO = [good(2, "a.jpg", "cat"), good(3, "b c.jpg", "dog")]


# Forms of tables


@pytest.mark.parametrize(
    "table",
    [
        "path,label\na.jpg,cat\nb c.jpg,dog\n",
        "path,label\na.jpg,cat\nb c.jpg,dog",
        "path,label\r\na.jpg,cat\r\nb c.jpg,dog\r\n",
        "path,label\ra.jpg,cat\rb c.jpg,dog\r",
        "path;label\na.jpg;cat\nb c.jpg;dog\n",
        "path\tlabel\na.jpg\tcat\nb c.jpg\tdog\n",
        "\ufeffpath,label\na.jpg,cat\nb c.jpg,dog\n",
        '\ufeff"path";"label"\r\n"a.jpg";"cat"\r\n"b c.jpg";"dog"\r\n',
        "label,more,path\ncat,,a.jpg\ndog,x,b c.jpg\n",
        " Path , LABEL \n a.jpg , cat \nb c.jpg,dog \n",
        "path,label,more\na.jpg,cat\nb c.jpg,dog,x,y,z\n",
    ],
    ids=[
        *("plain", "no last line break", "windows", "old mac", "semicolons", "tabs", "byte order mark", "excel"),
        *("other order", "spaces and case", "short and long rows"),
    ],
)
def test_tables_of_two_images(rows, table):
    assert rows(table) == TWO


@pytest.mark.parametrize(
    ("table", "columns", "split"),
    [
        *((f"x,{column.upper()},label\n,a.jpg,cat\n", USUAL, None) for column in PATH_COLUMNS[-2:]),
        *((f"x,{column.title()},path\n,cat,a.jpg\n", USUAL, None) for column in LABEL_COLUMNS[-2:]),
        *((f"{column},path,label\nval,a.jpg,cat\n", USUAL, "val") for column in SPLIT_COLUMNS[-2:]),
        ("id,class,file_name,label\n17,xx,a.jpg,cat\n", USUAL, None),  # the first usual name counts
        ("Bild,Klasse\na.jpg,cat\n", LabelColumns("Bild", "Klasse"), None),
        ("path,Klasse\na.jpg,cat\n", LabelColumns(label="Klasse"), None),
        (" Bild , label\na.jpg,cat\n", LabelColumns(path="Bild"), None),
        ("path,label,split,image,breed,fold\nx,y,z,a.jpg,cat,2\n", LabelColumns("image", "breed", "fold"), "2"),
        *((f"path,label,split\na.jpg,cat,{split}\n", USUAL, "train") for split in ("TRAIN", "Train", " train ")),
    ],
)
def test_columns(rows, table, columns, split):
    assert rows(table, columns) == [good(2, "a.jpg", "cat", split)]


@pytest.mark.parametrize(
    ("header", "columns", "told"),
    [
        (
            "Bild,label",
            USUAL,
            "has no column of paths (path, image, image_path, image_uri, filename, file_name, file, name, id); its "
            "first line has 'Bild', 'label': name the column with --path-column",
        ),
        (
            "path,Klasse",
            USUAL,
            "has no column of labels (label, class, class_name, category, target); its first line has 'path', 'Klasse'"
            ": name the column with --label-column",
        ),
        (
            "path,label",
            LabelColumns(path="Bild"),
            "has no column called 'Bild'; its first line has 'path', 'label': name the column with --path-column",
        ),
        (
            "path,label",
            LabelColumns(split="set"),
            "has no column called 'set'; its first line has 'path', 'label': name the column with --split-column",
        ),
        (
            "",
            USUAL,
            "has no column of paths (path, image, image_path, image_uri, filename, file_name, file, name, id); its "
            "first line has none: name the column with --path-column",
        ),
    ],
)
def test_missing_columns(rows, tmp_path, header, columns, told):
    with pytest.raises(AnnotationFileError) as caught:
        rows(f"{header}\na.jpg,cat\n", columns)
    assert str(caught.value) == f"{tmp_path}/labels.csv {told}"


def test_table_without_rows_has_none(rows):
    assert rows("path,label\n") == rows("path,label") == []


# Quotes and line numbers


def test_fields_in_quotes_hold_delimiters_quotes_and_line_breaks(rows):
    table = 'path,label,more\n"a, b.jpg","cat ""Tom""","\n"\n"c\nd.jpg","dog, or cat","x\r\ny"\ne.jpg,cow\n'
    assert rows(table) == [
        good(2, "a, b.jpg", 'cat "Tom"'),
        good(4, "c\nd.jpg", "dog, or cat"),
        good(7, "e.jpg", "cow"),
    ]


def test_lines_are_counted_as_editor_counts_them(rows):
    table = 'path,label\n\na.jpg,cat\n,cat\n"b\n\nc.jpg",dog\n\n\nd.jpg,cow\n'
    assert {row.path: row.line for row in rows(table)} == {"a.jpg": 3, "": 4, "b\n\nc.jpg": 5, "d.jpg": 10}


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_row_s_line_is_that_on_which_it_begins(rows, line_break):
    table = line_break.join(["path,label", '"a', 'b.jpg",cat', "b.jpg,", "c.jpg,dog", ""])
    assert [row.line for row in rows(table)] == [2, 4, 5]
    with pytest.raises(AnnotationFileError, match=r"labels\.csv line 6 cannot be read as CSV"):
        rows(table + line_break.join(['"d', 'd.jpg"x,cat', ""]))


@pytest.mark.parametrize("blank", [",", " , ,", '" ","\n"'])
def test_rows_whose_fields_are_all_blank_are_passed_over(rows, blank):
    """As spreadsheets leave them below a table; but a row with anything in it is somebody's."""
    assert rows(f"path,label\na.jpg,cat\n{blank}\n{blank}\n") == [good(2, "a.jpg", "cat")]
    found = rows(f"path,label,split\n{blank}\na.jpg,cat,val\n,,val\n")
    lines = 1 + blank.count("\n")
    assert found[0] == good(2 + lines, "a.jpg", "cat", "val")
    assert (found[1].line, found[1].fault) == (3 + lines, "it has no path")


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            *[
                st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1).filter(
                    lambda text: text == text.strip()
                )
            ]
            * 2
        )
    )
)
def test_whatever_standard_library_writes_is_read_as_it_was(rows, tmp_path, delimiter, labels):
    with (tmp_path / "written.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([("path", "label"), *labels])
    found = rows((tmp_path / "written.csv").read_bytes())
    composed = [(path, normalize("NFC", label), "") for path, label in labels]
    assert [(row.path, row.label, row.fault) for row in found] == composed


# Rows that cannot be used


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (",cat,train", "it has no path"),
        (" ,cat,train", "it has no path"),
        ("a.jpg", "'a.jpg' has no label"),
        ("a.jpg,cat", "'a.jpg' has no split"),
        (
            "a.jpg,cat,Hold-Out",
            "'a.jpg' is of split 'hold-out', which must be letters, digits and _: it is part of file names",
        ),
        ("a.jpg,cat,ALL", "'a.jpg' is of split 'all', which is what TFDS calls all splits together"),
    ],
)
def test_row_that_lacks_something_is_named(rows, row, fault):
    found = rows(f"path,label,split\n{row}\nb.jpg,dog,val\n")
    assert [found[0].line, found[0].fault] == [2, fault]
    assert found[1] == good(3, "b.jpg", "dog", "val")


@pytest.mark.parametrize("label", ["cat\ndog", "c\x00t", "c\x9bt"])
def test_label_with_control_character_is_malformed(rows, label):
    """It would break a line of labels.csv, or steer a terminal."""
    if "\0" in label and sys.version_info < (3, 11):
        pytest.skip("csv of Python 3.10 reads no NUL")
    found = rows(f'path,label\na.jpg,"{label}"\nb.jpg,dog\n')
    assert found[0].fault == f"'a.jpg' has a label with a control character, {label!r}"
    assert found[1][1:] == ("b.jpg", "dog", None, "")


@pytest.mark.parametrize(
    ("label", "read_as"),
    [
        *((label, "\u00e9") for label in ("e\u0301", "\u00e9", " e\u0301 ")),
        *((label, label) for label in ("big\u00a0cat", "👩\u200d🚀", "a/b")),
    ],
)
def test_good_labels(rows, label, read_as):
    assert rows(f"path,label\na.jpg,{label}\n") == [good(2, "a.jpg", read_as)]


# Files that are no tables


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            b"path,label\ncaf\xe9.jpg,cat\n",
            r"labels\.csv is not UTF-8 \(invalid continuation byte in line 2, at byte 14\); save it as UTF-8$",
        ),
        (
            "path,label\na.jpg,cat\n".encode("utf-16"),
            r"labels\.csv is not UTF-8 \(invalid start byte in line 1, at byte 0\); save it as UTF-8$",
        ),
        (
            b'path,label\n"a.jpg,cat\nb.jpg,dog\n',
            r"labels\.csv line 2 cannot be read as CSV \(unexpected end of data\); is a quote not closed",
        ),
        (b'path,label\n"a.jpg"x,cat\n', r"labels\.csv line 2 cannot be read as CSV \(',' expected after '\"'\)"),
        (b"path,label,path\na.jpg,cat,b.jpg\n", r"labels\.csv has two columns 'path'; rename one"),
        (
            b"path,label\n" + b"x" * (1 << 20) + b"x,cat\n",
            r"labels\.csv line 2 cannot be read as CSV \(field larger than",
        ),
    ],
    ids=["latin-1", "utf-16", "unclosed quote", "text after a quote", "a column twice", "a field of a megabyte"],
)
def test_what_is_no_table_is_named_by_its_name(rows, data, told):
    with pytest.raises(AnnotationFileError, match=told):
        rows(data)


def test_a_table_may_be_compressed(rows, tmp_path):
    table = "path,label,split\na.jpg,cat,val\n"
    assert rows(gzip.compress(table.encode())) == rows(table)
    rows(gzip.compress(table.encode()))
    assert table_splits(str(tmp_path / "labels.csv"), USUAL) == ("val",)
    with pytest.raises(AnnotationFileError, match="cut short"):
        rows(gzip.compress(table.encode())[:-1])
    with pytest.raises(AnnotationFileError, match=r"in line 2, at byte 11\)"):
        rows(gzip.compress(b"path,label\n\xff.jpg,cat\n"))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ('{"images": [], "annotations": []}', r"is COCO's JSON; recordmill coco"),
        ("<annotation></annotation>", "is Pascal VOC's XML"),
        ("0 0.5 0.5 0.1 0.1\n", "is YOLO's text"),
    ],
)
def test_what_is_file_of_another_kind_is_named(rows, data, what):
    with pytest.raises(AnnotationFileError, match=what):
        rows(data)


def test_first_line_without_end_is_not_read_whole(rows):
    with pytest.raises(AnnotationFileError, match="no column of paths") as caught:
        rows("x" * (3 << 20))
    assert len(str(caught.value)) < 1 << 21


def test_long_fields_are_read(rows):
    label = "x" * (1 << 20)
    assert rows(f"path,label\na.jpg,{label}\n") == [good(2, "a.jpg", label)]


def test_nul_is_error_or_name_rejected(rows, tmp_path):
    """Python 3.10's csv gives up at it."""
    table = "path,label\na\0.jpg,cat\n"
    if sys.version_info < (3, 11):
        with pytest.raises(AnnotationFileError, match="cannot be read as CSV"):
            rows(table)
    else:
        rows(table)
        (found,) = read(tmp_path / "labels.csv")
        assert found.reject.reason is Reason.UNSAFE_FILE_NAME


def test_where_file_stops_being_utf_8_is_named_from_its_beginning(rows):
    data = b"path,label\n" + b"a.jpg,cat\n" * 3000
    with pytest.raises(AnnotationFileError, match=rf"in line 3002, at byte {len(data)}\)"):
        rows(data + b"\xff.jpg,cat\n")


# Splits of a table


@pytest.mark.parametrize(
    ("table", "splits"),
    [
        ("path,label\na.jpg,cat\n", None),
        ("path,label\na.jpg,\n", None),
        ("path,label,split\na.jpg,cat,val\nb.jpg,cat,TRAIN\nc.jpg,dog,train\n", ("train", "val")),
        ("path,label,split\na.jpg,cat,val\nb.jpg,,train\nc.jpg,dog,\nd.jpg,dog,x-y\n", ("val",)),
        ("path,label,split\na.jpg,,val\n", ()),
        ("path,label,split\n", ()),
        ("path,label\n", None),
        ("path,label,split\n,,\n", ()),
    ],
)
def test_splits_of_table_are_rows_that_can_be_used(tmp_path, table, splits):
    (tmp_path / "labels.csv").write_text(table)
    assert table_splits(str(tmp_path / "labels.csv"), USUAL) == splits


# Image rows


def read(path, *folders: str, division: Division = ALL_TRAIN, splits: tuple[str, ...] = ("train",)) -> list:
    """Image rows, then rejects."""
    builder = FactsBuilder()
    blocks = list(read_labels(LabelTable(str(path), USUAL, folders), division, splits, builder))
    return [row for block in blocks for row in rows_in(block, splits)] + listed(builder.build())


def test_read_labels(tmp_path, monkeypatch):
    """However many lines are read at a time."""
    table = tmp_path / "labels.csv"
    table.write_text("path,label\ncat/1.jpg,cat\ncat/2.jpg,\n../3.jpg,cat\n./x//e\u0301.jpg,dog\n")
    rejects = [
        Rejected("image", None, Reason.MALFORMED_IMAGE, "labels.csv line 3: 'cat/2.jpg' has no label"),
        Rejected("image", None, Reason.UNSAFE_FILE_NAME, "labels.csv line 4: the path '../3.jpg' has .. in it"),
    ]
    rows = [Row("cat/1.jpg", "cat", "train"), Row("x/\u00e9.jpg", "dog", "train")]
    for lines in (1, 2, 3, 10_000):
        monkeypatch.setattr(module, "_LINES_AT_ONCE", lines)
        assert read(table) == [*rows, *(SplitReject("train", reject) for reject in rejects)]
    table.write_text("path,label\n")
    assert read(table) == []


FOLDERS = "images/", "images/deep", "/data/images", "gs://bucket/images", "photos.zip", "./here"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        # `images/a.jpg` in `images` is a folder of that name in it.
        ("a.jpg", "a.jpg"),
        ("x//y/./a.jpg", "x/y/a.jpg"),
        *((path, path) for path in ("images", "images/deep/a.jpg", "photos.zip/x/a.jpg", "here/a.jpg")),
        ("./images/a.jpg", "images/a.jpg"),
        # Absolute paths are relative to the innermost folder that they are in.
        ("/data/images/x/a.jpg", "x/a.jpg"),
        ("/data/./images/x/../a.jpg", "a.jpg"),
        ("/data/images/images/a.jpg", "images/a.jpg"),
        ("gs://bucket//images/./x/a.jpg", "x/a.jpg"),
        ("{here}/images/a.jpg", "a.jpg"),
        ("{here}/images/deep/a.jpg", "a.jpg"),
        ("{here}/images/deeper/a.jpg", "deeper/a.jpg"),
        ("{here}/photos.zip/x/a.jpg", "x/a.jpg"),
        ("{here}/here/a.jpg", "a.jpg"),
    ],
)
def test_names(tmp_path, monkeypatch, path, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "labels.csv").write_text(f"path,label\n{path.format(here=tmp_path)},cat\n")
    found = read(tmp_path / "labels.csv", *FOLDERS, division=HALVES, splits=HALVES.names)
    assert found == [Row(name, "cat", HALVES.split_of(name))]


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("../x.jpg", "has .. in it"),
        ("images/../x.jpg", "has .. in it"),
        ("/data/images/../x.jpg", "is an absolute path"),
        ("/data/imagesx/x.jpg", "is an absolute path"),
        ("/data/images", "is an absolute path"),
        ("gs://bucket/images/../x.jpg", "is a URL"),
        ("gs://bucket/imagesx/x.jpg", "is a URL"),
        ("cat\\..\\..\\x.jpg", "has .. in it"),
        ('"a\nb.jpg"', "has a control character"),
    ],
)
def test_unsafe_paths(tmp_path, path, fault):
    (tmp_path / "labels.csv").write_text(f"path,label\n{path},cat\nb.jpg,cat\n")
    row, (split, reject) = read(tmp_path / "labels.csv", *FOLDERS)
    assert (split, reject.what, reject.id, reject.reason) == ("train", "image", None, Reason.UNSAFE_FILE_NAME)
    assert reject.detail.endswith(f": the path {path.strip(chr(34))!r} {fault}")
    assert row == Row("b.jpg", "cat", "train")


GROUPS = Division(HALVES.shares, "p[0-9]+")
NO_GROUP = Rejected(
    "image", None, Reason.NO_GROUP, "labels.csv line 3: the path 'c.jpg' has nothing that --group-from p[0-9]+ finds"
)


@pytest.mark.parametrize(
    ("table", "division", "splits"),
    [
        ("path,label,split\n0.jpg,cat,b\n1.jpg,cat,A\n2.jpg,cat,a\n", ALL_TRAIN, ["b", "a", "a"]),
        ("path,label,split\nc.jpg,dog,b\n", GROUPS, ["b"]),
        ("path,label\n./p1/a.jpg,cat\nc.jpg,dog\n", GROUPS, [HALVES.split_of("p1"), HALVES.split_of("c.jpg")]),
        *((f"path,label,split\n{row}\n", HALVES, ["b"]) for row in ("../x.jpg,cat,b", "x.jpg,,b")),
        *((f"path,label,split\n{row}\n", HALVES, ["a"]) for row in ("x.jpg,,c", "x.jpg,cat,", ",cat,")),
    ],
)
def test_splits(tmp_path, table, division, splits):
    """Rejects are of the split that the row gives, or of the first one."""
    (tmp_path / "labels.csv").write_text(table)
    found = read(tmp_path / "labels.csv", division=division, splits=("a", "b"))
    assert [item.split for item in found] == splits
    if "p1" in table:
        assert found[1].reject == NO_GROUP
