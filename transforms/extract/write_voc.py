"""Pascal VOC: JPEGImages, Annotations and ImageSets/Main, with a folder of each split in the first two."""

import re
from xml.sax.saxutils import escape

from recordmill.transforms.extract.extract_files import ExtractedFile
from recordmill.transforms.extract.label_format import (
    ExtractedImage,
    ExtractedObject,
    LabelFormat,
    LabelRules,
    WrittenLabels,
    count_lost,
    number,
    other_splits,
    without_crowds,
)

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_HELD = ("objects marked difficult or truncated", "views")
_NOT_JPG = "image files that are not called .jpg, which torchvision and TFDS do not find"
_EDGES = ("xmin", "ymin", "xmax", "ymax")


def write_voc(image: ExtractedImage, rules: LabelRules) -> WrittenLabels:
    """Return the XML file of an image. Edges are in pixels, the first of which begins at 0."""
    objects, name = without_crowds(image), f"{image.split}/{image.name}"
    size = "".join(
        _element(tag, side)
        for tag, side in (("width", image.image.width), ("height", image.image.height), ("depth", 3))
    )
    lines = [f"  {_element('filename', name)}", f"  <size>{size}</size>", *map(_object, objects)]
    text = "\n".join(("<annotation>", *lines, "</annotation>", ""))
    stem = f"{image.split}/{image.stem}"
    notes = {} if name.endswith(".jpg") else {_NOT_JPG: 1}
    file = ExtractedFile(f"Annotations/{stem}.xml", text.encode())
    return WrittenLabels(len(objects), file, stem, count_lost(image, objects, *_HELD), notes)


def _object(each: ExtractedObject) -> str:
    box = "".join(_element(tag, number(edge)) for tag, edge in zip(_EDGES, each.edges_px, strict=True))
    values: dict[str, object] = {"name": each.category.name, "pose": each.view or "Unspecified"}
    values |= {"truncated": int(each.truncated), "difficult": int(each.difficult)}
    head = "".join(_element(tag, value) for tag, value in values.items())
    return f"  <object>{head}<bndbox>{box}</bndbox></object>"


def _element(tag: str, value: object) -> str:
    return f"<{tag}>{escape(_NOT_XML.sub('�', str(value)))}</{tag}>"


VOC = LabelFormat(
    "JPEGImages/{split}",
    "Annotations/{split}",
    write_voc,
    "ImageSets/Main/{split}.txt",
    warn=lambda splits, rules: other_splits(splits),
)
