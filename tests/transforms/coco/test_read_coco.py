import gzip
import json
import math
import zipfile
from pathlib import Path

import apache_beam as beam
import msgspec
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.inputs.annotations import Annotation, Category, ImageRow
from recordmill.schemas.inputs.coco import (
    AnnotationBlock,
    AnnotationFile,
    AnnotationKind,
    AnnotationSource,
    FileAnnotations,
)
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.blocks.image_tasks import image_paths
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.blocks.run_step import hash_images, ranges_of
from recordmill.transforms.coco.coco_rows import CocoImageRow
from recordmill.transforms.coco.convert_rows import image_block
from recordmill.transforms.coco.decode_coco import CocoRows
from recordmill.transforms.coco.read_coco import ReadAnnotations, ReadRules, cut_file, read_block
from recordmill.transforms.join.match_blocks import name_buckets
from recordmill.transforms.runtime.beam_steps import unpacker
from recordmill.transforms.storage import zip_storage
from tests.transforms.coco.whole_files import read_whole
from tests.transforms.dataset.kinds import kind_rejects

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

IMAGE = {"id": 1, "file_name": "a.jpg", "width": 40, "height": 30}
ROW = {"id": 7, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3.5, 4], "area": 12.5, "iscrowd": 0}
CATEGORY = {"id": 3, "name": "dog", "supercategory": "animal"}


def without(row: dict, key: str) -> dict:
    return {name: value for name, value in row.items() if name != key}


def document(images=(IMAGE,), annotations=(ROW,), categories=(CATEGORY,)) -> dict:
    return {"images": list(images), "annotations": list(annotations), "categories": list(categories)}


def instances(path: object) -> AnnotationSource:
    return AnnotationSource(AnnotationKind.INSTANCES, str(path))


class Read:
    """What is in a file: parts by image id, rejects, and the counts."""

    def __init__(self, folder: Path, content: dict | list | bytes, block_bytes: int = 1 << 20):
        self.path = str(folder / "instances.json")
        Path(self.path).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        items = list(read_whole(instances(self.path), block_bytes=block_bytes))
        parts = [item for item in items if isinstance(item, FileAnnotations)]
        self.parts = {part.image_id: (part.rows, part.annotations) for part in parts}
        self.rejected = [item for item in items if isinstance(item, Rejected)]
        (self.file,) = (item for item in items if isinstance(item, AnnotationFile))
        assert len(parts) == len(self.parts)
        assert {part.source for part in parts} <= {self.path}

    @property
    def reasons(self) -> list[tuple]:
        return [(reject.what, reject.id, reject.reason.value, reject.image_id) for reject in self.rejected]


def test_rows_become_structs(tmp_path):
    read = Read(tmp_path, document())
    annotation = Annotation(7, 3, (1.0, 2.0, 3.5, 4.0), 12.5, False)
    assert read.parts == {1: ((ImageRow(1, "a.jpg", 40, 30),), (annotation,))}
    assert read.rejected == []
    assert read.file == AnnotationFile(read.path, AnnotationKind.INSTANCES, 1, 1, (Category(3, "dog", "animal"),))


@pytest.mark.parametrize("content", [document([], [], []), {"images": []}, {"images": [], "annotations": []}])
def test_empty_lists(tmp_path, content):
    read = Read(tmp_path, content)
    assert (read.parts, read.rejected, read.file) == (
        {},
        [],
        AnnotationFile(read.path, AnnotationKind.INSTANCES, 0, 0, ()),
    )


@pytest.mark.parametrize("key", ["segmentation", "ID", "keypoints"])
@pytest.mark.parametrize("value", [{"counts": 'a\\u0041"}', "size": [1, 2]}, None, [{"images": []}]])
def test_unknown_fields_are_passed_over_and_counted(tmp_path, key, value):
    more = {key: value}
    plain = Read(tmp_path, document())
    category = CATEGORY if key == "keypoints" else {**CATEGORY, **more}  # which is known there
    read = Read(tmp_path, {**more, **document([{**more, **IMAGE}], [{**ROW, **more}], [category])})
    lists = ("file", "images", "annotations", *(() if key == "keypoints" else ("categories",)))
    counted = {name: {key: 1} for name in lists} if value and "size" in value else {}
    assert (read.parts, read.rejected) == (plain.parts, [])
    assert read.file == msgspec.structs.replace(plain.file, unread=counted)


def test_what_only_some_layouts_carry_is_counted(tmp_path):
    images = [{**IMAGE, "neg_category_ids": [1]}, {**IMAGE, "id": 2, "not_exhaustive_category_ids": []}]
    rows = [{**ROW, "id": id_, "iscrowd": id_ % 2} for id_ in range(5)]
    read = Read(tmp_path, document(images, rows))
    assert read.file.optional == {"images": {"neg_category_ids": 1}, "annotations": {"iscrowd": 2}}
    assert (read.file.unread, read.file.lvis) == ({}, True)


# Sizes


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ({}, (None, None)),
        ({"width": None, "height": None}, (None, None)),
        ({"width": 0, "height": 0}, (None, None)),
        ({"width": -1, "height": -1}, (None, None)),
        ({"width": 40}, (None, None)),
        ({"width": 40, "height": 0}, (None, None)),
        ({"width": 0, "height": 30}, (None, None)),
        ({"width": 40.0, "height": "30"}, (40, 30)),
    ],
)
def test_size_is_known_whole_or_not_at_all(tmp_path, size, expected):
    read = Read(tmp_path, document([{"id": 1, "file_name": "a.jpg", **size}], []))
    assert read.parts == {1: ((ImageRow(1, "a.jpg", *expected),), ())}


@pytest.mark.parametrize("width", ["wide", 40.5, True, 1 << 70])
def test_size_none_costs_its_row(tmp_path, width):
    read = Read(tmp_path, document([{**IMAGE, "width": width}], []))
    assert read.reasons == [("image", 1, "malformed_image", None)]


# Ids


@pytest.mark.parametrize("id_", [0, -1, INT64_MAX, INT64_MIN, 5.0, "5", "-5", "5.0"])
def test_whole_numbers_are_ids_however_they_are_written(tmp_path, id_):
    content = document([{**IMAGE, "id": id_}], [{**ROW, "id": id_, "image_id": id_, "category_id": id_}], [])
    read = Read(tmp_path, content)
    number = id_ if isinstance(id_, int) else int(float(id_))
    annotation = Annotation(number, number, (1.0, 2.0, 3.5, 4.0), 12.5, False)
    assert read.parts == {number: ((ImageRow(number, "a.jpg", 40, 30),), (annotation,))}
    assert read.rejected == []


NO_IDS = [True, 5.5, [5], "", None, INT64_MAX + 1, INT64_MIN - 1, 1e19]


@pytest.mark.parametrize("id_", NO_IDS)
def test_image_without_usable_id_is_rejected(tmp_path, id_):
    read = Read(tmp_path, document([{**IMAGE, "id": id_}, {**IMAGE, "id": 2}], []))
    assert read.reasons == [("image", None, "malformed_image", None)]
    assert list(read.parts) == [2]
    assert read.file.images == 2


@pytest.mark.parametrize("id_", NO_IDS)
@pytest.mark.parametrize("key", ["id", "image_id", "category_id"])
def test_annotation_without_usable_ids_is_rejected(tmp_path, id_, key):
    read = Read(tmp_path, document(annotations=[{**ROW, key: id_}, {**ROW, "id": 8}]))
    known = {name: value for name, value in ROW.items() if name != key}
    assert read.reasons == [("annotation", known.get("id"), "malformed_annotation", known.get("image_id"))]
    assert [annotation.id for annotation in read.parts[1][1]] == [8]
    assert read.file.annotations == 2


@pytest.mark.parametrize("id_", [INT64_MAX + 1, True, None])
def test_category_without_usable_id_stops_file(tmp_path, id_):
    with pytest.raises(AnnotationFileError, match="a category has an integer id and a name"):
        Read(tmp_path, document(categories=[{**CATEGORY, "id": id_}]))


# Missing and malformed fields


@pytest.mark.parametrize("key", ["id", "file_name"])
def test_image_row_that_lacks_field_is_rejected(tmp_path, key):
    read = Read(tmp_path, document([without(IMAGE, key)], []))
    assert read.reasons == [("image", without(IMAGE, key).get("id"), "malformed_image", None)]
    assert key in read.rejected[0].detail


@pytest.mark.parametrize("key", ["id", "image_id", "category_id", "bbox"])
def test_annotation_row_that_lacks_field_is_rejected(tmp_path, key):
    read = Read(tmp_path, document(annotations=[without(ROW, key)]))
    left = without(ROW, key)
    assert read.reasons == [("annotation", left.get("id"), "malformed_annotation", left.get("image_id"))]
    assert key in read.rejected[0].detail
    assert read.parts == {1: ((ImageRow(1, "a.jpg", 40, 30),), ())}


@pytest.mark.parametrize("row", [None, [1, "a.jpg"], {}])
def test_rows_no_objects_are_rejected(tmp_path, row):
    read = Read(tmp_path, document([row, IMAGE], [row, ROW]))
    assert read.reasons == [
        ("image", None, "malformed_image", None),
        ("annotation", None, "malformed_annotation", None),
    ]
    assert read.parts == Read(tmp_path, document()).parts
    assert (read.file.images, read.file.annotations) == (2, 2)


@pytest.mark.parametrize(("area", "expected"), [(None, 14.0), (0, 0.0), (12.5, 12.5), ("7", 7.0), (1e18, 1e18)])
def test_area_is_json_s_or_box_s(tmp_path, area, expected):
    read = Read(tmp_path, document(annotations=[{**ROW, "area": area}]))
    assert [annotation.area_px2 for annotation in read.parts[1][1]] == [expected]


@pytest.mark.parametrize("area", [math.nan, 1e19, -1e30, "nan", "wide", True, []])
def test_area_no_number_of_pixels_costs_its_row(tmp_path, area):
    read = Read(tmp_path, document(annotations=[{**ROW, "area": area}, {**ROW, "id": 8}]))
    assert read.reasons == [("annotation", 7, "malformed_annotation", 1)]
    assert [annotation.id for annotation in read.parts[1][1]] == [8]


@pytest.mark.parametrize(
    ("iscrowd", "expected"),
    [(0, False), (1, True), (False, False), (True, True), (None, False), ("0", False), ("1", True), (1.0, True)],
)
def test_iscrowd_as_it_is_found(tmp_path, iscrowd, expected):
    read = Read(tmp_path, document(annotations=[{**ROW, "iscrowd": iscrowd}, {**without(ROW, "iscrowd"), "id": 8}]))
    assert {annotation.id: annotation.is_crowd for annotation in read.parts[1][1]} == {7: expected, 8: False}


@pytest.mark.parametrize(
    "bbox",
    [
        [],
        [1, 2, 3, 4, 5],
        [1, 2, -3, 4],
        ["1", 2, 3, 4],
        [1, 2, None, 4],
        [1, 2, True, 4],
        {"x": 1},
        [math.nan, 0, 1, 1],
        [0, 0, 1, 1e19],
    ],
)
def test_malformed_box_is_rejected_and_shown(tmp_path, bbox):
    read = Read(tmp_path, document(annotations=[{**ROW, "bbox": bbox}, {**ROW, "id": 8}]))
    assert read.reasons == [("annotation", 7, "malformed_box", 1)]
    shown = json.dumps(bbox).replace("NaN", '"NaN"').replace("Infinity", '"Infinity"')
    assert read.rejected[0].detail.endswith(f": {shown}")
    assert [annotation.id for annotation in read.parts[1][1]] == [8]


# Annotation ids


def test_annotations_of_several_images_that_share_id_are_kept_and_warned_of(tmp_path):
    images = [{**IMAGE, "id": id_} for id_ in (1, 2, 3)]
    rows = [{**ROW, "id": id_, "image_id": image} for id_, image in ((7, 3), (8, 1), (7, 2), (9, 1), (8, 2), (9, 1))]
    read = Read(tmp_path, document(images, rows))
    assert sum(len(annotations) for _, annotations in read.parts.values()) == 6
    (warning,) = read.file.warnings
    assert warning.startswith(
        f"{read.path}: annotations of different images share an id, as those of the images 2 and 3 share 7 (number of "
        "such ids: 2); none is rejected for it, but "
    )


def test_no_warning_of_ids_that_only_annotations_of_one_image_share(tmp_path):
    assert Read(tmp_path, document([IMAGE], [ROW, ROW])).file.warnings == ()


# NaN and Infinity, which are not JSON, but which Python writes


def test_words_no_json_are_read_outside_of_strings_only(tmp_path):
    image = {**IMAGE, "file_name": 'NaN "-Infinity" \\.jpg', "score": -math.inf}
    row = {**ROW, "score": math.nan, "segmentation": [[math.inf, -math.inf]]}
    category = {**CATEGORY, "name": "Infinity"}
    read = Read(tmp_path, document([image], [row, {**row, "id": 8, "bbox": [math.nan] * 4}], [category]))
    annotation = Annotation(7, 3, (1.0, 2.0, 3.5, 4.0), 12.5, False)
    assert read.parts == {1: ((ImageRow(1, 'NaN "-Infinity" \\.jpg', IMAGE["width"], IMAGE["height"]),), (annotation,))}
    assert read.reasons == [("annotation", 8, "malformed_box", 1)]
    assert read.file.categories == (Category(3, "Infinity", "animal"),)


# The fast way and the slow one

IDS = st.integers(-3, 6) | st.sampled_from([INT64_MIN, INT64_MAX])
NUMBERS = st.integers(0, 500) | st.floats(-500, 500)
LENGTHS = st.integers(0, 500) | st.floats(0, 500)
IMAGES = st.fixed_dictionaries(
    {"id": IDS, "file_name": st.text(st.characters(exclude_categories=["Cs"]))},
    optional={"width": st.none() | st.integers(-1, 9), "height": st.none() | st.integers(-1, 9), "license": st.none()},
)
ANNOTATIONS = st.fixed_dictionaries(
    {"id": IDS, "image_id": IDS, "category_id": IDS, "bbox": st.tuples(NUMBERS, NUMBERS, LENGTHS, LENGTHS)},
    optional={
        "area": st.none() | LENGTHS,
        "iscrowd": st.none() | st.sampled_from([0, 1, True, False]),
        "segmentation": st.lists(NUMBERS),
    },
)


def expected_parts(images: list[dict], annotations: list[dict]) -> dict:
    """By image id: rows in file order, and annotations, found the plain way."""
    parts = {}
    for row in images:
        size = row.get("width"), row.get("height")
        known = size if all(side is not None and side > 0 for side in size) else (None, None)
        parts.setdefault(row["id"], ([], []))[0].append(ImageRow(row["id"], row["file_name"], *known))
    for row in annotations:
        area = row.get("area")
        area = row["bbox"][2] * row["bbox"][3] if area is None else area
        annotation = Annotation(row["id"], row["category_id"], row["bbox"], area, bool(row.get("iscrowd")))
        parts.setdefault(row["image_id"], ([], []))[1].append(annotation)
    return {image_id: (tuple(rows), tuple(found)) for image_id, (rows, found) in parts.items()}


@settings(max_examples=60, deadline=None)
@given(images=st.lists(IMAGES, max_size=5), annotations=st.lists(ANNOTATIONS, max_size=8))
def test_bad_row_changes_nothing_for_others(tmp_path_factory, images, annotations):
    folder = tmp_path_factory.getbasetemp()
    expected = expected_parts(images, annotations)
    fast = Read(folder, document(images, annotations))
    assert (fast.parts, fast.rejected) == (expected, [])
    in_blocks = Read(folder, document(images, annotations), 90)
    assert (in_blocks.parts, in_blocks.file) == (fast.parts, fast.file)
    slow = Read(folder, document([*images, {"id": 1}], [{**ROW, "image_id": ["?"]}, *annotations]))
    assert slow.parts == expected
    assert sorted(slow.reasons, key=str) == [
        ("annotation", 7, "malformed_annotation", None),
        ("image", 1, "malformed_image", None),
    ]


NO_BOX = "bbox is not a list of four numbers: []"


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_read_coco(tmp_path, pack):
    path = str(tmp_path / "instances")
    rows = [ROW, {**ROW, "id": 8, "bbox": []}, {**ROW, "id": 9, "bbox": [], "image_id": 5}, {"id": 10}]
    rows.append({"id": 11, "image_id": 6, "category_id": 3})
    images = [IMAGE, {**IMAGE, "id": 2, "file_name": "./b.jpg"}]
    Path(path).write_bytes(pack(json.dumps(document(images, rows)).encode()))
    source = AnnotationSource(AnnotationKind.INSTANCES, path)
    Path(tmp_path / "captions").write_text(json.dumps(document((), (), ())))
    captions = AnnotationSource(AnnotationKind.CAPTIONS, str(tmp_path / "captions"))
    rules = ReadRules((captions, source), False, 3, "path", 1, "pics", "train")
    bad = [Rejected("annotation", id_, Reason.MALFORMED_BOX, NO_BOX, image_id) for id_, image_id in ((8, 1), (9, 5))]
    detail = "annotation row: Object missing required field `bbox`"
    bad.append(Rejected("annotation", 11, Reason.MALFORMED_ANNOTATION, detail, 6))
    of_images = [
        (int(name_buckets([name], "path", 8)[0]), 1, 0, id_, f"pics/{name}")
        for id_, name in ((1, "a.jpg"), (2, "b.jpg"))
    ]
    ranges = ranges_of(hash_images(np.array([1, 5, 6]), 1), 3).tolist()
    of_annotations = [
        (ranges[0], 1, 1, 1, [7], bad[:1]),
        *((ranges[n], 1, 1, 4 + n, [], bad[n : n + 1]) for n in (1, 2)),
    ]
    files = [
        AnnotationFile(path, AnnotationKind.INSTANCES, 2, 5, (Category(3, "dog", "animal"),)),
        AnnotationFile(captions.path, AnnotationKind.CAPTIONS, 0, 0, ()),
    ]
    detail = "annotation row: Object missing required field `image_id`"
    reject = Rejected("annotation", 10, Reason.MALFORMED_ANNOTATION, detail)
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        coco = p | ReadAnnotations(rules)
        assert_that(coco.rows | "Images" >> beam.FlatMapTuple(image_rows), equal_to(of_images), "Rows")
        assert_that(
            coco.annotations | "Objects" >> beam.FlatMapTuple(annotation_rows), equal_to(of_annotations), "Found"
        )
        assert_that(coco.files, equal_to(files), "Files")
        rejected = coco.facts | beam.Flatten() | beam.FlatMap(lambda facts: facts.rejects.items())
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
    """Two steps of one stage pass on what is made as it is made; a Flatten or a shuffle begins another stage."""
    p = beam.Pipeline(FnApiRunner(), PipelineOptions([]))
    sources = instances("a.json.gz"), instances("b.json")
    _ = p | ReadAnnotations(ReadRules(sources, False, 3, "path", 1, "", "train"))
    steps = {step.unique_name: step for step in p.to_runner_api().components.transforms.values()}
    cut, spread = (steps[f"ReadAnnotations/{name}"].outputs for name in ("CutPackedFiles", "CutFiles"))
    for outputs, taken_by in ((cut, "ReadAnnotations/ReadPackedFiles"), (spread, "ReadAnnotations/SpreadFiles")):
        (text,) = outputs.values()
        users = [name for name, step in steps.items() if text in step.inputs.values() and name.count("/") == 1]
        assert users == [taken_by]


def test_block_is_what_it_was_when_file_was_cut(tmp_path):
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(document()))
    images, *_ = cut_file(instances(path))
    path.write_text(path.read_text().replace("a.jpg", "b.jpg"))
    with pytest.raises(OSError, match="not those that it was cut at"):
        read_block(images)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_blocks_of_member_are_file(tmp_path, monkeypatch, method):
    """Those of a stored one are read by range."""
    monkeypatch.setattr(zip_storage, "WHOLE_BYTES", 0)
    data = json.dumps(document(annotations=[{**ROW, "id": id_} for id_ in range(100)])).encode()
    (tmp_path / "a.json").write_bytes(data)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as archive:
        archive.writestr("a.json", data)
    found = []
    for path in (tmp_path / "a.json", tmp_path / "a.zip" / "a.json"):
        blocks = list(cut_file(instances(path), 500))
        assert len(blocks) > 10
        has_text = path.parent.suffix == ".zip" and method != zipfile.ZIP_STORED
        assert {bool(block.text) for block in blocks if block.list} == {has_text}
        cut = [msgspec.structs.replace(block, source=instances(""), text=b"") for block in blocks]
        found.append((cut, list(map(read_block, blocks))))
    assert found[0] == found[1]


def test_name_that_leads_through_another_folder_is_that_of_its_file():
    names = ["a/../b.jpg", "../b.jpg", "a/../../b.jpg"]
    rows = CocoRows([CocoImageRow(1, name) for name in names], [], [], [], {}, frozenset(), True)
    block = AnnotationBlock(instances("a.json"), 0, "images", 0, 0, 0, 0, 0)
    assert image_block(block, rows, [block.source]).file_name.texts() == ["b.jpg", "../b.jpg", "../b.jpg"]
