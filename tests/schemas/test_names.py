import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.schemas.names import name_fault, name_key

# Text alone would hardly ever lead anywhere.
PIECES = st.sampled_from(["..", ".", "/", "//", "\\", "a", "b.jpg", "~", "C:", "https:", "\x00", " ", "…", "．．"])
NAMES = st.text() | st.lists(PIECES, max_size=8).map("".join)


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (["a.jpg", "train2017/a b.jpg", "./a.jpg", "...", "..a/b..", "été/日本.jpg", "[x] 100%.png"], ""),
        (["ab:c.jpg", " a.jpg", "~/a"], ""),
        (["", "  "], "is empty"),
        (["a\nb.jpg", "a\x00.jpg", "a\x1b[2J.jpg", "a\udc80.jpg"], "has a control character"),
        (["https://example.org/a.jpg", "gs://bucket/a.jpg"], "is a URL"),
        (["/etc/passwd", "\\\\host\\share\\a.jpg", "C:\\a.jpg", "c:a.jpg"], "is an absolute path"),
        (["..", "a/../../b.jpg", "a\\..\\..\\b.jpg", "a/.."], "has .. in it"),
    ],
)
def test_name_fault(names, fault):
    assert {name: name_fault(name) for name in names} == dict.fromkeys(names, fault)


@given(NAMES)
@example("a/./../../b")
@example("..")
def test_no_accepted_name_leads_out_of_its_folder(name):
    if not name_fault(name):
        for looked_up in (name, name_key(name), name.replace("\\", "/")):
            assert os.path.commonpath(["/r", os.path.normpath(os.path.join("/r", looked_up))]) == "/r", looked_up


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("a.jpg", "./a.jpg", True),
        ("a//b.jpg", "a/b.jpg", True),
        ("a/./b.jpg", "a/b.jpg", True),
        ("e\u0301te\u0301.jpg", "\u00e9t\u00e9.jpg", True),
        ("A\u030a.jpg", "\u212b.jpg", True),
        ("a.jpg", "A.jpg", False),
        ("a.jpg", "a.JPG", False),
        ("a b.jpg", "a  b.jpg", False),
        ("a/b", "b", False),
    ],
)
def test_name_key(one, other, is_same):
    assert (name_key(one) == name_key(other)) == is_same


@given(NAMES)
def test_a_key_is_its_own_key(name):
    assert name_key(name_key(name)) == name_key(name)
