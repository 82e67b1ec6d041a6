"""Images of a CreateML file, whose boxes are given by their centre in pixels."""

from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.rejects import UnusableError
from recordmill.transforms.annotated.naming import decoded, find_labels, image_name, is_json, naming_source, read_json
from recordmill.transforms.annotated.source import ImageParts, LabelledImage, Source, not_usable, parser
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
    """Entry; Turi Create's older keys are read, too."""

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
    for number, raw in enumerate(read_json(stream, list[msgspec.Raw], "CreateML"), 1):
        try:
            image = decoded(raw, _CreatemlImage)
        except UnusableError as fault:
            yield not_usable(fault.detail, where=f"image {number}")
            continue
        name = image.image or image.imagefilename
        rows = image.annotations if image.annotations is not None else image.annotation
        if not name or rows is None:
            yield not_usable("it has no image, or no annotations", where=f"image {number}")
        else:
            yield _image(rows, name, image_name(file, name))


def _image(rows: list[msgspec.Raw], shown: str, name: str) -> LabelledImage:
    found = ImageParts()
    for number, raw in enumerate(rows, 1):
        with found.rejecting(f"annotation {number} of {shown}"):
            each = decoded(raw, _CreatemlAnnotation, found)
            x, y, width, height = msgspec.structs.astuple(each.coordinates)
            box = round(x - width / 2, 12), round(y - height / 2, 12), width, height
            found.objects.append(SampleObject(each.label, box))
    return found.image(Sample(name))
