"""Convert CreateML files, whose boxes are given by their centre in pixels, to images with objects."""

from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.rejects import UnusableError
from recordmill.transforms.annotated.naming import (
    decode_part,
    find_labels,
    is_json,
    naming_source,
    other_values,
    read_label_json,
    resolve_image_name,
)
from recordmill.transforms.annotated.source import ImageParts, LabelledImage, Source, parser, unusable_image
from recordmill.transforms.createml.createml_options import CreatemlOptions


class _Coordinates(msgspec.Struct):
    x: float
    y: float
    width: float
    height: float


class _CreatemlAnnotation(msgspec.Struct):
    label: str
    coordinates: _Coordinates


class _CreatemlImage(msgspec.Struct):
    """Entry of a file, with CreateML's keys or with the older ones of Turi Create."""

    image: str = ""
    annotations: list[msgspec.Raw] | None = None
    imagefilename: str = ""
    annotation: list[msgspec.Raw] | None = None


def source(options: CreatemlOptions) -> Source:
    labels = find_labels(options, is_json)
    return naming_source(options, labels, parse_images)


@parser
def parse_images(stream: BinaryIO, file: str) -> Iterator[LabelledImage]:
    """Yield the images of a file.

    >>> import io
    >>> box = b'{"label": "cat", "coordinates": {"x": 20, "y": 30, "width": 10, "height": 40}}'
    >>> data = b'[{"image": "1.jpg", "annotations": [' + box + b']}]'
    >>> image, = parse_images(io.BytesIO(data), "valid/_annotations.createml.json")
    >>> image.sample.file_name, image.sample.objects[0].box
    ('valid/1.jpg', (15.0, 10.0, 10.0, 40.0))
    """
    for number, raw in enumerate(read_label_json(stream, list[msgspec.Raw], "CreateML"), 1):
        try:
            image = decode_part(raw, _CreatemlImage)
        except UnusableError as fault:
            yield unusable_image(fault.detail, where=f"image {number}")
            continue
        name = image.image or image.imagefilename
        rows = image.annotations if image.annotations is not None else image.annotation
        if not name or rows is None:
            yield unusable_image("it has no image or no annotations", where=f"image {number}")
        else:
            fields = other_values(raw, _CreatemlImage)
            createml_image = _convert_createml_image(rows, name, resolve_image_name(file, name), fields)
            yield createml_image._replace(entry=f"image {number}")


def _convert_createml_image(
    rows: list[msgspec.Raw], stated_name: str, name: str, fields: dict[str, Any]
) -> LabelledImage:
    parts = ImageParts()
    for number, raw in enumerate(rows, 1):
        with parts.rejecting(f"annotation {number} of {stated_name}"):
            annotation = decode_part(raw, _CreatemlAnnotation, parts)
            x, y, width, height = msgspec.structs.astuple(annotation.coordinates)
            box = round(x - width / 2, 12), round(y - height / 2, 12), width, height
            own = other_values(raw, _CreatemlAnnotation)
            parts.objects.append(SampleObject(annotation.label, box, fields=own))
    return parts.image(Sample(name, fields=fields))
