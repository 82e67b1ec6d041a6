"""Names of a bucket's folder are cut into ranges."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.storage import name_ranges as module
from recordmill.transforms.storage.interface import ALL_NAMES, NameRange
from recordmill.transforms.storage.name_ranges import name_ranges


def cut(names: list[str], prefix: str = "") -> tuple[list[NameRange], int]:
    """The ranges, and how many questions they took."""
    asked = []

    def first_names(prefix: str, start: str, most: int) -> list[str]:
        asked.append(prefix)
        return sorted(name for name in names if name.startswith(prefix) and name >= start)[:most]

    with ThreadPoolExecutor(1) as pool:
        return name_ranges(prefix, first_names, pool), len(asked)


def within(names: list[str], part: NameRange) -> list[str]:
    return [name for name in names if name >= part.start and (not part.end or name < part.end)]


def test_a_page_is_one_range_by_one_question():
    assert cut([f"a/{number}" for number in range(999)], "a/") == ([ALL_NAMES], 1)


def test_numbered_names_are_cut_into_ranges_of_like_sizes_by_few_questions():
    names = [f"images/train/{number:09d}.jpg" for number in range(30_000)]
    parts, asked = cut(names, "images/")
    assert [len(within(names, part)) for part in parts] == [100] * 300
    assert asked < 800


def test_a_large_folder_beside_small_ones_is_cut_further():
    names = [f"i/large/{number:05d}" for number in range(20_000)] + [f"i/{letter}/1" for letter in "abcxyz"]
    parts, _ = cut(names, "i/")
    assert max(len(within(names, part)) for part in parts) < 2_000
    assert sum(len(within(names, part)) for part in parts) == len(names)


@pytest.mark.parametrize("most_parts", [1, 3, 64])
@given(st.lists(st.text("ab/\ud7ff\ue000\U0010ffff", max_size=5), unique=True, max_size=40))
def test_each_name_is_in_one_range_and_ranges_are_in_order(most_parts, names):
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(module, "PARTS", most_parts)
        monkeypatch.setattr(module, "PAGE", 2)
        parts, _ = cut(names)
    assert [name for part in parts for name in sorted(within(names, part))] == sorted(names)
    assert parts[0].start == parts[-1].end == ""
    assert [part.end for part in parts[:-1]] == [part.start for part in parts[1:]]


def test_a_server_that_knows_of_no_ranges_is_listed_in_one_go():
    names = [f"i/{number:04d}" for number in range(2_000)]

    def first_names(prefix: str, start: str, most: int) -> list[str]:
        return [name for name in names if name.startswith(prefix)][:most]

    with ThreadPoolExecutor(1) as pool:
        assert name_ranges("i/", first_names, pool) == [ALL_NAMES]


def test_a_bucket_s_root_is_cut_too():
    names = [f"{letter}/{number:05d}" for letter in "abcd" for number in range(2_000)]
    parts, _ = cut(names)
    assert len(parts) > 4


def test_a_folder_that_is_emptied_meanwhile_is_one_range():
    pages = iter([[f"i/{number:04d}" for number in range(module.PAGE)]])
    with ThreadPoolExecutor(1) as pool:
        assert name_ranges("i/", lambda *_: next(pages, []), pool) == [ALL_NAMES]
