"""Shapes, images and tracks of CVAT's XML, and their faults."""

import io
import json
import re
import shlex
from contextlib import nullcontext

import numpy as np
import pytest
from pycocotools import mask as coco_mask

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.sample import SampleObject
from recordmill.schemas.rejects import Reason
from recordmill.transforms.annotated.shapes import column_runs
from recordmill.transforms.cvat import read_cvat
from recordmill.transforms.cvat.cvat_options import CvatOptions
from recordmill.transforms.cvat.read_cvat import parse_cvat
from tests.conftest import draw_jpeg

RULES = ("images/", "frame_{:06d}.PNG", {}, True)
BOX = '<box label="cat" xtl="1" ytl="2" xbr="4" ybr="6" occluded="0"/>'
EDGES = 'xtl="1" ytl="2" xbr="4" ybr="6"'


def parsed(xml: str | bytes, rules: tuple = RULES):
    data = xml if isinstance(xml, bytes) else f"<annotations>{xml}</annotations>".encode()
    return list(parse_cvat(io.BytesIO(data), "annotations.xml", *rules))


def parse_image(*shapes: str):
    (image,) = parsed('<image name="a.jpg" width="40" height="30">\n' + "\n".join(shapes) + "\n</image>")
    return image


@pytest.mark.parametrize(
    ("shape", "box", "more"),
    [
        (BOX, (1, 2, 3, 4), {}),
        (
            '<polygon label="cat" points="1.5,2;4,2;4,6.25"/>',
            (1.5, 2, 2.5, 4.25),
            {"segmentation": "[[1.5, 2.0, 4.0, 2.0, 4.0, 6.25]]", "area_px2": 5.3125},
        ),
        ('<points label="cat" points="3,5"/>', (2.5, 4.5, 1, 1), {"keypoints": (3, 5, 2)}),
    ],
)
def test_shapes(shape, box, more):
    image = parse_image(shape)
    assert image.sample.objects == (SampleObject("cat", box, **more),)
    assert (image.sample.file_name, image.sample.width, image.sample.height) == ("images/a.jpg", 40, 30)
    assert image.faults == ()


def test_turned_shapes():
    """By 90 degrees, width and height are swapped about the centre; the first corner goes to the right."""
    box, ellipse = parse_image(
        '<box label="cat" xtl="10" ytl="10" xbr="20" ybr="14" rotation="90"/>',
        '<ellipse label="cat" cx="15" cy="12" rx="5" ry="2" rotation="90"/>',
    ).sample.objects
    assert box.box == pytest.approx((13, 7, 4, 10))
    assert box.corners == pytest.approx((17, 7, 17, 17, 13, 17, 13, 7))
    assert ellipse.box == pytest.approx((13, 7, 4, 10), abs=1e-9)
    assert json.loads(box.segmentation) == [pytest.approx(box.corners)]


def test_points_are_an_object_each():
    objects = parse_image('<points label="cat" points="3,5;7.5,8"/>').sample.objects
    assert [point.keypoints for point in objects] == [(3, 5, 2), (7.5, 8, 2)]


def test_mask():
    """CVAT's own example of a mask: 13 x 15 pixels."""
    rle = "3, 5, 7, 7, 5, 9, 3, 11, 2, 11, 2, 12, 1, 12, 1, 26, 1, 12, 1, 12, 2, 11, 3, 9, 5, 7, 7, 5, 3"
    (object_,) = parse_image(
        f'<mask label="cat" rle="{rle}" left="20" top="10" width="13" height="15"/>'
    ).sample.objects
    pixels = np.array([step % 2 for step, run in enumerate(rle.split(",")) for _ in range(int(run))]).reshape(15, 13)
    expected = np.zeros((30, 40), np.uint8)
    expected[10:25, 20:33] = pixels
    text = json.loads(object_.segmentation)
    assert (coco_mask.decode(coco_mask.frPyObjects(text, 30, 40)) == expected).all()
    assert (object_.box, object_.area_px2) == ((20, 10, 13, 15), pixels.sum())


@pytest.mark.parametrize("seed", range(12))
def test_runs_of_columns(seed):
    rng = np.random.default_rng(seed)
    height, width = rng.integers(1, 6, 2)
    left, top = rng.integers(0, 3, 2)
    sides = int(left + width + seed % 2), int(top + height + seed % 3)
    mask = rng.integers(0, 2, (height, width), np.uint8)
    mask.flat[seed % mask.size] = 1
    whole = np.zeros(sides[::-1], np.uint8)
    whole[top : top + height, left : left + width] = mask
    runs = column_runs(mask, int(left), int(top), *sides)
    assert (coco_mask.decode(coco_mask.frPyObjects({"size": sides[::-1], "counts": runs}, *sides[::-1])) == whole).all()


def test_entries():
    xml = '<image id="7" name="a.jpg" task_id="2"/><image id="8" name="a.jpg"/>\n<image name="a.jpg"/>'
    assert [image.entry for image in parsed(xml)] == ["<image> 7 of task 2", "<image> 8", "<image> in line 2"]
    track = f'<track id="0" label="car"><box frame="0" {EDGES} outside="0"/></track>'
    assert [image.entry for image in parsed(track)] == [""]  # a frame is in several tracks


def test_tags_subsets_and_names():
    rules = ("", "frame_{:06d}.png", {"Train": "train"}, False)
    one, other, absolute, unknown = parsed(
        '<image name="frame_000007" subset="Train"><tag label="day"/><tag label="wet"/><tag label="day"/></image>'
        '<image name="b.jpg" width="0" height="5" subset="Train"><polygon label="c" points="1,1;2,1;2,2"/></image>'
        '<image name="/b.jpg" subset="Train"/><image name="b.jpg" subset="Test"/>',
        rules,
    )
    assert (one.sample.file_name, one.sample.split, one.sample.tags) == ("frame_000007.png", "train", ("day", "wet"))
    assert (other.sample.width, other.sample.objects[0].segmentation, other.notes) == (None, "", ("polygons",))
    assert absolute.sample.file_name == "/b.jpg"  # is rejected as unsafe
    assert (unknown.sample, unknown.faults[0].reason) == (None, Reason.MALFORMED_IMAGE)


ONE, TWO = "<annotations/>", "<annotations><image name='1.jpg'/></annotations>"


@pytest.mark.parametrize(
    ("files", "warning"),
    [
        ({"a.xml": ONE}, ""),
        ({"a.xml": ONE, "a copy.xml": ONE}, "a.xml is read, and not a copy.xml, which has the same bytes"),
        ({"annotations.xml": ONE, "a.xml": TWO}, "annotations.xml is read, and not a.xml"),
    ],
)
def test_files_that_are_not_read(tmp_path, files, warning):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    warnings = CvatOptions(data=str(tmp_path), output="out").source().warnings
    assert warnings == ((f"{tmp_path}/{warning}",) if warning else ())


VIDEO = (
    "<version>1.1</version><meta><task><mode>interpolation</mode><start_frame>{}</start_frame><stop_frame>{}</stop_frame>"
    "</task></meta>"
)
TRACK = f'<track id="0" label="car"><box frame="0" {EDGES}/><box frame="9" {EDGES}/></track>'


@pytest.mark.parametrize(
    ("xml", "images", "cure"),
    [
        (VIDEO.format(0, 2) + TRACK, ["img_0000.jpg", "img_0001.jpg", "img_0002.jpg"], "'img_{:04d}.jpg'"),
        (VIDEO.format(8, 11) + TRACK, ["it's {8}.png", "it's {11}.png"], """ 'it'"'"'s {{{}}}.png'"""),
        (VIDEO.format(0, 1) + TRACK, ["images/cam2/000.jpg", "images/cam2/001.jpg"], "'cam2/{:03d}.jpg'"),
        (TRACK, ["0.jpg", "9.jpg"], "'{}.jpg'"),
        (VIDEO.format(0, 1) + TRACK, ["frame_000000.PNG"], ""),
        (VIDEO.format(0, 2) + TRACK, ["img_0001.jpg", "img_0002.jpg", "img_0003.jpg"], ""),  # numbered from 1
        (VIDEO.format(0, 2) + TRACK, ["cover.jpg"], ""),
        (VIDEO.format(0, 1) + '<image id="0" name="img_0000.jpg"/>', ["img_0000.jpg", "img_0001.jpg"], ""),
    ],
)
def test_frames_of_a_video_that_are_named_otherwise(tmp_path, xml, images, cure):
    (tmp_path / "annotations.xml").write_text(f"<annotations>{xml}</annotations>")
    for name in images:
        draw_jpeg(tmp_path / name)
    options = CvatOptions(data=str(tmp_path), output="out")
    with pytest.raises(ConfigError) if cure else nullcontext() as caught:
        options.source()
    if caught:
        assert str(caught.value).endswith(f". Add --frame-name {cure.strip()}")
        (frame_name,) = shlex.split(cure)
        CvatOptions(data=str(tmp_path), output="out", frame_name=frame_name).source()


@pytest.mark.parametrize(
    ("shape", "notes"),
    [
        ('<polygon label="c" points="1,1;2,1;2,2"/>', ("polygons",)),
        ('<polygon label="c" points="1,1;2,1"/><polyline label="c" points="1,1;2,1;2,2"/>', ()),
        (BOX.replace("/>", ' rotation="30"/>'), ()),
    ],
)
def test_outlines_that_are_not_written(shape, notes):
    (image,) = parsed(f'<image name="a.jpg" width="40" height="30">{shape}</image>', (*RULES[:3], False))
    assert image.notes == notes


@pytest.mark.parametrize(
    ("shape", "reason", "expected"),
    [
        (f"<box {EDGES}/>", Reason.UNKNOWN_CATEGORY, "a <box> without label"),
        ("<tag/>", Reason.UNKNOWN_CATEGORY, "a <tag> without label"),
        (
            BOX.replace('"4"', '"x"'),
            Reason.MALFORMED_BOX,
            "a <box> has a text that is not a number: xtl '1', ytl '2', xbr 'x'",
        ),
        (BOX.replace('"4"', '"nan"'), Reason.MALFORMED_BOX, "not finite"),
        (BOX.replace('"4"', '"1e308"'), Reason.MALFORMED_BOX, "beyond any image"),
        ('<polygon label="c" points="1,2;1e300,3;5,6"/>', Reason.MALFORMED_SEGMENTATION, "beyond any image"),
        (BOX.replace('"4"', '"0.5"'), Reason.MALFORMED_BOX, "edges of the <box> of 'cat' are swapped"),
        (BOX.replace('"4"', '"1"'), Reason.EMPTY_BOX, "has no area"),
        (BOX.replace("/>", ' rotation="up"/>'), Reason.MALFORMED_BOX, "rotation 'up'"),
        ('<polygon label="c" points="1,2;3,4"/>', Reason.MALFORMED_SEGMENTATION, "a polygon has 2 points"),
        ('<polygon label="c" points="1,2;3;5,6"/>', Reason.MALFORMED_SEGMENTATION, "a point that is not x,y"),
        ('<points label="c" points=""/>', Reason.MALFORMED_SEGMENTATION, "a <points> has no points"),
        ('<points label="c" points="inf,1"/>', Reason.MALFORMED_SEGMENTATION, "not finite"),
        ('<polyline label="c" points="1,2;3,4"/>', Reason.MALFORMED_ANNOTATION, "a <polyline> of 'c' is not read"),
        ('<skeleton label="c"><points/></skeleton>', Reason.MALFORMED_ANNOTATION, "a <skeleton> of 'c' is not read"),
        (
            '<mask label="c" rle="1, 2" left="0" top="0" width="2" height="2"/>',
            Reason.MALFORMED_SEGMENTATION,
            "has 3 pixels in its runs, but a box of 2 x 2",
        ),
        (
            '<mask label="c" rle="4" left="0" top="0" width="2" height="2"/>',
            Reason.MALFORMED_SEGMENTATION,
            "has 4 pixels",
        ),
        (
            '<mask label="c" rle="-1, 5" left="0" top="0" width="2" height="2"/>',
            Reason.MALFORMED_SEGMENTATION,
            "that is not 0 or more",
        ),
        (
            '<mask label="c" rle="0, 4" left="39" top="0" width="2" height="2"/>',
            Reason.MASK_SIZE_MISMATCH,
            "is not within its <image>",
        ),
    ],
)
def test_shapes_that_cannot_be_used(shape, reason, expected):
    image = parse_image(BOX, shape, BOX)
    assert len(image.sample.objects) == 2
    ((found_reason, detail, line, _),) = image.faults
    assert (found_reason, line) == (reason, 3)
    assert expected in detail


VIDEO = (
    "<meta><task><mode>interpolation</mode><start_frame>0</start_frame><stop_frame>6</stop_frame>"
    "<frame_filter>step=2</frame_filter></task><original_size><width>40</width><height>30</height></original_size></meta>"
)


def track(*frames: str, id_: int = 0) -> str:
    shapes = "".join(f'<box frame="{frame}" {EDGES} {more}/>' for frame, _, more in (f.partition(" ") for f in frames))
    return f'<track id="{id_}" label="cat">{shapes}</track>'


def test_tracks():
    """Frames without any shape are images without objects; outside is no object."""
    hidden = 'outside="1" keyframe="1"'
    images = parsed(VIDEO + track("0", "2", f"4 {hidden}", id_=7) + track("2"))
    objects: dict[str, list] = {}
    for image in images:
        objects.setdefault(image.sample.file_name, []).extend(image.sample.objects)
        assert (image.sample.width, image.sample.height) == (40, 30)
    assert {
        name: [image.fields.get("track_id") for image in frame_objects] for name, frame_objects in objects.items()
    } == {
        "images/frame_000000.PNG": [7],
        "images/frame_000002.PNG": [7, 0],
        "images/frame_000004.PNG": [],
        "images/frame_000006.PNG": [],
    }
    assert not any(image.notes for image in images)


@pytest.mark.parametrize(("frames", "has_gap"), [(("0", "4"), True), (('0 outside="1"', "4"), False)])
def test_gaps(frames, has_gap):
    assert any("gap" in image.notes for image in parsed(VIDEO + track(*frames))) is has_gap


def test_faults_of_tracks():
    images = parsed(track("0", "x", "1 ").replace('xbr="4" ybr="6" />', 'xbr="0" ybr="6"/>'))
    assert [fault.reason for image in images for fault in image.faults] == [
        Reason.MALFORMED_BOX,
        Reason.MALFORMED_ANNOTATION,
        Reason.MALFORMED_BOX,
    ]
    with pytest.raises(ConfigError, match="tracks of 2 tasks"):
        parsed('<track id="0" label="a" task_id="1"/><track id="0" label="a" task_id="2"/>')


def test_half_a_file():
    xml = f'<annotations>\n<image name="a.jpg">{BOX}</image>\n<image name="b.jpg">'.encode()
    one, fault = parsed(xml)
    assert (one.sample.file_name, fault.sample) == ("images/a.jpg", None)
    assert (fault.faults[0].reason, fault.faults[0].line) == (Reason.MALFORMED_LABELS, 3)
    with pytest.raises(ConfigError, match=r"annotations.xml, line 1: .*; tracks are missing from here on"):
        parsed(f"<annotations>{track('0')}<track>".encode())


def test_a_bomb():
    (images,) = parsed(b'<!DOCTYPE a [<!ENTITY b "c"><!ENTITY d "&b;&b;">]><annotations>&d;</annotations>')
    assert "declares entities" in images.faults[0].detail


def test_memory_is_that_of_one_element():
    """The first image is there before the file is read to its end."""

    class Endless(io.RawIOBase):
        def __init__(self):
            self.reads = 0

        def read(self, size=-1):
            self.reads += 1
            return (b"<annotations>" if self.reads == 1 else b"") + f'<image name="a.jpg">{BOX}</image>'.encode() * 100

    stream = Endless()
    images = parse_cvat(stream, "annotations.xml", *RULES)
    for _ in range(250):
        next(images)
    assert stream.reads == 3


def test_fields():
    attribute = '<attribute name="colour">red</attribute>'
    box = f'<box label="cat" {EDGES} occluded="1" z_order="2" source="manual" group_id="3">{attribute}</box>'
    tag = '<tag label="day"><attribute name="hour">7</attribute></tag>'
    (image,) = parsed(f'<image id="4" name="a.jpg" width="40" height="30">{box}{tag}</image>', (*RULES, True))
    of_object = {"occluded": "1", "z_order": "2", "source": "manual", "group_id": "3", "attributes": {"colour": "red"}}
    assert image.sample.objects[0].fields == of_object
    assert image.sample.fields == {"id": "4", "tags": {"day": {"hour": "7"}}}
    paths = ("attributes.colour", "group_id", "image.tags.day.hour", "occluded", "z_order")
    assert image.notes == tuple(f"field {path}" for path in paths)


def test_fields_of_tracks():
    box = f'<box frame="7" {EDGES} outside="0" occluded="0" keyframe="1"><attribute name="age">3</attribute></box>'
    images = parsed(f'<track id="2" label="cat" group_id="5">{box}</track>', (*RULES, True))
    (object_,) = (object_ for image in images for object_ in image.sample.objects)
    expected = {"frame": "7", "occluded": "0", "keyframe": "1", "group_id": "5", "attributes": {"age": "3"}}
    assert object_.fields == expected | {"track_id": 2}


@pytest.mark.parametrize(("folder", "expected"), [("train", "train/1.jpg"), ("train/train", "train/train/1.jpg")])
def test_name_that_begins_with_its_subset(folder, expected, tmp_path):
    (tmp_path / "images" / folder).mkdir(parents=True)
    subsets = "<meta><project><subsets>train</subsets></project></meta>"
    file = tmp_path / "annotations.xml"
    file.write_text(f"<annotations>{subsets}<image name='train/1.jpg' subset='train'/></annotations>")
    found = read_cvat.source(CvatOptions(output="out", data=str(tmp_path)))
    with file.open("rb") as stream:
        assert [image.sample.file_name for image in found.parse(stream, "a.xml")] == [f"images/{expected}"]


def test_images_of_a_project_are_in_folders_of_subsets(tmp_path):
    names = [("train", "1.jpg"), ("val", "1.jpg"), ("val", "val/2.jpg"), ("more", "3.jpg")]
    for folder in ("train", "val"):
        (tmp_path / "images" / folder).mkdir(parents=True)
        (tmp_path / "images" / folder / "1.jpg").write_bytes(b"")
    rows = "".join(f"<image name='{name}' subset='{subset}'/>" for subset, name in names)
    subsets = "<meta><project><subsets>train\nval\nmore</subsets></project></meta>"
    frames = track("7").replace("<track", "<track subset='val'")
    (tmp_path / "annotations.xml").write_text(f"<annotations>{subsets}{rows}{frames}</annotations>")
    for options in {"data": str(tmp_path)}, {"data": str(tmp_path), "images": (f"{tmp_path}/images",)}:
        found = read_cvat.source(CvatOptions(output="out", **options))
        with open(tmp_path / "annotations.xml", "rb") as file:
            samples = [image.sample.file_name for image in found.parse(file, "a.xml")]
        prefix = "" if "images" in options else "images/"
        assert samples == [
            f"{prefix}{name}" for name in ("train/1.jpg", "val/1.jpg", "val/2.jpg", "3.jpg", "val/frame_000007.PNG")
        ]


@pytest.mark.parametrize("height", ["1000000000", "9999999999"])
def test_a_mask_in_an_image_of_a_billion_rows_is_a_fault(height):
    mask = '<mask label="c" rle="0, 4" left="0" top="0" width="2" height="2"/>'
    (image,) = parsed(f'<image name="a.jpg" width="4000" height="{height}">{mask}</image>')
    assert [fault.reason for fault in image.faults] == [Reason.MASK_SIZE_MISMATCH]


@pytest.mark.parametrize("stop", ["9999999999", "1" * 5000, "last"])
def test_more_frames_than_a_video_has_are_an_error(stop):
    shown = re.escape(f"<start_frame> 0 and <stop_frame> {stop[:20]}")
    with pytest.raises(ConfigError, match=f"annotations.xml: {shown} are not .* at most 10,000,000 frames"):
        parsed(VIDEO.replace("<stop_frame>6<", f"<stop_frame>{stop}<"))


@pytest.mark.parametrize(("outside", "objects"), [("0", 1), ("", 1), ("false", 1), ("1", 0), ("True", 0)])
def test_outside(outside, objects):
    image, *_ = parsed(VIDEO + track(f'0 outside="{outside}"'))
    assert len(image.sample.objects) == objects


def test_outside_that_is_no_boolean_costs_its_shape():
    image, *_ = parsed(VIDEO + track('0 outside="far"'))
    assert (image.sample, image.faults[0].reason) == (None, Reason.MALFORMED_ANNOTATION)
