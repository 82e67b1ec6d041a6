"""The rows of a split's records become COCO's JSON files."""

import json

import apache_beam as beam
import msgspec
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.annotations import Category
from recordmill.schemas.features import Part
from recordmill.schemas.image_labels import LabelColumns
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.plan_report import Fault
from recordmill.transforms.extract.extract_documents import (
    Document,
    ExtractedSplit,
    WriteDocuments,
    collisions,
    labels_table,
    numbered_captions,
    write_document,
    write_documents,
)
from recordmill.transforms.extract.extract_files import WrittenFile
from recordmill.transforms.extract.extract_rows import CaptionRow, EncodedRow, ImageRow, RecordRows
from recordmill.transforms.extract.extract_shards import ExtractedRecord, ExtractedShard, without_rows
from recordmill.transforms.folder.read_labels import label_rows
from recordmill.transforms.runtime.line_blocks import LineSorter

LABELS = LabelMap((Category(3, "cat", isthing=1), Category(7, "figure", keypoints=("head",), skeleton=((1, 1),))))


def record(number: int, image_id: int, name: str, sha256: str = "", **rows) -> ExtractedRecord:
    image = ImageRow(image_id, name, 40, 30)
    return ExtractedRecord(number, RecordRows(image, **rows), (WrittenFile(f"images/val/{name}", 100, sha256),))


def row(id_: int, image_id: int) -> EncodedRow:
    return EncodedRow(id_, image_id, b'{"id":%d}' % id_)


def shard(file: str, *records: ExtractedRecord, faults: tuple[Fault, ...] = ()) -> ExtractedShard:
    sorters = LineSorter(), LineSorter()
    without = tuple(without_rows(each, file, *sorters) for each in records)
    return ExtractedShard("val", file, without, faults, *(sorter.blocks() for sorter in sorters))


def test_rows_of_all_shards_are_ordered_by_id(tmp_path):
    torn = Fault("two", 1, "truncated", "cut")
    shards = [
        shard("two", record(0, 4, "b.jpg", instances=(row(9, 4), row(7, 4))), faults=(torn,)),
        shard("one", record(0, 5, "a.jpg", instances=(row(8, 5),))),
    ]
    expected = ExtractedSplit("val", 2, 2, 200, (Document("annotations/instances_val.json", 3),), (torn,))
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        keyed = p | beam.Create([(each.split, each) for each in shards])
        splits = keyed | WriteDocuments(str(tmp_path), LAYOUTS["detection"].with_parts(()), LABELS)
        assert_that(splits, equal_to([expected]))
    assert json.loads((tmp_path / "annotations" / "instances_val.json").read_bytes()) == {
        "images": [
            {"id": 4, "file_name": "b.jpg", "width": 40, "height": 30},
            {"id": 5, "file_name": "a.jpg", "width": 40, "height": 30},
        ],
        "annotations": [{"id": 7}, {"id": 8}, {"id": 9}],
        "categories": [
            {"id": 3, "name": "cat"},
            {"id": 7, "name": "figure", "keypoints": ["head"], "skeleton": [[1, 1]]},
        ],
    }


def test_each_kind_has_a_file_of_its_own(tmp_path):
    table = LAYOUTS["detection"].with_parts((Part.KEYPOINTS, Part.CAPTIONS))
    one = record(0, 4, "b.jpg", keypoints=(row(9, 4),), captions=(CaptionRow(None, 4, "a cat"),))
    split = write_documents("val", [shard("one", one)], str(tmp_path), table, LABELS)
    kinds = {"instances": 0, "person_keypoints": 1, "captions": 1}
    assert split.documents == tuple(Document(f"annotations/{kind}_val.json", n) for kind, n in kinds.items())
    found = {kind: json.loads((tmp_path / "annotations" / f"{kind}_val.json").read_bytes()) for kind in kinds}
    assert [category["id"] for category in found["person_keypoints"]["categories"]] == [7]
    assert found["captions"]["annotations"] == [{"id": 1, "image_id": 4, "caption": "a cat"}]
    assert "categories" not in found["captions"]


def test_captions_are_numbered_by_image():
    rows = [CaptionRow(None, 9, "c"), CaptionRow(None, 2, "b"), CaptionRow(None, 2, "a")]
    assert numbered_captions(rows) == [CaptionRow(1, 2, "b"), CaptionRow(2, 2, "a"), CaptionRow(3, 9, "c")]


def test_captions_keep_their_ids():
    assert numbered_captions([CaptionRow(5, 2, "b"), CaptionRow(3, 9, "a")]) == [
        CaptionRow(3, 9, "a"),
        CaptionRow(5, 2, "b"),
    ]


def test_a_file_that_several_records_have_is_no_collision():
    assert list(collisions([("one", record(0, 4, "a.jpg", "x")), ("two", record(3, 5, "a.jpg", "x"))])) == []


def test_files_that_differ_spoil_every_spelling_of_their_name():
    names = ("a.jpg", "\u00e9.jpg", "e\u0301.jpg")
    found = [("one", record(number, number, name, name)) for number, name in enumerate(names)]
    (collision,) = collisions(found)
    assert collision.paths == ("images/val/e\u0301.jpg", "images/val/\u00e9.jpg")
    assert (collision.fault.reason, collision.fault.record) == ("duplicate_name", 2)


def test_objects_of_one_image_share_its_row(tmp_path):
    """In layout keras; an object whose record tells another image of the same id is left out."""
    shards = [
        shard(
            "one",
            record(0, 4, "a.jpg", "x", instances=(row(1, 4),)),
            record(1, 4, "b.jpg", "y", instances=(row(2, 4),)),
        ),
        shard("two", record(0, 4, "a.jpg", "x", instances=(row(3, 4),))),
    ]
    split = write_documents("val", shards, str(tmp_path), LAYOUTS["keras"], LABELS)
    assert (split.images, split.image_bytes) == (1, 100)
    assert [(fault.file, fault.record, fault.reason) for fault in split.faults] == [("one", 1, "duplicate_image_id")]
    found = json.loads((tmp_path / "annotations" / "instances_val.json").read_bytes())
    assert found["annotations"] == [{"id": 1}, {"id": 3}]
    assert [image["file_name"] for image in found["images"]] == ["a.jpg"]


def test_images_of_one_class_become_a_table_of_labels(tmp_path):
    shards = [
        shard("two", record(0, 4, "cat/b.jpg", class_name="cat")),
        shard("one", record(0, 5, "dog/a, b.jpg", class_name='dog "Tom"'), record(1, 6, "cat/a.jpg", class_name="cat")),
    ]
    split = write_documents("val", shards, str(tmp_path), LAYOUTS["classification"], LABELS)
    assert split == ExtractedSplit("val", 3, 3, 300, (Document("annotations/labels_val.csv", 3),), ())
    assert [path.name for path in (tmp_path / "annotations").iterdir()] == ["labels_val.csv"]
    assert (tmp_path / "annotations" / "labels_val.csv").read_bytes() == (
        b'path,label,split\ncat/a.jpg,cat,val\ncat/b.jpg,cat,val\n"dog/a, b.jpg","dog ""Tom""",val\n'
    )


def test_a_table_of_labels_is_one_that_recordmill_folder_reads(tmp_path):
    names = ["été, 1.jpg", 'a "b".jpg', "cat/1;2.jpg"]
    rows = [record(0, id_, name, class_name=f"class, {id_}").rows for id_, name in enumerate(names)]
    (tmp_path / "labels.csv").write_bytes(labels_table("val", rows))
    found = {row.path: (row.label, row.split) for row in label_rows(str(tmp_path / "labels.csv"), LabelColumns())}
    assert found == {name: (f"class, {id_}", "val") for id_, name in enumerate(names)}


def test_rows_of_one_id_are_in_the_order_of_shards_and_records(tmp_path):
    def named(id_: int, image_id: int, text: str) -> EncodedRow:
        return EncodedRow(id_, image_id, b'"%b"' % text.encode())

    shards = [
        shard("b", record(0, 4, "a.jpg", "x", instances=(named(1, 4, "b0"),))),
        shard(
            "a",
            record(2, 4, "a.jpg", "x", instances=(named(1, 4, "a2"), named(-3, 4, "first"))),
            record(300, 4, "a.jpg", "x", instances=(named(1, 4, "a300"), named(2, 4, "last"))),
        ),
    ]
    write_documents("val", shards, str(tmp_path), LAYOUTS["keras"], LABELS)
    data = (tmp_path / "annotations" / "instances_val.json").read_bytes()
    assert json.loads(data)["annotations"] == ["first", "a2", "a300", "b0", "last"]
    assert data == msgspec.json.encode(json.loads(data)) + b"\n"


def test_a_file_that_cannot_be_made_whole_is_not_there(tmp_path):
    def rows():
        yield [b"1"]
        raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        write_document(str(tmp_path / "a.json"), [], rows(), None)
    assert list(tmp_path.iterdir()) == []
