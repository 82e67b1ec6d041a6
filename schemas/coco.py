"""COCO's rows, as far as the records need them (https://cocodataset.org/#format-data).

Boxes are x, y, width, height in pixels from the top left corner of the stored pixels.
"""

from typing import Annotated

import msgspec

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""What tf.Example can hold."""


class CocoImage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of `images`. Width and height, in pixels, are None where the file does not say."""

    id: int
    file_name: str
    width: int | None = None
    height: int | None = None


class Category(msgspec.Struct, frozen=True):
    """A row of `categories`."""

    id: Int64
    name: str
    supercategory: str | None = None


class Annotation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of `annotations`: one object instance.

    Attributes:
        bbox_xywh_px: x, y, width, height; finite, width and height not negative; it may cross the image's edge.
        area_px2: from the JSON; width * height of the box where the JSON gives none.
    """

    id: int
    category_id: int
    bbox_xywh_px: tuple[float, float, float, float]
    area_px2: float
    is_crowd: bool


class ImagePart(msgspec.Struct, frozen=True, array_like=True):
    """What one annotation file says of one image id.

    Attributes:
        image_id: the id.
        source: the annotation file.
        rows: its image rows with that id, in file order: one, or none (annotations of an image that this file does not
            list), or several (a duplicate id).
        annotations: its usable annotations of that image, in no particular order.
    """

    image_id: int
    source: str
    rows: tuple[CocoImage, ...]
    annotations: tuple[Annotation, ...]


class AnnotatedImage(msgspec.Struct, frozen=True, array_like=True):
    """An image row with all its annotations of all files, ordered by annotation id."""

    image: CocoImage
    annotations: tuple[Annotation, ...]


class AnnotationFile(msgspec.Struct, frozen=True):
    """What was in an annotation file: counts of rows, good and bad."""

    path: str
    images: int
    annotations: int
    categories: tuple[Category, ...]
