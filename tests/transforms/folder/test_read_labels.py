from fractions import Fraction

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.schemas.errors import AnnotationFileError, ConfigError
from recordmill.schemas.inputs.files import File
from recordmill.schemas.inputs.images import LABEL_COLUMNS, PATH_COLUMNS, SPLIT_COLUMNS
from recordmill.schemas.inputs.splits import Division, SplitShares
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.folder import read_labels as module
from recordmill.transforms.folder.folder_options import FolderOptions
from recordmill.transforms.folder.read_labels import label_rows, read_labels, table_splits
from recordmill.transforms.rows.read_rows import TextRow
from recordmill.transforms.storage.resolve import file_version
from tests.transforms.dataset.kinds import SplitReject, listed
from tests.transforms.folder.rows import Row, rows_in

ALL_TRAIN = Division(SplitShares((("train", Fraction(1)),)))


def options(**more) -> FolderOptions:
    return FolderOptions(**{"data": ("img",), "labels": ("labels.csv",), "output": "out"} | more)


USUAL = options()
HALVES = Division(SplitShares((("a", Fraction(1, 2)), ("b", Fraction(1, 2)))))


@pytest.fixture
def rows(tmp_path):
    """Reads a table of these bytes."""

    def read(data: bytes | str, given: FolderOptions = USUAL) -> list[TextRow]:
        path = tmp_path / "labels.csv"
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return list(label_rows(str(path), given)[1])

    return read


def good(number: int, *cells: str) -> TextRow:
    return TextRow(number, cells)


@pytest.mark.parametrize(
    ("tables", "names", "warnings"),
    [
        (["0", "1"], ["0", "1"], 0),
        (["1", "1.0"], ["1", "1"], 1),
        (["True", "0"], ["1", "0"], 1),
        (["1.0"], ["1.0"], 0),
        (["1.5", "1"], ["1.5", "1"], 0),
        (["cat", "1.0", "1"], ["cat", "1.0", "1"], 0),
    ],
)
def test_numbers_of_two_tables_are_compared_as_numbers(tmp_path, tables, names, warnings):
    paths = [tmp_path / f"{number}.csv" for number in range(len(tables))]
    for path, label in zip(paths, tables, strict=True):
        path.write_text(f"path,label\n{path.stem}.jpg,{label}\n")
    given, facts = options(labels=tuple(map(str, paths))), FactsBuilder()
    blocks = [block for path in paths for block, _ in read_labels(File(str(path)), given, ALL_TRAIN, ("train",), facts)]
    assert [name for block in blocks for name in block.class_name.texts()] == names
    assert len(facts.build().warnings) == warnings


TWO = [good(1, "a.jpg", "cat"), good(2, "b c.jpg", "dog")]


# Forms of tables


@pytest.mark.parametrize(
    "table",
    [
        "path,label\na.jpg,cat\nb c.jpg,dog",
        "path;label\na.jpg;cat\nb c.jpg;dog\n",
        '\ufeff"path"\t"label"\r\n"a.jpg"\t"cat"\r\n"b c.jpg"\t"dog"\r\n',
        "label,more,path\ncat,,a.jpg\ndog,x,b c.jpg\n",
        " Path , LABEL \n a.jpg , cat \nb c.jpg,dog \n",
        ",path,label,\n0,a.jpg,cat,\n1,b c.jpg,dog,\n",  # with pandas' index, and a comma too many
        "path,label\na.jpg,cat\nb c.jpg,dog\n,\n , \n",  # as spreadsheets end
    ],
)
def test_tables_of_two_images(rows, table):
    assert rows(table) == TWO


def test_other_formats_hold_labels(tmp_path):
    table = pa.table({"file_name": ["a.jpg", "b c.jpg"], "category": pa.array(["cat", "dog"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "x.parquet")
    (tmp_path / "x.jsonl").write_text('{"file": "a.jpg", "class": "cat"}\n{"class": "dog", "file": "b c.jpg"}\n')
    for name in ("x.parquet", "x.jsonl"):
        assert list(label_rows(str(tmp_path / name), USUAL)[1]) == TWO
    (tmp_path / "x.jsonl").write_text('{"file": "a.jpg", "class": ["cat"]}\n{"class": "dog", "file": "b c.jpg"}\n')
    first, second = label_rows(str(tmp_path / "x.jsonl"), USUAL)[1]
    assert (first.fault, second) == ("column class has a list instead of a single value", TWO[1])


@pytest.mark.parametrize(
    ("table", "given", "split"),
    [
        *((f"x,{column.upper()},label\n,a.jpg,cat\n", USUAL, None) for column in PATH_COLUMNS[-2:]),
        *((f"x,{column.title()},path\n,cat,a.jpg\n", USUAL, None) for column in LABEL_COLUMNS[-2:]),
        *((f"{column},path,label\nval,a.jpg,cat\n", USUAL, "val") for column in SPLIT_COLUMNS[-2:]),
        ("id,class,file_name,label\n17,xx,a.jpg,cat\n", USUAL, None),  # the first usual name counts
        ("Bild,Klasse\na.jpg,cat\n", options(image_column="Bild", label="Klasse"), None),
        ("path,Klasse\na.jpg,cat\n", options(label="Klasse"), None),
        (" Bild , label\na.jpg,cat\n", options(image_column="Bild"), None),
        (
            "path,label,split,image,breed,fold\nx,y,z,a.jpg,cat,2\n",
            options(image_column="image", label="breed", split_column="fold"),
            "2",
        ),
        *((f"path,label,split\na.jpg,cat,{split}\n", USUAL, "train") for split in ("TRAIN", "Train", " train ")),
    ],
)
def test_columns(rows, table, given, split):
    assert rows(table, given) == [good(1, "a.jpg", "cat", *filter(None, [split]))]


@pytest.mark.parametrize(
    ("header", "given", "message"),
    [
        ("Bild,label", USUAL, r"column of paths \(path, .*, id\); its columns are 'Bild', 'label'\. .* --image-column"),
        ("path,Klasse", USUAL, r"column of labels \(label, .*\); its columns are 'path', 'Klasse'\. .* --label"),
        ("path,label", options(image_column="Bild"), r"column called 'Bild'; .*\. Name the column with --image-column"),
        ("path,label", options(split_column="set"), r"column called 'set'; .*\. Name the column with --split-column"),
    ],
)
def test_missing_columns(rows, header, given, message):
    for rest in ("", "\na.jpg,cat\n"):
        with pytest.raises(AnnotationFileError, match=f"labels.csv has no {message}$"):
            rows(f"{header}{rest}", given)


@pytest.mark.parametrize("label", [None, "xmin"])
@pytest.mark.parametrize(
    "text", ["image,label,xmin,ymin,xmax,ymax", "image,label,xmin,ymin,xmax,ymax\na.jpg,cat,1,2,3,4"]
)
def test_boxes_are_no_classes(rows, label, text):
    command = r"recordmill convert .*/labels.csv --images .* --format tfcsv -o OUT\. .* add --label label$"
    with pytest.raises(ConfigError, match=rf"has boxes \(xmin, ymin, xmax, ymax\), .* To read the boxes: {command}"):
        rows(text, options(label=label))
    assert rows("image,label,x,y,w,h\na.jpg,cat,1,2,3,4", options(label="label")) == [good(1, "a.jpg", "cat")]


def test_table_without_rows_has_none(rows):
    assert rows("path,label\n") == rows("path,label") == []


# Rows that cannot be used


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (",cat,train", "the path is empty"),
        (" ,cat,train", "the path is empty"),
        ("a.jpg,,train", "'a.jpg' has no label"),
        ("a.jpg,cat,", "'a.jpg' has no split"),
        ("a.jpg,cat", "2 cells instead of 3"),
        ("\udce9.jpg,cat,x", "column path is not UTF-8: b'\\xe9.jpg'. Save the file as UTF-8"),
        (
            "a.jpg,cat,Hold-Out",
            "'a.jpg' has split 'hold-out', which must be letters, digits and _: it is part of file names",
        ),
        ("a.jpg,cat,ALL", "'a.jpg' has split 'all', which is what TFDS calls all splits together"),
    ],
)
def test_row_that_lacks_something_is_named(rows, row, fault):
    faulty, other = rows(f"path,label,split\n{row}\nb.jpg,dog,val\n".encode(errors="surrogateescape"))
    assert [faulty.number, faulty.fault] == [1, fault]
    assert other == good(2, "b.jpg", "dog", "val")


@pytest.mark.parametrize("label", ["cat\ndog", "c\x00t", "c\x9bt"])
def test_label_with_control_character_is_malformed(rows, label):
    """A control character would break a line of labels.csv, or act on a terminal."""
    faulty, other = rows(f'path,label\na.jpg,"{label}"\nb.jpg,dog\n')
    assert faulty.fault == f"'a.jpg' has a label with a control character, {label!r}"
    assert other == good(2, "b.jpg", "dog")


@pytest.mark.parametrize(
    ("label", "read_as"),
    [
        *((label, "\u00e9") for label in ("e\u0301", "\u00e9", " e\u0301 ")),
        *((label, label) for label in ("big\u00a0cat", "👩\u200d🚀", "a/b")),
    ],
)
def test_good_labels(rows, label, read_as):
    assert rows(f"path,label\na.jpg,{label}\n") == [good(1, "a.jpg", read_as)]


# Files that are not tables


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ('{"images": [], "annotations": []}', "but COCO's JSON; --format coco"),
        ("<annotation></annotation>", "but Pascal VOC's XML"),
        ("0 0.5 0.5 0.1 0.1\n", "but YOLO's text"),
    ],
)
def test_file_of_another_kind_is_named(rows, data, what):
    with pytest.raises(AnnotationFileError, match=what):
        rows(data)


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
    blocks = list(read_labels(File(str(path)), options(data=folders or ("img",)), division, splits, builder))
    assert not any(observed for _, observed in blocks)
    return [row for block, _ in blocks for row in rows_in(block, splits)] + listed(builder.build())


def test_labels_that_have_changed(tmp_path):
    """Since the job began, or while they are read."""
    table = tmp_path / "labels.csv"
    table.write_text("path,label\n1.jpg,cat\n")
    version = file_version(str(table))
    rows = label_rows(str(table), USUAL)[1]
    next(rows)
    table.write_text("path,label\n1.jpg,cat\n2.jpg,dog\n")
    for read_on in (lambda: list(rows), lambda: list(label_rows(str(table), USUAL, version)[1])):
        with pytest.raises(AnnotationFileError, match=r"labels\.csv was changed while the job read it. Run again"):
            read_on()


def test_read_labels(tmp_path, monkeypatch):
    """However many rows are read at a time."""
    table = tmp_path / "labels.csv"
    table.write_text("path,label\ncat/1.jpg,cat\ncat/2.jpg,\n../3.jpg,cat\n./x//e\u0301.jpg,dog\n")
    rejects = [
        Rejected("image", None, Reason.MALFORMED_IMAGE, "labels.csv row 2: 'cat/2.jpg' has no label").named(
            "cat/2.jpg"
        ),
        Rejected("image", None, Reason.UNSAFE_FILE_NAME, "labels.csv row 3: the path '../3.jpg' has .. in it").named(
            "../3.jpg"
        ),
    ]
    rows = [Row("cat/1.jpg", "cat", "train"), Row("x/\u00e9.jpg", "dog", "train")]
    for lines in (1, 2, 3, 10_000):
        monkeypatch.setattr(module, "_ROWS_AT_ONCE", lines)
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
        ("x/../a.jpg", "a.jpg"),
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
    rows = read(tmp_path / "labels.csv", *FOLDERS, division=HALVES, splits=HALVES.names)
    assert rows == [Row(name, "cat", HALVES.split_of(name))]


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("../x.jpg", "has .. in it"),
        ("a/../../x.jpg", "has .. in it"),
        ("/data/images/../x.jpg", "is an absolute path"),
        ("/data/imagesx/x.jpg", "is an absolute path"),
        ("/data/images", "is an absolute path"),
        ("gs://bucket/images/../x.jpg", "is a URL"),
        ("gs://bucket/imagesx/x.jpg", "is a URL"),
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
    "image", None, Reason.NO_GROUP, "labels.csv row 2: the path 'c.jpg' does not match --group-from p[0-9]+"
).named("c.jpg")


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
    rows = read(tmp_path / "labels.csv", division=division, splits=("a", "b"))
    assert [row.split for row in rows] == splits
    if "p1" in table:
        assert rows[1].reject == NO_GROUP
