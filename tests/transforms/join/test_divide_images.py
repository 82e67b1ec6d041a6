import gzip
import json
from fractions import Fraction

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.splits import Division, SplitShares, name_id
from recordmill.transforms.blocks.pack_block import pack_parts, unpack_block
from recordmill.transforms.join.divide_images import DivideImages, count_units, merge_groups, read_groups, stratify
from recordmill.transforms.join.match_blocks import FileState
from recordmill.transforms.storage.resolve import file_version
from tests.beam_pipeline import Pipeline

SHARES = SplitShares((("train", Fraction(7, 10)), ("val", Fraction(1, 5)), ("test", Fraction(1, 10))))
LABELLED = st.lists(st.sets(st.integers(-2, 9), max_size=4), min_size=1, max_size=60)


def split_of_units(labels: list[set[int]], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Split of each image, by position; and the labels of images in another order."""
    positions = np.sort(np.random.default_rng(3).choice(1 << 40, len(labels), replace=False))
    pairs = [(positions[image], label) for image, image_labels in enumerate(labels) for label in image_labels]
    shuffled = np.array(pairs, np.int64).reshape(-1, 2)[np.random.default_rng(seed).permutation(len(pairs))]
    _, *counts = count_units(positions[np.random.default_rng(seed).permutation(len(labels))], shuffled)
    return stratify(*counts, SHARES), positions


@given(LABELLED, st.integers(0, 99))
def test_stratified_splits_are_exact(labels, seed):
    splits, _ = split_of_units(labels, seed)
    assert splits.tolist() == split_of_units(labels)[0].tolist()
    for number, share in zip(np.bincount(splits, minlength=3).tolist(), (0.7, 0.2, 0.1), strict=True):
        assert abs(number - share * len(labels)) < 1 + 1e-9


def test_each_label_gets_its_shares():
    rng = np.random.default_rng(0)
    labels = [set(rng.choice(12, rng.integers(0, 5), p=np.arange(1, 13) / 78).tolist()) for _ in range(400)]
    all_splits, _ = split_of_units(labels)
    for label in range(12):
        splits = [split for split, names in zip(all_splits.tolist(), labels, strict=True) if label in names]
        for split, share in enumerate((0.7, 0.2, 0.1)):
            assert abs(splits.count(split) - share * len(splits)) <= 2


def test_image_with_two_labels_counts_for_both():
    """By the first label alone, val would get three of the four images of label 2."""
    halves = SplitShares((("train", Fraction(1, 2)), ("val", Fraction(1, 2))))
    _, *counts = count_units(np.arange(8), np.array([(0, 1), (1, 1), (0, 2), (1, 2), (2, 2), (3, 2)], np.int64))
    splits = stratify(*counts, halves)
    assert sorted(splits[:2].tolist()) == sorted(splits[2:4].tolist()) == [0, 1]
    assert np.bincount(splits).tolist() == [4, 4]


def rows(names: list[str], missing: set[str]) -> list[tuple[int, bytes]]:
    """Image rows in Blocks of three, by range; each image has two rows, as of two annotation files."""
    block = Block(
        image_id=np.array([name_id(name) for name in names], np.int64),
        file_name=ragged_texts(names),
        split=np.full(len(names), 2),
        state=np.array([FileState.MISSING if name in missing else FileState.FOUND for name in names], np.int64),
    )
    parts = [block.cut(start, min(start + 3, len(names))) for start in range(0, len(names), 3)]
    return [packed for part in parts * 2 for packed in pack_parts(part, part.image_id % 2)]


def named(keyed: tuple[int, bytes]) -> list[tuple[str, int]]:
    block = unpack_block(keyed[1])
    return list(zip(block.file_name.texts(), block.split.tolist(), strict=True))


def assert_divided(names: list[str], division: Division, check, missing=frozenset(), labels=()) -> None:
    """Check the splits (0 test, 1 train, 2 val) by name."""

    def matches(rows: list[tuple[str, int]]) -> None:
        splits = dict(rows)
        assert len(set(rows)) == len(splits) == len(names)
        check(splits)

    with Pipeline() as p:
        sides = [p | "Rows" >> beam.Create(rows(names, set(missing)))]
        if labels:
            sides.append(p | "Labels" >> beam.Create(labels))
        assert_that(tuple(sides) | DivideImages(division, ["test", "train", "val"]) | beam.FlatMap(named), matches)


NAMES = [f"{number % 5}/{number}.jpg" for number in range(47)]


def test_splits_by_rank_are_exact_and_in_order_of_positions():
    missing = set(NAMES[:7])

    def check(splits: dict[str, int]) -> None:
        ordered = sorted((SHARES.position(name), splits[name]) for name in NAMES if name not in missing)
        numbers = [number for _, number in ordered]
        assert numbers == sorted(numbers, key=[1, 2, 0].index)
        assert [numbers.count(number) for number in (1, 2, 0)] == [28, 8, 4]
        assert {splits[name] for name in missing} == {2}

    assert_divided(NAMES, Division(SHARES), check, missing)


def test_groups_stay_together():
    def check(splits: dict[str, int]) -> None:
        assert len({(name[0], split) for name, split in splits.items()}) == 5
        assert sorted(splits.values()).count(1) > 20

    assert_divided(NAMES, Division(SHARES, "^[0-9]"), check)
    labels = [(name_id(name) % 2, np.array([name_id(name), len(name)], np.int64).tobytes()) for name in NAMES]
    assert_divided(NAMES, Division(SHARES, "^[0-9]"), check, labels=labels)


def test_labels_of_images_decide():
    """All images of label 1 are the first by position; by rank, train would have all of them."""
    first = sorted(NAMES, key=SHARES.position)[:20]
    labels = [(name_id(name) % 2, np.array([name_id(name), 1] * 2, np.int64).tobytes()) for name in first]

    def check(splits: dict[str, int]) -> None:
        label_splits = [splits[name] for name in first]
        assert [label_splits.count(number) for number in (1, 2, 0)] == [14, 4, 2]
        assert abs(list(splits.values()).count(1) - 0.7 * 47) < 1

    assert_divided(NAMES, Division(SHARES), check, labels=[*labels, (0, np.array([5, 1], np.int64).tobytes())])


# Groups


@pytest.fixture
def read(tmp_path):
    def run(content: str | bytes) -> dict[str, str]:
        path = tmp_path / "groups"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_groups(str(path))

    return run


@pytest.mark.parametrize("content", ["file_name,group\n1.jpg,a\n", '{"images": [{"file_name": "1.jpg"}]}\n'])
def test_groups_that_have_changed(content, tmp_path):
    path = tmp_path / "groups.csv"
    path.write_text(content)
    version = file_version(str(path))
    assert list(read_groups(str(path), version)) == ["1.jpg"]
    path.write_text(content * 2)
    with pytest.raises(ConfigError, match=r"groups\.csv was changed while the job read it. Run again"):
        read_groups(str(path), version)


def line(*names: str) -> str:
    images = [{"file_name": name, "split": "train", "shard": "x", "record": 7} for name in names]
    return json.dumps({"kind": "near", "images": images, "distance": 3})


def test_groups_of_copies(read):
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
    (
        "a,b\na,1\n",
        "has no column file_name and no column group; its columns are 'a', 'b'. The file must be duplicates.jsonl of",
    ),
    ("path,group\na,1\n", "has no column file_name; its columns are 'path', 'group'"),
    ("file_name,class\na,1\n", "has no column group; its columns are 'file_name', 'class'"),
    ("file_name,group\n", "has no groups. Leave the option out if no images are grouped."),
    (line(), "has no groups. Leave the option out if no images are grouped."),
    ('file_name,group\n"a\nb",1\nb,\n', "row 2: group is empty. Leave out rows of images without a group"),
    ("file_name,group\na,1\n\n,2\n", "row 2: file_name is empty. Leave out rows"),
    ("file_name,group\na\n", "row 1: 1 cells instead of 2"),
    ('file_name,group\na,1\n"b,2\n', "row 2: 1 cells instead of 2"),
    (b"file_name,group\n\xff,1\n", "row 1: column file_name is not UTF-8: b'\\xff'. Save the file as UTF-8"),
    (f"{line('a')}\n{{", "line 2 is not a group (Input data was truncated); each line must be"),
    (f"{line('a')}\n\n[]", "line 3 is not a group (Expected `object`, got `array`)"),
    ('{"images": [{"name": "a"}]}', "line 1 is not a group (Object missing required field `file_name`"),
    ('{"what": "image"}', "line 1 is not a group (Object missing required field `images`)"),
    (gzip.compress(b"file_name,group\n", mtime=0)[:-9], "is damaged or truncated"),
]


@pytest.mark.parametrize(("content", "fault"), FAULTS)
def test_bad_list_of_groups_is_refused_with_line(read, content, fault, tmp_path):
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
def test_merge_groups_in_any_order(groups, shuffling):
    merged = merge_groups(groups)
    assert merge_groups(shuffling.sample(groups, len(groups))) == merged
    assert set(merged) == {name for _, names in groups for name in names}
    together = {frozenset(name for name in merged if merged[name] == group) for group in merged.values()}
    assert together == set(connected(groups))
    for group in merged.values():
        members = {label for label, names in groups if any(merged[name] == group for name in names)}
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
