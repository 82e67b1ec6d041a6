from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.splits import Division, SplitShares, name_id
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.blocks.image_tasks import image_paths
from recordmill.transforms.dataset.facts import Facts, FactsBuilder, add_facts
from recordmill.transforms.folder.choose_classes import label_paths
from tests.transforms.dataset.kinds import SplitReject, listed
from tests.transforms.folder.rows import Row, rows_in

HALVES = Division(SplitShares((("a", Fraction(1, 2)), ("b", Fraction(1, 2)))))
GROUPS = Division(HALVES.shares, "p[0-9]+")
FOLDER, NAME = None, "_"
SPLITS = ("b", "a")


def label(names: list[str], separator: str | None, division: Division = HALVES) -> tuple[list[Row], Facts]:
    builder = FactsBuilder()
    files = [(name, ImageFile(f"images/{name}", number, f"v{number}")) for number, name in enumerate(names)]
    block = label_paths(files, separator, division, SPLITS, builder)
    numbers = block.file_bytes.tolist()
    assert image_paths(block) == [f"images/{names[number]}" for number in numbers]
    assert block.file_version.texts() == [f"v{number}" for number in numbers]
    return rows_in(block, SPLITS), builder.build()


@pytest.mark.parametrize(
    ("separator", "name", "class_name"),
    [
        (FOLDER, "cat/1.jpg", "cat"),
        (FOLDER, "cat/more/1.PNG", "cat"),
        (FOLDER, "été 2/日本.jpg", "été 2"),
        (NAME, "big_cat_0.jpg", "big_cat"),
        (NAME, "x/y/cat_0.jpg", "cat"),
    ],
)
def test_label_paths(separator, name, class_name):
    assert label([name], separator) == ([Row(name, class_name, HALVES.split_of(name))], Facts())


@pytest.mark.parametrize("separator", [FOLDER, NAME])
@pytest.mark.parametrize("name", ["notes.txt", "cat/Thumbs.db", "cat/._a_1.jpg", ".cat/a_1.jpg"])
def test_other_files(separator, name):
    rows, facts = label([name], separator)
    assert (rows, facts.unlisted[:2], facts.rejects) == ([], (1, (name,)), {})


@pytest.mark.parametrize(
    ("separator", "division", "name", "reason", "fault"),
    [
        (FOLDER, HALVES, "1.jpg", Reason.NO_CLASS, "is not in a folder"),
        (NAME, HALVES, "cat/1.jpg", Reason.NO_CLASS, "has no '_' after its class"),
        (NAME, HALVES, "_1.jpg", Reason.NO_CLASS, "has no '_' after its class"),
        ("::", HALVES, "cat:1.jpg", Reason.NO_CLASS, "has no '::' after its class"),
        (FOLDER, HALVES, "a\\..\\b/1.jpg", Reason.UNSAFE_FILE_NAME, "has .. in it"),
        (FOLDER, HALVES, "a\n.jpg", Reason.UNSAFE_FILE_NAME, "has a control character"),  # before it is not in a folder
        (FOLDER, GROUPS, "cat/1.jpg", Reason.NO_GROUP, "does not match --group-from p[0-9]+"),
        (FOLDER, GROUPS, "1.jpg", Reason.NO_CLASS, "is not in a folder"),
    ],
)
def test_rejects(separator, division, name, reason, fault):
    rows, facts = label([name], separator, division)
    reject = Rejected("image", name_id(name), reason, f"{name!r} {fault}", file_name=name)
    assert (rows, listed(facts)) == ([], [SplitReject(HALVES.split_of(name), reject)])


NAMES = st.lists(
    st.sampled_from(["a/1.jpg", "2.jpg", "b/p1_3.png", "notes.txt", "a/b/p7.webp", "é/p3.jpg", "c/..\\x.jpg"])
)


@settings(max_examples=50)
@given(NAMES, st.data(), st.sampled_from([HALVES, GROUPS]))
def test_cut_anywhere(names, data, division):
    cut = data.draw(st.integers(0, len(names)))
    parts = [label(part, FOLDER, division) for part in (names[:cut], names[cut:])]
    sum_ = add_facts(facts for _, facts in parts)
    whole, facts = label(names, FOLDER, division)
    assert (whole, add_facts([facts])) == ([row for rows, _ in parts for row in rows], sum_)
    assert all(row.split == division.split_of(row.name) for rows, _ in parts for row in rows)
