import json

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.dataset.checks import Fault, Faults
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import LAYOUTS
from recordmill.transforms.extract.extract_rows import CaptionEntry, PanopticEntry, Row
from recordmill.transforms.extract.extract_shards import (
    Document,
    ExtractedSplit,
    WriteDocuments,
    write_document,
    write_documents,
)
from tests.transforms.extract.pieces import record, row, write_piece

LABELS = LabelMap((Category(3, "cat", isthing=1), Category(7, "figure", keypoints=("head",), skeleton=((1, 1),))))


def test_rows_are_in_order_of_shards_and_records(tmp_path):
    torn = Fault("two", 1, "truncated", "cut")
    shards = [
        write_piece(tmp_path, "two", record(0, 4, "b.jpg", instances=(row(9), row(7))), faults=(torn,)),
        write_piece(tmp_path, "one", record(0, 5, "a.jpg", instances=(row(8),))),
    ]
    expected = ExtractedSplit("val", 2, 2, 200, (Document("annotations/instances_val.json", 3),), Faults((torn,)))
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        keyed = p | beam.Create([("val", shard) for shard in shards])
        splits = keyed | WriteDocuments(str(tmp_path), LAYOUTS["detection"].with_parts(()), LABELS)
        assert_that(splits, equal_to([expected]))
    assert json.loads((tmp_path / "annotations" / "instances_val.json").read_bytes()) == {
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
    table = LAYOUTS["detection"].with_parts((Part.KEYPOINTS, Part.CAPTIONS))
    one = record(0, 4, "b.jpg", keypoints=(row(9),), captions=(CaptionEntry(None, 4, "a cat"),))
    split = write_documents("val", [write_piece(tmp_path, "one", one)], str(tmp_path), table, LABELS)
    kinds = {"instances": 0, "person_keypoints": 1, "captions": 1}
    assert split.documents == tuple(Document(f"annotations/{kind}_val.json", n) for kind, n in kinds.items())
    found = {kind: json.loads((tmp_path / "annotations" / f"{kind}_val.json").read_bytes()) for kind in kinds}
    assert [category["id"] for category in found["person_keypoints"]["categories"]] == [7]
    assert found["captions"]["annotations"] == [{"id": 1, "image_id": 4, "caption": "a cat"}]
    assert "categories" not in found["captions"]


def test_captions_without_ids_are_numbered(tmp_path):
    shards = [
        write_piece(
            tmp_path, "b", record(0, 2, "b", captions=(CaptionEntry(None, 2, "b"), CaptionEntry(None, 2, "a")))
        ),
        write_piece(tmp_path, "a", record(0, 9, "a", captions=(CaptionEntry(None, 9, "c"),))),
    ]
    assert written_captions(tmp_path, shards) == [(1, 9, "c"), (2, 2, "b"), (3, 2, "a")]


def test_ids_that_several_annotations_have_are_counted(tmp_path):
    """Of files that number theirs from 1 on each; of captions without ids there is nothing to tell."""
    none = (CaptionEntry(None, 4, "a"), CaptionEntry(None, 4, "b"))
    shards = [
        write_piece(tmp_path, "one", record(0, 4, "a.jpg", instances=(row(1), row(2)), captions=none)),
        write_piece(tmp_path, "two", record(0, 5, "b.jpg", instances=(row(2), row(3)))),
        write_piece(tmp_path, "three", record(0, 6, "c.jpg", instances=(row(3), row(2), row(4)))),
    ]
    table = LAYOUTS["detection"].with_parts((Part.CAPTIONS,))
    split = write_documents("val", shards, str(tmp_path), table, LABELS)
    assert [(document.annotations, document.shared_ids) for document in split.documents] == [(7, 2), (2, 0)]


def test_captions_keep_their_ids(tmp_path):
    captions = (CaptionEntry(5, 2, "b"), CaptionEntry(3, 2, "a"), CaptionEntry(0, 2, "first"))
    shard = write_piece(tmp_path, "one", record(0, 2, "b.jpg", captions=captions))
    assert written_captions(tmp_path, [shard]) == [(5, 2, "b"), (3, 2, "a"), (0, 2, "first")]


def written_captions(folder, shards) -> list[tuple]:
    write_documents("val", shards, str(folder), LAYOUTS["detection"].with_parts((Part.CAPTIONS,)), LABELS)
    rows = json.loads((folder / "annotations" / "captions_val.json").read_bytes())["annotations"]
    return [tuple(row.values()) for row in rows]


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
    table = LAYOUTS["tfds"].with_parts((Part.PANOPTIC,))
    split = write_documents("val", [write_piece(tmp_path, "one", *records)], str(tmp_path), table, LABELS)
    assert [(fault.record, fault.reason) for fault in split.faults.listed] == [(3, "duplicate_name")]
    found = json.loads((tmp_path / "annotations" / "panoptic_val.json").read_bytes())
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
    split = write_documents("val", shards, str(tmp_path), LAYOUTS["keras"], LABELS)
    assert (split.images, split.image_bytes) == (1, 100)
    assert [(fault.file, fault.record, fault.reason) for fault in split.faults.listed] == [
        ("one", 1, "duplicate_image_id")
    ]
    found = json.loads((tmp_path / "annotations" / "instances_val.json").read_bytes())
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
    split = write_documents("val", shards, str(tmp_path), LAYOUTS["classification"], LABELS)
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
