import json

import pytest

from recordmill.schemas.inputs.file_kinds import describe_content, describe_table

LABELME = {"version": "5.0.1", "flags": {}, "shapes": [{"label": "cat", "points": []}], "imagePath": "a.jpg"}
VOC = "<annotation>\n<folder>VOC2012</folder><object><bndbox><xmin>1</xmin></bndbox></object></annotation>"
RESULT = {"image_id": 1, "category_id": 2, "bbox": [1, 2, 3, 4], "score": 0.5}
COCO = {"info": {}, "images": [], "annotations": [], "categories": []}

KINDS = {
    "labelme": (json.dumps(LABELME, indent=2), "LabelMe's JSON of one image; --format labelme reads its folder"),
    "via": ('{"_via_settings": {}, "_via_img_metadata": {}}', "VIA); --format via reads it"),
    "geojson": ('{"type": "FeatureCollection", "features": []}', "GeoJSON"),
    "results": (json.dumps([RESULT]), "results"),
    "ndjson": (
        '{"type": "dataset", "task": "detect"}\n{"type": "image"}\n',
        "Ultralytics' NDJSON; --format ndjson reads it",
    ),
    "createml": ('[{"image": "a.jpg", "annotations": []}]', "CreateML's JSON; --format createml reads it"),
    "label studio": (
        '[{"id": 1, "annotations": [], "data": {}}]',
        "Label Studio's JSON; --format labelstudio reads it",
    ),
    "json lines": ('{"a": 1}\n{"a": 2}\n', "JSON Lines"),
    "voc": (f'<?xml version="1.0"?>\n{VOC}', "Pascal VOC"),
    "voc without a declaration": (f"\ufeff {VOC}", "Pascal VOC"),
    "cvat": ("<?xml version='1.0'?><annotations><version>1.1</version><image id='0'/></annotations>", "CVAT"),
    "labelme's xml": ("<annotation><object><polygon></polygon></object></annotation>", "LabelMe's XML"),
    "other xml": ("<feed/>", "XML"),
    "a web page": ("\n<!DOCTYPE html><html lang='en'>", "web page"),
    "yolo": ("0 0.5 0.5 0.25 0.125\n12 0.1 0.2 0.3 0.4\n", "YOLO's text of one image; --format yolo reads its folder"),
    "one line of yolo": ("3 0.5 0.5 1 1e-05", "YOLO's text"),
    "yolo's outlines": ("0 0.1 0.1 0.2 0.2 0.3 0.1\n", "YOLO's text"),
    "yolo's yaml": (
        "# data\npath: ../coco\ntrain: images\nnames:\n  0: person\n",
        "YAML, as of a YOLO data set; --format yolo reads its folder",
    ),
    "csv": ("path,label\na.jpg,cat\n", "a table"),
    "tsv": ("path\tlabel\r\na.jpg\tcat\r\n", "a table"),
    "lfs": ("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n", "Git LFS"),
    "utf-16": (json.dumps(COCO).encode("utf-16"), "UTF-16"),
    "zip": (b"PK\x03\x04\x14", ".zip"),
    "jpeg": (b"\xff\xd8\xff\xe0\x00\x10JFIF", "an image"),
    "png": (b"\x89PNG\r\n\x1a\n", "an image"),
    "xz": (b"\xfd7zXZ\x00", "xz"),
    "bzip2": (b"BZh91AY", "bzip2"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04", "zstd"),
    "7z": (b"7z\xbc\xaf\x27\x1c", "7z"),
    "rar": (b"Rar!\x1a\x07\x01", ".rar"),
    "tar": (b"a.jpg".ljust(257, b"\0") + b"ustar\x0000", ".tar"),
    "parquet": (b"PAR1\x15", "Parquet"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kind_of_file(kind):
    content, expected = KINDS[kind]
    what = describe_content(content if isinstance(content, bytes) else content.encode())
    assert expected in what
    assert "\n" not in what


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"[1, 2]",
        b"{}",
        b"nonsense",
        b"one line, and no table",
        b"\x00" * 50,
        b"\xc3(",
        b'{"images": [\n{"id": 1},\n{"id": 2}',
        b"[" * 100_000,
        json.dumps(COCO, indent=1).encode(),
        json.dumps(COCO).encode()[:-5],
        json.dumps(COCO).encode() + b"\n",
        json.dumps([{"id": 1, "file_name": "a.jpg"}]).encode(),
    ],
)
def test_unknown_files(content):
    assert describe_content(content) == ""


@pytest.mark.parametrize("kind", ["labelme", "json lines", "voc", "yolo", "a web page"])
def test_not_a_table(kind):
    content, expected = KINDS[kind]
    assert expected in describe_table(content)


def test_coco_s_json_for_table_and_tables():
    assert "--format coco reads it" in describe_table(json.dumps(COCO))
    assert [describe_table(KINDS[kind][0]) for kind in ("csv", "tsv")] == ["", ""]
    assert [describe_table(header) for header in ("path,label\n", "file;class\n", "path", "")] == [""] * 4
