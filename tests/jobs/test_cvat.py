"""CVAT's XML from end to end."""

import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import SHARED_DATA, draw_jpeg, examples_by_name, grey, manifest_of, rejects_of

REAL = SHARED_DATA / "formats"
CATS = REAL / "cvat_and_label_studio"
GARBAGE = REAL / "cvat_missing_images"


def run(recordmill, data: Path, output: Path, *more: object):
    return recordmill("convert", data, "--format", "cvat", "--output", output, "--max-rejects", 1, *more)


def test_project_with_all_shapes(recordmill, tmp_path):
    for name in ("a", "sub/b", "background", "unlisted"):
        draw_jpeg(tmp_path / "project" / "images" / f"{name}.jpg")
    (tmp_path / "project" / "annotations.xml").write_text(
        """<annotations><version>1.1</version>
<meta><project><subsets>Train\nValidation</subsets></project></meta>
<image id="0" name="a.jpg" subset="Train" width="40" height="30">
<box label="dog" xtl="0" ytl="0" xbr="20" ybr="30" occluded="1"><attribute name="age">3</attribute></box>
<mask label="cat" rle="1, 2, 1" left="10" top="20" width="2" height="2"/>
<polyline label="cat" points="1,1;2,2"/><tag label="day"/>
</image>
<image id="1" name="sub/b.jpg" subset="Validation" width="40" height="30"><points label="nose" points="10,15"/></image>
<image id="2" name="background.jpg" subset="Train" width="40" height="30"/>
<image id="3" name="../a.jpg" subset="Train" width="40" height="30"/>
<image id="4" name="gone.jpg" subset="Validation" width="40" height="30"/>
</annotations>"""
    )
    done = run(recordmill, tmp_path / "project", tmp_path / "out", "--masks", "png")
    assert done.code == 0, done.err
    train, val = examples_by_name(tmp_path / "out"), examples_by_name(tmp_path / "out", "val")
    assert sorted(train) == ["images/a.jpg", "images/background.jpg"]
    a, b = train["images/a.jpg"], val["images/sub/b.jpg"]
    assert (a["image/object/class/text"], a["image/class/text"]) == ([b"dog", b"cat"], [b"day"])
    assert a["image/class/label"] == [{"cat": 1, "day": 2, "dog": 3, "nose": 4}["day"]]
    assert a["image/object/bbox/xmax"] == pytest.approx([0.5, 0.3])
    assert [(y, x) for y, x in zip(*grey(a["image/object/mask"][1]).nonzero(), strict=True)] == [(20, 11), (21, 10)]
    assert (b["image/object/keypoint/x"], b["image/object/keypoint/y"]) == ([0.25], [0.5])
    assert (b["image/object/area"], b["image/class/text"]) == ([1], [])
    assert sorted((line["reason"], line["detail"]) for line in rejects_of(tmp_path / "out")) == [
        ("image_missing", "no file 'images/gone.jpg' in the folders of images"),
        (
            "malformed_annotation",
            "annotations.xml, line 7: a <polyline> of 'cat' is not read: only boxes, polygons, ellipses, masks, "
            "points and tags are",
        ),
        ("unsafe_file_name", "the file name 'images/../a.jpg' has .. in it"),
    ]
    split = manifest_of(tmp_path / "out")["splits"]["train"]
    run(recordmill, tmp_path / "project", tmp_path / "tfds", "--layout", "tfds")
    warnings = manifest_of(tmp_path / "tfds")["splits"]["train"]["warnings"]
    assert any("layout tfds has no feature for keypoints, tags: not written" in text for text in warnings)
    assert any("not written. Add --fields attributes.age,occluded" in text for text in split["warnings"])


def test_tracks_of_a_video(recordmill, tmp_path):
    for number in range(4):
        draw_jpeg(tmp_path / "video" / "images" / f"frame_{number:06d}.jpg")
    draw_jpeg(tmp_path / "video" / "images" / "cover.png")  # its suffix is not that of frames
    box = '<box frame="{}" xtl="0" ytl="0" xbr="{}" ybr="30" outside="{}" keyframe="1"/>'
    (tmp_path / "video" / "annotations.xml").write_text(
        "<annotations><meta><task><mode>interpolation</mode><start_frame>0</start_frame><stop_frame>3</stop_frame>"
        '</task></meta><track id="0" label="car">'
        + box.format(0, 20, 0)
        + box.format(1, 10, 0)
        + box.format(2, 9, 1)
        + '</track><track id="5" label="bus">'
        + box.format(1, 40, 0)
        + "</track></annotations>"
    )
    archive = shutil.make_archive(str(tmp_path / "video"), "zip", tmp_path / "video")
    assert run(recordmill, Path(archive), tmp_path / "out").code == 0
    found = {name[-5:-4]: each for name, each in examples_by_name(tmp_path / "out").items()}
    tracks = {
        name: dict(zip(each["image/object/track_id"], each["image/object/class/text"], strict=True))
        for name, each in found.items()
    }
    assert tracks == {"0": {0: b"car"}, "1": {0: b"car", 5: b"bus"}, "2": {}, "3": {}}
    assert sorted(found["1"]["image/object/bbox/xmax"]) == [0.25, 1]


@pytest.mark.parametrize(
    ("files", "flags", "said"),
    [
        ({}, [], "has no .xml file. Give CVAT's annotations.xml"),
        (
            {"a.xml": "<annotations><image name='1.jpg'/></annotations>", "b.xml": "<annotation/>"},
            [],
            "has several .xml files: a.xml (1 image, 0 shared), b.xml (0 images, 0 shared). Convert one: recordmill",
        ),
        ({"a.xml": "<annotation/>"}, [], "the root is <annotation>, not <annotations>"),
        ({"a.xml": "<annotations/>"}, ["--frame-name", "frame.png"], "has no number"),
        ({"a.xml": "<annotations/>"}, ["--frame-name", "{name}.png"], "has no number"),
        (
            {"a.xml": "<annotations><meta><project><subsets>val\nVal</subsets></project></meta></annotations>"},
            [],
            "two of the subsets val, Val are the same split",
        ),
    ],
)
def test_not_a_data_set(recordmill, tmp_path, files, flags, said):
    (tmp_path / "data").mkdir()
    for name, text in files.items():
        (tmp_path / "data" / name).write_text(text)
    done = run(recordmill, tmp_path / "data", tmp_path / "out", *flags)
    assert (done.code, said in done.err) == (2, True), done.err


@pytest.mark.skipif(not REAL.is_dir(), reason="the real data sets are not here")
def test_cats(recordmill, tmp_path):
    file = next(CATS.rglob("annotations.xml"))
    assert run(recordmill, file, tmp_path / "out", "--images", CATS / "src" / "images").code == 0
    text = file.read_text()
    numbers = {
        name: block.count("<box ") for name, block in re.findall(r'<image [^>]*name="([^"]+)"(.*?)</image>', text, re.S)
    }
    found = {name: len(each["image/object/class/text"]) for name, each in examples_by_name(tmp_path / "out").items()}
    there = {path.name for path in (CATS / "src" / "images").iterdir()}
    assert found == {name: number for name, number in numbers.items() if name in there}
    assert [line["reason"] for line in rejects_of(tmp_path / "out")] == ["image_missing"] * len(numbers.keys() - there)


@pytest.mark.skipif(not REAL.is_dir(), reason="the real data sets are not here")
def test_images_that_are_absent(recordmill, tmp_path):
    done = run(recordmill, GARBAGE, tmp_path / "out")
    assert (done.code, "none of the 162 images has a file" in done.err) == (2, True), done.err
    assert run(recordmill, GARBAGE, tmp_path / "out", "--match", "name").code == 0
    tags = re.findall(r'name="img/(3|33)\.jpg".*?</image>', (GARBAGE / "annotations.xml").read_text(), re.S)
    assert len(examples_by_name(tmp_path / "out")) == len(tags) == 2
    assert manifest_of(tmp_path / "out")["splits"]["train"]["images"]["rejected"] == {"image_missing": 160}
