"""Label files of Pascal VOC and LabelMe, and lines of Hugging Face's imagefolder; all formats by name."""

import base64
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.field_features import Axis, field_columns, nest_values
from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.transforms.extract.extract_files import ExtractedFile
from recordmill.transforms.extract.label_format import (
    BOUNDS,
    FIELDS,
    ExtractedImage,
    ExtractedObject,
    LabelFormat,
    Ring,
    WrittenLabels,
    count_lost,
    differ_from_box,
    format_number,
    free_fields,
    polygon_bounds,
    trace_mask,
    without_crowds,
    xml_text,
)
from recordmill.transforms.extract.write_cvat import CVAT
from recordmill.transforms.extract.write_ndjson import NDJSON
from recordmill.transforms.extract.write_yolo import YOLO
from recordmill.transforms.images.masks import grey_png

_NOT_JPG = "image files without the suffix .jpg, which torchvision and TFDS do not find"
_MISTAKEN = "image files with `.jpg` inside the name, now `_jpg`, because readers would take it for the suffix"
_EDGES = ("xmin", "ymin", "xmax", "ymax")


def write_voc(image: ExtractedImage, labels: LabelMap, table: FeatureTable) -> WrittenLabels:
    """Return the XML file of an image. Edges are in pixels, counted from 0."""
    objects, name = without_crowds(image), f"{image.split}/{image.name}"
    size = _xml_elements({"width": image.image.width, "height": image.image.height, "depth": 3}, image)
    lines = [f"  {_xml_elements({'filename': name}, image)}", f"  <size>{size}</size>"]
    lines += [_voc_object(object_, image) for object_ in objects]
    text = "\n".join(("<annotation>", *lines, "</annotation>", ""))
    stem = f"{image.split}/{image.stem}"
    image.notes[_NOT_JPG] += not name.endswith(".jpg")
    count_lost(image, objects, "objects marked difficult or truncated", "views")
    file = ExtractedFile(f"Annotations/{stem}.xml", text.encode())
    return WrittenLabels(len(objects), file, stem)


def voc_name(name: str) -> str:
    """Return a name without the suffix of an image before its own: readers take such a line of a list for a file name.

    >>> voc_name("a/m.jpg.png"), voc_name("m.b.png")
    ('a/m_jpg.png', 'm.b.png')
    """
    stem, suffix = posixpath.splitext(name)
    return f"{'_'.join(stem.rsplit('.', 1))}{suffix}" if is_image_name(stem) else name


def _voc_object(object_: ExtractedObject, image: ExtractedImage) -> str:
    box = _xml_elements(dict(zip(_EDGES, map(format_number, object_.edges_px), strict=True)), image)
    values: dict[str, object] = {"name": object_.category.name, "pose": object_.fields.get("view", "Unspecified")}
    values |= {name: int(object_.fields.get(name, 0)) for name in ("truncated", "difficult")}
    return f"  <object>{_xml_elements(values, image)}<bndbox>{box}</bndbox></object>"


def _xml_elements(values: Mapping[str, object], image: ExtractedImage) -> str:
    return "".join(f"<{tag}>{xml_text(value, image.notes)}</{tag}>" for tag, value in values.items())


def write_labelme(image: ExtractedImage, labels: LabelMap, table: FeatureTable) -> WrittenLabels:
    """Return the JSON file of an image."""
    objects = without_crowds(image)
    shapes = []
    for group, object_ in enumerate(objects, 1):
        own = free_fields(object_.fields, _is_labelme_key, image.lost)
        shapes += [_with_fields(shape, own) for shape in _labelme_shapes(object_, group, image)]
    document: dict[str, Any] = {
        "version": "5.5.0",
        "flags": {},
        "shapes": shapes,
        "imagePath": posixpath.basename(image.name),
        "imageData": None,
        "imageHeight": image.image.height,
        "imageWidth": image.image.width,
    }
    own = free_fields(image.fields, lambda path: path.partition(".")[0] in document, image.lost, "image.")
    count_lost(image, objects, "masks", "oriented boxes", *FIELDS)
    data = msgspec.json.encode(_with_fields(document, own))
    file = ExtractedFile(f"{image.split}/{image.stem}.json", data)
    return WrittenLabels(len(objects), file)


def _is_labelme_key(path: str) -> bool:
    """Return True if a field would replace another value of a shape."""
    return path == "flags" or path.partition(".")[0] in ("label", "points", "group_id", "shape_type", "mask")


def _with_fields(values: dict[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    return values | nest_values(fields)


def _labelme_shapes(object_: ExtractedObject, group: int, image: ExtractedImage) -> list[dict[str, Any]]:
    """Return the shapes of an object: a rectangle, polygons in a group, or a mask if it has holes."""
    label, mask, rings = object_.category.name, object_.mask, object_.polygons
    if rings:
        image.notes[BOUNDS] += differ_from_box(polygon_bounds(rings), object_)
        return _labelme_polygons(label, rings, group)
    if mask is None and any(object_.corners):
        corners = zip(object_.corners[::2], object_.corners[1::2], strict=True)
        return [_labelme_shape(label, "polygon", [(x * image.image.width, y * image.image.height) for x, y in corners])]
    if mask is None:
        xmin, ymin, xmax, ymax = object_.edges_px
        return [_labelme_shape(label, "rectangle", [(xmin, ymin), (xmax, ymax)])]
    ys, xs = np.nonzero(mask)
    left, top, right, bottom = (int(edge) for edge in (xs.min(), ys.min(), xs.max(), ys.max()))
    image.notes[BOUNDS] += (left, top, right + 1, bottom + 1) != object_.edges_px
    parts, holes = trace_mask(mask)
    if holes:
        png = base64.b64encode(grey_png(np.ascontiguousarray(mask[top : bottom + 1, left : right + 1]) * np.uint8(255)))
        return [_labelme_shape(label, "mask", [(left, top), (right, bottom)], mask=png.decode())]
    return _labelme_polygons(label, parts, group)


def _labelme_polygons(label: str, rings: Sequence[Ring], group: int) -> list[dict]:
    """Return the polygons of an object, which have a group if they are several."""
    return [_labelme_shape(label, "polygon", ring, group if len(rings) > 1 else None) for ring in rings]


def _labelme_shape(label: str, kind: str, points: list[Any], group: int | None = None, mask: str | None = None) -> dict:
    return {
        "label": label,
        "points": [(float(x), float(y)) for x, y in points],
        "group_id": group,
        "description": "",
        "shape_type": kind,
        "flags": {},
        "mask": mask,
    }


_CREATEML_KEYS = {"image", "annotations", "imagefilename", "annotation", "label", "coordinates"}


def write_createml(image: ExtractedImage, labels: LabelMap, table: FeatureTable) -> WrittenLabels:
    """Return an image's entry in the JSON of CreateML. Boxes have their centre, in pixels."""
    objects = without_crowds(image)
    annotations = []
    for object_ in objects:
        x, y, width, height = object_.row.bbox
        center = {"x": round(x + width / 2, 9), "y": round(y + height / 2, 9)}
        annotation = {"label": object_.category.name, "coordinates": {**center, "width": width, "height": height}}
        annotations.append(_with_fields(annotation, free_fields(object_.fields, _is_createml_key, image.lost)))
    entry = {"image": image.name, "annotations": annotations}
    own = free_fields(image.fields, _is_createml_key, image.lost, "image.")
    count_lost(image, objects, *FIELDS)
    return WrittenLabels(len(objects), None, msgspec.json.encode(_with_fields(entry, own)).decode())


def _is_createml_key(path: str) -> bool:
    return path.partition(".")[0] in _CREATEML_KEYS


def write_imagefolder(image: ExtractedImage, labels: LabelMap, table: FeatureTable) -> WrittenLabels:
    """Return an image's line in metadata.jsonl of imagefolder."""
    entry: dict[str, Any] = {
        "file_name": image.name,
        "image_id": image.image.id,
        "width": image.image.width,
        "height": image.image.height,
    }
    columns: dict[Axis, list[str]] = {"image": [], "object": []}
    for column in field_columns(table):
        columns[column.axis].append(column.path)
    if image.class_name is not None:
        entry["label"] = image.class_name
    else:
        rows = [object_.row for object_ in image.objects]
        entry["objects"] = {
            "id": [row.id for row in rows],
            "bbox": [row.bbox for row in rows],
            "category": [object_.category.name for object_ in image.objects],
            "area": [row.area for row in rows],
            "iscrowd": [row.iscrowd for row in rows],
        }
        object_keys = tuple(entry["objects"])
        fields = [free_fields(object_.fields, object_keys.__contains__, image.lost) for object_ in image.objects]
        for path in (path for path in columns["object"] if path not in object_keys):
            entry["objects"][path] = [own.get(path) for own in fields]
    if Part.CAPTIONS in table.parts:
        entry["captions"] = image.captions
    image_keys = *entry, "label", "objects", "captions"
    own = free_fields(image.fields, image_keys.__contains__, image.lost, "image.")
    entry |= {path: own.get(path) for path in columns["image"] if path not in image_keys}
    held = "crowds", "areas", "ids of annotations", "captions", "classes of images", "ids of images"
    count_lost(image, image.objects, *held, *FIELDS)
    num_labels = len(image.objects) + (image.class_name is not None)
    return WrittenLabels(num_labels, None, msgspec.json.encode(entry).decode())


_METADATA = "{split}/metadata.jsonl"
_CREATEML = "{split}/_annotations.createml.json"
LABEL_FORMATS: dict[str, LabelFormat] = {
    "yolo": YOLO,
    "voc": LabelFormat(
        "JPEGImages/{split}", "Annotations/{split}", write_voc, "ImageSets/Main/{split}.txt", voc_name, _MISTAKEN
    ),
    "labelme": LabelFormat("{split}", "{split}", write_labelme),
    "hf": LabelFormat("{split}", _METADATA, write_imagefolder, _METADATA, holds_classes=True),
    "ndjson": NDJSON,
    "cvat": CVAT,
    "createml": LabelFormat(
        "{split}",
        _CREATEML,
        write_createml,
        _CREATEML,
        head=lambda *_: b"[\n",
        before=lambda number: b"," if number else b"",
        foot=b"]\n",
    ),
}
"""Label formats by their names in `--as`, without `coco`."""
