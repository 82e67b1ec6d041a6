import json
from pathlib import Path

import pytest

from recordmill.schemas.dataset.checks import Fault, Faults
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import LAYOUTS
from recordmill.transforms.extract.extract_pieces import read_shard_piece
from recordmill.transforms.extract.extract_rows import CaptionEntry, PanopticEntry, Row
from recordmill.transforms.extract.write_documents import (
    Document,
    ExtractedSplit,
    SplitPieces,
    write_document,
    write_split,
)
from tests.transforms.extract.pieces import record, row, write_piece

LABELS = LabelMap((Category(3, "cat", isthing=1), Category(7, "figure", keypoints=("head",), skeleton=((1, 1),))))


def write_coco(folder: Path, shards: list[str], layout: str, *parts: Part) -> ExtractedSplit:
    return write_split(("val", shards), str(folder), LAYOUTS[layout].with_parts(parts), LABELS, "coco")


def read_json(folder: Path, name: str):
    return json.loads((folder / "annotations" / f"{name}_val.json").read_bytes())


def test_rows_are_in_order_of_shards_and_records(tmp_path):
    torn = Fault("two", 1, "truncated", "cut")
    shards = [
        write_piece(tmp_path, "two", record(0, 4, "b.jpg", instances=(row(9), row(7))), faults=(torn,)),
        write_piece(tmp_path, "one", record(0, 5, "a.jpg", instances=(row(8),))),
    ]
    expected = ExtractedSplit("val", 2, 2, 200, (Document("annotations/instances_val.json", 3),), Faults((torn,)))
    assert write_coco(tmp_path, shards, "detection") == expected
    assert read_json(tmp_path, "instances") == {
        "images": [
            {"id": 5, "file_name": "a.jpg", "width": 40, "height": 30},
            {"id": 4, "file_name": "b.jpg", "width": 40, "height": 30},
        ],
        "annotations": [{"id": 8}, {"id": 9}, {"id": 7}],
        "categories": [
            {"id": 3, "name": "cat"},
            {"id": 7, "name": "figure", "keypoints": ["head"], "skeleton": [[1, 1]]},
        ],
    }


def test_each_kind_has_file(tmp_path):
    one = record(0, 4, "b.jpg", keypoints=(row(9),), captions=(CaptionEntry(None, 4, "a cat"),))
    split = write_coco(tmp_path, [write_piece(tmp_path, "one", one)], "detection", Part.KEYPOINTS, Part.CAPTIONS)
    kinds = {"instances": 0, "person_keypoints": 1, "captions": 1}
    assert split.documents == tuple(Document(f"annotations/{kind}_val.json", n) for kind, n in kinds.items())
    found = {kind: read_json(tmp_path, kind) for kind in kinds}
    assert [category["id"] for category in found["person_keypoints"]["categories"]] == [7]
    assert found["captions"]["annotations"] == [{"id": 1, "image_id": 4, "caption": "a cat"}]
    assert "categories" not in found["captions"]


@pytest.mark.parametrize(
    ("ids", "written"),
    [((None, None, None), (1, 2, 3)), ((5, 3, 0), (5, 3, 0))],
    ids=["without ids they are numbered", "ids stay"],
)
def test_ids_of_captions(tmp_path, ids, written):
    one, two, three = (CaptionEntry(id_, 2, text) for id_, text in zip(ids, "abc", strict=True))
    shards = [
        write_piece(tmp_path, "b", record(0, 2, "b", captions=(two, three))),
        write_piece(tmp_path, "a", record(0, 9, "a", captions=(one,))),
    ]
    write_coco(tmp_path, shards, "detection", Part.CAPTIONS)
    found = read_json(tmp_path, "captions")["annotations"]
    assert [(row["id"], row["caption"]) for row in found] == list(zip(written, "abc", strict=True))


def test_ids_that_several_annotations_have_are_counted(tmp_path):
    """Files that number their annotations from 1 share ids; captions without ids are not counted."""
    none = (CaptionEntry(None, 4, "a"), CaptionEntry(None, 4, "b"))
    shards = [
        write_piece(tmp_path, "one", record(0, 4, "a.jpg", instances=(row(1), row(2)), captions=none)),
        write_piece(tmp_path, "two", record(0, 5, "b.jpg", instances=(row(2), row(3)))),
        write_piece(tmp_path, "three", record(0, 6, "c.jpg", instances=(row(3), row(2), row(4)))),
    ]
    split = write_coco(tmp_path, shards, "detection", Part.CAPTIONS)
    assert [(document.annotations, document.shared_ids) for document in split.documents] == [(7, 2), (2, 0)]


def test_panoptic_rows_are_those_whose_png_is_kept(tmp_path):
    """One was not written, and two have one name for different bytes."""

    def panoptic(number: int, file: str, written: str, sha256: str):
        files = ((f"images/val/{number}.jpg", "x"), (f"panoptic/val/{written}", sha256))
        return record(number, 9 - number, f"{number}.jpg", panoptic=PanopticEntry(9 - number, file, ()), files=files)

    records = [
        panoptic(0, "kept.png", "kept.png", "a"),
        panoptic(1, "lost.png", "other.png", "b"),
        panoptic(2, "twice.png", "twice.png", "c"),
        panoptic(3, "twice.png", "twice.png", "d"),
        panoptic(4, "kept-4.png", "kept-4.png", "e"),
    ]
    split = write_coco(tmp_path, [write_piece(tmp_path, "one", *records)], "tfds", Part.PANOPTIC)
    assert [(fault.record, fault.reason) for fault in split.faults.listed] == [(3, "duplicate_name")]
    found = read_json(tmp_path, "panoptic")
    assert [each["file_name"] for each in found["annotations"]] == ["kept.png", "kept-4.png"]
    assert (split.rows, split.images) == (5, 5)


def test_objects_of_one_image_share_its_row(tmp_path):
    """In layout keras; an object whose record tells another image of the same id is left out."""
    shards = [
        write_piece(
            tmp_path,
            "one",
            record(0, 4, "a.jpg", "x", instances=(row(1),)),
            record(1, 4, "b.jpg", "y", instances=(row(2),)),
        ),
        write_piece(tmp_path, "two", record(0, 4, "a.jpg", "x", instances=(row(3),))),
    ]
    split = write_coco(tmp_path, shards, "keras")
    assert (split.images, split.image_bytes) == (1, 100)
    assert [(fault.file, fault.record, fault.reason) for fault in split.faults.listed] == [
        ("one", 1, "duplicate_image_id")
    ]
    found = read_json(tmp_path, "instances")
    assert found["annotations"] == [{"id": 1}, {"id": 3}]
    assert [image["file_name"] for image in found["images"]] == ["a.jpg"]


def test_images_of_one_class_become_table_of_labels(tmp_path):
    shards = [
        write_piece(tmp_path, "two", record(0, 4, "cat/b.jpg", class_name="cat")),
        write_piece(
            tmp_path,
            "one",
            record(0, 5, "dog/a, b.jpg", class_name='dog "Tom"'),
            record(1, 6, "cat/a.jpg", class_name="cat"),
        ),
    ]
    split = write_coco(tmp_path, shards, "classification")
    assert split == ExtractedSplit("val", 3, 3, 300, (Document("annotations/labels_val.csv", 3),), Faults())
    assert [path.name for path in (tmp_path / "annotations").iterdir()] == ["labels_val.csv"]
    assert (tmp_path / "annotations" / "labels_val.csv").read_bytes() == (
        b'path,label,split\n"dog/a, b.jpg","dog ""Tom""",val\ncat/a.jpg,cat,val\ncat/b.jpg,cat,val\n'
    )


def test_file_that_cannot_be_made_whole_is_not_there(tmp_path):
    def rows():
        yield Row(1, b"1")
        raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        write_document(str(tmp_path / "a.json"), [], rows(), None)
    assert list(tmp_path.iterdir()) == []


def merged(folder, shards: list[str], layout: str = "detection") -> SplitPieces:
    pieces = tuple(read_shard_piece(str(folder), shard) for shard in shards)
    return SplitPieces(str(folder), pieces, LAYOUTS[layout].with_parts(()))


def test_files_that_differ_spoil_every_spelling_of_their_name(tmp_path):
    names = ("a.jpg", "\u00e9.jpg", "e\u0301.jpg", "b.jpg")
    records = [record(number, number, name, name) for number, name in enumerate(names)]
    pieces = merged(tmp_path, [write_piece(tmp_path, "one", *records)])
    assert pieces.spoiled == {"images/val/e\u0301.jpg", "images/val/\u00e9.jpg"}
    assert [(fault.reason, fault.record) for fault in pieces.faults.listed] == [("duplicate_name", 2)]
    assert pieces.faults.listed[0].detail.endswith(
        "record 1 of one has a different file with that name; neither is kept"
    )
    assert [row.json for row in pieces.image_rows()] == [
        b'{"id":0,"file_name":"a.jpg","width":40,"height":30}',
        b'{"id":3,"file_name":"b.jpg","width":40,"height":30}',
    ]
    assert (pieces.images, pieces.image_bytes) == (2, 200)


def test_record_left_out_does_not_take_id(tmp_path):
    """The first with the id 5 has a name that another has, too; of the others, the first is kept."""
    shard = write_piece(
        tmp_path,
        "one",
        record(0, 5, "a.jpg", "x"),
        record(1, 6, "a.jpg", "y"),
        record(2, 5, "b.jpg", "z"),
        record(3, 5, "c.jpg", "z"),
    )
    pieces = merged(tmp_path, [shard])
    assert [(fault.reason, fault.record) for fault in pieces.faults.listed] == [
        ("duplicate_name", 1),
        ("duplicate_image_id", 3),
    ]
    assert [row.json for row in pieces.image_rows()] == [b'{"id":5,"file_name":"b.jpg","width":40,"height":30}']


def test_faults_are_in_order_of_shards_and_records(tmp_path):
    """Not of names or ids."""
    shards = [
        write_piece(tmp_path, "a", *(record(n, 20 - n, f"{20 - n}.jpg", "x") for n in range(5))),
        write_piece(tmp_path, "b", *(record(n, 20 - n, f"{9 - n}.jpg", f"y{n}") for n in range(5))),
        write_piece(tmp_path, "c", *(record(n, 40 + n, f"{9 - n}.jpg", f"z{n}") for n in range(5))),
    ]
    found = [(fault.reason, fault.file, fault.record) for fault in merged(tmp_path, shards).faults.listed]
    assert found == [("duplicate_name", "c", n) for n in range(5)]
    same_ids = [write_piece(tmp_path, shard, *(record(n, 9 - n, f"{shard}{n}") for n in range(3))) for shard in "de"]
    found = [(fault.reason, fault.file, fault.record) for fault in merged(tmp_path, same_ids).faults.listed]
    assert found == [("duplicate_image_id", "e", n) for n in range(3)]


def test_ids_beyond_64_bits_are_named_apart(tmp_path):
    ids = (1 << 70, 5, 1 << 65, -(1 << 70))
    shard = write_piece(tmp_path, "one", *(record(n, id_, f"{n}.jpg") for n, id_ in enumerate(ids)))
    pieces = merged(tmp_path, [shard])
    assert not pieces.faults
    assert [row.id for row in pieces.image_rows()] == list(ids)


def test_repeated_image_is_an_error(tmp_path):
    shard = write_piece(tmp_path, "one", *(record(n, 4, "a.jpg", instances=(row(n),)) for n in range(2)))
    assert [fault.reason for fault in merged(tmp_path, [shard]).faults.listed] == ["duplicate_image_id"]
    assert not merged(tmp_path, [shard], "keras").faults


def test_images_that_share_label_file(tmp_path):
    """Two images with the same stem are left out where their labels differ; where they are equal, both are kept."""
    records = [
        record(0, 1, "", files=[("images/val/a.jpg", "1"), ("labels/val/a.txt", "x")]),
        record(1, 2, "", files=[("images/val/a.png", "2"), ("labels/val/a.txt", "y")]),
        record(2, 3, "", files=[("images/val/b.jpg", "3"), ("labels/val/b.txt", "x")]),
        record(3, 4, "", files=[("images/val/b.png", "4"), ("labels/val/b.txt", "x")]),
        record(4, 4, "", files=[("images/val/c.jpg", "5"), ("labels/val/c.txt", "x")]),
        record(5, 9, "", files=[("images/val/c.jpg", "5"), ("labels/val/c.txt", "x")]),
    ]
    piece = read_shard_piece(str(tmp_path), write_piece(tmp_path, "one", *records))
    pieces = SplitPieces(str(tmp_path), (piece,), LAYOUTS["detection"], has_label_files=True)
    assert pieces.spoiled == {"images/val/a.jpg", "images/val/a.png", "labels/val/a.txt"}
    assert [rows.image.id for rows in pieces.rows()] == [3, 4, 4]
    faults = [(fault.reason, fault.record) for fault in pieces.faults.listed]
    assert faults == [("duplicate_name", 1), ("duplicate_image_id", 5)]
