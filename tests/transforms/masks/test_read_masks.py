"""Real layouts of images with masks, as literal trees: what is recognised, paired, named and divided."""

import io
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from recordmill.pipelines.recognise import recognise
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.names import name_key
from recordmill.transforms.masks import pair_folders
from recordmill.transforms.masks.masks_options import MasksOptions
from recordmill.transforms.masks.read_masks import source
from tests.literal_data import GREY, jpeg, png, write_files

VOC_PALETTE = bytes((0, 0, 0, 128, 0, 0, 0, 128, 0, 128, 128, 0, 0, 0, 128)) + bytes(251 * 3)
CLASSES = "Pixel Value, Class\n0, background\n1, cat\n"
DICT = "name,r,g,b\nVoid,0,0,0\nCar,64,0,128\n"
LABEL_MAP = "# label:color_rgb:parts:actions\nbackground:0,0,0::\ncat:250,50,83::\n"
OBJECT_INFO = "Idx\tRatio\tTrain\tVal\tStuff\tName\n1\t0.1\t9\t1\t1\twall\n2\t0.1\t9\t1\t1\tbuilding, edifice\n"


def mask(*values: object, palette: bytes = b"") -> bytes:
    """Return a PNG with a column for each value, or colour."""
    return png(np.array([values], np.uint8), palette)


def gif(*values: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.array([values], np.uint8)).save(file, "GIF")
    return file.getvalue()


TWO = mask(0, 1)
RGB = mask((0, 0, 0), (64, 0, 128))

# Files; then splits, (folder of masks, prefix of images, end of images, end of masks), and names of classes.
LAYOUTS = {
    "two folders": (
        {"images/1.jpg": GREY, "masks/1.png": TWO, "classes.txt": "sky\ncar\n"},
        ((), [("masks", "images/", "", "")], ["sky", "car"]),
    ),
    "labels, which YOLO has, too": (
        {"images/1.jpg": GREY, "labels/1.png": TWO, "_classes.csv": CLASSES},
        ((), [("labels", "images/", "", "")], ["background", "cat"]),
    ),
    "split/images": (
        {f"{split}/{kind}/1.png": TWO for split in ("train", "val") for kind in ("images", "masks")}
        | {"codes.txt": "a\nb"},
        (("train", "val"), [(f"{s}/masks", f"{s}/images/", "", "") for s in ("train", "val")], ["a", "b"]),
    ),
    "images/split, as extract writes it": (
        {f"{kind}/{split}/1.png": TWO for split in ("train", "val") for kind in ("images", "masks")}
        | {"_classes.csv": CLASSES},
        (("train", "val"), [("masks", "images/", "", "")], ["background", "cat"]),
    ),
    "Cityscapes' labelIds": (
        {
            "leftImg8bit/train/bonn/bonn_1_leftImg8bit.png": GREY,
            **{f"gtFine/train/bonn/bonn_1_gtFine_{kind}.png": mask(7, 8) for kind in ("labelIds", "instanceIds")},
            "gtFine/train/bonn/bonn_1_gtFine_color.png": RGB,
        },
        (("train",), [("gtFine", "leftImg8bit/", "_leftImg8bit", "_gtFine_labelIds")], 34),
    ),
    "Cityscapes' labelTrainIds, where they exist": (
        {
            "leftImg8bit/val/bonn/bonn_1_leftImg8bit.png": GREY,
            **{f"gtFine/val/bonn/bonn_1_gtFine_{kind}.png": TWO for kind in ("labelIds", "labelTrainIds", "color")},
        },
        (("val",), [("gtFine", "leftImg8bit/", "_leftImg8bit", "_gtFine_labelTrainIds")], 19),
    ),
    "ADE20K": (
        {
            **{f"images/{split}/1.jpg": GREY for split in ("training", "validation")},
            **{f"annotations/{split}/1.png": TWO for split in ("training", "validation")},
            "objectInfo150.txt": OBJECT_INFO,
        },
        (("train", "val"), [("annotations", "images/", "", "")], ["wall", "building, edifice"]),
    ),
    "CamVid": (
        {f"{split}{end}/1.png": TWO for split in ("train", "val", "test") for end in ("", "annot")}
        | {"codes.txt": "a\nb"},
        (
            ("train", "val", "test"),
            [(f"{split}annot", f"{split}/", "", "") for split in ("test", "train", "val")],
            ["a", "b"],
        ),
    ),
    "CamVid in colours": (
        {"train/1.png": GREY, "train_labels/1_L.png": RGB, "class_dict.csv": DICT},
        (("train",), [("train_labels", "train/", "", "_L")], ["Void", "Car"]),
    ),
    "Pascal VOC without XML": (
        {
            **{f"JPEGImages/{number}.jpg": jpeg(number) for number in range(3)},
            **{f"SegmentationClass/{number}.png": mask(0, 4, 255, palette=VOC_PALETTE) for number in range(2)},
            "ImageSets/Segmentation/train.txt": "0\n",
            "ImageSets/Segmentation/val.txt": "1\n",
        },
        (("train", "val"), [("SegmentationClass", "JPEGImages/", "", "")], 21),
    ),
    "Roboflow": (
        {
            **{f"{split}/1{end}": TWO for split in ("train", "valid") for end in (".png", "_mask.png")},
            **{f"{split}/_classes.csv": CLASSES for split in ("train", "valid")},
            "README.roboflow.txt": "",
        },
        (("train", "val"), [("", "", "", "_mask")], ["background", "cat"]),
    ),
    "CVAT": (
        {
            "JPEGImages/1.jpg": GREY,
            "SegmentationClass/1.png": mask((0, 0, 0), (250, 50, 83)),
            "SegmentationObject/1.png": RGB,
            "labelmap.txt": LABEL_MAP,
            "ImageSets/Segmentation/default.txt": "1\n",
        },
        (("train",), [("SegmentationClass", "JPEGImages/", "", "")], ["background", "cat"]),
    ),
    "CVAT without images": (
        {
            "frames/1.jpg": GREY,
            "export/SegmentationClass/1.png": mask((0, 0, 0), (250, 50, 83)),
            "export/labelmap.txt": LABEL_MAP,
        },
        ((), [("export/SegmentationClass", "frames/", "", "")], ["background", "cat"]),
    ),
    "DeepGlobe": (
        {"train/1_sat.jpg": GREY, "train/1_mask.png": RGB, "class_dict.csv": DICT},
        (("train",), [("", "", "_sat", "_mask")], ["Void", "Car"]),
    ),
    "other names of masks": (
        {"img/a1.jpg": GREY, "img/a2.jpg": GREY, "gt/ma1.png": TWO, "gt/ma2.png": TWO, "classes.txt": "a\nb"},
        ((), [("gt", "img/", "", "")], ["a", "b"]),
    ),
    "Oxford-IIIT Pet": (
        {"images/1.jpg": GREY, "annotations/trimaps/1.png": TWO, "annotations/list.txt": "", "classes.txt": "a\nb"},
        ((), [("annotations/trimaps", "images/", "", "")], ["a", "b"]),
    ),
    "BDD100K, whose test images have no masks": (
        {
            **{f"images/10k/{split}/1.jpg": GREY for split in ("train", "val", "test")},
            **{f"labels/sem_seg/masks/{split}/1.png": TWO for split in ("train", "val")},
            "classes.txt": "a\nb",
        },
        (("train", "val"), [("labels/sem_seg/masks", "images/10k/", "", "")], ["a", "b"]),
    ),
    "MMSegmentation": (
        {"img_dir/train/1.jpg": GREY, "ann_dir/train/1.png": TWO, "classes.txt": "a\nb"},
        (("train",), [("ann_dir", "img_dir/", "", "")], ["a", "b"]),
    ),
    "COCO-Stuff": (
        {"images/train2017/1.jpg": GREY, "stuffthingmaps/train2017/1.png": TWO, "classes.txt": "a\nb"},
        ((), [("stuffthingmaps", "images/", "", "")], ["a", "b"]),
    ),
    "Supervisely": (
        {
            **{f"set/{kind}/1.png": TWO for kind in ("img", "masks_machine", "masks_human")},
            "classes.txt": "a\nb",
        },
        ((), [("set/masks_machine", "set/img/", "", "")], ["a", "b"]),
    ),
    "names of macOS, whose accents are letters of their own": (
        {"e\u0301/images/\u00e9 1.jpg": GREY, "e\u0301/masks/e\u0301 1.png": TWO, "classes.txt": "a\nb"},
        ((), [("e\u0301/masks", "\u00e9/images/", "", "")], ["a", "b"]),
    ),
    "folders of cities": (
        {f"{kind}/{city}/1.png": TWO for kind in ("images", "masks") for city in ("bonn", "ulm")}
        | {"classes.txt": "a\nb"},
        ((), [("masks", "images/", "", "")], ["a", "b"]),
    ),
    "a folder of masks among images": (
        {"1.jpg": GREY, "masks/1.png": TWO, "classes.txt": "a\nb"},
        ((), [("masks", "", "", "")], ["a", "b"]),
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, tmp_path):
    files, (splits, maps, names) = LAYOUTS[layout]
    write_files(tmp_path, files)
    (match,) = recognise(str(tmp_path))
    assert (match[0], match[1].fault) == ("masks", None)
    found = source(MasksOptions(data=str(tmp_path), output="out"))
    folders = [
        (map_.path.removeprefix(str(tmp_path)).lstrip("/"), map_.prefix, map_.image_ends.end, map_.map_ends.end)
        for map_ in found.maps
    ]
    texts = [category.name for category in found.segments]
    assert (found.splits, folders, texts if isinstance(names, list) else len(texts)) == (splits, maps, names)
    images = [name for name in files if not found.is_map(name) and name.endswith((".jpg", ".png"))]
    pairs = [(map_, name) for map_ in found.maps for name in images if map_.image_key(name)]
    keys = {
        (
            map_.path,
            map_.map_key(name_key(name.removeprefix(map_.path.removeprefix(str(tmp_path)).strip("/")).strip("/"))),
        )
        for map_ in found.maps
        for name in files
    }
    assert any((map_.path, map_.image_key(name)) in keys for map_, name in pairs)


def test_a_zip_is_its_folder(tmp_path):
    files, (_, maps, _) = LAYOUTS["split/images"]
    write_files(tmp_path / "a", files)
    archive = shutil.make_archive(str(tmp_path / "b"), "zip", tmp_path / "a")
    assert [name for name, _ in recognise(archive)] == ["masks"]
    found = source(MasksOptions(data=archive, output="out"))
    assert [(map_.path.removeprefix(f"{archive}/"), map_.prefix) for map_ in found.maps] == [pair[:2] for pair in maps]


@pytest.mark.parametrize("given", [{"mask_images": "m"}, {"data": "m", "images": "i"}])
def test_masks_elsewhere(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, {"i/a/1.jpg": GREY, "m/masks/a/1.png": TWO})
    found = source(MasksOptions(**{"data": "i", "output": "out", "class_names": "a,b", **given}))
    assert [(map_.path, map_.prefix) for map_ in found.maps] == [("m/masks", "")]
    assert [folder.path for folder in found.folders] == ["i"]


@pytest.mark.parametrize("folder", ["i", "m"])
@pytest.mark.parametrize("given", [{"mask_images": "m"}, {"data": "m", "images": "i"}])
def test_names_of_classes_are_beside_the_images_or_the_masks(given, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, {"i/1.jpg": GREY, "m/1.png": TWO, f"{folder}/classes.txt": "sky\ncar\n"})
    found = source(MasksOptions(**{"data": "i", "output": "out", **given}))
    assert ([category.name for category in found.segments], found.inputs) == (
        ["sky", "car"],
        (f"{folder}/classes.txt",),
    )


def test_other_formats_come_first(tmp_path):
    """Masks beside label files, or beside a table that names the images, change nothing."""
    write_files(tmp_path, {"images/1.jpg": GREY, "masks/1.png": TWO})
    for name, text, format_ in (
        ("labels/1.txt", "0 0.5 0.5 1 1", "yolo"),
        ("a.xml", "<annotation/>", "voc"),
        ("labels.csv", "file,label\nimages/1.jpg,cat\n", "folder"),
    ):
        write_files(tmp_path, {name: text})
        assert [found for found, _ in recognise(str(tmp_path))] == [format_]
        (tmp_path / name).unlink()


@pytest.mark.parametrize(
    "files",
    [
        {"images/1.jpg": GREY, "masks/x.jpg": GREY, "images/2.jpg": GREY},  # no partners
        {"images/1.jpg": jpeg(1), "masks/1.jpg": jpeg(2)},  # partners that are JPEGs
        {f"{name}/{number}.png": GREY for name in ("cat", "cat_mask") for number in "12"},  # names of classes
        {f"{name}/{number}{end}": GREY for name in ("cat", "dog") for number in "12" for end in (".jpg", "_mask.png")},
    ],
)
def test_folders_that_may_be_classes(files, tmp_path):
    write_files(tmp_path, files)
    ((name, match),) = recognise(str(tmp_path))
    assert name == "masks"
    assert f"recordmill convert {tmp_path} --format folder -o OUT" in str(match.fault)


def test_folders_of_images_and_masks_are_no_classes(tmp_path):
    write_files(tmp_path, {"images/1.jpg": GREY, "masks/1.png": TWO})
    ((_, match),) = recognise(str(tmp_path))
    assert "--class-names" in str(match.fault)
    assert "--format folder" not in str(match.fault)


def test_classes_stay_classes(tmp_path):
    write_files(tmp_path, {"mask/1.jpg": GREY, "no_mask/1.jpg": GREY, "train/1.jpg": GREY})
    assert [name for name, _ in recognise(str(tmp_path))] == ["folder"]


def test_images_alone_have_masks_only_if_depth_maps_are_given(tmp_path):
    write_files(tmp_path / "data", {"1.jpg": GREY, "2.jpg": GREY})
    (tmp_path / "empty").mkdir()
    given = {"depth_images": ("depth",), "depth_scale": 0.001}
    assert recognise(str(tmp_path / "data")) == []
    assert [name for name, _ in recognise(str(tmp_path / "data"), given)] == ["masks"]
    assert recognise(str(tmp_path / "empty"), given) == []


@pytest.mark.parametrize("folders", [("masks", "labels"), ("labels", "masks")])
def test_masks_come_before_labels(folders):
    names = [f"{folder}/{number}.png" for folder in ("images", *folders) for number in "12"]
    assert [pair.masks for pair in pair_folders.find_pairs(names)] == ["masks"]


def test_masks_after_many_images(tmp_path, monkeypatch):
    """The first files of a large folder may be images alone."""
    write_files(tmp_path, {f"images/{number}.jpg": GREY for number in range(8)})
    write_files(tmp_path, {f"masks/{number}.png": TWO for number in range(8)})
    for listed in (4, 8):
        monkeypatch.setattr(pair_folders, "LISTED", listed)
        names = pair_folders.list_names(str(tmp_path))
        assert {name.partition("/")[0] for name in names} == {"images", "masks"}


@pytest.mark.parametrize(
    ("files", "given"),
    [
        ({"images/train/1.jpg": GREY, "images/other/2.jpg": GREY, "masks/train/1.png": TWO}, {}),
        ({"train/images/1.jpg": GREY, "train/masks/1.png": TWO, "x/images/1.jpg": GREY, "x/masks/1.png": TWO}, {}),
        ({"a/1.jpg": GREY}, {}),
        ({"a/1.jpg": GREY, "m/2.png": TWO}, {"mask_images": "m"}),
        ({"images/1.jpg": GREY, "masks/1.png": TWO}, {"class_names": "missing.txt"}),
        ({"images/1.jpg": GREY, "masks/1.png": TWO, "n.txt": "<!doctype html>\n<html>"}, {"class_names": "n.txt"}),
        ({"images/1.jpg": GREY, "masks/1.png": TWO, "n.txt": "a\n" + "b" * 1_000_001}, {"class_names": "n.txt"}),
        ({"images/1.jpg": GREY, "masks/1.png": TWO}, {"void": "256"}),
        ({"images/1.jpg": GREY, "masks/1.png": TWO}, {"min_area": 1}),
        ({"a/1.jpg": GREY, "b/2.jpg": GREY, "m/1.png": TWO}, {"data": "m", "images": ["a", "b"]}),
        ({"a/1.jpg": GREY, "m/1.png": TWO, "n/1.png": TWO}, {"data": "a", "mask_images": ["m", "n"]}),
        ({"images/1.jpg": GREY, "masks/1.png": TWO}, {"tile": 8, "keep_empty": 0.5}),
        (
            {
                "train/1.jpg": GREY,
                "train/1_mask.png": TWO,
                "train/_classes.csv": CLASSES,
                "_classes.csv": "id,name\n0,a",
            },
            {},
        ),
    ],
)
def test_refused(files, given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, files)
    with pytest.raises(ConfigError):
        source(
            MasksOptions(
                **{"data": ".", "output": "out", "class_names": "a,b" if "_classes" not in str(files) else "", **given}
            )
        )


@pytest.mark.parametrize(
    ("files", "detail"),
    [
        (
            {"i/1.jpg": GREY, "m/2.png": TWO},
            "no mask in m is named like an image in i: '2.png', and '1.jpg', for example",
        ),
        ({"i/1.jpg": GREY, "m/a.txt": ""}, "m has no images"),
        ({"i/a.txt": "", "m/2.png": TWO}, "i has no images"),
    ],
)
def test_masks_without_images_are_named(files, detail, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, files)
    with pytest.raises(ConfigError, match=f"^{re.escape(detail)}$"):
        source(MasksOptions(data="i", output="out", mask_images="m", class_names="a,b"))


def test_images_without_masks_are_named(tmp_path):
    write_files(tmp_path, {"train/images/1.jpg": GREY, "train/masks/1.png": TWO, "test/images/2.jpg": GREY})
    write_files(tmp_path, {"depth/train/1.png": GREY})
    depth = {"depth_images": str(tmp_path / "depth"), "depth_scale": 0.001}
    (warning,) = source(MasksOptions(data=str(tmp_path), output="out", class_names="a,b", **depth)).warnings
    assert "test/images (1 image)" in warning


@pytest.mark.parametrize("given", [{}, {"data": "images", "mask_images": "masks"}])
def test_splits_without_masks_are_named(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, {f"images/{split}/a/1.jpg": GREY for split in ("train", "test")})
    write_files(tmp_path, {"masks/train/a/1.png": TWO, "other/1.jpg": GREY})
    found = source(MasksOptions(**{"data": ".", "output": "out", "class_names": "a,b", **given}))
    assert (found.splits, [folder.split for folder in found.folders]) == (("train",), ["train"])
    assert ["test/a" in warning for warning in found.warnings] == [True]


def test_maps_in_the_folder_of_images_are_no_images(tmp_path, monkeypatch):
    """Folders that flags name, for depth maps or masks."""
    write_files(tmp_path, {f"{folder}/train/1.jpg": GREY for folder in ("images", "depth", "own")})
    depth = {"depth_images": str(tmp_path / "depth"), "depth_scale": 0.001}
    found = source(MasksOptions(data=str(tmp_path), output="out", **depth))
    assert (found.parts, found.maps, found.segments, found.is_map("depth/train/1.jpg")) == ((), (), (), True)
    monkeypatch.chdir(tmp_path)
    found = source(MasksOptions(data=".", output="out", **{**depth, "depth_images": "depth"}))
    assert (found.is_map("depth/train/1.jpg"), found.is_map("images/train/1.jpg")) == (True, False)
    (tmp_path / "own").rename(tmp_path / "images" / "own")
    data = tmp_path / "images"
    found = source(MasksOptions(data=str(data), output="out", **{**depth, "depth_images": f"{data}/../images/own"}))
    assert ([folder.path for folder in found.folders], found.splits) == ([str(data / "train")], ("train",))
