import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.join.divide_images import merge_groups, read_groups


@pytest.fixture
def read(tmp_path):
    def run(content: str | bytes) -> dict[str, str]:
        path = tmp_path / "groups"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_groups(str(path))

    return run


def line(*names: str) -> str:
    images = [{"file_name": name, "split": "train", "shard": "x", "record": 7} for name in names]
    return json.dumps({"kind": "near", "images": images, "distance": 3})


def test_lines_of_copies_are_groups_called_as_their_first_image(read):
    assert read(f"{line('b/2.jpg', 'a/1.jpg')}\n\n{line('c.jpg')}\n{line()}") == {
        "b/2.jpg": "a/1.jpg",
        "a/1.jpg": "a/1.jpg",
        "c.jpg": "c.jpg",
    }


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("delimiter", ",;\t")
def test_a_table_of_groups(read, delimiter, end):
    rows = [
        ("age", "group", "file_name "),
        ("7", "p1", "a.jpg"),
        ("", " ", ""),
        ("9", " p 2", '"b.jpg"'),
        ("9", "p1", "c.jpg"),
    ]
    content = end.join(delimiter.join(row) for row in rows)
    assert read(content) == {"a.jpg": "p1", "b.jpg": "p 2", "c.jpg": "p1"}
    assert read(b"\xef\xbb\xbf" + content.encode()) == read(gzip.compress(content.encode())) == read(content)


def test_names_are_found_however_they_are_spelt(read):
    assert read("file_name,group\n./x//e\u0301.jpg,1\n") == {"x/\u00e9.jpg": "1"}
    assert read(line("./x//e\u0301.jpg")) == {"x/\u00e9.jpg": "x/\u00e9.jpg"}


def test_groups_are_same_however_they_are_spelt(read):
    assert read("file_name,group\na.jpg,e\u0301\nb.jpg,\u00e9\n") == {"a.jpg": "\u00e9", "b.jpg": "\u00e9"}


FAULTS = [
    ("", "is empty, or its first line is; it must name the columns"),
    ("a,b\na,1\n", "has no column file_name and no column group: there are 'a', 'b'; it is to be duplicates.jsonl of"),
    ("path,group\na,1\n", "has no column file_name: there are 'path', 'group'"),
    ("file_name,class\na,1\n", "has no column group: there are 'file_name', 'class'"),
    ("file_name,group\n", "has no group in it: leave the option out, if there are none"),
    (line(), "has no group in it: leave the option out, if there are none"),
    ('file_name,group\n"a\nb",1\nb,\n', "row 2: no group; leave out images that are in no group"),
    ("file_name,group\na,1\n\n,2\n", "row 2: no file_name; leave out images"),
    ("file_name,group\na\n", "row 1: 1 cells where there are 2 columns"),
    ('file_name,group\na,1\n"b,2\n', "row 2: 1 cells where there are 2 columns"),
    (b"file_name,group\n\xff,1\n", "row 1: column file_name is not UTF-8: b'\\xff'; save the file as UTF-8"),
    (f"{line('a')}\n{{", "line 2 is no group (Input data was truncated); each line is to be"),
    (f"{line('a')}\n\n[]", "line 3 is no group (Expected `object`, got `array`)"),
    ('{"images": [{"name": "a"}]}', "line 1 is no group (Object missing required field `file_name`"),
    ('{"what": "image"}', "line 1 is no group (Object missing required field `images`)"),
    (gzip.compress(b"file_name,group\n", mtime=0)[:-9], "is damaged or was cut short"),
]


@pytest.mark.parametrize(("content", "fault"), FAULTS)
def test_what_is_no_list_of_groups_is_refused_with_its_line(read, content, fault, tmp_path: Path):
    with pytest.raises(ConfigError) as raised:
        read(content)
    assert str(raised.value).startswith(f"--groups {tmp_path / 'groups'} {fault}")
    assert "\n" not in str(raised.value)


def test_groups_that_share_image_are_one():
    chain = [(f"g{number:02}", [str(number), str(number + 1)]) for number in range(40)]
    assert set(merge_groups(chain[::-1]).values()) == {"g00"}
    assert set(merge_groups([*chain[:20], *chain[21:]]).values()) == {"g00", "g21"}


GROUPS = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.lists(st.integers(0, 15).map(str), max_size=4)), max_size=12
)


@given(GROUPS, st.randoms())
def test_order_is_no_matter_and_who_shares_group_is_together(groups, shuffling):
    found = merge_groups(groups)
    assert merge_groups(shuffling.sample(groups, len(groups))) == found
    assert set(found) == {name for _, names in groups for name in names}
    together = {frozenset(name for name in found if found[name] == group) for group in found.values()}
    assert together == set(connected(groups))
    for group in found.values():
        members = {label for label, names in groups if any(found[name] == group for name in names)}
        assert group <= min(members)


def connected(groups: list[tuple[str, list[str]]]) -> list[frozenset[str]]:
    """Names that are in one group, or in groups that share a name or what they are called, the slow way."""
    parts: list[tuple[set[str], set[str]]] = []
    for label, names in groups:
        joined = [part for part in parts if label in part[0] or set(names) & part[1]]
        labels = {label}.union(*(part[0] for part in joined))
        parts = [part for part in parts if part not in joined] + [
            (labels, set(names).union(*(part[1] for part in joined)))
        ]
    return [frozenset(names) for _, names in parts if names]
