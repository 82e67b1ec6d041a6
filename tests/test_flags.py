"""Values of flags, from text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.flags import names, size_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("150MB", 150_000_000),
        ("150mb", 150_000_000),
        ("150M", 150_000_000),
        ("150 MB", 150_000_000),
        (" 1kb ", 1000),
        ("1KiB", 1024),
        ("100MiB", 104_857_600),
        ("1.5GiB", 1_610_612_736),
        ("0.5M", 500_000),
        ("1.0000019kB", 1000),
        ("7B", 7),
        ("2G", 2_000_000_000),
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
        "",
        "MB",
        "-1",
        "-1MB",
        "1,5GB",
        "1e6",
        "1TB",
        "150 M B",
        "1.MB",
        ".5MB",
        "0x10",
        "nan",
        "inf",
        "1MB2",
        pytest.param("9" * 400 + "GB", id="beyond all numbers"),
    ],
)
def test_what_is_no_size_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="a size like 150MB"):
        size_bytes(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("person", ("person",)),
        ("person,traffic light", ("person", "traffic light")),
        (" person , traffic light ,", ("person", "traffic light")),
        ("a,a", ("a", "a")),
        ("", ()),
        (" , ,", ()),
        ("été", ("été",)),
    ],
)
def test_names(text, expected):
    assert names(text) == expected
