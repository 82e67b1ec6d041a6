"""Hugging Face's imagefolder: a folder of images for each split, with metadata.jsonl."""

from typing import Any

import msgspec

from recordmill.schemas.features import Part
from recordmill.transforms.extract.label_format import (
    ExtractedImage,
    LabelFormat,
    LabelRules,
    WrittenLabels,
    count_lost,
    other_splits,
)

_HELD = ("crowds", "areas", "ids of annotations", "captions", "classes of images", "ids of images")


def write_imagefolder(image: ExtractedImage, rules: LabelRules) -> WrittenLabels:
    """Return the line of an image in metadata.jsonl."""
    row: dict[str, Any] = {
        "file_name": image.name,
        "image_id": image.image.id,
        "width": image.image.width,
        "height": image.image.height,
    }
    if image.class_name is not None:
        row["label"] = image.class_name
    else:
        rows = [each.row for each in image.objects]
        row["objects"] = {
            "id": [each.id for each in rows],
            "bbox": [each.bbox for each in rows],
            "category": [each.category.name for each in image.objects],
            "area": [each.area for each in rows],
            "iscrowd": [each.iscrowd for each in rows],
        }
    if Part.CAPTIONS in rules.parts:
        row["captions"] = image.captions
    lost = count_lost(image, image.objects, *_HELD)
    return WrittenLabels(
        len(image.objects) + (image.class_name is not None), None, msgspec.json.encode(row).decode(), lost
    )


IMAGEFOLDER = LabelFormat(
    "{split}",
    "{split}/metadata.jsonl",
    write_imagefolder,
    "{split}/metadata.jsonl",
    warn=lambda splits, rules: other_splits(splits),
    holds_classes=True,
)
