"""Tests of the base of options, and of the values that they take."""

import pickle
from fractions import Fraction
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.option import (
    ARGUMENT,
    READ,
    WRITE,
    File,
    Files,
    Must,
    Names,
    Options,
    Shares,
    Size,
    join_names,
    merge_fields,
    named_paths,
    option_fields,
    redefine_option,
    size_bytes,
    split_names,
    split_shares,
)


class Base(Options):
    files: Files = READ.opt("Files to read; repeatable. All of them.", ...)
    share: float = WRITE.opt("A share.", 0.5, ge=0, le=1)
    mode: Literal["fast", "slow"] = WRITE.opt("How.", "fast")


class Other(Base):
    folder: str = ARGUMENT.opt("A folder.", ..., "OUT")
    share: float = redefine_option(Base, "share", 0.25)
    count: int | None = WRITE.opt("How many.", usual="all", ge=1)
    schema_file: File | None = READ.opt("A table.", alias="schema")
    names: Names = READ.opt("Names.", (), needs="schema_file count")

    def _faults(self):
        if self.mode == "slow" and self.count:
            yield "--mode slow and --count contradict each other. Give one"


GIVEN = {"files": ["a"], "folder": "f"}


class Table(Options):
    data: str = ARGUMENT.opt("CSV of rows.", ..., "DATA")


def test_missing_argument_is_described():
    """Its description begins in lower case, but for an abbreviation."""
    with pytest.raises(ConfigError, match=r"^DATA is missing \(CSV of rows\)$"):
        Table()


class Scan(Options):
    origin: Literal["0", "1"] = READ.opt("Number of the first pixel.", "0")


def test_choice_is_a_number():
    """Python and JSON have it as a number, as YAML does."""
    assert Scan(origin=1).origin == "1"
    with pytest.raises(ConfigError, match=r"^--origin must be one of 0, 1 \(got True\)$"):
        Scan(origin=True)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"files": []}, "--files is missing. Give the files to read"),
        ({"folder": ""}, "OUT is missing (a folder)"),
        ({"share": "-0.1"}, "--share must be 0 to 1 (got -0.1)"),
        ({"share": "nan"}, "--share must be 0 to 1 (got nan)"),
        ({"share": "2px"}, "--share must be a number (got '2px')"),
        ({"share": "2.5%"}, "--share must be a number (got '2.5%'). Give 0.025"),
        ({"count": 0}, "--count must be 1 or more (got 0)"),
        ({"count": "many"}, "--count must be a whole number (got 'many')"),
        ({"mode": "quick"}, "--mode must be one of fast, slow (got 'quick')"),
        ({"names": ","}, "--names ',': not a list of names. Separate names by commas"),
        ({"names": ["a", " "]}, "--names 'a, ': not a list of names. Separate names by commas"),
        ({"names": ["a"]}, "--names has no effect without --schema-file or --count"),
        ({"mode": "slow", "count": 1}, "--mode slow and --count contradict each other. Give one"),
        # A wrong value is not compared with others.
        (
            {"mode": "slow", "count": -1, "files": []},
            "--files is missing. Give the files to read; --count must be 1 or more (got -1)",
        ),
    ],
)
def test_faults(changed, fault):
    with pytest.raises(ConfigError) as caught:
        Other(**GIVEN | changed)
    assert str(caught.value).split("; ") == fault.split("; ")


def test_values():
    options = Other(files="a", folder="f", share="1", count="7", schema="s", names=["a,b", "c"])
    assert (options.files, options.share, options.count, options.schema_file) == (("a",), 1.0, 7, "s")
    assert options.names == ("a,b", "c")
    assert pickle.loads(pickle.dumps(options)) == options
    assert options.given("share", "count", "mode") == ["--share", "--count"]
    assert [(option.flag, option.must_be, path) for option, path in named_paths(options)] == [
        ("--files", Must.FILE, "a"),
        ("--schema", Must.FILE, "s"),
    ]


def test_option_fields():
    shown_fields = {
        option.name: (option.typed, option.default, option.shown_default, option.help)
        for option in option_fields(Other)
    }
    assert list(shown_fields.items()) == [
        ("folder", ("OUT", None, "", "A folder")),
        ("files", ("--files", None, "", "Files to read; repeatable")),
        ("schema", ("--schema", None, "", "A table")),
        ("names", ("--names", (), "", "Names")),
        ("share", ("--share", 0.25, "0.25", "A share")),
        ("mode", ("--mode", "fast", "fast", "How")),
        ("count", ("--count", None, "all", "How many")),
    ]
    share = {option.name: option for option in option_fields(Other)}["share"]
    assert (share.least, share.largest, share.type, share.is_required) == (0, 1, float, False)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *(("0", 0), ("4096", 4096), ("150MB", 150_000_000), ("150M", 150_000_000), ("150 MB", 150_000_000)),
        *((" 1kb ", 1000), ("1KiB", 1024), ("100MiB", 104_857_600), ("1.5GiB", 1_610_612_736), ("7B", 7)),
        ("1.0000019kB", 1000),
    ],
)
def test_size_bytes(text, size):
    assert size_bytes(text) == size


@given(st.integers(0, 1 << 53))
def test_a_number_of_bytes_is_itself(size):
    assert size_bytes(str(size)) == size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("person", ("person",)), ("person,traffic light", ("person", "traffic light")), ("été", ("été",))),
        *((" person , traffic light ,", ("person", "traffic light")), ("a,a", ("a", "a"))),
        *((' "a, ""b""" ,c', ('a, "b"', "c")), ('5" pipe,c', ('5" pipe', "c")), ('"a" x,c', ('"a" x', "c"))),
        *((["a,b", " c"], ("a,b", " c")), ([1, 2.5], ("1", "2.5")), (("a,b",), ("a,b",))),
    ],
)
def test_names(text, expected):
    assert split_names(text) == expected
    assert split_names(join_names(expected)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train", [("train", 1)]),
        ("train=0.8,val=0.1,test=0.1", [("train", "0.8"), ("val", "0.1"), ("test", "0.1")]),
        ("val=0.1,train=0.9", [("val", "0.1"), ("train", "0.9")]),
        (" train = 0.75 , val = 1/4 ", [("train", "0.75"), ("val", "0.25")]),
        ("a=1/3,b=2/3", [("a", "1/3"), ("b", "2/3")]),
        ("train=1", [("train", 1)]),
        ("a=.5,b=5e-1", [("a", "0.5"), ("b", "0.5")]),
        ("a=80,b=-20", [("a", 80), ("b", -20)]),  # whether they sum to 1 is asked with the other options
        ("=1", [("", 1)]),
        ("", [("", 1)]),
    ],
)
def test_split_shares_are_exact(text, expected):
    assert split_shares(text) == tuple((name, Fraction(share)) for name, share in expected)


@pytest.mark.parametrize(
    ("kind", "example", "texts"),
    [
        (Size, "150MB", ["", "MB", "-1", "1,5GB", "1e6", "1TB", "1.MB", "150 M B", ".5MB", "nan", "9" * 400 + "GB"]),
        (Names, "Separate names by commas", ["", " , ,"]),  # no name would mean all names
        (Shares, r"train=0\.8", ["a,b", "train=0.8,val", "train=0.8,val=0.2,", ",", "=", "train=", "train==1"]),
        (Shares, r"train=0\.8", ["a=1=2", "train=80%,val=20%", "a=1/0", "a=nan", "a=0,8,b=0,2"]),
    ],
)
def test_values_that_are_refused(kind, example, texts):
    for text in texts:
        with pytest.raises(ValueError, match=example):
            TypeAdapter(kind).validate_python(text)


# Options of one name, of several formats


class Boxes(Options):
    layout: Literal["detection", "keras"] = WRITE.opt("Features of a record.", "detection")
    name: str = WRITE.opt("Prefix.", "boxes")
    seed: int = WRITE.opt("Seed.", 3)
    quality: int = WRITE.opt("Quality.", 95)
    classes: Names = READ.opt("Only these.", (), usual="all")
    output: str = WRITE.opt("Folder.", ...)
    model: str = READ.opt("Model.", ...)
    gzip: bool = WRITE.opt("Compress.", False)
    no_crowd: bool = WRITE.opt("Skip.", False)


class Lines(Options):
    layout: Literal["lines", "keras"] = WRITE.opt("Features of a line.", "lines")
    name: str = WRITE.opt("Prefix.", "lines")
    seed: int = WRITE.opt("Seed.", 3)
    classes: Names = READ.opt("Only these.", (), usual="all of a column")
    output: str = WRITE.opt("Folder.", ...)
    gzip: bool = WRITE.opt("Compress.", False)


@pytest.mark.parametrize(
    ("name", "default", "shown", "is_required"),
    [
        ("seed", 3, "3", False),
        ("name", None, "boxes (boxes); lines (lines)", False),
        ("layout", None, "detection (boxes); lines (lines)", False),
        ("classes", None, "all (boxes); all of a column (lines)", False),
        ("output", None, "", True),
        ("gzip", False, "", False),
        # options that one of them has: a form that sets their defaults would set an option of another format
        ("quality", None, "95", False),
        ("model", None, "", False),
        ("no_crowd", False, "", False),
    ],
)
def test_merge_fields(name, default, shown, is_required):
    users = {"boxes": Boxes, "lines": Lines}
    fields = {user: field for user, model in users.items() for field in option_fields(model) if field.name == name}
    merged = merge_fields(fields, len(users))
    assert (merged.default, merged.shown_default, merged.is_required) == (default, shown, is_required)
    if name == "layout":
        assert (merged.choices, merged.metavar) == (("detection", "keras", "lines"), "detection|keras|lines")
        assert [field.choices for field in fields.values()] == [("detection", "keras"), ("lines", "keras")]
