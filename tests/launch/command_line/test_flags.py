"""Values of flags, from text."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.launch.command_line.parser import names, size_bytes, split_shares


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("150MB", 150_000_000),
        ("150M", 150_000_000),
        ("150 MB", 150_000_000),
        (" 1kb ", 1000),
        ("1KiB", 1024),
        ("100MiB", 104_857_600),
        ("1.5GiB", 1_610_612_736),
        ("1.0000019kB", 1000),
        ("7B", 7),
    ],
)
def test_sizes(text, size):
    assert size_bytes(text) == size


@given(st.integers(0, 1 << 53))
def test_a_number_of_bytes_is_itself(size):
    assert size_bytes(str(size)) == size


@pytest.mark.parametrize(
    "text",
    [
        *("", "MB", "-1", "1,5GB", "1e6", "1TB", "1.MB", "150 M B", ".5MB", "nan", "1MB2"),
        pytest.param("9" * 400 + "GB", id="beyond all numbers"),
    ],
)
def test_what_is_no_size_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="150MB"):
        size_bytes(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("person", ("person",)),
        ("person,traffic light", ("person", "traffic light")),
        (" person , traffic light ,", ("person", "traffic light")),
        ("a,a", ("a", "a")),
        ("été", ("été",)),
    ],
)
def test_names(text, expected):
    assert names(text) == expected


@pytest.mark.parametrize("text", ["", " , ,"])
def test_no_name_at_all_is_refused(text):
    """It would mean all, which is what leaving the flag out means."""
    with pytest.raises(ValueError, match=r"^names, with commas between them, are expected$"):
        names(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train", [("train", 1)]),
        ("val_2017", [("val_2017", 1)]),
        ("train=0.8,val=0.1,test=0.1", [("train", "0.8"), ("val", "0.1"), ("test", "0.1")]),
        ("val=0.1,train=0.9", [("val", "0.1"), ("train", "0.9")]),
        (" train = 0.75 , val = 1/4 ", [("train", "0.75"), ("val", "0.25")]),
        ("a=1/3,b=2/3", [("a", "1/3"), ("b", "2/3")]),
        ("train=1", [("train", 1)]),
        ("a=.5,b=5e-1", [("a", "0.5"), ("b", "0.5")]),
        ("a=80,b=-20", [("a", 80), ("b", -20)]),
        ("=1", [("", 1)]),
        ("", [("", 1)]),
    ],
)
def test_shares_are_exact(text, expected):
    """Whether they sum to 1, and whether the names will do, is asked with the other options."""
    assert split_shares(text) == tuple((name, Fraction(share)) for name, share in expected)


@pytest.mark.parametrize(
    "text",
    [
        *("a,b", "train=0.8,val", "train=0.8,val=0.2,", ",", "=", "train=", "train==1", "a=1=2"),
        *("train=80%,val=20%", "a=1/0", "a=nan", "a=0,8,b=0,2"),
    ],
)
def test_what_are_no_shares_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match=r"a name, or shares like train=0\.8,val=0\.1,test=0\.1, is expected"):
        split_shares(text)
