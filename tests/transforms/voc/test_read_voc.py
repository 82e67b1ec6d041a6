"""XML of Pascal VOC, and its faults."""

import re
from xml.etree.ElementTree import fromstring

import pytest

from recordmill.schemas.rejects import Reason
from recordmill.transforms.voc import read_voc
from recordmill.transforms.voc.read_voc import _check_voc_notes, parse_voc
from recordmill.transforms.voc.voc_options import VocOptions

BOX = "<bndbox><xmin>3</xmin><ymin>4</ymin><xmax>13</xmax><ymax>24.5</ymax></bndbox>"
CAT = f"<object><name>cat</name>{BOX}</object>"
SIZE = "<size><width>40</width><height>30</height><depth>3</depth></size>"


def parsed(xml: bytes | str, origin: int = 0):
    (image,) = parse_voc(xml.encode() if isinstance(xml, str) else xml, "a.xml", origin)
    return image


def parse_objects(*objects: str, origin: int = 0):
    return parsed(f"<annotation>\n{SIZE}\n" + "\n".join(objects) + "\n</annotation>", origin)


@pytest.mark.parametrize(("origin", "box"), [(0, (3, 4, 10, 20.5)), (1, (2, 3, 11, 21.5))])
def test_objects(origin, box):
    more = "<pose>Left</pose><truncated>1</truncated><difficult>true</difficult><occluded>1</occluded><other>0</other>"
    image = parse_objects(f"<object><name> r&amp;b</name>{more}{BOX}</object>", CAT, origin=origin)
    (one, other), sample = image.sample.objects, image.sample
    assert (one.category, one.box, one.frame) == (" r&b", box, "px")
    assert one.fields == {"difficult": True, "truncated": True, "view": "Left"}
    assert (other.category, other.fields) == ("cat", {})
    assert (sample.width, sample.height, image.faults) == (40, 30, ())
    assert set(image.notes) == {"field occluded", "right edge not reached"}


@pytest.mark.parametrize(
    ("size", "warnings"),
    [("", 0), (SIZE.replace("40", "0"), 0), (SIZE.replace("40", "-4"), 1), (SIZE.replace("40", "4O"), 1)],
)
def test_sizes_that_are_not_stated(size, warnings):
    image = parsed(f"<annotation>{size}{CAT}</annotation>")
    assert (image.sample.width, image.sample.height, len(image.sample.objects)) == (None, None, 1)
    assert len(image.warnings) == warnings


@pytest.mark.parametrize(
    ("edges", "origin", "warning"),
    [
        (
            [(1, 40)],
            0,
            "the least xmin is 1, and a box reaches the right edge of its image, as if the first pixel were 1",
        ),
        ([(1, 20), (7, 40), (30, 66)], 0, "the least xmin is 1, and a box reaches the right edge of its image"),
        ([(20, 40)], 0, ""),  # a least xmin of 20 says nothing about the first pixel
        ([(20, 66)], 0, ""),
        ([(1.5, 40)], 0, ""),
        ([(1, 40), (0, 20)], 0, ""),
        ([(1, 39)], 0, ""),
        ([(-900, 1000)], 1, "boxes have an xmin below 1, so the first pixel is 0"),
        ([(0.2, 20)], 1, "boxes have an xmin below 1, so the first pixel is 0"),
        ([(1, 40), (20, 30)], 1, ""),
        ([], 0, ""),
    ],
)
def test_origin_that_the_boxes_contradict(edges, origin, warning):
    boxes = [BOX.replace(">3<", f">{xmin}<").replace(">13<", f">{xmax}<") for xmin, xmax in edges]
    image = parse_objects(*(f"<object><name>a</name>{box}</object>" for box in boxes), origin=origin)
    warnings = [*_check_voc_notes(frozenset(image.notes), origin)]
    assert [text.startswith(warning) for text in warnings] == [True] * bool(warning)


def test_origin_without_sizes_of_images():
    texts = [f"<annotation><object><name>a</name>{BOX.replace('>3<', f'>{x}<')}</object></annotation>" for x in (1, 9)]
    notes = frozenset(note for text in texts for note in parsed(text).notes)
    assert next(_check_voc_notes(notes, 0)).startswith("the least xmin is 1, as if the first pixel were 1")
    assert not [*_check_voc_notes(frozenset(parsed(texts[1]).notes), 0)]


@pytest.mark.parametrize(
    ("object_", "reason", "detail"),
    [
        (f"<object><name> </name>{BOX}</object>", Reason.UNKNOWN_CATEGORY, "an object without <name>"),
        ("<object><name>cat</name></object>", Reason.MALFORMED_BOX, "'cat' has no <bndbox>"),
        (CAT.replace("</object>", f"{BOX}</object>"), Reason.MALFORMED_BOX, "'cat' has 2 <bndbox>"),
        (
            CAT.replace("<ymax>24.5</ymax>", ""),
            Reason.MALFORMED_BOX,
            "'cat' has a text that is not a number: .* ymax ''",
        ),
        (CAT.replace(">3<", ">left<"), Reason.MALFORMED_BOX, "xmin 'left'"),
        (CAT.replace(">3<", ">nan<"), Reason.MALFORMED_BOX, "'cat' has a number that is not finite: xmin 'nan'"),
        (CAT.replace(">13<", ">inf<"), Reason.MALFORMED_BOX, "not finite"),
        (CAT.replace(">13<", ">1e308<"), Reason.MALFORMED_BOX, "beyond any image"),
        (CAT.replace(">13<", ">1_3<"), Reason.MALFORMED_BOX, "a text that is not a number"),
        (CAT.replace(">13<", ">2<"), Reason.MALFORMED_BOX, "swapped"),
        (CAT.replace(">13<", ">3<"), Reason.EMPTY_BOX, "the box of 'cat' has no area: xmin '3'"),
        (
            CAT.replace("</name>", "</name><difficult>7</difficult>"),
            Reason.MALFORMED_ANNOTATION,
            "<difficult> must be 0 or 1 .got '7'",
        ),
    ],
)
def test_objects_that_cannot_be_used(object_, reason, detail):
    image = parse_objects(CAT, object_, CAT)
    assert [parsed_object.box for parsed_object in image.sample.objects] == [(3, 4, 10, 20.5)] * 2
    assert [(fault.reason, fault.line) for fault in image.faults] == [(reason, 4)]
    with pytest.raises(ValueError, match=detail):
        raise ValueError(image.faults[0].detail)


@pytest.mark.parametrize(
    ("data", "line", "detail"),
    [
        (b"", 1, "it is empty"),
        (f"<annotation>\n{CAT}\n<object>".encode(), 3, "not valid XML from here on (no element found"),
        (f"<annotation>\n{CAT}\xe9</annotation>".encode("latin-1"), 2, "it is not UTF-8. Save it as UTF-8"),
        (b"<annotations><image/></annotations>", 1, "the root is <annotations>, not <annotation>"),
        (b'<?xml version="1.0"?>\n<!DOCTYPE a [<!ENTITY b "c">]><annotation>&b;</annotation>', 2, "declares entities"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", 1, "it is a Git LFS pointer"),
        (b"\xff\xd8\xff\xe0", 1, "it is an image"),
        (b"0 0.5 0.5 0.1 0.1", 1, "it is YOLO's text of one image"),
        (b"<annotation><object>%b%b</object></annotation>" % (b"<a>" * 3000, b"</a>" * 3000), 0, "nested too deeply"),
    ],
)
def test_files_that_cannot_be_used(data, line, detail):
    image = parsed(data)
    (fault,) = image.faults
    assert (image.sample, fault.reason, fault.line) == (None, Reason.MALFORMED_LABELS, line)
    assert detail in fault.detail


def test_other_encodings():
    xml = f'<?xml version="1.0" encoding="{{}}"?><annotation><object><name>é</name>{BOX}</object></annotation>'
    for encoding in ("utf-16", "latin-1", "utf-8-sig"):
        assert parsed(xml.format(encoding.removesuffix("-sig")).encode(encoding)).sample.objects[0].category == "é"


ALONE = ["SegmentationClass has 1 images with masks, .* masks of objects are in SegmentationObject, which has none"]
OBJECTS = ["SegmentationObject has 1 images .*--masks"]
CLASSES = ["SegmentationClass has 1 images .* are in SegmentationObject$"]


@pytest.mark.parametrize(
    ("mask_folders", "masks", "patterns"),
    [
        (["SegmentationClass"], "none", ALONE),
        (["SegmentationClass"], "rle", ALONE),
        (["SegmentationClass", "SegmentationObject"], "none", OBJECTS + CLASSES),
        (["SegmentationClass", "SegmentationObject"], "rle", CLASSES),
        (["SegmentationObject"], "png", []),
        ([], "none", []),
    ],
)
def test_masks_that_are_not_read(tmp_path, mask_folders, masks, patterns):
    for name in ("Annotations", "JPEGImages", *mask_folders):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.png").touch()
    warnings = VocOptions(data=str(tmp_path), output="out", masks=masks).source().warnings
    assert len(warnings) == len(patterns)
    assert all(re.match(expected, text) for expected, text in zip(patterns, warnings, strict=True))


def test_fields():
    attribute = "<attribute><name>colour</name><value>red</value></attribute>"
    more = f"<occluded>0</occluded><attributes>{attribute}</attributes><score/><part><name>head</name></part>"
    xml = f"<annotation><folder>a</folder>{SIZE}<source><database>d</database></source><object><name>cat</name>{more}"
    (image,) = parse_voc(f"{xml}{BOX}</object></annotation>".encode(), "a.xml", has_fields=True)
    assert image.sample.objects[0].fields == {"occluded": "0", "attributes": {"colour": "red"}}
    assert image.sample.fields == {"folder": "a", "source": {"database": "d"}}
    assert {"field attributes.colour", "part"} < set(image.notes)


NAME, EDGES = "<name>cat</name>", BOX.removeprefix("<bndbox>").removesuffix("</bndbox>")


@pytest.mark.parametrize(
    ("children", "is_plain"),
    [
        (f"{NAME}<pose>Left</pose><truncated> 1</truncated><difficult>1</difficult>{BOX}", True),
        (f"{BOX}<name> r&amp;b</name><truncated/>\n<pose> </pose>", True),
        (f"<name>\ncat</name>{BOX}", False),
        (f"<name/>{BOX}", False),
        (BOX, False),
        (NAME, False),
        (f"{NAME}{BOX}{BOX}", False),
        (f"{NAME}{NAME}{BOX}", False),
        (f"{NAME}{BOX}<occluded>1</occluded>", False),
        (f"{NAME}{BOX}<difficult>true</difficult>", False),
        (f"{NAME}{BOX}<truncated>x</truncated>", False),
        (f"{NAME}<bndbox/>{EDGES}", False),  # edges beside the box
        (f"<name>cat{BOX}</name>", False),
        (f"{NAME}{BOX.replace('<xmax>13', '<xmax><b/>13')}", False),
        (f"{NAME}{BOX.replace('xmin', 'x').replace('ymin', 'xmin')}", False),
        (f"{NAME}{BOX.replace('13', '1_3')}", False),
        (f"{NAME}{BOX.replace('13', 'x')}", False),
        (f"{NAME}{BOX.replace('13', 'nan')}", False),
        (f"{NAME}{BOX.replace('13', '1e19')}", False),
        (f"{NAME}{BOX.replace('13', '2')}", False),
        (f"{NAME}{BOX.replace('13', '3')}", False),
    ],
)
def test_a_plain_object_is_read_as_any_other(children, is_plain, monkeypatch):
    xml = f"<object>{children}</object>"
    assert (read_voc._plain_object(fromstring(xml), 0) is not None) == is_plain
    image = parse_objects(xml, CAT)
    monkeypatch.setattr(read_voc, "_plain_object", lambda *_: None)
    assert image == parse_objects(xml, CAT)
