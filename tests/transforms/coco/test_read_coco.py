import gzip
import json
import zipfile
from pathlib import Path

import apache_beam as beam
import msgspec
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.coco import AnnotationBlock, AnnotationFile, AnnotationKind, AnnotationSource, ExportPart
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.blocks.image_tasks import image_paths
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.blocks.run_step import hash_images, ranges_of
from recordmill.transforms.coco.coco_options import CocoOptions
from recordmill.transforms.coco.coco_rows import CocoImageRow
from recordmill.transforms.coco.convert_rows import convert_image_rows
from recordmill.transforms.coco.decode_coco import CocoRows
from recordmill.transforms.coco.read_coco import ReadAnnotations, cut_file, read_block
from recordmill.transforms.join.match_blocks import assign_buckets
from recordmill.transforms.runtime.beam_steps import unpacker
from recordmill.transforms.storage import zip_storage
from tests.beam_pipeline import Pipeline
from tests.transforms.coco.whole_files import IMAGE, OBJECT, document, read_whole
from tests.transforms.dataset.kinds import applied, kind_rejects


def instances(path: object) -> AnnotationSource:
    return AnnotationSource(AnnotationKind.INSTANCES, str(path))


NO_BOX = "bbox is not a list of four numbers: []"


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_read_coco(tmp_path, pack):
    path = str(tmp_path / "instances")
    rows = [OBJECT, {**OBJECT, "id": 8, "bbox": []}, {**OBJECT, "id": 9, "bbox": [], "image_id": 5}, {"id": 10}]
    rows.append({"id": 11, "image_id": 6, "category_id": 3})
    images = [IMAGE, {**IMAGE, "id": 2, "file_name": "./b.jpg"}]
    Path(path).write_bytes(pack(json.dumps(document(images, rows)).encode()))
    source = AnnotationSource(AnnotationKind.INSTANCES, path)
    Path(tmp_path / "captions").write_text(json.dumps(document((), (), ())))
    captions = AnnotationSource(AnnotationKind.CAPTIONS, str(tmp_path / "captions"))
    options = CocoOptions(images="pics", instances=path, captions=captions.path, seed=1, no_list=True, output="out")
    part = ExportPart("", (captions, source), ("pics",))
    bad = [Rejected("annotation", id_, Reason.MALFORMED_BOX, NO_BOX, image_id) for id_, image_id in ((8, 1), (9, 5))]
    detail = "annotation row: Object missing required field `bbox`"
    bad.append(Rejected("annotation", 11, Reason.MALFORMED_ANNOTATION, detail, 6))
    expected_images = [
        (int(assign_buckets([name], "path", 8)[0]), 1, 0, id_, f"pics/{name}")
        for id_, name in ((1, "a.jpg"), (2, "b.jpg"))
    ]
    ranges = ranges_of(hash_images(np.array([1, 5, 6]), 1), 3).tolist()
    expected_annotations = [
        (ranges[0], 1, 1, 1, [7], bad[:1]),
        *((ranges[n], 1, 1, 4 + n, [], bad[n : n + 1]) for n in (1, 2)),
    ]
    files = [
        AnnotationFile(path, AnnotationKind.INSTANCES, 2, 5, (Category(3, "dog", "animal"),)),
        AnnotationFile(captions.path, AnnotationKind.CAPTIONS, 0, 0, ()),
    ]
    detail = "annotation row: Object missing required field `image_id`"
    reject = Rejected("annotation", 10, Reason.MALFORMED_ANNOTATION, detail, file_name=path)
    with Pipeline() as p:
        (rows, annotations, described), facts = applied(p, ReadAnnotations(options, part, 3, "train"))
        assert_that(rows | "Images" >> beam.FlatMapTuple(image_rows), equal_to(expected_images), "Rows")
        assert_that(
            annotations | "Objects" >> beam.FlatMapTuple(annotation_rows), equal_to(expected_annotations), "Found"
        )
        assert_that(described, equal_to(files), "Files")
        rejected = facts | beam.FlatMap(lambda facts: facts.rejects.items())
        assert_that(rejected, equal_to(kind_rejects([("train", reject)])), "Rejected")


def image_rows(bucket: int, packed: bytes) -> list[tuple]:
    """Bucket, source, part, id and assumed path of each image row."""
    block = unpack_block(packed)
    columns = block.source.tolist(), block.part.tolist(), block.image_id.tolist(), image_paths(block)
    return [(bucket, *row) for row in zip(*columns, strict=True)]


def annotation_rows(number: int, packed: bytes) -> list[tuple]:
    """Range, source, part, image id, annotation ids and rejects of each image."""
    block = unpack_block(packed)
    rejected = block.rejected.rows() if block.rejected is not None else [b""] * len(block)
    return [
        (
            number,
            *(int(column[row]) for column in (block.source, block.part, block.image_id)),
            block.cut(row, row + 1).object_id.tolist(),
            unpacker(list[Rejected])(bad) if bad else [],
        )
        for row, bad in enumerate(rejected)
    ]


@pytest.mark.parametrize("kind", AnnotationKind)
def test_blocks_of_any_size_say_same_of_each_image(sample, kind):
    path = getattr(sample, kind.value)
    source = AnnotationSource(kind, str(path), "masks")
    whole, cut = (sorted(read_whole(source, masks=True, block_bytes=size), key=repr) for size in (1 << 20, 200))
    assert len(list(cut_file(source, 200))) > len(list(cut_file(source)))
    assert cut == whole


def test_no_runner_has_to_hold_text_of_packed_file():
    """Both steps run in one stage, so texts pass one by one; a Flatten or a shuffle would begin another stage."""
    p = Pipeline()
    sources = instances("a.json.gz"), instances("b.json")
    options = CocoOptions(images="pics", instances="a.json", output="out")
    applied(p, ReadAnnotations(options, ExportPart("", sources, ("pics",)), 3, "train"))
    steps = {step.unique_name: step for step in p.to_runner_api().components.transforms.values()}
    cut, spread = (steps[f"ReadAnnotations/{name}"].outputs for name in ("CutPackedFiles", "CutFiles"))
    for outputs, taken_by in ((cut, "ReadAnnotations/ReadPackedFiles"), (spread, "ReadAnnotations/SpreadFiles")):
        (text,) = outputs.values()
        users = [name for name, step in steps.items() if text in step.inputs.values() and name.count("/") == 1]
        assert users == [taken_by]


def test_block_is_unchanged_since_cut(tmp_path):
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(document()))
    images, *_ = cut_file(instances(path))
    path.write_text(path.read_text().replace("a.jpg", "b.jpg"))
    with pytest.raises(OSError, match="differ from those of the first read"):
        read_block(images)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_blocks_of_member_are_file(tmp_path, monkeypatch, method):
    """Blocks of a stored member are read by range."""
    monkeypatch.setattr(zip_storage, "WHOLE_BYTES", 0)
    data = json.dumps(document(annotations=[{**OBJECT, "id": id_} for id_ in range(100)])).encode()
    (tmp_path / "a.json").write_bytes(data)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as archive:
        archive.writestr("a.json", data)
    contents = []
    for path in (tmp_path / "a.json", tmp_path / "a.zip" / "a.json"):
        blocks = list(cut_file(instances(path), 500))
        assert len(blocks) > 10
        has_text = path.parent.suffix == ".zip" and method != zipfile.ZIP_STORED
        assert {bool(block.text) for block in blocks if block.list} == {has_text}
        cut = [msgspec.structs.replace(block, source=instances(""), text=b"") for block in blocks]
        contents.append((cut, [read_block(block)._replace(objects=None) for block in blocks]))
    assert contents[0] == contents[1]


def test_name_through_another_folder():
    names = ["a/../b.jpg", "../b.jpg", "a/../../b.jpg"]
    rows = CocoRows([CocoImageRow(1, name) for name in names], [], [], [], {}, frozenset(), True)
    block = AnnotationBlock(instances("a.json"), 0, "images", 0, 0, 0, 0, 0)
    assert convert_image_rows(block, rows, [block.source]).file_name.texts() == ["b.jpg", "../b.jpg", "../b.jpg"]
