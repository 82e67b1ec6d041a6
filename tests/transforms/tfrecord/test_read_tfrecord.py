"""Tests for source and recognise_paths."""

import gzip
import re
import subprocess
import zipfile
import zlib

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.tfrecord import find_records
from recordmill.transforms.tfrecord.find_records import recognise_paths
from recordmill.transforms.tfrecord.read_tfrecord import source
from recordmill.transforms.tfrecord.tfrecord_options import TfrecordOptions
from tests.literal_data import example, jpeg, old_record, tfrecord, write_files

RECORD = tfrecord(old_record())
NUMBERED = tfrecord(old_record(image__object__class__text=[]))
SEQUENCE = b"\x12\x07\x0a\x05\x0a\x01a\x12\x00"
"""SequenceExample of a feature list `a` without steps."""
MAP, OTHER_MAP = "item { id: 1 name: 'cat' }", "item { id: 1 name: 'dog' }"


def source_of(folder, contents, **options):
    write_files(folder / "old", contents)
    return source(TfrecordOptions(**{"data": str(folder / "old"), "output": "out"} | options))


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["train.record", "val.record"], ("train", "val")),
        (["coco_train.record-00000-of-00100", "coco_testdev.record-00000-of-00002"], ("train", "test")),
        (["train-00000-of-00010", "validation-00000-of-00002"], ("train", "val")),
        (["voc-train.tfrecord-00000-of-00001"], ("train",)),
        (["train/Cats.tfrecord", "valid/Cats.tfrecord", "test/Cats.tfrecord"], ("train", "val", "test")),
        (["a", "records"], ()),
    ],
)
def test_splits_of_names(names, splits, tmp_path):
    read = source_of(
        tmp_path, dict.fromkeys(names, RECORD) | {"README.md": "x", "1.jpg": jpeg(1), "other": "no records"}
    )
    assert read.splits == splits
    assert [name for name in (*names, "README.md", "1.jpg", "other") if read.is_label(name)] == names


def test_all_files_of_unusual_names_are_looked_into(tmp_path, monkeypatch):
    names = [f"{number:02}" for number in range(30)]
    read = source_of(tmp_path, dict.fromkeys(names, RECORD) | {"a.record": RECORD})
    assert [name for name in names if read.is_label(name)] == names
    monkeypatch.chdir(tmp_path)
    assert recognise_paths([f"old/{name}" for name in names]) == {"data": ["old"], "files": names}


def test_files_that_only_have_the_name_of_a_tfrecord_file(tmp_path):
    read = source_of(
        tmp_path, {"a.record": RECORD, "b.record": "version https://git-lfs.github.com/spec/v1", "c.record": ""}
    )
    assert [name for name in ("a.record", "b.record", "c.record") if read.is_label(name)] == ["a.record"]
    assert [warning.rpartition(" ")[::2] for warning in read.warnings] == [
        (
            "files with names of TFRecord files are not read, because they do not begin with the header of a record:",
            "b.record",
        ),
        ("files with names of TFRecord files are empty:", "c.record"),
    ]


def test_captions_that_come_after_the_first_records_are_a_warning(tmp_path):
    read = source_of(tmp_path, {"a.record": RECORD})
    (warning,) = read.check(frozenset(("image/caption",)))
    assert warning.startswith("captions are not written, because the first 8 records of the first 8 files have none")


def test_a_large_file_that_an_archive_compresses(tmp_path):
    (tmp_path / "old").mkdir()
    with zipfile.ZipFile(tmp_path / "old" / "a b.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train.record", tfrecord(old_record(image__other=bytes(9 << 20))))
    read = source_of(tmp_path, {}, data=str(tmp_path / "old" / "a b.zip"))
    (warning,) = read.warnings
    command, target = re.search(r"unpack the archive: (.*), and give (.*)$", warning).groups()
    subprocess.run(command, shell=True, check=True)
    assert source(TfrecordOptions(data=target, output="out")).warnings == ()


def test_files_of_which_some_name_a_split(tmp_path):
    with pytest.raises(ConfigError, match=r"train\.record names the split train, and more\.record none"):
        source_of(tmp_path, {"train.record": RECORD, "more.record": RECORD})


@pytest.mark.parametrize(
    ("files", "options", "categories"),
    [
        ({"a.record": RECORD}, {}, None),
        ({"a.record": NUMBERED, "map.pbtxt": MAP}, {}, [(1, "cat")]),
        ({"train/a.record": NUMBERED, "train/a_label_map.pbtxt": MAP, "valid/a.pbtxt": MAP}, {}, [(1, "cat")]),
        ({"a.record": NUMBERED, "labels.txt": "1:cat\n3:dog\n"}, {}, [(1, "cat"), (3, "dog")]),
        ({"a.record": NUMBERED}, {"class_names": "background,cat"}, [(1, "cat")]),
        ({"a.record": NUMBERED}, {"class_names": "cat=1,dog=4"}, [(1, "cat"), (4, "dog")]),
        ({"a.record": RECORD, "map.pbtxt": OTHER_MAP}, {}, None),
        ({"a.record": RECORD, "graph.pbtxt": "node { name: 'conv' }"}, {}, None),
        ({"a.record": RECORD, "graph.pbtxt": "node", "map.pbtxt": MAP}, {}, [(1, "cat")]),
        ({"a.record": tfrecord(old_record(image__object__class__text=b"\xff"), old_record(1))}, {}, None),
        ({"a.record": tfrecord(b"\xff", SEQUENCE, old_record(1))}, {}, None),
    ],
)
def test_names_of_classes(files, options, categories, tmp_path):
    read = source_of(tmp_path, files, **options)
    assert (read.categories and [(one.id, one.name) for one in read.categories]) == categories
    assert bool(read.inputs) == bool(categories and not options)  # a change of the label map is one of the data


@pytest.mark.parametrize(
    ("files", "options", "detail"),
    [
        ({"a.record": NUMBERED}, {}, r"record 0: image/object/class/label has the class 1, .* --label-map FILE.pbtxt"),
        ({"a.record": NUMBERED, "a.pbtxt": "item {}"}, {}, "a.pbtxt: the item of id 0 has no name"),
        ({"a.record": NUMBERED, "labels.txt": "cat"}, {}, r"has the class 1, and no key and no file"),
        ({"a.record": NUMBERED, "a.pbtxt": MAP, "b.pbtxt": OTHER_MAP}, {}, "several files .*: a.pbtxt, b.pbtxt"),
        ({"a.record": tfrecord(SEQUENCE)}, {}, "record 0: it is a tf.train.SequenceExample, not a tf.train.Example"),
        ({"a.record": tfrecord(b"")}, {}, "the first records are empty"),
        ({"a.txt": "x"}, {}, "has no TFRecord file"),
        ({"a.record": RECORD}, {"files": "b.record"}, "has no TFRecord file 'b.record'"),
        ({"a.record": RECORD, "manifest.json": "{}"}, {}, "recordmill repack .*/old OUT --replan"),
        ({"a.record": RECORD, "manifest.json": "{}"}, {"labels_only": True}, "recordmill extract .*/old OUT --as coco"),
        ({"a.record": tfrecord(example(img=jpeg(1)))}, {}, "--keys image/encoded=img"),
        ({"a.record": tfrecord(example(image=[0.5], label=[1]))}, {}, "image has 1 float values, not an encoded image"),
        ({"a.record": tfrecord(old_record(image__encoded=bytes(60)))}, {}, r"60 bytes that begin with b'\\x00"),
        ({"a.record": tfrecord(example(image__encoded=jpeg(1), x1=[0.5]))}, {}, "no key of boxes or classes"),
        (
            {"a.record": tfrecord(old_record(image__object__class__text=[], image__object__class__label=[]))},
            {},
            "objects have no class. Add --class-names",
        ),
        ({"a.record": NUMBERED}, {"class_names": "cat=1,dog"}, "--class-names: 'dog' has no value"),
        ({"a.record": RECORD}, {"keys": "x=y"}, "--keys names 'x', which is not read"),
        ({"a.record": RECORD}, {"images": ["b"]}, "--images b: TFRecord files hold their images"),
    ],
)
def test_refused_data(files, options, detail, tmp_path):
    with pytest.raises(ConfigError, match=detail):
        source_of(tmp_path, files, **options)


@pytest.mark.parametrize(
    ("names", "plain"),
    [
        (["a b.record"], []),
        (["train/a.tfrecord", "valid/b.tfrecord.gz"], []),
        (["z.record"], [f"{number:02}.record" for number in range(30)]),
    ],
)
def test_the_command_for_compressed_files(names, plain, tmp_path):
    _unpack_as_told(tmp_path, dict.fromkeys(names, gzip.compress(RECORD)), plain, "gzip")


@pytest.mark.parametrize(
    ("data", "kind"),
    [(RECORD, find_records.RECORD_FILE), (gzip.compress(RECORD), "gzip"), (zlib.compress(RECORD), "zlib")],
)
def test_kind_of_a_file_in_a_bucket_whose_first_bytes_are_read(data, kind, tmp_path, monkeypatch):
    (tmp_path / "a.record").write_bytes(data)
    monkeypatch.setattr(find_records, "is_remote", lambda path: True)
    assert find_records.content_kind(str(tmp_path / "a.record")) == kind


def test_the_command_for_a_file_that_zlib_compressed(tmp_path):
    _unpack_as_told(tmp_path, {"a b.record": zlib.compress(RECORD)}, [], "zlib")
    with pytest.raises(ConfigError, match=r"compressed by zlib, .* into a folder, each by python3 -c .* < FILE"):
        source_of(tmp_path, {"c.record": RECORD})


def _unpack_as_told(tmp_path, packed, plain, compression):
    with pytest.raises(ConfigError, match=f"compressed by {compression}") as error:
        source_of(tmp_path, packed | dict.fromkeys(plain, RECORD))
    command, target = re.search(
        r"(?:Unpack it|and all others like it): (.*), and give (.*)$", str(error.value)
    ).groups()
    subprocess.run(command, shell=True, check=True)
    read = source(TfrecordOptions(data=target, output="out"))
    assert [name for name in plain if not read.is_label(name)] == []


def test_other_names_of_keys(tmp_path):
    record = example(img=jpeg(1), x1=[0.5], y1=[0.5], x2=[1.0], y2=[1.0], kind=b"cat")
    edges = "".join(
        f",image/object/bbox/{edge}={name}" for edge, name in zip(("xmin", "ymin"), ("x1", "y1"), strict=True)
    )
    edges += ",image/object/bbox/xmax=x2,image/object/bbox/ymax=y2"
    keys = f"image/encoded=img{edges},image/object/class/text=kind"
    read = source_of(tmp_path, {"a.record": tfrecord(record)}, keys=keys)
    with open(tmp_path / "old" / "a.record", "rb") as stream:
        (image,) = read.parse(stream, "a.record")
    assert [(one.category, one.box) for one in image.sample.objects] == [("cat", (20, 15, 20, 15))]


def test_paths_and_patterns_of_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, {"old/a.record": RECORD, "old/b.record": RECORD, "old/c.txt": "x", "c.csv": "x"})
    whole, one = {"data": ["old"]}, {"data": ["old"], "files": ["a.record"]}
    assert recognise_paths(["old/a.record", "old/b.record"]) == whole
    assert recognise_paths(["old/*.record"]) == whole
    assert recognise_paths(["old/a*.record"]) == one
    assert recognise_paths(["old/a.record", "c.csv"]) == {}
    assert recognise_paths(["old/a.record"]) == {}
    assert recognise_paths(["old/a.record", "old/gone.record"]) == {}
    assert recognise_paths(["old", "c.csv"]) == {}
