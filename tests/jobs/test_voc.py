"""Folders of Pascal VOC from end to end."""

import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.dataset.record_view import rle_mask
from tests.conftest import SHARED_DATA, draw_jpeg, examples_by_name, grey, manifest_of, read_examples, rejects_of

FORMATS = SHARED_DATA / "formats"
REAL = FORMATS / "voc_bccd" / "BCCD"
DRAWN = FORMATS / "labelme_examples" / "examples" / "instance_segmentation" / "data_dataset_voc"
BOX = "<bndbox><xmin>0</xmin><ymin>0</ymin><xmax>10</xmax><ymax>30</ymax></bndbox>"


def write_image(folder: Path, stem: str, *names: str, images: str = "JPEGImages", labels: str = "Annotations") -> None:
    draw_jpeg(folder / images / f"{stem}.jpg")
    objects = "\n".join(f"<object><name>{name}</name>{BOX}</object>" for name in names)
    (folder / labels).mkdir(parents=True, exist_ok=True)
    (folder / labels / f"{stem}.xml").write_text(f"<annotation>\n{objects}\n</annotation>")


def run(recordmill, folder: Path, *more: object):
    return recordmill(
        "convert", folder, "--format", "voc", "--output", folder.parent / "out", "--max-rejects", 0.9, *more
    )


def classes(folder: Path, split: str) -> dict[str, list[bytes]]:
    examples = examples_by_name(folder.parent / "out", split)
    return {name: each["image/object/class/text"] for name, each in examples.items()}


def write_lists(folder: Path, **lists: str) -> None:
    (folder / "ImageSets" / "Main").mkdir(parents=True)
    for name, stems in lists.items():
        (folder / "ImageSets" / "Main" / f"{name}.txt").write_text("\n".join(stems.split()) + "\n")


def test_lists_of_splits_and_faults(recordmill, tmp_path):
    folder = tmp_path / "VOC"
    for stem, names in {"a": ["cat", "dog"], "b.1": ["dog"], "c": [], "unlisted": ["cat"]}.items():
        write_image(folder, stem, *names)
    draw_jpeg(folder / "JPEGImages" / "bare.jpg")
    draw_jpeg(folder / "JPEGImages" / "half.jpg")
    (folder / "Annotations" / "half.xml").write_text("<annotation>\n<object>")
    for stem in ("alone", "gone"):  # no list names the first one
        (folder / "Annotations" / f"{stem}.xml").write_text((folder / "Annotations" / "a.xml").read_text())
    (folder / "Annotations" / "a.xml").write_text(
        (folder / "Annotations" / "a.xml").read_text().replace("\n</annotation>", "\n<object/>\n</annotation>")
    )
    (folder / "SegmentationObject").mkdir()
    (folder / "SegmentationObject" / "a.png").write_bytes(b"")
    write_lists(folder, train="a half bare", val="b.1 c gone", trainval="a b.1 c", cat_train="a")
    done = run(recordmill, folder)
    assert done.code == 0, done.err
    assert classes(folder, "train") == {"JPEGImages/a.jpg": [b"cat", b"dog"], "JPEGImages/bare.jpg": []}
    assert classes(folder, "val") == {"JPEGImages/b.1.jpg": [b"dog"], "JPEGImages/c.jpg": []}
    assert [(line["reason"], line["detail"]) for line in rejects_of(tmp_path / "out")] == [
        ("unknown_category", "Annotations/a.xml, line 4: an object without <name>"),
        ("malformed_labels", "Annotations/half.xml, line 2: it is not valid XML from here on (no element found)"),
        ("image_missing", "no file 'JPEGImages/gone.jpg' in the folders of images"),
    ]
    annotations = [split["annotations"] for split in manifest_of(tmp_path / "out")["splits"].values()]
    assert [(counts["rows"], counts["of_rejected_images"]) for counts in annotations] == [(3, 0), (3, 2)]
    warnings = manifest_of(tmp_path / "out")["splits"]["train"]["warnings"]
    for said in (
        "images without a label file: 1",
        "SegmentationObject has 1 images",
    ):
        assert said in " ".join(warnings)
    assert manifest_of(tmp_path / "out")["splits"]["train"]["unlisted"]["first"] == ["JPEGImages/unlisted.jpg"]


def write_mask(folder: Path, stem: str, rows: list[list[int]], mode: str = "P") -> None:
    """Write an image of 40x30 whose top left pixels have these indices."""
    pixels = np.zeros((30, 40), np.uint8)
    pixels[: len(rows), : len(rows[0])] = rows
    image = Image.fromarray(pixels)
    image.putpalette([value for index in range(256) for value in (index, 255 - index, 7)])
    (folder / "SegmentationObject").mkdir(exist_ok=True)
    image.convert(mode).save(folder / "SegmentationObject" / f"{stem}.png")


def test_masks_and_images_by_the_name_that_xml_states(recordmill, tmp_path):
    folder = tmp_path / "VOC"
    for stem, names in {"a": ["cat", "dog"], "b": ["cat"], "c": ["cat"], "d": ["cat"], "0009": ["dog"]}.items():
        write_image(folder, stem, *names)
    write_mask(folder, "a", [[2, 2, 255], [1, 2, 255]])
    write_mask(folder, "b", [[2, 0, 0]])  # no mask of the first object, and one of no object
    write_mask(folder, "d", [[1, 1, 1]], "RGB")
    write_mask(folder, "0009", [[1, 1, 1]])
    (folder / "JPEGImages" / "0009.jpg").rename(folder / "JPEGImages" / "IMG.9.JPG")
    draw_jpeg(folder / "JPEGImages" / "bare.jpg")
    (folder / "Annotations" / "0012.xml").write_text((folder / "Annotations" / "a.xml").read_text())
    for stem, stated in {"0009": "C:\\x\\IMG.9.JPG", "0010": "IMG.9", "0011": "gone.jpg", "b": "a.jpg"}.items():
        path = folder / "Annotations" / f"{stem}.xml"
        text = path.read_text() if path.exists() else "<annotation>\n</annotation>"
        path.write_text(text.replace("<annotation>", f"<annotation><filename>{stated}</filename>"))
    done = run(recordmill, folder, "--masks", "rle")
    assert done.code == 0, done.err
    found = {each["image/filename"][0].decode()[11:]: each for each in read_examples(tmp_path / "out", "train")}
    masks = {name: [rle_mask(each, (40, 30)) for each in found[name]["image/object/mask/rle"]] for name in found}
    pixels = {
        name: [[*zip(*(axis.tolist() for axis in each.nonzero()), strict=True)] for each in of_image]
        for name, of_image in masks.items()
    }
    assert pixels == {
        "a.jpg": [[(1, 0)], [(0, 0), (0, 1), (1, 1)]],
        "b.jpg": [[]],
        "c.jpg": [[]],
        "d.jpg": [[]],
        "IMG.9.JPG": [[(0, 0), (0, 1), (0, 2)]],
        "bare.jpg": [],
    }
    assert (found["a.jpg"]["image/object/area"], found["c.jpg"]["image/object/area"]) == ([1, 3], [300])
    assert found["IMG.9.JPG"]["image/object/class/text"] == [b"dog"]
    assert [(line["reason"], line["annotations"]) for line in rejects_of(tmp_path / "out")] == [
        ("label_without_image", 2)
    ]
    assert manifest_of(tmp_path / "out")["splits"]["train"]["warnings"] == [
        "files without an image and without a label of the format: 2; they are skipped ('Annotations/0010.xml', "
        "'Annotations/0011.xml')",
        "images whose SegmentationObject cannot be read as a PNG with a palette: 1 ('JPEGImages/d.jpg')",
        "images with masks in SegmentationObject that no <object> has: 1; the masks are skipped ('JPEGImages/b.jpg')",
        "images with objects that have no mask in SegmentationObject: 2 ('JPEGImages/b.jpg', 'JPEGImages/c.jpg')",
        "images without a label file: 1; they are written without objects, as background ('JPEGImages/bare.jpg')",
    ]


@pytest.mark.skipif(not DRAWN.is_dir(), reason="the real data set is not here")
def test_masks_of_real_files(recordmill, tmp_path):
    """PNGs that LabelMe's labelme2voc.py wrote, with XML of the bounds that this test finds in them."""
    folder = tmp_path / "VOC"
    shutil.copytree(DRAWN, folder)
    for path in (folder / "SegmentationObject").glob("*.png"):
        indices = np.asarray(Image.open(path))
        objects = []
        for index in range(1, indices[indices < 255].max() + 1):
            ys, xs = (indices == index).nonzero()
            if not len(xs):  # hidden by another object
                xs = ys = np.array([0])
            edges = {"xmin": xs.min(), "ymin": ys.min(), "xmax": xs.max() + 1, "ymax": ys.max() + 1}
            box = "".join(f"<{edge}>{value}</{edge}>" for edge, value in edges.items())
            objects.append(f"<object><name>i{index}</name><bndbox>{box}</bndbox></object>")
        (folder / "Annotations").mkdir(exist_ok=True)
        (folder / "Annotations" / f"{path.stem}.xml").write_text(f"<annotation>{''.join(objects)}</annotation>")
    assert run(recordmill, folder, "--masks", "png").code == 0
    for each in read_examples(tmp_path / "out", "train"):
        path = folder / "SegmentationObject" / f"{Path(each['image/filename'][0].decode()).stem}.png"
        indices = np.asarray(Image.open(path))
        assert len(each["image/object/mask"]) == indices[indices < 255].max() > 0
        for name, mask, area in zip(
            each["image/object/class/text"], each["image/object/mask"], each["image/object/area"], strict=True
        ):
            expected = indices == int(name[1:])
            assert (grey(mask) > 0).tolist() == expected.tolist()
            assert area == (expected.sum() or 1)


@pytest.mark.parametrize(("images", "labels"), [("", ""), ("images/", "annotations")])
def test_folders_of_splits(recordmill, tmp_path, images, labels):
    """Files beside each other in a folder; files in folders in a .zip."""
    folder = tmp_path / "exported"
    for name in ("train", "valid"):
        write_image(folder / name, name, "cat", images=images, labels=labels)
    data = Path(shutil.make_archive(str(folder), "zip", folder)) if images else folder
    assert run(recordmill, data).code == 0
    assert classes(folder, "train") == {f"train/{images}train.jpg": [b"cat"]}
    assert classes(folder, "val") == {f"valid/{images}valid.jpg": [b"cat"]}


def test_a_layout_without_difficult_names_the_flag_that_stores_it(recordmill, tmp_path, caplog):
    write_image(tmp_path / "VOC", "a", "cat")
    path = tmp_path / "VOC" / "Annotations" / "a.xml"
    path.write_text(path.read_text().replace("</bndbox>", "</bndbox><difficult>1</difficult>"))
    run(recordmill, tmp_path / "VOC", "--layout", "keras", "--dry-run")
    assert "the layout keras has no feature for difficult. Add --fields difficult" in caplog.text


def test_origin_and_split(recordmill, tmp_path, caplog):
    folder = tmp_path / "VOCdevkit"
    write_image(folder / "VOC2007", "a", "cat")
    path = folder / "VOC2007" / "Annotations" / "a.xml"
    path.write_text(path.read_text().replace(">0<", ">1<"))
    run(recordmill, folder, "--dry-run")
    assert "the least xmin is 1, as if the first pixel were 1: --voc-origin 1 moves" in caplog.text
    assert run(recordmill, folder, "--voc-origin", 1, "--split", "test").code == 0
    assert manifest_of(tmp_path / "out")["splits"]["test"]["warnings"] == []
    (example,) = read_examples(tmp_path / "out", "test")
    edges = [example[f"image/object/bbox/{edge}"][0] for edge in ("xmin", "ymin", "xmax", "ymax")]
    assert edges == [0, 0, 0.25, 1]
    assert [example[f"image/object/{key}"] for key in ("difficult", "truncated", "view")] == [[0], [0], [b""]]


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda folder: folder.mkdir(), "has no .xml files: neither in it, nor in Annotations, train, val or test"),
        (lambda folder: (folder / "VOC2007").mkdir(parents=True) or (folder / "VOC2012").mkdir(), "VOC2007, VOC2012"),
        (lambda folder: folder.write_text("<annotation/>"), "is a file. Give the folder that has Annotations"),
    ],
)
def test_not_a_data_set(recordmill, tmp_path, prepare, said):
    prepare(tmp_path / "data")
    done = run(recordmill, tmp_path / "data")
    assert done.code == 2
    assert said in done.err


def test_fractions_end_the_job(recordmill, tmp_path):
    write_image(tmp_path / "VOC", "a", "cat")
    path = tmp_path / "VOC" / "Annotations" / "a.xml"
    path.write_text(path.read_text().replace("10", "0.25").replace("30", "1"))
    done = run(recordmill, tmp_path / "VOC")
    assert done.code == 2
    assert "all boxes are within 0..1, like fractions, but boxes of voc are in pixels" in done.err


@pytest.mark.skipif(not REAL.is_dir(), reason="the real data set is not here")
def test_blood_cells(recordmill, tmp_path):
    assert recordmill("convert", REAL, "--format", "voc", "--output", tmp_path / "out").code == 0
    splits = manifest_of(tmp_path / "out")["splits"]
    for name, split in splits.items():
        stems = (REAL / "ImageSets" / "Main" / f"{name}.txt").read_text().split()
        roots = [ElementTree.parse(REAL / "Annotations" / f"{stem}.xml").getroot() for stem in stems]
        boxes = [[int(edge.text) for edge in box] for root in roots for box in root.iter("bndbox")]
        whole = [box for box in boxes if box[0] < box[2] and box[1] < box[3]]
        assert split["images"]["written"] == len(stems)
        assert (split["annotations"]["rows"], split["annotations"]["objects"]) == (len(boxes), len(whole))
    assert sorted(splits) == ["test", "train", "val"]
