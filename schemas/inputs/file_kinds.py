"""Recognise other tools' files by contents, and name the fix."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

_HEAD = 1 << 16
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ROWS = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])

LFS_POINTER = b"version https://git-lfs"
_UNPACK = "Unpack it (gzip files are read directly)"
_AS_CSV = ("Give label files", "Save it as CSV")
_NO_IMAGE = ("Give the file of its annotations", "Give a file of rows")
_CONTAINERS = {
    "an Excel workbook": (rb"PK\x03\x04.{26}(\[Content_Types\]\.xml|_rels/|docProps/|xl/)", *_AS_CSV),
    "an OpenDocument spreadsheet": (rb"PK\x03\x04.{26}mimetype.*application/vnd\.oasis\.opendocument", *_AS_CSV),
    "an Excel workbook of an old version": (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", *_AS_CSV),
    "a .zip archive": (
        rb"PK\x03\x04",
        "Name the file in it, archive.zip/instances.json (the archive ends in .zip)",
        "Name the file in it, archive.zip/rows.csv (the archive ends in .zip)",
    ),
    "compressed by gzip": (rb"\x1f\x8b", "Unpack it", "Unpack it"),
    "compressed by bzip2": (rb"BZh[1-9]1AY", _UNPACK, "Unpack it"),
    "compressed by xz": (rb"\xfd7zXZ", _UNPACK, _UNPACK),
    "compressed by zstd": (rb"\x28\xb5\x2f\xfd", _UNPACK, "Unpack it"),
    "a 7z archive": (rb"7z\xbc\xaf", "Unpack it", "Unpack it"),
    "a .rar archive": (rb"Rar!\x1a\x07", "Unpack it", "Unpack it"),
    "a .tar archive": (rb".{257}ustar", "Unpack it", "Unpack it"),
    "an image": (rb"\xff\xd8\xff|\x89PNG", *_NO_IMAGE),
    "a Parquet table": (rb"PAR1", "Give COCO's JSON", "Call it .parquet"),
    "text in UTF-16": (rb"\xff\xfe|\xfe\xff", "Save it as UTF-8", "Save it as UTF-8"),
    "a Git LFS pointer, not the file": (re.escape(LFS_POINTER), "Run git lfs pull", "Run git lfs pull"),
}
"""Pattern of the first bytes, and the cures if annotations, or rows of a table, are wanted."""


class _LabelFileKind(NamedTuple):
    """Kind of a label file: a description, the format that reads it, and whether that reads the folder of the file."""

    what: str
    format: str
    is_of_folder: bool = False

    def __str__(self) -> str:
        return f"{self.what}; --format {self.format} reads {'its folder' if self.is_of_folder else 'it'}"


_HTML = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?<(?:!doctype )?html", re.IGNORECASE)
_XML: dict[re.Pattern[bytes], str | _LabelFileKind] = {
    re.compile(rb"<annotations?>.*<image ", re.DOTALL): _LabelFileKind("CVAT's XML", "cvat"),
    re.compile(
        rb"<annotation\b.*<polygon>", re.DOTALL
    ): "LabelMe's XML of one image; Datumaro and FiftyOne convert it to COCO's",
    re.compile(rb"<annotation\b"): _LabelFileKind("Pascal VOC's XML of one image", "voc"),
    re.compile(rb"<"): "XML; COCO files are JSON",
}
_NDJSON = re.compile(rb'\{(?=[^\n]*"type"\s*:\s*"dataset")[^\n]*"(?:class_names|task)"\s*:')
_YOLO = re.compile(rb"(?:\d+(?: +-?[\d.]+(?:e-?\d+)?){4,}\s*(?:\n|\Z))+")
_YOLO_YAML = re.compile(rb"^(?:names|nc|train|val|path):", re.MULTILINE)
_TABLE = re.compile(rb"(?=[^\n]*[,;\t])[^\n{}\[\]<>]*\n[^\n]*[,;\t]")


def describe_content(data: bytes) -> str:
    """Return a description of annotations that are not COCO's, and the fix; empty if unknown."""
    return str(_content_kind(data))


def content_format(data: bytes) -> str:
    """Return the format of a label file; empty if it is COCO's, or unknown."""
    kind = _content_kind(data)
    return kind.format if isinstance(kind, _LabelFileKind) else ""


def _content_kind(data: bytes) -> str | _LabelFileKind:
    text = data[:_HEAD].removeprefix(b"\xef\xbb\xbf").lstrip()
    if what := describe_container(data, is_table=False):
        return what
    if text.startswith(b"<"):
        return next(what for pattern, what in _XML.items() if pattern.search(text))
    if text.startswith((b"{", b"[")):
        return _describe_json(data, text)
    if _YOLO.match(text):
        return _LabelFileKind("YOLO's text of one image", "yolo", True)
    if _YOLO_YAML.search(text):
        return _LabelFileKind("YAML, as of a YOLO data set", "yolo", True)
    if _TABLE.match(text):
        return "a table; --labels reads tables of images of one class each"
    return ""


def describe_container(data: bytes, is_table: bool) -> str:
    """Return a description of a file that is neither text with annotations nor rows, with the cure, by its first bytes;
    empty for any other.

    Args:
        is_table: True if a table is wanted, False if annotations are.
    """
    if _HTML.match(data):
        return "a web page. The download probably failed. Download it again"
    for what, (beginning, cure, table_cure) in _CONTAINERS.items():
        if re.match(beginning, data, re.DOTALL):
            return f"{what}. {table_cure if is_table else cure}"
    return ""


def describe_image(data: bytes) -> str:
    """Return a description of a file that is not an image, with the cure; empty if unknown."""
    what = describe_container(data, is_table=False)
    return what if what.startswith(("a Git LFS pointer", "a web page")) else ""


def _describe_json(data: bytes, text: bytes) -> str | _LabelFileKind:
    if _NDJSON.match(text):
        return _LabelFileKind("Ultralytics' NDJSON", "ndjson")
    first, _, rest = text.partition(b"\n")
    if rest.lstrip().startswith(b"{") and _try_decode(_FIELDS.decode, first):
        return "JSON Lines; COCO's JSON is one object with the lists images, annotations and categories"
    if fields := _try_decode(_FIELDS.decode, data.removeprefix(b"\xef\xbb\xbf")):
        if "shapes" in fields and "imagePath" in fields:
            return _LabelFileKind("LabelMe's JSON of one image", "labelme", True)
        if any(name.startswith("_via_") for name in fields):
            return _LabelFileKind("a project of the VGG Image Annotator (VIA)", "via")
        first_value = _try_decode(_FIELDS.decode, next(iter(fields.values())))
        if first_value and {"filename", "regions"} <= first_value.keys():
            return _LabelFileKind("an export of the VGG Image Annotator (VIA)", "via")
        if bytes(fields.get("type", b"")) == b'"FeatureCollection"':
            return "GeoJSON, in coordinates of a map; COCO's are in pixels of an image"
    if rows := _try_decode(_ROWS.decode, data.removeprefix(b"\xef\xbb\xbf")):
        names = rows[0].keys()
        if "image_id" in names:
            return (
                "a list of COCO's annotations or results, without images. Give the object that has the lists images, "
                "annotations and categories"
            )
        if {"image", "annotations"} <= names:
            return _LabelFileKind("CreateML's JSON", "createml")
        if "data" in names and names & {"annotations", "completions"}:
            return _LabelFileKind("Label Studio's JSON", "labelstudio")
    return ""


def _try_decode(decode: Callable, data: bytes) -> Any:
    try:
        return decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def describe_table(head: str) -> str:
    """Return a description of a file that is not a table, by its first bytes; empty if it may be a table."""
    text = head.lstrip("\ufeff \t\r\n")
    if text.startswith(("{", "[")) and ('"images"' in text or '"annotations"' in text):
        return str(_LabelFileKind("COCO's JSON", "coco"))
    data = text.encode(errors="replace")
    what = describe_content(data) or ("JSON Lines. Call it .jsonl" if _try_decode(_FIELDS.decode, data) else "")
    return "" if what.startswith("a table") else what


def describe_parquet(data: bytes) -> str:
    """Return a description of a file that is not Parquet, with the cure, by its first bytes; empty if unknown."""
    if what := describe_container(data, is_table=True):
        return "" if data.startswith(b"PAR1") else what
    what = describe_content(data)
    return {"JSON": "JSON Lines. Call it .jsonl", "a ta": "CSV. Call it .csv"}.get(what[:4], what)
