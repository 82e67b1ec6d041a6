"""What a finished split leaves beside its shards, and when it leaves nothing."""

import csv
import json

import msgspec
import pytest

from schemas.coco import AnnotationFile, AnnotationKind, Category
from schemas.errors import CategoryError, EmptyDatasetError, LostImagesError, TooManyRejectsError
from schemas.features import Part, RecordOf
from schemas.images import UnlistedFile
from schemas.labels import LabelMap
from schemas.layouts import DETECTION, LAYOUTS
from schemas.manifest import (
    FORMAT,
    AnnotationCounts,
    ImageCounts,
    InputRows,
    Recipe,
    SplitManifest,
    Unlisted,
    decode_manifest,
)
from schemas.rejects import Reason, Rejected, Tally
from schemas.shards import ShardInfo
from transforms.write_metadata import UnlistedFn, check_rejects, check_whole, describe_split, write_metadata

RECIPE = Recipe(FORMAT, "coco", "train", "detection", (), (), ("images",), {"gzip": False, "seed": 0})
VAL = msgspec.structs.replace(RECIPE, split="val")
TABLE = DETECTION.with_parts(())
LABELS = LabelMap((Category(1, "cat"), Category(3, "dog, or puppy")))
SHARDS = [
    ShardInfo("coco-train.tfrecord-00001-of-00002", 2, 200, "b"),
    ShardInfo("coco-train.tfrecord-00000-of-00002", 6, 600, "a"),
]
FILES = [
    AnnotationFile("b.json", AnnotationKind.CAPTIONS, 4, 17, ()),
    AnnotationFile("a.json", AnnotationKind.INSTANCES, 8, 16, ()),
]
REJECTED = [
    Rejected("image", 9, Reason.IMAGE_MISSING, "no file 'ü.jpg'", annotations=2),
    Rejected("annotation", 5, Reason.EMPTY_BOX, "box", 2),
    Rejected("image", None, Reason.MALFORMED_IMAGE, "row"),
    Rejected("annotation", 4, Reason.EMPTY_BOX, "box", 2),
]
COUNTS = {
    Tally.ROWS_MERGED.value: 2,
    Tally.IMAGES.value: 8,
    Tally.OBJECTS.value: 9,
    Tally.CAPTIONS.value: 8,
    Tally.REGIONS.value: 5,
    Tally.PANOPTIC.value: 3,
    Tally.ANNOTATIONS_MERGED.value: 1,
    Tally.MASKS.value: 7,
    Tally.BOXES_CLIPPED.value: 4,
    Tally.RECORD_BYTES.value: 700,
    Tally.FILTERED_CROWD.value: 3,
}
UNLISTED = Unlisted(1, ("x.jpg",))

SPLIT = SplitManifest(
    recipe=RECIPE,
    compression="",
    inputs=(
        InputRows("a.json", AnnotationKind.INSTANCES, 8, 16),
        InputRows("b.json", AnnotationKind.CAPTIONS, 4, 17),
    ),
    images=ImageCounts(rows=10, written=8, without_record=0, rejected={"image_missing": 1, "malformed_image": 1}),
    annotations=AnnotationCounts(
        rows=33,
        objects=9,
        captions=8,
        stuff=5,
        panoptic=3,
        joined=1,
        rejected={"empty_box": 2},
        filtered={"crowd": 3},
        of_rejected_images=2,
        boxes_clipped=4,
        masks=7,
    ),
    unlisted=UNLISTED,
    record_bytes=700,
    shards=(SHARDS[1], SHARDS[0]),
)


def write(folder, **changed) -> SplitManifest:
    arguments = {
        "recipe": RECIPE,
        "output": str(folder),
        "max_rejects": 0.2,
        "labels": LABELS,
        "table": TABLE,
        "shards": SHARDS,
        "rejected": REJECTED,
        "files": FILES,
        "counts": COUNTS,
        "unlisted": UNLISTED,
    }
    return write_metadata(**arguments | changed)


def lines(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "rejects.jsonl").read_text().splitlines()]


def test_describe_split():
    assert describe_split(RECIPE, SHARDS, REJECTED, FILES, COUNTS, UNLISTED) == SPLIT
    assert describe_split(RECIPE, SHARDS[::-1], REJECTED[::-1], FILES[::-1], COUNTS, UNLISTED) == SPLIT


def test_compression_is_as_tensorflow_names_it():
    recipe = msgspec.structs.replace(RECIPE, options={"gzip": True})
    assert describe_split(recipe, SHARDS, [], FILES, COUNTS, UNLISTED).compression == "GZIP"


# Nothing is lost


def test_a_split_that_adds_up_is_whole():
    check_whole(SPLIT, RecordOf.IMAGE)


@pytest.mark.parametrize(
    ("part", "changed", "told"),
    [
        (
            "images",
            {"rows": 11},
            "11 images came in, 8 were written, 0 give no record and {'image_missing': 1, 'malformed_image': 1} are",
        ),
        (
            "images",
            {"written": 9},
            "10 images came in, 9 were written, 0 give no record and {'image_missing': 1, 'malformed_image': 1} are",
        ),
        (
            "images",
            {"without_record": 1},
            "10 images came in, 8 were written, 1 give no record and {'image_missing': 1, 'malformed_image': 1} are",
        ),
        ("images", {"rejected": {}}, "10 images came in, 8 were written, 0 give no record and {} are rejected"),
        ("annotations", {"rows": 32}, "32 annotations came in and 33 are accounted for"),
        ("annotations", {"objects": 8}, "33 annotations came in and 32 are accounted for"),
        ("annotations", {"captions": 7}, "33 annotations came in and 32 are accounted for"),
        ("annotations", {"stuff": 6}, "33 annotations came in and 34 are accounted for"),
        ("annotations", {"panoptic": 1}, "33 annotations came in and 31 are accounted for"),
        ("annotations", {"joined": 0}, "33 annotations came in and 32 are accounted for"),
        ("annotations", {"rejected": {}}, "33 annotations came in and 31 are accounted for"),
        ("annotations", {"filtered": {}}, "33 annotations came in and 30 are accounted for"),
        ("annotations", {"of_rejected_images": 0}, "33 annotations came in and 31 are accounted for"),
    ],
)
def test_one_number_that_is_wrong_is_told(part, changed, told):
    counts = msgspec.structs.replace(getattr(SPLIT, part), **changed)
    with pytest.raises(LostImagesError) as caught:
        check_whole(msgspec.structs.replace(SPLIT, **{part: counts}), RecordOf.IMAGE)
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(
    ("record_of", "examples", "told"),
    [
        (RecordOf.IMAGE, 7, "8 records were made and 7 are in the shards"),
        (RecordOf.IMAGE, 9, "8 records were made and 9 are in the shards"),
        (RecordOf.ANNOTATION, 8, "9 records were made and 8 are in the shards"),
    ],
)
def test_a_record_that_did_not_reach_a_shard_is_told(record_of, examples, told):
    split = msgspec.structs.replace(SPLIT, shards=(ShardInfo("x", examples, 1, "a"),))
    with pytest.raises(LostImagesError, match=told):
        check_whole(split, record_of)


def test_with_one_record_an_object_an_image_may_give_none():
    images = ImageCounts(10, 7, 1, SPLIT.images.rejected)
    split = msgspec.structs.replace(SPLIT, images=images, shards=(ShardInfo("x", 9, 1, "a"),))
    check_whole(split, RecordOf.ANNOTATION)


def test_clipped_boxes_and_masks_are_not_counted_twice():
    counts = msgspec.structs.replace(SPLIT.annotations, boxes_clipped=9, masks=9)
    check_whole(msgspec.structs.replace(SPLIT, annotations=counts), RecordOf.IMAGE)


# Too much is rejected


@pytest.mark.parametrize("max_rejects", [0.2, 0.5, 1.0])
def test_rejects_up_to_the_limit_are_accepted(max_rejects):
    check_rejects(SPLIT, REJECTED, max_rejects, "out/rejects.jsonl")


def test_too_many_rejected_images_are_told_with_the_first_of_them():
    with pytest.raises(TooManyRejectsError) as caught:
        check_rejects(SPLIT, REJECTED, 0.19, "out/rejects.jsonl")
    assert str(caught.value).startswith(
        "2 of 10 images (20.0%) are rejected, more than --max-rejects 0.19 allows: "
        "image_missing 1, malformed_image 1; the first: no file 'ü.jpg'. All are in out/rejects.jsonl. "
    )


def test_too_many_rejected_annotations_are_told_even_if_no_image_is():
    split = msgspec.structs.replace(SPLIT, images=ImageCounts(10, 10, 0, {}))
    with pytest.raises(TooManyRejectsError, match=r"2 of 33 annotations \(6\.1%\)"):
        check_rejects(split, REJECTED, 0.06, "rejects.jsonl")


@pytest.mark.parametrize(
    ("images", "told"),
    [
        (ImageCounts(0, 0, 0, {}), "b.json: no image rows"),
        (ImageCounts(2, 0, 0, {"image_missing": 2}), "of 2 images all are rejected"),
        (ImageCounts(2, 0, 2, {}), "of 2 images none has an object"),
    ],
)
def test_a_split_without_examples_is_an_error(images, told):
    nothing = AnnotationCounts(0, 0, 0, 0, 0, 0, {}, {}, 0, 0, 0)
    split = msgspec.structs.replace(SPLIT, images=images, annotations=nothing, shards=(ShardInfo("x", 0, 0, ""),))
    with pytest.raises(EmptyDatasetError) as caught:
        check_rejects(split, REJECTED, 1.0, "rejects.jsonl")
    assert told in str(caught.value)


# What is written


def test_everything_is_in_its_place(tmp_path):
    state = tmp_path / ".recordmill-train"
    state.mkdir()
    (state / "recipe.json").write_text("{}")
    (tmp_path / ".coco-train.tfrecord-00000-of-00002.0a1b2c3d.tmp").write_text("of a killed run")
    (tmp_path / ".coco-val.tfrecord-00000-of-00002.0a1b2c3d.tmp").write_text("of a run that may be alive")
    assert write(tmp_path) == SPLIT
    hidden = [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert hidden == [".coco-val.tfrecord-00000-of-00002.0a1b2c3d.tmp"]
    manifest = decode_manifest((tmp_path / "manifest.json").read_bytes(), "manifest.json")
    assert (manifest.name, manifest.layout) == ("coco", "detection")
    assert (manifest.categories, manifest.splits) == (LABELS.categories, {"train": SPLIT})
    assert list(csv.reader((tmp_path / "labels.csv").open())) == [["1", "cat"], ["3", "dog, or puppy"]]
    assert json.loads((tmp_path / "label_map.json").read_text())["id_by_index"] == [1, 3]
    assert 'name: "dog, or puppy"' in (tmp_path / "label_map.pbtxt").read_text()


def test_rejects_are_lines_in_a_fixed_order(tmp_path):
    write(tmp_path)
    first = (tmp_path / "rejects.jsonl").read_bytes()
    assert [(line["split"], line["what"], line["id"], line["reason"]) for line in lines(tmp_path)] == [
        ("train", "annotation", 4, "empty_box"),
        ("train", "annotation", 5, "empty_box"),
        ("train", "image", 9, "image_missing"),
        ("train", "image", None, "malformed_image"),
    ]
    assert lines(tmp_path)[2]["detail"] == "no file 'ü.jpg'"
    write(tmp_path, rejected=REJECTED[::-1])
    assert (tmp_path / "rejects.jsonl").read_bytes() == first


def test_another_split_is_added(tmp_path):
    train = write(tmp_path)
    val = write(
        tmp_path,
        recipe=VAL,
        shards=[msgspec.structs.replace(shard, file=shard.file.replace("train", "val")) for shard in SHARDS],
        rejected=REJECTED[:3],
        counts={**COUNTS, "objects": 10},
    )
    manifest = decode_manifest((tmp_path / "manifest.json").read_bytes(), "manifest.json")
    assert manifest.splits == {"train": train, "val": val}
    assert [line["split"] for line in lines(tmp_path)] == ["train"] * 4 + ["val"] * 3
    write(tmp_path, rejected=REJECTED[1:], counts={**COUNTS, "objects": 11, "rows_merged": 3})
    assert [line["split"] for line in lines(tmp_path)] == ["val"] * 3 + ["train"] * 3


def test_too_many_rejects_leave_their_list_and_no_manifest(tmp_path):
    (tmp_path / ".recordmill-train").mkdir()
    with pytest.raises(TooManyRejectsError, match=f"All are in {tmp_path}/rejects.jsonl"):
        write(tmp_path, max_rejects=0.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".recordmill-train", "rejects.jsonl"]
    assert [line["id"] for line in lines(tmp_path)] == [4, 5, 9, None]


def test_lost_images_leave_nothing(tmp_path):
    with pytest.raises(LostImagesError):
        write(tmp_path, shards=SHARDS[:1])
    assert list(tmp_path.iterdir()) == []


def test_a_split_of_other_categories_is_refused_and_the_manifest_left_alone(tmp_path):
    write(tmp_path)
    before = (tmp_path / "manifest.json").read_bytes()
    with pytest.raises(CategoryError, match="holds train with other categories"):
        write(tmp_path, recipe=VAL, labels=LabelMap((Category(1, "cow"),)))
    assert (tmp_path / "manifest.json").read_bytes() == before
    assert (tmp_path / "labels.csv").read_text().startswith("1,cat\n")


def test_a_split_of_other_parts_is_refused_and_the_manifest_left_alone(tmp_path):
    """LVIS's lists come of the input, so this can show only now."""
    write(tmp_path)
    before = (tmp_path / "manifest.json").read_bytes()
    with pytest.raises(CategoryError, match="holds train with no further part in its records, these files have lvis"):
        write(tmp_path, recipe=VAL, table=DETECTION.with_parts((Part.LVIS,)))
    assert (tmp_path / "manifest.json").read_bytes() == before


def test_the_manifest_says_what_is_in_the_records_and_what_segments_are(tmp_path):
    segments = (Category(3, "dog, or puppy", isthing=1), Category(92, "banner", isthing=0))
    table = DETECTION.with_parts((Part.SEMANTIC, Part.LVIS))
    write(tmp_path, labels=LabelMap(LABELS.categories, segments), table=table)
    manifest = decode_manifest((tmp_path / "manifest.json").read_bytes(), "manifest.json")
    assert (manifest.parts, manifest.segments) == ((Part.SEMANTIC, Part.LVIS), segments)
    assert manifest.table == table
    assert json.loads((tmp_path / "label_map.json").read_text())["semantic_by_id"] == {"3": 1, "92": 2}


def test_shards_of_the_keras_recipe_are_linked_by_the_names_tfds_asks_for(tmp_path):
    shards = [ShardInfo(f"file_0{index}-{count}.tfrec", count, 0, "a") for index, count in ((1, 4), (0, 5))]
    for shard in shards:
        (tmp_path / shard.file).write_text(shard.file)
    (tmp_path / "file_07-3.tfrec").write_text("of an earlier run")
    recipe = msgspec.structs.replace(RECIPE, layout="keras")
    write(tmp_path, recipe=recipe, table=LAYOUTS["keras"], shards=shards)
    links = {path.name: path.read_text() for path in tmp_path.glob("*.tfrecord-*")}
    assert links == {
        "coco-train.tfrecord-00000-of-00002": "file_00-5.tfrec",
        "coco-train.tfrecord-00001-of-00002": "file_01-4.tfrec",
    }
    assert sorted(path.name for path in tmp_path.glob("*.tfrec")) == ["file_00-5.tfrec", "file_01-4.tfrec"]


def test_the_only_split_may_change_its_categories(tmp_path):
    write(tmp_path)
    write(tmp_path, labels=LabelMap((Category(1, "cow"),)))
    manifest = decode_manifest((tmp_path / "manifest.json").read_bytes(), "manifest.json")
    assert manifest.categories == (Category(1, "cow"),)


def test_unlisted_files_are_counted_and_the_first_named():
    combine = UnlistedFn()
    names = [f"{number}.jpg" for number in (7, 3, 9, 1, 8, 2, 5)]
    bundles = [combine.create_accumulator() for _ in range(3)]
    for place, name in enumerate(names):
        bundles[place % 2] = combine.add_input(bundles[place % 2], UnlistedFile(name))
    found = combine.extract_output(combine.merge_accumulators(iter(bundles)))
    assert found == Unlisted(7, ("1.jpg", "2.jpg", "3.jpg", "5.jpg", "7.jpg"))
