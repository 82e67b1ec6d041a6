import io

import msgspec
import pytest
import tensorflow as tf
from PIL import Image

from recordmill.schemas.problems import Agreement, DuplicateGroup, DuplicateImage, Duplicates, Likeness, SplitDuplicates
from recordmill.schemas.statistics import Example
from recordmill.transforms.insight.read_examples import (
    _open_record_image,
    _read_group,
    _read_suspicious_ids,
    choose_duplicates,
    duplicate_titles,
)
from tests.transforms.insight.test_page import SCRIPT, manifest_of, page_of, thumbnail


@pytest.mark.parametrize(
    ("size", "decoded"),
    [
        ((640, 480), (320, 240)),
        ((900, 300), (450, 150)),
        ((639, 639), (639, 639)),
        ((90, 60), (90, 60)),
        ((3000, 8), (375, 1)),  # of a line camera: less than a pixel high where it is as wide as wanted
        ((8, 3000), (1, 375)),
    ],
)
def test_scale_of_decoded_jpeg(size, decoded):
    file = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert("RGB").save(file, "JPEG")
    image, original = _open_record_image({"image.encoded": file.getvalue()}, None)
    assert (image.size, original) == (decoded, size)


def image(split: str, name: str, record: int = 0) -> DuplicateImage:
    return DuplicateImage(split, name, f"{split}.tfrecord", record, 100 * record, 90)


TRAIN = [image("train", f"{number}.jpg", number) for number in range(9)]
LEAK = DuplicateGroup(Likeness.NEAR, Agreement.DIFFER, (*TRAIN, image("val", "a.jpg", 3), image("val", "b.jpg")))
PAIR = DuplicateGroup(Likeness.EXACT, Agreement.SAME, (image("train", "c.jpg", 5), image("train", "d.jpg", 6)))


def test_of_group_one_of_each_split_is_shown_and_few_more():
    chosen = choose_duplicates([LEAK, PAIR])
    assert [(why, split, example.record) for why, split, example in chosen] == [
        ("duplicates 0", "train", 0),
        ("duplicates 0", "val", 3),
        ("duplicates 0", "train", 1),
        ("duplicates 1", "train", 5),
        ("duplicates 1", "train", 6),
    ]
    assert (chosen[1][2].shard, chosen[1][2].offset, chosen[1][2].bytes) == ("val.tfrecord", 300, 90)


def test_page_says_how_many_of_each_split_and_shows_groups():
    of = {"train": SplitDuplicates(exact=1234, leaked=9), "val": SplitDuplicates(leaked=2, near=2)}
    manifest = manifest_of(splits=("train", "val"), duplicates=Duplicates("", 2, 1, of, {SCRIPT: 77}))
    thumbnails = [thumbnail(SCRIPT)._replace(why="duplicates 0"), thumbnail("d.jpg")._replace(why="duplicates 1")]
    page = page_of(manifest, thumbnails, duplicates=[LEAK, PAIR])
    titles = {
        "duplicates 0": ("Similar images in train and val", "11 images, with different labels"),
        "duplicates 1": ("The same image in train", "2 images"),
    }
    assert duplicate_titles([LEAK, PAIR]) == titles
    parts = ("Leakage", "1,234", "77 images", *titles["duplicates 0"])
    assert [part for part in parts if part not in page.text] == []
    assert page.text.index("Similar images in train and val") < page.text.index("The same image in train")
    assert "script" not in {tag for tag, _ in page.tags}


def test_without_any_page_has_no_section_of_them():
    manifest = manifest_of(duplicates=Duplicates("", 0, 0, {"train": SplitDuplicates()}))
    for no_duplicates in (manifest, manifest_of()):
        assert "#duplicates" not in str(page_of(no_duplicates).tags)


def test_suspicious_annotations(tmp_path):
    box = b'{"split": "train", "what": "annotation", "kind": "thin_boxes", "score": 0, "file_name": "a.jpg", "id": 7}\n'
    (tmp_path / "problems-train.jsonl").write_bytes(box + box.replace(b', "id": 7', b"") + box.replace(b"7", b"9"))
    (tmp_path / "problems-val.jsonl").write_bytes(b"\xff")
    ids = _read_suspicious_ids(str(tmp_path), ["train", "val", "test"])
    assert ids == {("train", "thin_boxes", "a.jpg"): {7, 9}}


@pytest.mark.parametrize("name", ["gone-00000-of-00001", "gone-00000-of-00001.gz"])
def test_missing_shard_has_no_records(tmp_path, name):
    group = [(0, ("sample", "train", Example(0, 0, name, 0, 0, 9)))]
    assert _read_group(str(tmp_path), manifest_of(), group) == (group, {})


RECORDS = [b"zero", b"one", b"two", b"three"]


@pytest.mark.parametrize("name", ["s", "s.gz"])
@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ('"offset": 20, "bytes": 19', [b"one"]),  # of 92be177e, as the next
        ('"offset": 20, "bytes": 38', [b"one", b"two"]),
        ('"records": 3', [b"one", b"two", b"three"]),
        ('"records": 1', [b"one"]),
    ],
)
def test_records_of_example(tmp_path, name, position, expected):
    with tf.io.TFRecordWriter(str(tmp_path / name), "GZIP" if name == "s.gz" else "") as writer:
        list(map(writer.write, RECORDS))
    stored = f'{{"rank": 1, "key": 2, "shard": "{name}", "record": 1, {position}}}'
    example = msgspec.json.decode(stored, type=Example)
    group = [(0, ("sample", "train", Example(0, 0, name, 0))), (1, ("sample", "train", example))]
    records = _read_group(str(tmp_path), manifest_of(), group)[1]
    assert records == {(name, 0): [b"zero"], (name, 1): expected}
