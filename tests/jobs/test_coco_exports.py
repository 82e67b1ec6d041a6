"""COCO exports: a folder that a tool exported gives the records that its files by flags give."""

import json
import shutil
from pathlib import Path
from zipfile import ZipFile

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.coco import Given
from recordmill.transforms.coco.coco_options import CocoOptions
from recordmill.transforms.coco.find_exports import find_exports, find_images_of_file
from tests.conftest import (
    CATEGORIES,
    SHARED_DATA,
    annotation,
    draw_jpeg,
    image_row,
    manifest_of,
    read_examples,
    shard_bytes,
    write_coco,
)

ROBOFLOW = [{"id": 0, "name": "pets", "supercategory": "none"}] + [
    category | {"supercategory": "pets"} for category in CATEGORIES
]
LAYOUTS = {
    "roboflow": {
        "train": ("train/_annotations.coco.json", "train", ""),
        "val": ("valid/_annotations.coco.json", "valid", ""),
        "test": ("test/_annotations.coco.json", "test", ""),
    },
    "cvat": {"": ("annotations/instances_default.json", "images", "")},
    "cvat subsets": {
        "train": ("annotations/instances_Train.json", "images/Train", ""),
        "val": ("annotations/instances_Validation.json", "images/Validation", ""),
    },
    "coco": {
        "train": ("annotations/instances_train2017.json", "train2017", ""),
        "val": ("annotations/instances_val2017.json", "val2017", ""),
    },
    "fiftyone": {"": ("labels.json", "data", "")},
    "fiftyone splits": {"train": ("train/labels.json", "train/data", ""), "val": ("val/labels.json", "val/data", "")},
    "label studio": {"": ("result.json", "", "images/")},
    "one folder of images": {
        "train": ("annotations/instances_train.json", "images", "a"),
        "val": ("annotations/instances_val.json", "images", "b"),
    },
    "names of one's own": {"train": ("my_train.json", "train", ""), "val": ("my_val.json", "val", "")},
}


def export(folder: Path, layout: dict, categories: list[dict]) -> Path:
    """A folder whose ids of images and annotations begin at 0 in each file, and whose image sizes tell splits apart."""
    for number, (path, images, prefix) in enumerate(layout.values()):
        rows = [image_row(id_, f"{prefix}{id_}.jpg", 40 + number, 30) for id_ in range(3)]
        for row in rows:
            draw_jpeg(folder / images / row["file_name"], row["width"])
        annotations = [annotation(id_, id_, category_id=(1, 3)[id_ % 2]) for id_ in range(3)]
        file = {"images": rows, "annotations": annotations, "categories": categories}
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(file))
    return folder


def given(data: Path, **options: object) -> Given:
    return find_exports(CocoOptions(data=str(data), output="out", **options))[1]


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name, tmp_path):
    layout = LAYOUTS[name]
    inputs = given(export(tmp_path, layout, CATEGORIES))
    assert {part.split: [part.sources[0].path, *part.images] for part in inputs.parts} == {
        split: [str(tmp_path / path), str(tmp_path / images)] for split, (path, images, _) in layout.items()
    }
    assert {part.shares_images for part in inputs.parts} == {name == "one folder of images"}
    assert inputs.splits == tuple(split or "train" for split in layout)


@pytest.mark.parametrize("name", ["coco", "one folder of images"])
def test_shards_are_those_of_files_by_flags(name, tmp_path, recordmill):
    """Whether they are in a folder or in a .zip."""
    layout = LAYOUTS[name]
    data, plain, out = export(tmp_path / "data", layout, CATEGORIES), tmp_path / "plain", tmp_path / "out"
    for split, (path, images, _) in layout.items():
        flags = "--images", data / images, "--instances", data / path, "--split", split
        assert recordmill("convert", *flags, "--output", plain).code == 0
    if name == "coco":
        data = shutil.make_archive(str(tmp_path / "packed"), "zip", data)
    assert recordmill("convert", data, "--format", "coco", "--output", out).code == 0
    assert shard_bytes(out) == shard_bytes(plain)
    for split in manifest_of(out)["splits"]:
        (rows,) = manifest_of(out)["splits"][split]["inputs"]
        assert rows["images"] == rows["annotations"] == 3


def test_placeholder_of_roboflow(tmp_path, recordmill):
    """The unused category 0 would shift all labels by one."""
    data = export(tmp_path / "data", LAYOUTS["cvat"], ROBOFLOW)
    done = recordmill("convert", data, "--format", "coco", "--output", tmp_path / "out")
    assert "'pets'" in done.err + done.out
    labels = [example["image/object/class/label"] for example in read_examples(tmp_path / "out")]
    assert sorted(labels) == [[1], [1], [3]]
    path = data / LAYOUTS["cvat"][""][0]
    used = json.loads(path.read_text())
    used["annotations"][0]["category_id"] = 0
    path.write_text(json.dumps(used))
    assert recordmill("convert", data, "--format", "coco", "--output", tmp_path / "used").code == 0
    labels = [example["image/object/class/label"] for example in read_examples(tmp_path / "used")]
    assert sorted(labels) == [[1], [2], [3]]


def test_split_of_one_file(tmp_path):
    inputs = given(export(tmp_path, LAYOUTS["cvat"], CATEGORIES), split="train=0.5,val=0.5")
    assert ([part.split for part in inputs.parts], inputs.splits) == ([""], ("train", "val"))


@pytest.mark.parametrize(
    ("copied", "options", "message"),
    [
        ("", {"split": "train=0.5,val=0.5"}, "and so does --split"),
        ("", {"instances": ["a.json"]}, "--instances names them"),
        ("annotations/captions_train2014.json", {"layout": "keras"}, "is read as .*: --layout keras .* --captions"),
        ("labels.json", {}, "has no split"),
    ],
)
def test_folders_and_options_that_contradict(copied, options, message, tmp_path):
    data = export(tmp_path, LAYOUTS["coco"], CATEGORIES)
    if copied:
        shutil.copy(data / "annotations/instances_train2017.json", data / copied)
    with pytest.raises(ConfigError, match=message):
        given(data, **options)


@pytest.mark.parametrize("match", ["suffix", "name"])
def test_match_finds_images_in_any_folder(match, tmp_path):
    data = export(tmp_path, LAYOUTS["coco"], CATEGORIES)
    (data / "train2017").rename(data / "photos")
    parts = given(data, match=match).parts
    assert [part.images for part in parts] == [(str(data),), (str(data / "val2017"),)]
    path = data / "annotations/instances_train2017.json"
    for rule, images, cure in ((match, str(data), ""), ("path", "", "with --match name")):
        _, found, _, fault = find_images_of_file(str(path), path.read_bytes(), rule)
        assert (found, cure in str(fault or "")) == (images, True)


def test_unnamed_files_have_the_kinds_of_their_contents(tmp_path):
    rows = [image_row(1, "1.jpg", 40, 30)]
    draw_jpeg(tmp_path / "1.jpg", 40)
    segments = {"image_id": 1, "file_name": "1.png", "segments_info": [{"id": 1, "category_id": 1, "area": 4}]}
    (tmp_path / "maps").mkdir()
    for name, more in {
        "list": {},
        "boxes": {"annotations": [annotation(1, 1)]},
        "maps": {"annotations": [segments]},
    }.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"images": rows, "categories": CATEGORIES} | more))
    inputs = given(tmp_path)
    assert [(source.kind.value, Path(source.path).name) for source in inputs.parts[0].sources] == [
        ("instances", "boxes.json"),
        ("panoptic", "maps.json"),
    ]
    assert inputs.warnings == (f"{tmp_path}/list.json is not read: it has no annotations",)
    for name in ("boxes", "maps"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"images": rows, "annotations": [], "info": name}))
    with pytest.raises(
        ConfigError, match=r"several files are instances: boxes\.json \(1 image, 1 shared\), maps\.json \(1"
    ):
        given(tmp_path)


@pytest.mark.parametrize(
    "copy", ["instances_train2017 (1).json", "instances_train2014.json", "instances_train_old.json"]
)
def test_a_copy_of_a_file_counts_once(copy, tmp_path):
    data = export(tmp_path, LAYOUTS["coco"], CATEGORIES)
    original = data / "annotations/instances_train2017.json"
    shutil.copy(original, data / "annotations" / copy)
    inputs = given(data)
    kept = [Path(source.path).name for part in inputs.parts for source in part.sources]
    assert kept == [
        "instances_train2017.json" if copy != "instances_train2014.json" else copy,
        "instances_val2017.json",
    ]
    (warning,) = inputs.warnings
    assert "is not read: it has the same bytes as annotations/instances_train20" in warning


def test_equal_files_of_two_splits_are_no_copies(tmp_path):
    data = export(tmp_path, LAYOUTS["one folder of images"], CATEGORIES)
    shutil.copy(data / "annotations/instances_train.json", data / "annotations/instances_val.json")
    assert [part.split for part in given(data).parts] == ["train", "val"]


def test_versions_of_a_file_are_an_error_with_the_command_that_reads_one(tmp_path):
    data = export(tmp_path / "the data", LAYOUTS["coco"], CATEGORIES)
    original = data / "annotations/instances_train2017.json"
    file = json.loads(original.read_text())
    file["images"].append(image_row(9, "9.jpg", 40, 30))
    (data / "annotations/instances_train2014.json").write_text(json.dumps(file))
    with pytest.raises(ConfigError) as caught:
        given(data)
    assert str(caught.value) == (
        f"{data}: several files are instances of the split train: annotations/instances_train2014.json (4 images, 3 "
        "shared), annotations/instances_train2017.json (3 images, 3 shared). Convert one: recordmill convert "
        f"'{data}/annotations/instances_train2014.json' -o OUT --format coco, or name the files by flags, "
        "--instances for example, and the folder of the images as DATA"
    )


@pytest.mark.parametrize(("deleted", "message"), [("train2017", "by --images"), ("annotations", "no annotation file")])
def test_incomplete_folders(deleted, message, tmp_path):
    data = export(tmp_path, LAYOUTS["coco"], CATEGORIES)
    shutil.rmtree(data / deleted)
    with pytest.raises(ConfigError, match=message):
        given(data)


def test_archive_with_no_folder_but_that_of_its_images(tmp_path):
    """Storage finds members of an only folder without its name, too."""
    draw_jpeg(tmp_path / "data/images/a.jpg")
    write_coco(tmp_path / "data", [image_row(1, "a.jpg")], [annotation(1, 1)], CATEGORIES)
    packed = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "data"))
    (part,) = given(packed).parts
    assert part.images == (f"{packed}/images",)


def test_archive_within_an_archive(tmp_path):
    with ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("b.zip", b"")
    with pytest.raises(ConfigError, match=r"files inside an archive are not read. Unpack .*/a\.zip$"):
        given(tmp_path / "a.zip" / "b.zip")


def test_panoptic_file_without_pngs_is_not_read(tmp_path):
    data = export(tmp_path, LAYOUTS["coco"], CATEGORIES)
    (data / "annotations/panoptic_val2017.json").write_text("{}")
    (warning,) = given(data).warnings
    assert "the folder panoptic_val2017 of its PNGs is missing" in warning


@pytest.mark.skipif(not SHARED_DATA.exists(), reason="the real data sets are not on this machine")
@pytest.mark.parametrize(
    ("folder", "files"),
    [
        ("coco_mini", {"train": "annotations/instances_train2017.json", "val": "annotations/instances_val2017.json"}),
        ("facemask", {"train": "annotations/custom_train.json", "val": "annotations/custom_val.json"}),
        (
            "datumaro_coco_flavours/tests/assets/roboflow_dataset/coco",
            {"train": "train/_annotations.coco.json", "val": "val/_annotations.coco.json"},
        ),
        ("datumaro_coco_flavours/tests/assets/kaggle_dataset/relaxed_coco", {"train": "annotations.json"}),
        ("labelme_coco/examples/instance_segmentation/data_dataset_coco", {"train": "annotations.json"}),
    ],
)
def test_real_sets(folder, files, tmp_path, recordmill):
    assert recordmill("convert", SHARED_DATA / folder, "--format", "coco", "--output", tmp_path / "out").code == 0
    assert {*manifest_of(tmp_path / "out")["splits"]} == {*files}
    for split, path in files.items():
        file = json.loads((SHARED_DATA / folder / path).read_text())
        examples = read_examples(tmp_path / "out", split)
        assert len(examples) == len(file["images"])
        boxes = sum(len(example["image/object/bbox/xmin"]) for example in examples)
        assert boxes == len(file["annotations"])
