"""The values of a record become the rows of COCO files that say the same, and the files that go with them."""

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.annotations import Category
from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.labels import LabelMap
from recordmill.transforms.extract.extract_files import ExtractedFile, path_below
from recordmill.transforms.extract.extract_values import (
    Segmentation,
    UnusableRecordError,
    box_px,
    mask_of_png,
    mask_of_rle,
    shortest_decimal,
    shortest_px,
    text,
)
from recordmill.transforms.images.load_images import brief
from recordmill.transforms.images.open_picture import kind_of, open_picture

_UNSET = msgspec.UNSET
_MAPS = {
    "semantic.png": "semantic",
    "panoptic.category_png": "panoptic_categories",
    "panoptic.instance_png": "panoptic_instances",
}
"""Sources that are masks of a whole image, and the folder that each goes to."""


class ImageRow(msgspec.Struct, frozen=True):
    """A row of `images`. The two lists are LVIS's."""

    id: int
    file_name: str
    width: int
    height: int
    neg_category_ids: tuple[int, ...] | msgspec.UnsetType = _UNSET
    not_exhaustive_category_ids: tuple[int, ...] | msgspec.UnsetType = _UNSET


class InstanceRow(msgspec.Struct, frozen=True):
    """A row of `annotations` of an instances file, or, with keypoints, of a keypoints file."""

    id: int
    image_id: int
    category_id: int
    bbox: tuple[float, float, float, float]
    area: float
    iscrowd: int
    segmentation: Segmentation | msgspec.UnsetType = _UNSET
    num_keypoints: int | msgspec.UnsetType = _UNSET
    keypoints: tuple[float, ...] | msgspec.UnsetType = _UNSET


class CaptionRow(msgspec.Struct, frozen=True):
    """A row of `annotations` of a captions file; id is None where the record does not say."""

    id: int | None
    image_id: int
    caption: str


class SegmentRow(msgspec.Struct, frozen=True):
    """An entry of `segments_info`."""

    id: int
    category_id: int
    area: int
    bbox: tuple[float, float, float, float]
    iscrowd: int


class PanopticRow(msgspec.Struct, frozen=True):
    """A row of `annotations` of a panoptic file."""

    image_id: int
    file_name: str
    segments_info: tuple[SegmentRow, ...]


class EncodedRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row as JSON."""

    id: int
    image_id: int
    json: bytes


class RecordRows(msgspec.Struct, frozen=True):
    """What a record says.

    Attributes:
        keypoints: those of the objects whose category has keypoints.
        class_name: of an image of one class.
    """

    image: ImageRow
    instances: tuple[EncodedRow, ...] = ()
    keypoints: tuple[EncodedRow, ...] = ()
    captions: tuple[CaptionRow, ...] = ()
    panoptic: PanopticRow | None = None
    class_name: str | None = None


class Extracted(NamedTuple):
    """What comes of a record.

    Attributes:
        files: its image first.
        faults: reason and detail of what is wrong with it, all else being extracted.
    """

    rows: RecordRows
    files: tuple[ExtractedFile, ...]
    faults: list[tuple[str, str]]


class RowExtractor:
    """Extracts records of one split.

    Args:
        table: what is in a record.
        labels: the data set's classes.
    """

    def __init__(self, table: FeatureTable, labels: LabelMap, split: str):
        self._parts = table.parts
        self._categories = {category.id: category for category in labels.categories}
        self._segments = labels.segments
        self._keypoints = labels.keypoints
        self._split = split

    def __call__(self, values: dict[str, Any]) -> Extracted:
        """The rows and files of a record's values, as `recordmill.transforms.extract.extract_values` reads them.

        Raises:
            UnusableRecordError: its image has no name that can be used, no id, or no size.
        """
        faults: list[tuple[str, str]] = []
        file_name = text(values["image.file_name"], "the image's file name")
        image_file = ExtractedFile(path_below(f"images/{self._split}", file_name), values["image.encoded"])
        image_id = _image_id(values)
        width, height = _size(values, faults)
        lvis = ("image.neg_category_ids", "image.not_exhaustive_category_ids") if Part.LVIS in self._parts else ()
        image = ImageRow(image_id, file_name, width, height, *(tuple(values[source].tolist()) for source in lvis))
        instances = list(self._instances(values, image, faults))
        files = [image_file, *self._maps(values, file_name)]
        panoptic = self._panoptic(values, image, faults)
        if panoptic:
            files.append(ExtractedFile(panoptic_path(self._split, panoptic.file_name), values["panoptic.png"]))
        rows = RecordRows(
            image,
            tuple(_encoded(msgspec.structs.replace(row, num_keypoints=_UNSET, keypoints=_UNSET)) for row in instances),
            tuple(_encoded(row) for row in instances if row.keypoints is not _UNSET),
            tuple(self._captions(values, image_id)),
            panoptic,
            text(values["image.class_name"], "the class") if "image.class_name" in values else None,
        )
        return Extracted(rows, tuple(files), faults)

    def _instances(
        self, values: dict[str, Any], image: ImageRow, faults: list[tuple[str, str]]
    ) -> Iterator[InstanceRow]:
        if "objects.id" not in values:
            return
        ids = values["objects.id"].tolist()
        category_ids = values["objects.category_id"].tolist()
        boxes = list(_boxes(values, image.width, image.height))
        exact = values.get("objects.area_whole")
        areas = [shortest_decimal(area) for area in values["objects.area"]] if exact is None else exact.tolist()
        crowds = values["objects.is_crowd"].tolist() if "objects.is_crowd" in values else [0] * len(ids)
        for index, id_ in enumerate(ids):
            category = self._categories.get(category_ids[index])
            if category is None:
                faults.append(("class", f"annotation {id_}: category id {category_ids[index]} is not in the manifest"))
            mask = _segmentation(values, index, image, faults)
            row = InstanceRow(id_, image.id, category_ids[index], boxes[index], areas[index], crowds[index], mask)
            yield self._with_keypoints(row, category, values, index, image)

    def _with_keypoints(
        self, row: InstanceRow, category: Category | None, values: dict[str, Any], index: int, image: ImageRow
    ) -> InstanceRow:
        if Part.KEYPOINTS not in self._parts or category is None or not category.keypoints:
            return row
        first = index * self._keypoints
        own = slice(first, first + len(category.keypoints))
        xyv = keypoints_px(
            values["objects.keypoint_x"][own],
            values["objects.keypoint_y"][own],
            values["objects.keypoint_visibility"][own].tolist(),
            image.width,
            image.height,
        )
        number = int(values["objects.keypoint_num"][index])
        return msgspec.structs.replace(row, num_keypoints=number, keypoints=xyv)

    def _captions(self, values: dict[str, Any], image_id: int) -> Iterator[CaptionRow]:
        captions = values["captions.text"].tolist() if Part.CAPTIONS in self._parts else []
        ids = values["captions.id"].tolist() if "captions.id" in values else [None] * len(captions)
        for id_, caption in zip(ids, captions, strict=True):
            yield CaptionRow(id_, image_id, text(caption, "a caption"))

    def _maps(self, values: dict[str, Any], file_name: str) -> Iterator[ExtractedFile]:
        for source, folder in _MAPS.items():
            if source in values:
                stem, _ = posixpath.splitext(path_below(f"{folder}/{self._split}", file_name))
                yield ExtractedFile(f"{stem}.png", values[source])

    def _panoptic(self, values: dict[str, Any], image: ImageRow, faults: list[tuple[str, str]]) -> PanopticRow | None:
        """The panoptic row, where the record has one that can be used."""
        if not values.get("panoptic.file_name"):
            return None
        try:
            file_name = text(values["panoptic.file_name"], "the panoptic PNG's file name")
            panoptic_path(self._split, file_name)
        except UnusableRecordError as fault:
            faults.append((fault.reason, f"panoptic PNG: {fault.detail}"))
            return None
        indices = values["segments.class_index"].tolist()
        unknown = [index for index in indices if not 0 <= index < len(self._segments)]
        if unknown:
            faults.append(("class", f"a segment's class index {unknown[0]} is not in the manifest"))
            return None
        columns = zip(
            values["segments.id"].tolist(),
            (self._segments[index].id for index in indices),
            values["segments.area"].tolist(),
            (box_px(tuple(edges), image.width, image.height) for edges in values["segments.bbox_yxyx"].reshape(-1, 4)),
            values["segments.is_crowd"].tolist(),
            strict=True,
        )
        return PanopticRow(image.id, file_name, tuple(SegmentRow(*column) for column in columns))


def panoptic_path(split: str, file_name: str) -> str:
    """Where a panoptic PNG goes.

    Raises:
        UnusableRecordError: its name cannot be used.
    """
    return path_below(f"panoptic/{split}", file_name)


def keypoints_px(
    x_frac: Sequence[np.float32], y_frac: Sequence[np.float32], visibility: Sequence[int], width: int, height: int
) -> tuple[float, ...]:
    """x and y in pixels and visibility of each keypoint; 0, 0, 0 where it is not labelled.

    >>> keypoints_px(np.float32([0.25, 0.9]), np.float32([0.5, 0.9]), [2, 0], 40, 30)
    (10.0, 15.0, 2, 0.0, 0.0, 0)
    """
    numbers: list[float] = []
    for x, y, seen in zip(x_frac, y_frac, visibility, strict=True):
        numbers += [shortest_px(x, width), shortest_px(y, height), seen] if seen else [0.0, 0.0, 0]
    return tuple(numbers)


def _encoded(row: InstanceRow) -> EncodedRow:
    return EncodedRow(row.id, row.image_id, msgspec.json.encode(row))


def _image_id(values: dict[str, Any]) -> int:
    if "image.number" in values:
        return values["image.number"].item()
    if not _INTEGER.fullmatch(values["image.id"]):  # int() takes 1_0 for 10
        raise UnusableRecordError("schema", f"the image id {values['image.id'][:40]!r} is no integer")
    return int(values["image.id"])


_INTEGER = re.compile(rb"-?[0-9]{1,19}")


def _size(values: dict[str, Any], faults: list[tuple[str, str]]) -> tuple[int, int]:
    """Width and height in pixels: the record's, by which its boxes were made fractions; else the image's."""
    said = tuple(values[f"image.{side}"].item() for side in ("width", "height") if f"image.{side}" in values)
    try:
        with open_picture(values["image.encoded"], kind_of(values["image.encoded"]) or "png") as image:
            found = image.size
    except Exception as error:  # Pillow's decoders raise nearly anything on damaged bytes
        fault = "image_undecodable", f"its header cannot be read ({brief(error)})"
        if not said or min(said) < 1:
            raise UnusableRecordError(*fault) from error
        faults.append(fault)
        return said
    if said and said != found:
        detail = f"the image is {found[0]}x{found[1]}, the record says {said[0]}x{said[1]}"
        if min(said) < 1:
            raise UnusableRecordError("image_size", detail)
        faults.append(("image_size", detail))
    return said or found


def _boxes(values: dict[str, Any], width: int, height: int) -> Iterator[tuple[float, float, float, float]]:
    """x, y, width, height in pixels, from whichever form the layout has."""
    if "objects.bbox_xywh_px" in values:
        for x, y, box_width, box_height in values["objects.bbox_xywh_px"].reshape(-1, 4):
            yield shortest_decimal(x), shortest_decimal(y), shortest_decimal(box_width), shortest_decimal(box_height)
        return
    if "objects.bbox_yxyx" in values:
        edges = values["objects.bbox_yxyx"].reshape(-1, 4)
    else:
        edges = np.stack([values[f"objects.{edge}"] for edge in ("ymin", "xmin", "ymax", "xmax")], axis=1)
    for box in edges:
        yield box_px(tuple(box), width, height)


def _segmentation(
    values: dict[str, Any], index: int, image: ImageRow, faults: list[tuple[str, str]]
) -> Segmentation | msgspec.UnsetType:
    try:
        if "objects.mask_rle" in values:
            return mask_of_rle(values["objects.mask_rle"][index], image.width, image.height)
        if "objects.mask_png" in values:
            return mask_of_png(values["objects.mask_png"][index], image.width, image.height)
    except UnusableRecordError as fault:
        faults.append((fault.reason, f"annotation {values['objects.id'][index]}: {fault.detail}"))
        return []
    return _UNSET
