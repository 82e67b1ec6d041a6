from collections import Counter
from fractions import Fraction
from itertools import permutations

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.block import Block, join_blocks, ragged_texts, starts_of
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.inputs.annotations import Annotation, Caption, ImageLabels
from recordmill.schemas.inputs.files import NO_FILE, ImageFile
from recordmill.schemas.inputs.images import ImageTask
from recordmill.schemas.inputs.splits import Division, SplitShares
from recordmill.schemas.names import name_key
from recordmill.schemas.rejects import Metric, Reason, Rejected
from recordmill.transforms.blocks.image_tasks import image_tasks, label_column, object_columns
from recordmill.transforms.blocks.pack_block import pack_block
from recordmill.transforms.dataset.facts import Facts, FactsBuilder
from recordmill.transforms.join.list_images import file_block
from recordmill.transforms.join.match_blocks import (
    NO_FILES,
    MatchRows,
    assign_buckets,
    base_name,
    drop_faulty_images,
    match_names,
    match_rows,
    name_keys,
)
from tests.beam_pipeline import Pipeline
from tests.transforms.dataset.kinds import SplitReject, applied, listed

ONE = Division(SplitShares((("val", Fraction(1)),)))
HALVES = Division(SplitShares((("a", Fraction(1, 2)), ("b", Fraction(1, 2)))))
GROUPS = Division(HALVES.shares, "^[a-z]+/")
LISTED = Division(HALVES.shares, groups={"1.jpg": "g", "b/1.jpg": "g"})
OBJECT = Annotation(4, 1, (1.0, 2.0, 3.0, 4.0), 12.0, False)
LABELS = ImageLabels((Caption(1, "a"), Caption(2, "b")))
Row = tuple[int, str]
File = tuple[str, ImageFile]


def row_block(rows: list[Row]) -> Block:
    """Image rows with one object and two captions each."""
    return Block(
        image_id=np.array([id_ for id_, _ in rows], np.int64),
        file_name=ragged_texts([name for _, name in rows]),
        image_size_px=np.full((len(rows), 2), 7),
        labels=label_column([LABELS] * len(rows)),
        first_object_of_image=starts_of(np.ones(len(rows), np.int64)),
        **object_columns([OBJECT] * len(rows)),
    )


def match(
    rows: list[Row], files: list[File] | None, how: str, division: Division
) -> tuple[list[ImageTask], Facts, Block]:
    """Tasks, Facts, and rows with the columns of their files."""
    builder = FactsBuilder()
    matched, unlisted = match_rows(
        row_block(rows), None if files is None else join_blocks([NO_FILES, file_block(files)]), how, division
    )
    matched.check("test")
    builder.add_unlisted(*unlisted)
    block = drop_faulty_images(matched, division.names, builder, how, division.group_from)
    return image_tasks(block, division.names), builder.build(), matched


NAMES = [
    "1.jpg",
    "./b//1.jpg",
    "b/1.jpg",
    "c\\1.jpg",
    "e\u0301/1.jpg",
    "é/1.jpg",
    "../1.jpg",
    "/a/1.jpg",
    "https://x.org/1.jpg",
    "",
    "x\n/1.jpg",
    "C:\\b\\1.jpg",
    "2.jpg",
    "B/1.jpg",
]
FILES = ["1.jpg", "b/1.jpg", "é/1.jpg", "c\\1.jpg", "q/2.jpg", "d/b/1.jpg", "notes.txt"]
REFS = st.builds(
    ImageFile, st.just(""), st.sampled_from([5, 5, 0, 256_000_000, 256_000_001]), st.sampled_from(["v1", "v1", NO_FILE])
)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.sampled_from(NAMES)), max_size=6, unique_by=lambda row: row[0]),
    st.dictionaries(st.sampled_from(FILES), REFS, max_size=5),
    st.sampled_from(["path", "path", "suffix", "name"]),
    st.sampled_from([ONE, HALVES, GROUPS, LISTED]),
    st.randoms(use_true_random=False),
)
def test_match_rows(rows, files, how, division, rng):
    """Each row is an image or a reject, in any order of rows and files, and in any number of buckets."""
    named_files = [(name, ImageFile(f"pics/{name}", file.size_bytes, file.version)) for name, file in files.items()]
    try:
        tasks, facts, matched = match(rows, named_files, how, division)
    except CollidingImagesError:
        with pytest.raises(CollidingImagesError):
            match(rows[::-1], named_files[::-1], how, division)
        return
    rejects, refs = listed(facts), dict(named_files)
    assert sorted([*(task.image_id for task in tasks), *(reject.id for _, reject in rejects)]) == sorted(dict(rows))
    for task in tasks:
        key = name_key(task.file_name)
        assert task.file_name == (dict(rows)[task.image_id] if how == "path" else key)
        assert (task.ref, task.split) == (refs[key], division.split_of(key))
        assert (task.annotations, task.labels) == ((OBJECT,), LABELS)
    names = matched.file_name.texts()
    keys = Counter(map(name_key, names))
    assert matched.is_shared.tolist() == [keys[name_key(name)] > 1 for name in names]
    assert sorted(facts.unlisted.compared) == sorted(refs.keys() - keys.keys())
    without = {reject.id for _, reject in rejects if reject.reason in (Reason.IMAGE_MISSING, Reason.UNSAFE_FILE_NAME)}
    lone = [name for name, id_ in zip(names, matched.image_id.tolist(), strict=True) if id_ in without]
    assert sorted(facts.unmatched.compared) == sorted(lone)
    rng.shuffle(rows)
    rng.shuffle(named_files)
    buckets = assign_buckets(name_keys([name for _, name in rows]), how, 8).tolist()
    file_buckets = assign_buckets([name for name, _ in named_files], how, 8).tolist()
    tasks_of_buckets, rejects_of_buckets = [], []
    for bucket in range(8):
        bucket_rows = [row for row, number in zip(rows, buckets, strict=True) if number == bucket]
        bucket_files = [file for file, number in zip(named_files, file_buckets, strict=True) if number == bucket]
        bucket_tasks, bucket_facts, _ = match(bucket_rows, bucket_files, how, division)
        tasks_of_buckets += bucket_tasks
        rejects_of_buckets += listed(bucket_facts)
    assert (Counter(tasks_of_buckets), Counter(rejects_of_buckets)) == (Counter(tasks), Counter(rejects))


@pytest.mark.parametrize(
    ("name", "file", "how", "reason", "detail"),
    [
        ("a.jpg", None, "path", Reason.IMAGE_MISSING, "no file 'a.jpg' in the folders of images"),
        (
            "x/c\\a.jpg",
            None,
            "path",
            Reason.IMAGE_MISSING,
            "no file 'x/c\\\\a.jpg' in the folders of images. Separate the parts of a path by /",
        ),
        ("/x/c\\a.jpg", None, "suffix", Reason.IMAGE_MISSING, "no file '/x/c\\\\a.jpg' in the folders of images"),
        ("../a.jpg", None, "path", Reason.UNSAFE_FILE_NAME, "the file name '../a.jpg' has .. in it"),
        (
            "a.jpg",
            ImageFile("x", 0, NO_FILE),
            "path",
            Reason.IMAGE_INACCESSIBLE,
            "'a.jpg': a link that leads nowhere, a pipe or a device",
        ),
        (
            "a.jpg",
            ImageFile("x", 256_000_001),
            "name",
            Reason.TOO_LARGE,
            "'a.jpg': 256,000,001 bytes; the limit is 256,000,000",
        ),
        ("a.jpg", ImageFile("x", 1), "path", Reason.NO_GROUP, "'a.jpg' does not match --group-from ^[a-z]+/"),
        (
            "c\\a.jpg",
            ImageFile("x", 1),
            "path",
            Reason.NO_GROUP,
            "'c\\\\a.jpg' does not match --group-from ^[a-z]+/",
        ),
    ],
)
def test_faults(name, file, how, reason, detail):
    """The first counts. Captions and objects go with their image."""
    tasks, facts, _ = match([(1, name)], [(name, file)] if file else [], how, GROUPS)
    assert tasks == []
    rejected = Rejected("image", 1, reason, detail, annotations=3, file_name=name)
    assert listed(facts) == [SplitReject(GROUPS.split_of(name), rejected)]


@pytest.mark.parametrize(
    ("rows", "files", "how", "message"),
    [
        (
            ["a.jpg"],
            [("a.jpg", "two/a.jpg"), ("a.jpg", "one/a.jpg")],
            "path",
            "several files are called 'a.jpg': one/a.jpg and two/a.jpg. Give only the folder of one, or rename one",
        ),
        (
            ["x/1.jpg"],
            [("1.jpg", "one/1.jpg"), ("1.jpg", "two/1.jpg")],
            "suffix",
            "several files are called '1.jpg': one/1.jpg and two/1.jpg. Give only the folder of one, or rename one",
        ),
        (
            ["é.jpg"],
            [("é.jpg", "one/\u00e9.jpg"), ("é.jpg", "one/e\u0301.jpg")],
            "path",
            "'é.jpg' exists in 2 Unicode normalizations, 'one/e\\u0301.jpg' and 'one/\\xe9.jpg'. Rename or delete one",
        ),
        (["b.jpg"], [("a.jpg", "two/a.jpg"), ("a.jpg", "one/a.jpg")], "path", None),  # no row has the name
        (["a.jpg"], [("a.jpg", "one/a.jpg"), ("a.jpg", "one/a.jpg")], "path", None),  # one file, listed twice
    ],
)
def test_collisions(rows, files, how, message):
    named_files = [(name, ImageFile(path, 1)) for name, path in files]
    for order in permutations(named_files):
        if message is None:
            assert match([(1, name) for name in rows], list(order), how, ONE)[1].unlisted.number == (rows == ["b.jpg"])
            continue
        with pytest.raises(CollidingImagesError) as caught:
            match([(1, name) for name in rows], list(order), how, ONE)
        assert str(caught.value) == message


def test_rows_that_have_files():
    """Without a listing, rows keep their columns; nobody knows what is there."""
    rows = row_block([(1, "a.jpg"), (2, "../b.jpg"), (3, "a.jpg")]).replace(
        file_folder=ragged_texts(["p/", "", "p/"]), file_bytes=np.array([9, 9, 9]), file_version=ragged_texts([""] * 3)
    )
    matched, unlisted = match_rows(rows, None, "path", ONE)
    builder = FactsBuilder()
    assert unlisted == []
    assert matched.is_shared.all()
    (first, second) = image_tasks(drop_faulty_images(matched, ONE.names, builder), ONE.names)
    assert (first.ref, second.ref) == (ImageFile("p/a.jpg", 9), ImageFile("p/a.jpg", 9))
    assert [reject.reason for _, reject in listed(builder.build())] == [Reason.UNSAFE_FILE_NAME]


def test_ids_that_share_a_file_are_counted():
    rows = row_block([(1, "a.jpg"), (2, "a.jpg"), (3, "b.jpg"), (4, "c.jpg"), (5, "c.jpg")])
    files = file_block([(name, ImageFile(name, 9)) for name in ("a.jpg", "b.jpg")])
    p = Pipeline()
    sides = [p | f"Side{place}" >> beam.Create([(0, pack_block(block))]) for place, block in enumerate((rows, files))]
    _, facts = applied(tuple(sides), MatchRows("path", ONE, 0, 2))
    counts = facts | beam.Map(lambda facts: facts.counts)
    assert_that(counts, equal_to([{("val", Metric.SHARED_FILES.value): 2}]))
    p.run().wait_until_finish()


def test_rows_that_have_splits():
    """Without a division, they keep them."""
    rows = row_block([(1, "a.jpg"), (2, "b.jpg")]).replace(split=np.array([1, 0]))
    matched, _ = match_rows(rows, file_block([("a.jpg", ImageFile("a.jpg", 1))]), "path")
    assert matched.split.tolist() == [1, 0]


@given(st.lists(st.text(max_size=5) | st.sampled_from(NAMES)))
def test_name_keys(names):
    assert name_keys(names) == list(map(name_key, names))


@pytest.mark.parametrize(
    ("images", "files", "pairs"),
    [
        (["1.jpg"], ["train/1.jpg"], {"1.jpg": "train/1.jpg"}),
        (["a/b/1.jpg"], ["b/1.jpg", "c/1.jpg"], {"a/b/1.jpg": "b/1.jpg"}),
        (["1.jpg"], ["1.jpg", "train/1.jpg"], {"1.jpg": "1.jpg"}),  # the same name is nearer than the same end
        (["1.jpg", "b/1.jpg"], ["1.jpg", "x/b/1.jpg"], {"1.jpg": "1.jpg", "b/1.jpg": "x/b/1.jpg"}),
        (["train/1.jpg", "val/1.jpg"], ["train/1.jpg"], {"train/1.jpg": "train/1.jpg"}),
        (["p/train/1.jpg", "p/val/1.jpg"], ["train/1.jpg"], {"p/train/1.jpg": "train/1.jpg"}),
        (["C:\\x\\train\\1.jpg"], ["train/1.jpg", "val/1.jpg"], {"C:\\x\\train\\1.jpg": "train/1.jpg"}),
        (["1.jpg"], [], {}),
        ([], ["1.jpg", "a/1.jpg"], {}),
        (["u\u0308/1.jpg"], ["x/\u00fc/1.jpg", "1.jpg"], {"u\u0308/1.jpg": "x/\u00fc/1.jpg"}),
    ],
)
def test_longest_common_end_decides(images, files, pairs):
    for ordered_images in permutations(images):
        for ordered_files in permutations(files):
            assert match_names(ordered_images, ordered_files, "suffix") == pairs


@pytest.mark.parametrize(
    ("match", "images", "files", "message"),
    [
        ("suffix", ["1.jpg"], ["a/1.jpg", "b/1.jpg"], "the images '1.jpg' match the files 'a/1.jpg' and 'b/1.jpg'"),
        ("suffix", ["a/1.jpg", "b/1.jpg"], ["1.jpg"], "the images 'a/1.jpg' and 'b/1.jpg' match the files '1.jpg'"),
        ("suffix", ["x/a/1.jpg", "y/a/1.jpg"], ["a/1.jpg"], "'x/a/1.jpg' and 'y/a/1.jpg' match the files 'a/1.jpg'"),
        ("name", ["1.jpg"], ["1.jpg", "b/1.jpg"], "the images '1.jpg' match the files '1.jpg' and 'b/1.jpg'"),
        (
            "name",
            ["1.jpg"],
            [f"{letter}/1.jpg" for letter in "edcba"],
            "'a/1.jpg' and 'b/1.jpg' and 'c/1.jpg' and 2 mo",
        ),
    ],
)
def test_ambiguous_flag_is_error_that_names_both(match, images, files, message):
    with pytest.raises(CollidingImagesError) as caught:
        match_names(images, files, match)
    assert message in str(caught.value)
    assert f"--match {match}" in str(caught.value)


def test_name_there_once_on_each_side_is_enough():
    assert match_names(["a/1.jpg"], ["b/1.jpg"], "name") == {"a/1.jpg": "b/1.jpg"}
    assert match_names([], ["1.jpg", "b/1.jpg"], "name") == {}
    assert match_names(["1.jpg", "b/1.jpg"], [], "name") == {}


@given(st.sets(st.text("ab/", min_size=1, max_size=5).map(lambda folder: f"{folder}/1.jpg"), max_size=5))
def test_images_called_as_their_files_find_those(names):
    names = {name.strip("/") for name in names}
    spelled = {"/".join(part for part in name.split("/") if part) for name in names}
    assert match_names(spelled, spelled, "suffix") == {name: name for name in spelled}


@pytest.mark.parametrize("name", ["", "/", "."])
def test_names_hardly_any_have_last_part(name):
    assert base_name(name) in ("", ".")
