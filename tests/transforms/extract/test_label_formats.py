"""Label files of one record, by format; and the outlines that they have of masks."""

import io
import json
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image, ImageOps

from recordmill.schemas.features import FeatureKind, Part
from recordmill.schemas.field_features import FieldColumn, add_fields
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import LAYOUTS
from recordmill.transforms.cvat.read_cvat import parse_cvat
from recordmill.transforms.extract.extract_files import UnusableRecordError
from recordmill.transforms.extract.extract_rows import RecordRows
from recordmill.transforms.extract.extract_shards import LabelExtractor
from recordmill.transforms.extract.label_format import join_rings, trace_mask
from recordmill.transforms.extract.write_formats import LABEL_FORMATS
from recordmill.transforms.images.decode_segmentation import compress_segmentation
from recordmill.transforms.images.masks import mask_rle, run_lengths
from recordmill.transforms.sample.draw_scene import encoded

NAMES = ("no", 'a: "b" & <c>', "big cat #1", "été\u2028", "- x")
LABELS = LabelMap(tuple(Category(3 * index, name) for index, name in enumerate(NAMES)))
IMAGE = Image.linear_gradient("L").resize((40, 30))
NONE = {
    "image.encoded": encoded(IMAGE, "PNG"),
    "image.file_name": b"a/b.png",
    "image.height": np.array([30]),
    "image.width": np.array([40]),
    "image.id": b"5",
    "objects.area": np.float32([]),
    "objects.category_id": np.int64([]),
    "objects.id": np.int64([]),
    "objects.is_crowd": np.int64([]),
} | {f"objects.{edge}": np.float32([]) for edge in ("xmin", "xmax", "ymin", "ymax")}


def with_objects(*boxes_yxyx, **more) -> dict:
    """Values of a record with objects; each is of the next class."""
    number = len(boxes_yxyx)
    edges = dict(zip(("ymin", "xmin", "ymax", "xmax"), np.float32(boxes_yxyx).T, strict=True))
    found = NONE | {f"objects.{edge}": column for edge, column in edges.items()}
    found |= {"objects.area": np.float32([9] * number), "objects.id": np.arange(number)}
    found |= {"objects.category_id": 3 * np.arange(number), "objects.is_crowd": np.zeros(number, int)}
    return found | {name.replace("__", "."): value for name, value in more.items()}


def extract(format_: str, values: dict, *parts: Part):
    table = LAYOUTS["detection"].with_parts(parts)
    rows, files, faults = LabelExtractor(table, LABELS, "val", LABEL_FORMATS[format_])(values)
    assert msgspec.json.decode(msgspec.json.encode(rows), type=RecordRows) == rows  # as in pieces
    return rows, files, faults


ALL = with_objects(*[(0.1, 0.25, 0.5, 0.75)] * len(NAMES))


def test_yolo():
    rows, (image, labels), faults = extract("yolo", ALL)
    assert (image.path, labels.path, faults) == ("images/val/a/b.png", "labels/val/a/b.txt", [])
    assert labels.data.decode().splitlines() == [f"{index} 0.5 0.3 0.5 0.4" for index in range(5)]
    assert rows.lost == {
        "ids of annotations": 5,
        "ids of images": 1,
        "areas that differ from those of the shapes": 5,
    }


@pytest.mark.parametrize(
    ("splits", "expected"),
    [
        (["train"], {"val": [], "train": "images/train"}),
        (["minival", "val", "train"], {name: f"images/{name}" for name in ("train", "val", "minival")}),
    ],
)
def test_yaml(splits, expected):
    (file,) = LABEL_FORMATS["yolo"].finish(splits, LABELS, LAYOUTS["detection"].with_parts(()))
    assert yaml.safe_load(file.data) == expected | {"names": dict(enumerate(NAMES))}


def test_voc():
    values = ALL | {"objects.difficult": np.array([0, 1, 0, 0, 0]), "objects.truncated": np.array([1, 0, 0, 0, 0])}
    values |= {"objects.view": [b"Left", b"", b"a\x01", b"", b""]}
    rows, (_, labels), _ = extract("voc", values, Part.FLAGS)
    root = ElementTree.fromstring(labels.data)
    assert (labels.path, rows.line) == ("Annotations/val/a/b.xml", "val/a/b")
    assert tuple(each.findtext("name") for each in root.iter("object")) == NAMES
    assert [each.findtext("pose") for each in root.iter("object")][:3] == ["Left", "Unspecified", "a\ufffd"]
    assert [(each.findtext("difficult"), each.findtext("truncated")) for each in root.iter("object")][:2] == [
        ("0", "1"),
        ("1", "0"),
    ]
    box = root.find("object/bndbox")
    assert [box.findtext(edge) for edge in ("xmin", "ymin", "xmax", "ymax")] == ["10", "3", "30", "15"]
    assert (root.findtext("filename"), root.findtext("size/width")) == ("val/a/b.png", "40")


def test_labelme_and_hf():
    _, (_, labels), _ = extract("labelme", ALL)
    document = json.loads(labels.data)
    assert [(shape["label"], shape["points"]) for shape in document["shapes"]] == [
        (name, [[10, 3], [30, 15]]) for name in NAMES
    ]
    assert (document["imagePath"], document["imageHeight"], document["imageData"]) == ("b.png", 30, None)
    rows, files, _ = extract("hf", ALL)
    line = json.loads(rows.line)
    assert (line["file_name"], line["objects"]["category"]) == ("a/b.png", list(NAMES))
    assert ([file.path for file in files], rows.lost) == (["val/a/b.png"], {})


def test_ndjson():
    values = with_objects((0, 0, 1, 1), (0, 0, 0.5, 0.5)) | {"image.tag_names": [b"no", b"- x", b"gone"]}
    rows, files, _ = extract("ndjson", values, Part.TAGS)
    annotations = {"boxes": [[0, 0.5, 0.5, 1, 1], [1, 0.25, 0.25, 0.5, 0.5]], "classification": [0, 4]}
    image = {"type": "image", "file": "a_b.png", "width": 40, "height": 30, "split": "val"}
    assert json.loads(rows.line) == image | {"annotations": annotations}
    assert ([file.path for file in files], rows.objects, "tags of images" in rows.lost) == (
        ["images/val/a_b.png"],
        4,
        False,
    )
    assert ["names have _ for /" in note for note in rows.notes] == [True]


@pytest.mark.parametrize(
    ("parts", "line", "expected"),
    [
        ((), b"", {"task": "detect"}),
        ((Part.MASK_RLE,), b"", {"task": "segment"}),
        ((Part.ORIENTED,), b"", {"task": "obb"}),
        ((Part.TAGS,), b'{"annotations":{"classification":[0]}}', {"task": "classify"}),
        ((Part.TAGS,), b'{"annotations":{"boxes":[[0,0.5,0.5,1,1]]}}', {"task": "detect"}),
    ],
)
def test_line_of_an_ndjson_data_set(parts, line, expected):
    table = LAYOUTS["detection"].with_parts(parts)
    first = json.loads(LABEL_FORMATS["ndjson"].head("set", ["val"], LABELS, table, iter([line])))
    names = {str(index): name for index, name in enumerate(NAMES)}
    assert first == {"type": "dataset", "name": "set", "path": ".", "class_names": names} | expected


def whole_file(format_: str, line: str, table=None) -> bytes:
    """A file of one image, whose split is val."""
    form = LABEL_FORMATS[format_]
    head = form.head("a & b", ["val"], LABELS, table or LAYOUTS["detection"].with_parts(()), iter(()))
    return head + form.before(0) + line.encode() + b"\n" + form.foot


def read_cvat(line: str, table=None, fields: bool = False) -> list:
    (image,) = parse_cvat(io.BytesIO(whole_file("cvat", line, table)), "a.xml", "", "{}.png", {}, True, fields)
    assert not image.faults
    return [image.sample, *image.sample.objects]


def test_cvat():
    rows, (image,), faults = extract("cvat", ALL)
    root = ElementTree.fromstring(whole_file("cvat", rows.line))
    assert (image.path, faults, root.find("image").attrib) == (
        "images/val/a/b.png",
        [],
        {"id": "0", "name": "a/b.png", "subset": "val", "width": "40", "height": "30"},
    )
    assert (root.findtext("version"), root.findtext("meta/project/subsets")) == ("1.1", "val")
    assert tuple(label.findtext("name") for label in root.iter("label")) == NAMES
    assert tuple(box.get("label") for box in root.iter("box")) == NAMES
    edges = [[box.get(edge) for edge in ("xtl", "ytl", "xbr", "ybr")] for box in root.iter("box")]
    assert edges == [["10", "3", "30", "15"]] * 5
    assert rows.lost == {"ids of annotations": 5, "ids of images": 1, "areas that differ from those of the shapes": 5}


@pytest.mark.parametrize(
    ("corners", "tag", "expected"),
    [
        ([10, 5, 30, 5, 30, 15, 10, 15], "box", [10, 5, 30, 5, 30, 15, 10, 15]),
        ([10, 15, 10, 5, 30, 5, 30, 15], "box", [10, 15, 10, 5, 30, 5, 30, 15]),
        ([20, 5, 26, 13, 18, 19, 12, 11], "box", [20, 5, 26, 13, 18, 19, 12, 11]),
        ([20, 5, 12, 11, 18, 19, 26, 13], "box", [20, 5, 26, 13, 18, 19, 12, 11]),  # clockwise in CVAT
        ([20, 5, 26, 13, 18, 21, 12, 11], "polygon", ()),
    ],
)
def test_oriented_boxes_of_cvat(corners, tag, expected):
    xs, ys = np.array(corners[::2]) / 40, np.array(corners[1::2]) / 30
    values = with_objects((ys.min(), xs.min(), ys.max(), xs.max()))
    values |= {"objects.corners": np.float32(np.transpose([xs, ys]).ravel())}
    (x1, y1, x2, y2), (x3, y3, x4, y4) = corners[:4], corners[4:]
    values |= {"objects.area": np.float32([abs((x3 - x1) * (y4 - y2) - (y3 - y1) * (x4 - x2)) / 2])}
    rows, _, _ = extract("cvat", values, Part.ORIENTED)
    assert "areas that differ from those of the shapes" not in rows.lost
    ring = json.dumps([corners]).encode()
    masks = np.array([compress_segmentation(ring, 40, 30)], object)
    with_mask, _, _ = extract("cvat", values | {"objects.mask_rle": masks}, Part.ORIENTED, Part.MASK_RLE)
    assert with_mask.line == rows.line  # readers draw the mask again
    _, found = read_cvat(rows.line)
    assert found.corners == pytest.approx(expected, abs=1e-4)
    assert found.box == pytest.approx(
        (min(corners[::2]), min(corners[1::2]), np.ptp(corners[::2]), np.ptp(corners[1::2]))
    )
    assert (f"<{tag} " in rows.line, sum(rows.notes.values())) == (True, tag == "polygon")


@pytest.mark.parametrize(
    ("format_", "area", "differ"), [("cvat", 100, 0), ("cvat", 196, 1), ("voc", 100, 1), ("voc", 196, 0)]
)
def test_areas_are_those_of_the_written_shapes(format_, area, differ):
    """A square of 10 x 10 pixels that is rotated, in a box of 14 x 14."""
    corners = np.float32([20, 5, 26, 13, 18, 19, 12, 11]).reshape(4, 2) / (40, 30)
    values = with_objects((5 / 30, 12 / 40, 19 / 30, 26 / 40), objects__area=np.float32([area]))
    rows, _, _ = extract(format_, values | {"objects.corners": np.float32(corners.ravel())}, Part.ORIENTED)
    assert rows.lost.get("areas that differ from those of the shapes", 0) == differ


def test_masks_tags_and_points_of_cvat():
    hole = np.zeros((30, 40), bool)
    hole[5:10, 5:10] = True
    hole[7, 7] = False
    masks = [mask_rle(run_lengths(each)) for each in (hole, np.zeros((30, 40), bool))]
    values = with_objects((5 / 30, 5 / 40, 10 / 30, 10 / 40), (0, 0, 1, 1), objects__mask_rle=np.array(masks, object))
    values |= {"image.tag_names": [b"no", b"- x"]}
    rows, _, _ = extract("cvat", values, Part.MASK_RLE, Part.TAGS)
    sample, first, second = read_cvat(rows.line)
    assert compress_segmentation(first.segmentation.encode(), 40, 30) == masks[0]
    assert (first.box, second.box, second.segmentation, sample.tags) == (
        (5, 5, 5, 5),
        (0, 0, 40, 30),
        "",
        ("no", "- x"),
    )
    assert not {"masks", "tags of images"} & rows.lost.keys()


@pytest.mark.parametrize(("visible", "tag", "lost"), [(1, "points", 0), (2, "box", 1)])
def test_keypoints_of_cvat(visible, tag, lost):
    """A box of one pixel around its only keypoint is what CVAT's points are read as."""
    keypoints = {
        "objects__keypoint_x": np.float32([10.25 / 40, 0.5]),
        "objects__keypoint_y": np.float32([15 / 30, 0.5]),
    }
    keypoints["objects__keypoint_visibility"] = np.array([2, visible - 1])
    values = with_objects((14.5 / 30, 9.75 / 40, 15.5 / 30, 10.75 / 40), **keypoints)
    labels = LabelMap((Category(0, "nose", keypoints=("a", "b")),))
    table = LAYOUTS["detection"].with_parts((Part.KEYPOINTS,))
    rows, _, _ = LabelExtractor(table, labels, "val", LABEL_FORMATS["cvat"])(values)
    _, found = read_cvat(rows.line)
    assert (found.box, found.keypoints) == ((9.75, 14.5, 1, 1), (10.25, 15, 2) if tag == "points" else ())
    assert rows.lost.get("objects with keypoints", 0) == lost


def test_createml():
    rows, (image,), _ = extract("createml", ALL)
    (entry,) = json.loads(whole_file("createml", rows.line))
    assert (image.path, entry["image"], rows.objects) == ("val/a/b.png", "a/b.png", 5)
    center = {"x": 20, "y": 9, "width": 20, "height": 12}
    assert entry["annotations"] == [{"label": name, "coordinates": center} for name in NAMES]
    form = LABEL_FORMATS["createml"]
    lines = b"".join(form.before(number) + b"{}\n" for number in range(3))
    assert json.loads(form.head() + lines + form.foot) == [{}, {}, {}]


@pytest.mark.parametrize("format_", ["voc", "cvat"])
def test_characters_that_xml_cannot_have(format_):
    labels = LabelMap((Category(0, '</box>\x01 "<script>\ufffe'),))
    extractor = LabelExtractor(LAYOUTS["detection"].with_parts(()), labels, "val", LABEL_FORMATS[format_])
    rows, files, _ = extractor(with_objects((0, 0, 1, 1), image__file_name=b"a'\"&<b>.png"))
    data = files[1].data if format_ == "voc" else whole_file("cvat", rows.line)
    root = ElementTree.fromstring(data)
    texts = {root.findtext("filename"), root.findtext("object/name")}
    texts |= {each.get(key) for each in root.iter() for key in ("name", "label")}
    assert {'</box>\ufffd "<script>\ufffd', f"{'val/' * (format_ == 'voc')}a'\"&<b>.png"} <= texts
    assert {"characters of texts that XML cannot have, replaced by \ufffd": 2}.items() <= rows.notes.items()


@pytest.mark.parametrize("format_", LABEL_FORMATS)
def test_no_objects(format_):
    rows, files, _ = extract(format_, NONE)
    assert (rows.objects, rows.lost) == (0, {} if format_ == "hf" else {"ids of images": 1})
    assert format_ != "yolo" or files[1].data == b""


@pytest.mark.parametrize(
    ("name", "image", "labels"),
    [
        ("<script>.jpg", "images/val/<script>.jpg", "labels/val/<script>.txt"),
        ("images/val/a.x.jpg", "images/val/a.x.jpg", "labels/val/a.x.txt"),  # of a data set that was YOLO's
        ("images/a.jpg", "images/val/a.jpg", "labels/val/a.txt"),
        ("train/images/a.jpg", "images/val/train/a.jpg", "labels/val/train/a.txt"),  # Roboflow's layout
        ("valid/images/a.jpg", "images/val/a.jpg", "labels/val/a.txt"),
        ("VAL/a.jpg", "images/val/a.jpg", "labels/val/a.txt"),
        ("val", "images/val/val.png", "labels/val/val.txt"),
        ("a", "images/val/a.png", "labels/val/a.txt"),
        ("a.gif", "images/val/a.gif.png", "labels/val/a.gif.txt"),
        ("./b//c.PNG", "images/val/b/c.PNG", "labels/val/b/c.txt"),
    ],
)
def test_names(name, image, labels):
    rows, files, _ = extract("yolo", NONE | {"image.file_name": name.encode()})
    assert [file.path for file in files] == [image, labels]
    assert bool(rows.notes) == (
        name in ("a", "a.gif", "val", "images/a.jpg", "train/images/a.jpg", "valid/images/a.jpg")
    )


@pytest.mark.parametrize("name", [".a.jpg", ".x/a.jpg", "@eaDir/a.jpg", "a .jpg", "x/ a.jpg", "x /a.jpg", "a\\b.jpg"])
def test_names_that_readers_do_not_find_are_counted(name):
    rows, _, _ = extract("hf", NONE | {"image.file_name": name.encode()})
    (note,) = rows.notes.items()
    assert ("some readers do not find" in note[0], note[1]) == (True, 1)


def test_name_that_leads_elsewhere():
    with pytest.raises(UnusableRecordError, match="in it"):
        extract("hf", NONE | {"image.file_name": b"../../x.jpg"})


def test_exif_data_of_images_that_are_not_written_is_counted():
    exif, buffer = Image.Exif(), io.BytesIO()
    exif[274] = 6
    IMAGE.save(buffer, "PNG", exif=exif)
    contents = LAYOUTS["detection"].with_parts(()), LABELS, "val", LABEL_FORMATS["yolo"]
    rows, (image, _), _ = LabelExtractor(*contents, labels_only=True)(NONE | {"image.encoded": buffer.getvalue()})
    assert (image.data, list(rows.notes.values())) == (buffer.getvalue(), [1])
    assert "has to be removed" in next(iter(rows.notes))


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_readers_do_not_turn_image(kind):
    """Boxes are of the stored pixels."""
    exif = Image.Exif()
    exif[274] = 6
    buffer = io.BytesIO()
    IMAGE.save(buffer, kind, exif=exif)
    rows, files, _ = extract("yolo", NONE | {"image.encoded": buffer.getvalue()})
    with Image.open(io.BytesIO(files[0].data)) as image, Image.open(buffer) as before:
        assert ImageOps.exif_transpose(image).size == (40, 30)
        assert image.tobytes() == before.tobytes()
    assert sum(rows.notes.values()) == 1


def test_boxes_that_yolo_does_not_take():
    """Ultralytics leaves out an image with a number above 1. It takes lines that are equal for one object."""
    values = with_objects((0.5, -0.25, 1.5, 0.5), (0, 0, 1, 1), (0, 0, 1, 1), (0, 0, 0.5, 0.5), (0, 1.1, 1, 1.2))
    values |= {"objects.category_id": np.array([0, 3, 3, 3, 3]), "objects.is_crowd": np.array([0, 0, 0, 1, 0])}
    rows, (_, labels), _ = extract("yolo", values)
    assert labels.data.decode().splitlines() == ["0 0.25 0.75 0.5 0.5", "1 0.5 0.5 1 1"]
    assert (rows.lost["crowds"], rows.objects, sum(rows.notes.values())) == (1, 2, 1)
    assert {"objects with the same class and box as another object of their image": 1}.items() <= rows.lost.items()
    assert rows.lost["boxes outside of their image"] == 1


def test_polygons_beside_oriented_boxes():
    """CVAT has no shape for an oriented box that is no rectangle, so it comes back as a polygon of four points."""
    polygons = [b"[[10,6,22,3,20,15,-4,12]]", b"[[0,0,20,0,20,15]]"]
    values = with_objects((0.25, 0.25, 0.5, 0.75), *[(0, 0, 0.5, 0.5)] * 2)
    values["objects.mask_rle"] = np.array([b""] * 3, object)
    values["objects.polygons"] = np.array([b"", *polygons], object)
    values["objects.corners"] = np.float32([0.25, 0.25, 0.75, 0.25, 0.75, 0.5, 0.25, 0.5, *[0] * 16])
    values["objects.area"] = np.float32([150, 1, 1])
    rows, (_, labels), _ = extract("yolo", values, Part.ORIENTED, Part.MASK_RLE)
    assert labels.data.decode().splitlines() == [
        "0 0.25 0.25 0.75 0.25 0.75 0.5 0.25 0.5",
        "1 0.25 0.2 0.55 0.1 0.5 0.5 0 0.4",
        "2 0 0 0.5 0 0.5 0.5 0 0.5",
    ]
    assert rows.notes == {"objects that are no oriented box, written as their upright box": 1}


def test_kinds_that_are_lost():
    values = with_objects((0, 0, 1, 1), objects__track_id=np.array([7]), captions__text=np.array([b"a", b"b"]))
    values |= {
        "semantic.png": b"PNG",
        "image.tag_names": np.array([b"day"]),
        "objects.corners": np.float32([0.25, 0, 1, 0, 1, 1, 0.25, 1]),
    }
    rows, (_, labels), _ = extract("yolo", values, Part.TRACKS, Part.CAPTIONS, Part.SEMANTIC, Part.ORIENTED)
    assert labels.data == b"0 0.25 0 1 0 1 1 0.25 1\n"
    assert {"track ids": 1, "captions": 2, "masks of whole images": 1, "tags of images": 1}.items() <= rows.lost.items()
    assert "oriented boxes" not in rows.lost


def test_masks():
    """One in two parts, one with a hole, and none."""
    parts, hole = np.zeros((30, 40), bool), np.zeros((30, 40), bool)
    parts[2:4, 2:4] = parts[10:12, 2:9] = True
    hole[5:10, 5:10] = True
    hole[7, 7] = False
    masks = [mask_rle(run_lengths(each)) for each in (parts, hole, np.zeros((30, 40), bool))]
    values = with_objects(*[(0, 0, 0.5, 0.5)] * 2, (0.5, 0.25, 1, 0.75), objects__mask_rle=np.array(masks, object))
    rows, (_, labels), _ = extract("labelme", values, Part.MASK_RLE)
    shapes = json.loads(labels.data)["shapes"]
    kinds = [(shape["shape_type"], shape["group_id"]) for shape in shapes]
    assert kinds == [("polygon", 1), ("polygon", 1), ("mask", None), ("rectangle", None)]
    assert list(rows.notes.values()) == [2]
    rows, (_, labels), _ = extract("yolo", values, Part.MASK_RLE)
    lines = [list(map(float, line.split()[1:])) for line in labels.data.decode().splitlines()]
    for line, mask in zip(lines, (parts, hole), strict=False):
        polygon = (np.array(line) * np.tile([40, 30], len(line) // 2)).tolist()
        assert compress_segmentation(json.dumps([polygon]).encode(), 40, 30) == mask_rle(run_lengths(mask))
    assert lines[2] == [0.25, 0.5, 0.75, 0.5, 0.75, 1, 0.25, 1]
    assert sorted(rows.notes.values()) == [1, 2, 2]
    rows, _, _ = extract("voc", values, Part.MASK_RLE)
    assert rows.lost["masks"] == 2


@given(arrays(bool, st.tuples(st.integers(1, 9), st.integers(1, 9))).filter(np.any))
def test_outlines_enclose_the_mask(mask):
    height, width = mask.shape
    parts, holes = trace_mask(mask)
    expected = mask_rle(run_lengths(mask))
    drawn = [[side for point in join_rings([*parts, *holes]) for side in point]]
    assert compress_segmentation(json.dumps(drawn).encode(), width, height) == expected
    if not holes:
        drawn = [[side for point in ring for side in point] for ring in parts]
        assert compress_segmentation(json.dumps(drawn).encode(), width, height) == expected


FIELDS = add_fields(
    LAYOUTS["detection"].with_parts(()),
    [
        FieldColumn("object", "flags.far", FeatureKind.INT64, is_bool=True),
        FieldColumn("object", "group_id", FeatureKind.INT64),
        FieldColumn("image", "place", FeatureKind.BYTES),
        FieldColumn("image", "width", FeatureKind.INT64),
    ],
    {"image/width": "image/stated_width"},
).table


@pytest.mark.parametrize(
    ("format_", "expected"),
    [
        ("yolo", {"field flags.far": 4, "field group_id": 1, "field image.place": 1, "field image.width": 1}),
        ("voc", {"field flags.far": 4, "field group_id": 1, "field image.place": 1, "field image.width": 1}),
        ("labelme", {"field group_id": 1}),
        ("cvat", {"field image.place": 1, "field image.width": 1}),
        ("createml", {}),
        ("hf", {"field image.width": 1}),
    ],
)
def test_fields_that_are_not_written(format_, expected):
    values = ALL | {
        "objects.field:flags.far": np.array([1, 0, -1, 1, 0]),
        "objects.field:group_id": np.array([-1, 7, -1, -1, -1]),
        "image.field:place": b"sea",
        "image.field:width": np.array([39]),
    }
    extractor = LabelExtractor(FIELDS, LABELS, "val", LABEL_FORMATS[format_])
    rows, files, _ = extractor(values)
    assert {what: number for what, number in rows.lost.items() if what.startswith("field")} == expected
    if format_ == "labelme":
        document = json.loads(files[1].data)
        assert [shape["flags"] for shape in document["shapes"]][:3] == [{"far": True}, {"far": False}, {}]
        assert (document["place"], document["width"]) == ("sea", 39)
    if format_ == "cvat":
        _, *found = read_cvat(rows.line, FIELDS, fields=True)
        assert [object_.fields["attributes"] for object_ in found][:3] == [
            {"flags.far": "true"},
            {"flags.far": "false"},
            {},
        ]
        assert [object_.fields.get("group_id") for object_ in found][:3] == [None, "7", None]
        root = ElementTree.fromstring(whole_file("cvat", rows.line, FIELDS))
        declared = [(each.findtext("name"), each.findtext("input_type")) for each in root.find(".//label/attributes")]
        assert declared == [("flags.far", "checkbox")]
    if format_ == "createml":
        (entry,) = json.loads(whole_file("createml", rows.line))
        assert (entry["place"], entry["width"]) == ("sea", 39)
        assert [each.get("flags") for each in entry["annotations"]][:3] == [{"far": True}, {"far": False}, None]
        assert [each.get("group_id") for each in entry["annotations"]][:3] == [None, 7, None]
    if format_ == "hf":
        line = json.loads(rows.line)
        assert (line["place"], line["width"]) == ("sea", 40)
        assert line["objects"]["group_id"] == [None, 7, None, None, None]


@pytest.mark.parametrize(
    ("part", "points", "task", "has_warning"),
    [(None, (), "detect", False), (Part.MASK_RLE, (), "segment", False), (Part.KEYPOINTS, ("nose",), "pose", True)],
)
def test_only_poses_need_the_pairs_of_mirrored_keypoints(part, points, task, has_warning):
    labels = LabelMap((Category(1, "cat", keypoints=points),))
    table = LAYOUTS["detection"].with_parts((part,) if part else ())
    first, *more = LABEL_FORMATS["yolo"].warn(["train", "val"], labels, table)
    assert first.startswith(f"data.yaml has the task {task}: ")
    assert [text.partition(",")[0] for text in more] == ["data.yaml has no flip_idx"] * has_warning
