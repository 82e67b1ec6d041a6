import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.schemas.names import name_fault, name_key

# Text alone would hardly ever lead anywhere.
PIECES = st.sampled_from(["..", ".", "/", "//", "\\", "a", "b.jpg", "~", "C:", "https:", "\x00", " ", "…", "．．"])
NAMES = st.text() | st.lists(PIECES, max_size=8).map("".join)


@pytest.mark.parametrize(
    "name",
    [
        "a.jpg",
        "train2017/a b.jpg",
        "./a.jpg",
        "...",
        "..a/b..",
        "été/日本.jpg",
        "[x] 100%.png",
        "ab:c.jpg",
        " a.jpg",
        "~/a",
    ],
)
def test_good_names(name):
    assert name_fault(name) == ""


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("a\nb.jpg", "has a control character"),
        ("a\x00.jpg", "has a control character"),
        ("a\x1b[2J.jpg", "has a control character"),
        ("a\udc80.jpg", "has a control character"),
        ("https://example.org/a.jpg", "is a URL"),
        ("gs://bucket/a.jpg", "is a URL"),
        ("/etc/passwd", "is an absolute path"),
        ("\\\\host\\share\\a.jpg", "is an absolute path"),
        ("C:\\a.jpg", "is an absolute path"),
        ("c:a.jpg", "is an absolute path"),
        ("..", "has .. in it"),
        ("a/../../b.jpg", "has .. in it"),
        ("a\\..\\..\\b.jpg", "has .. in it"),
        ("a/..", "has .. in it"),
    ],
)
def test_bad_names(name, fault):
    assert name_fault(name) == fault


@given(NAMES)
@example("a/./../../b")
@example("..")
def test_no_accepted_name_leads_out_of_its_folder(name):
    if not name_fault(name):
        for looked_up in (name, name_key(name), name.replace("\\", "/")):
            assert os.path.commonpath(["/r", os.path.normpath(os.path.join("/r", looked_up))]) == "/r", looked_up


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a.jpg", "./a.jpg"),
        ("a//b.jpg", "a/b.jpg"),
        ("a/./b.jpg", "a/b.jpg"),
        ("e\u0301te\u0301.jpg", "\u00e9t\u00e9.jpg"),
        ("A\u030a.jpg", "\u212b.jpg"),
    ],
)
def test_spellings_of_one_name(one, other):
    assert name_key(one) == name_key(other)


@pytest.mark.parametrize(
    ("one", "other"), [("a.jpg", "A.jpg"), ("a.jpg", "a.JPG"), ("a b.jpg", "a  b.jpg"), ("a/b", "b")]
)
def test_names_of_different_files(one, other):
    assert name_key(one) != name_key(other)


@given(NAMES)
def test_a_key_is_its_own_key(name):
    assert name_key(name_key(name)) == name_key(name)
