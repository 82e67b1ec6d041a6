from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.block import Block
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.inputs.annotations import ImageLabels, TableRow
from recordmill.schemas.inputs.files import NO_FILE, ImageFile
from recordmill.schemas.inputs.images import ImageTask
from recordmill.schemas.inputs.splits import name_id
from recordmill.schemas.rejects import Metric, Reason, Rejected
from recordmill.transforms.blocks.image_tasks import image_tasks, label_column
from recordmill.transforms.blocks.run_step import hash_images
from recordmill.transforms.dataset.facts import Facts, FactsBuilder
from recordmill.transforms.join.join_files import join_files
from recordmill.transforms.join.list_images import file_block
from tests.transforms.dataset.kinds import SplitReject, listed
from tests.transforms.folder.rows import Row, block_of

SPLITS = ("train", "val")
SEED = 4
File = tuple[str, ImageFile]


def join(blocks: list[Block], classes: tuple[str, ...] = ()) -> tuple[list[ImageTask] | None, Facts]:
    builder = FactsBuilder()
    joined = join_files(blocks, classes, SPLITS, SEED, builder)
    if joined is None:
        return None, builder.build()
    joined.check("test")
    return image_tasks(joined, SPLITS), builder.build()


def with_files(rows: list[Row], files: dict[str, ImageFile]) -> Block:
    """Rows of paths, which have the columns of their files."""
    block, columns = block_of(rows, SPLITS), file_block([(row.name, files[row.name]) for row in rows])
    return block.replace(**{name: getattr(columns, name) for name in ("file_folder", "file_bytes", "file_version")})


NAMES = ["a.jpg", "b.jpg", "é/c.jpg", "../d.jpg", "e.jpg"]
ROWS = st.lists(
    st.builds(Row, st.sampled_from(NAMES), st.sampled_from(["cat", "dog"]), st.sampled_from(SPLITS)), max_size=9
)
REFS = st.builds(
    ImageFile, st.just(""), st.sampled_from([5, 5, 0, 256_000_000, 256_000_001]), st.sampled_from(["1", "1", NO_FILE])
)
FILES = st.dictionaries(st.sampled_from([*NAMES, "f.txt"]), REFS, max_size=5)


@settings(max_examples=150)
@given(ROWS, FILES, st.sampled_from([(), ("cat",), ("dog", "cow")]), st.booleans(), st.randoms(use_true_random=False))
def test_join_files(rows, files, classes, has_files, shuffling):
    """Rows of a table are joined with listed files, or rows have their files. In any order of any Blocks."""
    files = [(name, ImageFile(f"pics/{name}", file.size_bytes, file.version)) for name, file in files.items()]
    if has_files:
        rows = [row for row in rows if row.name in dict(files)]
        files = [file for file in files if file[0] in {row.name for row in rows}]
    cut = shuffling.randint(0, len(rows))
    blocks = [
        with_files(part, dict(files)) if has_files else block_of(part, SPLITS) for part in (rows[:cut], rows[cut:])
    ]
    if not has_files:
        blocks += [file_block(part) for part in (files[:1], files[1:])]
    shuffling.shuffle(blocks)
    joined, facts = join(blocks, classes)
    tasks, rejects, refs = joined or [], listed(facts), dict(files)
    skipped = [split for (split, metric), number in facts.counts.items() for _ in range(number)]
    split_counts = Counter([*skipped, *(task.split for task in tasks), *(reject.split for reject in rejects)])
    assert split_counts == Counter(row.split for row in rows)
    assert {metric for _, metric in facts.counts} <= {Metric.OF_OTHER_CLASSES}
    hashes = hash_images(np.array([task.image_id for task in tasks], np.int64), SEED).tolist()
    assert hashes == sorted({*hashes})
    for task in tasks:
        assert Row(task.file_name, task.labels.class_name, task.split) in rows
        assert (task.image_id, task.ref) == (name_id(task.file_name), refs[task.file_name])
        assert task.labels.class_name in (classes or ("cat", "dog"))
    assert sorted(facts.unlisted.compared) == sorted(refs.keys() - {row.name for row in rows})
    without = {reject.id for _, reject in rejects if reject.reason in (Reason.IMAGE_MISSING, Reason.UNSAFE_FILE_NAME)}
    assert sorted(map(name_id, facts.unmatched.compared)) == sorted(without)
    again, other_facts = join(blocks[::-1], classes)
    assert again == joined
    assert Counter(listed(other_facts)) == Counter(rejects)


def test_only_files():
    joined, facts = join([file_block([("a.jpg", ImageFile("x/a.jpg", 1))])])
    assert (joined, facts.unlisted.first) == (None, ("a.jpg",))


@pytest.mark.parametrize(
    ("rows", "detail"),
    [
        (
            [("cat", "train"), ("dog", "train")],
            "2 rows of 'a.jpg' have different labels, 'cat' in train, 'dog' in train",
        ),
        ([("cat", "train"), ("cat", "val")], "2 rows of 'a.jpg' have different labels, 'cat' in train, 'cat' in val"),
        (
            [("cat", "train"), ("cat", "train"), ("dog", "val")],
            "3 rows of 'a.jpg' have different labels, 'cat' in train, 'dog' in val",
        ),
        ([("cat", "val")] * 3, "another row of 'a.jpg' has the same label"),
    ],
)
def test_repeated_rows(rows, detail):
    for order in permutations(rows):
        tasks, facts = join(
            [block_of([Row("a.jpg", *row)], SPLITS) for row in order]
            + [file_block([("a.jpg", ImageFile("x/a.jpg", 1))])]
        )
        is_same = len({*rows}) == 1
        assert len(tasks) == is_same
        expected = Rejected("image", name_id("a.jpg"), Reason.DUPLICATE_IMAGE_ID, detail, file_name="a.jpg")
        assert Counter(listed(facts)) == Counter(SplitReject(split, expected) for _, split in rows[is_same:])


@pytest.mark.parametrize("has_files", [True, False])
def test_colliding_files(has_files):
    row = Row("a.jpg", "cat", "train")
    refs = [ImageFile(f"{folder}/a.jpg", 1) for folder in ("two", "one")]
    if has_files:
        blocks = [with_files([row], {"a.jpg": file}) for file in refs]
    else:
        blocks = [block_of([row], SPLITS), *(file_block([("a.jpg", file)]) for file in refs)]
    with pytest.raises(CollidingImagesError, match=r"are called .a\.jpg.: one/a\.jpg and two/a\.jpg. Give"):
        join(blocks)


def test_rows_of_other_tables():
    """Each row is a record; rows of one id are in the order of content, name and place."""
    rows = [(b"a", "x", "2"), (b"a", "x", "1"), (b"a", "w", "3"), (b"", "z", "9"), (b"a", "x", "2")]
    blocks = []
    for record, name, place in rows:
        labels = ImageLabels(class_name="cat", row=TableRow(record, 5, place))
        block = block_of([Row(name, "", "val")], SPLITS).replace(class_name=None, labels=label_column([labels]))
        blocks.append(block.replace(image_id=np.array([7])))
    files = file_block([(name, ImageFile(f"x/{name}", 1)) for name in "wx"])
    for order in permutations(blocks):
        tasks, facts = join([*order, files])
        assert [(task.labels.row.record, task.file_name, task.labels.row.place) for task in tasks] == sorted(
            row for row in rows if row[1] != "z"
        )
        reject = Rejected("row", 5, Reason.IMAGE_MISSING, "9: no file 'z' in the folders of images").named("z")
        assert (listed(facts), facts.unmatched.first) == ([SplitReject("val", reject)], ("z",))
