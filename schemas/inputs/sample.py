"""Sample: an image with its annotations, for users' pipelines."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from recordmill.schemas.features import Part
from recordmill.schemas.field_features import FLAGS, TRACK
from recordmill.schemas.inputs.annotations import PanopticAnnotation, StuffAnnotation


class SampleObject(msgspec.Struct, frozen=True):
    """An object of a Sample.

    Attributes:
        category: Name of its class.
        box: Left, top, width, height of its box.
        frame: Unit of the box, corners, keypoints and polygons: pixels of the image, or `fraction` of its width and
            height.
        keypoints: x, y and visibility (0, 1, 2) of each keypoint, one after the other; empty if there are none.
        segmentation: JSON text of COCO's `segmentation`: polygons, or run lengths; empty if there is none.
        is_crowd: True if the box surrounds a group of objects.
        area_px2: Area in square pixels, or as a fraction of the image's area; None for that of the box.
        category_id: Id of its class; None to find it by the name.
        corners: x, y of the four corners of an oriented box, whose bounds are the box; empty for other boxes.
        id: Id of the object; None to derive one from the Sample's name and the object's position.
        fields: Open fields: values that no layout knows, by name. Values are numbers, booleans, texts, lists of these,
            and mappings of names to such values. Records of layout `detection` have `difficult`, `truncated`, `view`
            and `track_id` in any case.
    """

    category: str
    box: tuple[float, float, float, float]
    frame: Literal["px", "fraction"] = "px"
    keypoints: tuple[float, ...] = ()
    segmentation: str = ""
    is_crowd: bool = False
    area_px2: float | None = None
    category_id: int | None = None
    id: int | None = None
    corners: tuple[float, ...] = ()
    fields: dict[str, Any] = {}


class SampleTile(msgspec.Struct, frozen=True):
    """Place of a Sample that is a tile of an image.

    Attributes:
        x, y: Left and top of the tile in the image, in pixels.
        width, height: Size of the image in pixels. A file of another size is rejected.
        name: Name of the image. It decides the split.
        id: Id of the image. Tiles of one id are one image.
        is_measured: True if the size was read from the file, so that the file may be turned upright by EXIF.
    """

    x: int
    y: int
    width: int
    height: int
    name: str
    id: int
    is_measured: bool = False


class Sample(msgspec.Struct, frozen=True):
    """An image with its annotations. It is self-contained: a pipeline can filter, change, or create Samples.

    `msgspec.structs.replace(sample, objects=())` returns a changed Sample. Records do not depend on the order of
    Samples. NumPy values, lists and pathlib.Path are accepted for numbers, tuples and texts.

    Attributes:
        file_name: Key of the Sample in its data set, and name in its record.
        path: Image file, local or in a bucket; empty if `data` has the image.
        data: Encoded image, a JPEG or PNG file for example. The bytes pass through the shuffles of the pipeline.
        width, height: Size of the image in pixels, if known. A file of another size is rejected.
        objects: Objects, in the order of the record.
        class_name: Class of the whole image, for the layout `classification`.
        captions: Captions, in the order of the record.
        split: Split of the Sample; empty to assign it by `file_name`.
        image_id: Id of the image; None to derive it from `file_name`, as in class folders.
        stuff: Regions of stuff.
        panoptic: Panoptic segments.
        neg_category_ids, not_exhaustive_category_ids: Lists of LVIS.
        size_bytes, version: Size of the file at `path`, and a text that changes with it; looked up if unset.
        tags: Classes of the whole image, in addition to its objects.
        fields: Open fields of the image, see SampleObject.
        tile: Place in its image, if the Sample is a tile. `path` or `data` is that image, and `panoptic` its PNG. All
            else is in the frame of the tile.
        ignores_exif: True if the labels are those of the pixels in the order of the file. EXIF does not turn the image
            then. It only matters without `width` and `height`, and for Samples of a `Read` that turns images.
        offset: Offset of the image in the file at `path`, of `size_bytes` bytes; -1 if the file is the image.
    """

    file_name: str
    path: str = ""
    data: bytes = b""
    width: int | None = None
    height: int | None = None
    objects: tuple[SampleObject, ...] = ()
    class_name: str | None = None
    captions: tuple[str, ...] = ()
    split: str = ""
    image_id: int | None = None
    stuff: tuple[StuffAnnotation, ...] = ()
    panoptic: PanopticAnnotation | None = None
    neg_category_ids: tuple[int, ...] = ()
    not_exhaustive_category_ids: tuple[int, ...] = ()
    size_bytes: int | None = None
    version: str = ""
    tags: tuple[str, ...] = ()
    fields: dict[str, Any] = {}
    tile: SampleTile | None = None
    ignores_exif: bool = False
    offset: int = -1

    @property
    def annotation_rows(self) -> int:
        """Number of annotations."""
        return len(self.objects) + len(self.captions) + len(self.stuff) + (self.panoptic is not None)

    @property
    def whole_name(self) -> str:
        """Name of the image that the Sample is, or is a tile of."""
        return self.tile.name if self.tile else self.file_name

    @property
    def parts(self) -> set[Part]:
        """Optional parts of the record that depend on the Sample and not on an option."""
        return parts_of([self])


def parts_of(samples: Sequence[Sample]) -> set[Part]:
    """Return the optional parts of the records of Samples, see `Sample.parts`."""
    objects = [item for sample in samples for item in sample.objects]
    fields = [item.fields for item in objects if item.fields]
    has = {
        Part.LVIS: any(sample.neg_category_ids or sample.not_exhaustive_category_ids for sample in samples),
        Part.FLAGS: any(of_object.get(path) for path in FLAGS for of_object in fields),
        Part.ORIENTED: any(item.corners for item in objects),
        Part.TRACKS: any(of_object.get(TRACK) is not None for of_object in fields),
        Part.TAGS: any(sample.tags for sample in samples),
        Part.TILES: any(sample.tile for sample in samples),
    }
    return {part for part, is_present in has.items() if is_present}
