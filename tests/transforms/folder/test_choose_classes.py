"""Classes of folders, and warnings about folders that are not classes."""

import logging
import re
from itertools import permutations
from zipfile import ZipFile

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.errors import CategoryError, ConfigError
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.transforms.blocks.pack_block import pack_block
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.folder import choose_classes as module
from recordmill.transforms.folder.choose_classes import (
    ListClasses,
    WarnNestedClasses,
    folders_without_images,
    nested_classes,
)
from recordmill.transforms.folder.folder_options import FolderOptions
from recordmill.transforms.join.choose_categories import class_labels
from tests.beam_pipeline import Pipeline
from tests.transforms.dataset.kinds import applied


def labels_of(*names: str) -> LabelMap:
    return LabelMap(tuple(Category(index, name) for index, name in enumerate(names)))


def names(labels: LabelMap) -> list[str]:
    assert [category.id for category in labels.categories] == list(range(len(labels.categories)))
    assert labels.segments == ()
    return [category.name for category in labels.categories]


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (["dog", "cat", "Cow"], ["Cow", "cat", "dog"]),
        (["10", "9", "1"], ["1", "9", "10"]),
        (["10", "9", "a"], ["10", "9", "a"]),
        (["007", "10", "9"], ["007", "9", "10"]),
        (["1", "01", "001"], ["001", "01", "1"]),
        (["²", "10", "9"], ["10", "9", "²"]),
        (["٣", "10", "9"], ["10", "9", "٣"]),
        (["9", "10", "-1"], ["-1", "9", "10"]),
        (["10.0", "2.5", "20.0", "5.0"], ["2.5", "5.0", "10.0", "20.0"]),
        (["1" * 18, "2"], ["2", "1" * 18]),
        (["1" * 19, "2"], ["2", "1" * 19]),
        ([], []),
    ],
)
def test_all_classes_are_sorted_and_numbers_by_their_value(classes, expected):
    for order in permutations(classes):
        assert names(class_labels(order, ())) == expected


@pytest.mark.parametrize("asked", [("dog", "cat"), ("9", "10", "1"), ("10",), ("unicorn", "cat"), ("cat", "35")])
def test_classes_asked_for_keep_their_order(asked):
    assert names(class_labels(["cat", "dog", "10", "9", "1"], asked)) == list(asked)


TENS = [f"{number:02}" for number in range(17)]
FIRST_TENS = ", ".join(map(repr, TENS[:10]))


@pytest.mark.parametrize(
    ("observed", "asked", "folders", "message"),
    [
        (
            ["cat", "dog"],
            ("Emu",),
            (),
            "--classes Emu: no image has one of these classes; the classes are 'cat', 'dog'",
        ),
        (
            ["cat"],
            ("cta", "Dog"),
            ("pets",),
            "--classes cta,Dog: no image has one of these classes; the classes are 'cat'",
        ),
        (TENS[:10], ("x",), (), f"--classes x: no image has one of these classes; the classes are {FIRST_TENS}"),
        (TENS, ("x",), (), f"--classes x: no image has one of these classes; the classes are {FIRST_TENS} and 7 more"),
        (["cat", "dog"], ("cat", "Dog"), (), "--classes 'Dog': no image has this class. Did you mean 'dog'?"),
        (
            ["cat", "dog"],
            ("cat", "ZEBRA", "DOG "),
            (),
            "--classes 'DOG ': no image has this class. Did you mean 'd",
        ),
        (
            ["a,b", "c"],
            ("c", "a", "b"),
            (),
            "--classes: no class is called 'a' or 'b', but one is called 'a,b'. Quote a name with a comma: --classes "
            """'c,"a,b"'""",
        ),
        *(
            (
                classes,
                (),
                ("pets", "more"),
                f"the folders in pets more have the names of splits, {', '.join(map(repr, classes))}, and",
            )
            for classes in (["test", "train"], ["Train", "VALID", "test"], ["train"], ["dev", "eval", "training"])
        ),
        (
            ["train", "val"],
            (),
            ("pets",),
            "the folders in pets have the names of splits, 'train', 'val', and would become the classes. Convert each "
            "by its own command, recordmill convert pets/train -o OUT --split train (with --labels FILE, or "
            "--label-from name for names like cat_1.jpg, if there are no class folders in it), or, if they are "
            "classes, give --classes train,val",
        ),
        (
            ["pets"],
            (),
            ("images",),
            "all images in images are in one folder, 'pets', so there would be one class. If that folder contains the "
            "class folders, convert it by recordmill convert images/pets -o OUT. If it is the only class, give "
            "--classes pets",
        ),
    ],
)
def test_class_labels_mistakes(observed, asked, folders, message):
    with pytest.raises(CategoryError) as caught:
        class_labels(observed, asked, folders)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("observed", "asked", "folders"),
    [
        (["a,b", "a", "c"], ("a", "b"), ()),
        (["a,b", "c"], ("a,b", "c"), ()),
        (["", ",", "c"], (), ()),  # blank lines of YOLO's classes.txt are classes
        *((["cat", "dog"], asked, ()) for asked in (("cat", "cats"), ("cat", "dogs"), ("car", "dog"))),
        (["cat", "dog"], ("dog", "cat", "Cat"), ()),
        ([], ("cat", "dog"), ("images",)),
        ([], (), ("images",)),
        (["cat"], ("cat",), ("images",)),
        (["cat"], (), ()),  # of a table
        (["train", "val"], ("train", "val"), ("images",)),
        (["train", "val"], (), ()),
        (["cat", "train"], (), ("images",)),
        (["trains", "vals"], (), ("images",)),
    ],
)
def test_class_labels_that_may_be_meant(observed, asked, folders):
    """A split may lack a class."""
    assert names(class_labels(observed, asked, folders)) == list(asked or sorted(observed))


@pytest.mark.parametrize(
    ("observed", "asked", "expected"),
    [
        ([["dog", "cat"], ["dog"]], ("cow", "dog"), ["cow", "dog"]),
        ([["train"], ["val"]], (), "the folders in pets have the names of splits, 'train', 'val',"),
    ],
)
def test_list_classes(observed, asked, expected):
    blocks = [(0, pack_block(Block(class_name=ragged_texts(names)))) for names in observed]
    p = Pipeline()
    labels = p | beam.Create(blocks) | ListClasses(asked, ("pets",))
    if isinstance(expected, str):
        with pytest.raises(Exception, match=expected):
            p.run()
    else:
        assert_that(labels, equal_to([labels_of(*expected)]))
        p.run().wait_until_finish()


def test_class_folders_that_give_no_image(tmp_path):
    for name in ("ant/1.jpg", "bee/0", "bee/1", "dog/more/1.png", "out/x", ".hidden/x", "file"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "cat").mkdir()
    for name in ("bee/0", "bee/1"):
        (tmp_path / name).write_bytes(b"\xff\xd8\xff")
    texts = list(folders_without_images([str(tmp_path), "gs://bucket/x", "images.zip"], str(tmp_path / "out")))
    assert len(texts) == 2
    reason = "none of its 2 files, such as 'bee/[01]', has the suffix of an image format; that is a JPEG image. Give"
    assert re.search(f"'bee' .* contains no images, .* {reason} such files the suffix", texts[0])
    assert re.search("'cat' .* it is empty", texts[1])
    with ZipFile(tmp_path / "images.zip", "w") as archive:
        for name in ("ant/1.jpg", "bee/0", "readme"):
            archive.writestr(name, b"\xff\xd8\xff")
    (text,) = folders_without_images([str(tmp_path / "images.zip")], "out")
    assert "none of its 1 files, such as 'bee/0', has the suffix of an image format; that is a JPEG image" in text


# Folders in class folders that are named like classes

PETS = labels_of("Cat", "Dog", "cleaned")


def test_copied_classes_are_named():
    nested = [(("cleaned", "dog"), 12_499), (("cleaned", "Cat"), 12_499)]
    (text,) = nested_classes(nested, PETS)
    assert text.startswith("class 'cleaned' contains folders with the names of other classes")
    assert "(images per folder: 'Cat' 12,499, 'dog' 12,499)" in text
    assert text.endswith("--classes Cat,Dog")
    many = [f"c{number}" for number in range(8)]
    (text,) = nested_classes([(("all", name), 1) for name in many], labels_of("all", *many))
    assert "'c4' 1 and 3 more" in text
    assert text.endswith("--classes with the other classes")


@pytest.mark.parametrize(
    "nested",
    [
        [],
        [(("Cat", "Cat"), 3), (("Cat", "cat"), 3)],  # its own name
        [(("Cat", "side"), 3)],
        [(("other", "Cat"), 3)],  # not a selected class
    ],
)
def test_other_folders_in_classes(nested):
    assert list(nested_classes(nested, PETS)) == []


def test_warn_of_nested_classes():
    """An image counts once, however deep it is; each split gets the warning."""
    images = ["Cat/1.jpg", "cleaned/Cat/1.jpg", "cleaned/Cat/Cat/2.jpg", "cleaned/x/Dog/3.jpg", "Cat/side/5.jpg"]
    blocks = [(0, pack_block(Block(file_name=ragged_texts(part)))) for part in (images[:2], images[2:])]
    with Pipeline() as p:
        labelled = p | "Labels" >> beam.Create([PETS])
        _, warnings = applied(p | "Rows" >> beam.Create(blocks), WarnNestedClasses(labelled, ("train", "val")))
        (text,) = nested_classes([(("cleaned", "Cat"), 2), (("cleaned", "Dog"), 1)], PETS)
        assert_that(warnings, equal_to([Facts(warnings={("train", text), ("val", text)})]))


# Buckets are looked at before any machine starts


@pytest.fixture
def bucket(gcs, monkeypatch):
    monkeypatch.setattr(module, "_SAMPLE", 4)
    gcs.page_size = 4
    return gcs


def looked_at(*folders: str, **options) -> None:
    module.check_sample(FolderOptions(data=folders, output="out", **options))


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["a.jpg", "b.jpg"], "'a.jpg' is not in a folder"),
        (["cat/a.txt", "cat/.b.jpg"], "'cat/.b.jpg' has no suffix of an image format"),
    ],
)
def test_bucket_without_any_is_refused(bucket, names, why):
    for name in names:
        bucket.put(f"images/{name}", b"")
    with pytest.raises(ConfigError) as caught:
        looked_at("gs://bucket/images")
    assert str(caught.value) == f"DATA gs://bucket/images has no image of a class: {why}"


def test_bucket_without_any_among_its_first_files_is_warned_of(bucket, caplog):
    for number in range(9):
        bucket.put(f"images/a{number}.txt", b"")
    bucket.put("images/cat/1.jpg", b"")
    with caplog.at_level(logging.WARNING):
        looked_at("gs://bucket/images")
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith("DATA gs://bucket/images: no image of a class among its first 4 files: 'a0.txt'")
    assert [call.operation for call in bucket.log] == ["list"]


def test_folders_that_may_have_classes(bucket, tmp_path, caplog):
    bucket.put("one/a.jpg", b"")
    bucket.put("two/cat/a.jpg", b"")
    bucket.put("names/cat_1.jpg", b"")
    (tmp_path / "a.jpg").touch()
    looked_at("gs://bucket/names", label_from="name")
    looked_at(str(tmp_path))  # the job itself sees local folders
    with caplog.at_level(logging.WARNING):  # another test may have set one
        looked_at("gs://bucket/one", "gs://bucket/two")
        looked_at("gs://bucket/one", str(tmp_path))
    assert len(caplog.records) == 2


@pytest.mark.parametrize("flags", [[], ["--model", "mobilenet-v2"]])
def test_the_commands_look(bucket, recordmill, flags):
    bucket.put("images/a.jpg", b"")
    outcome = recordmill("convert", "gs://bucket/images", "--format", "folder", *flags, "--output", "gs://bucket/out")
    assert (outcome.code, "has no image of a class: 'a.jpg' is not in a folder" in outcome.err) == (2, True), outcome


def test_table_of_images_needs_no_listing(bucket, recordmill):
    bucket.put("images/a.jpg", b"")
    bucket.put("labels.csv", b"path,label\nb.jpg,cat\n")
    flags = ["--images", "gs://bucket/images", "--labels", "gs://bucket/labels.csv", "--output", "gs://bucket/out"]
    assert "none of the 1 images has a file" in recordmill("convert", *flags).err
