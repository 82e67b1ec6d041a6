"""Convert values of a record to rows of COCO files, and to image and mask files."""

import posixpath
from collections.abc import Collection, Iterable, Iterator
from itertools import repeat
from typing import Any

import msgspec
import numpy as np

from recordmill.schemas.boxes import exact_edges_px, shortest_decimal, shortest_px
from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.field_features import Axis, FieldColumn, field_columns, nest_values
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.transforms.dataset.record_view import RecordView
from recordmill.transforms.extract.extract_files import (
    ExtractedFile,
    UnusableRecordError,
    decode_text,
    extraction_path,
    read_source,
)
from recordmill.transforms.images.decode_segmentation import list_polygons
from recordmill.transforms.images.image_sources import ImageSource, Use, decode_source
from recordmill.transforms.images.load_images import describe_pillow_error
from recordmill.transforms.images.masks import mask_rle, run_lengths
from recordmill.transforms.images.open_image import image_kind, open_image

_UNSET = msgspec.UNSET
MAPS = {
    "semantic.png": "semantic",
    "panoptic.category_png": "panoptic_categories",
    "panoptic.instance_png": "panoptic_instances",
    "depth.png": "depth",
}
"""Folders of the maps of complete images, by source."""
PAIRED_MASKS = "masks"
"""Folder of semantic masks whose pixels are class ids: with `images`, the folders that `convert` reads as pairs."""


class RunLengths(msgspec.Struct, frozen=True):
    """COCO's compressed run lengths; size is height, width."""

    counts: str
    size: tuple[int, int]


Segmentation = RunLengths | list[list[float]]
"""Segmentation in COCO's JSON; `[]` is no mask."""


class ImageEntry(msgspec.Struct, frozen=True):
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


class CaptionEntry(msgspec.Struct, frozen=True):
    """A row of `annotations` of a captions file; id is None if the record has none."""

    id: int | None
    image_id: int
    caption: str


class SegmentEntry(msgspec.Struct, frozen=True):
    """An entry of `segments_info`."""

    id: int
    category_id: int
    area: int
    bbox: tuple[float, float, float, float]
    iscrowd: int


class PanopticEntry(msgspec.Struct, frozen=True):
    """A row of `annotations` of a panoptic file."""

    image_id: int
    file_name: str
    segments_info: tuple[SegmentEntry, ...]


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of a document as JSON; the id is None if ids are not those of the source."""

    id: int | None
    json: bytes


COCO_KEYS: dict[Axis, tuple[str, ...]] = {
    "image": ImageEntry.__struct_fields__,
    "object": InstanceRow.__struct_fields__,
}
"""Keys of rows that fields cannot have."""


class RecordRows(msgspec.Struct, frozen=True):
    """Contents of a record.

    Attributes:
        image_fields: Open fields of the image by path; without missing ones.
        keypoints: Rows of the objects whose category has keypoints.
        class_name: Class of an image with one class.
        line: Line of the image in the list of its split, in formats with such a list.
        objects: Number of objects in label files.
        lost, notes: Counts of contents that the format cannot store, or stores differently.
    """

    image: ImageEntry
    image_fields: dict[str, Any] = {}
    instances: tuple[Row, ...] = ()
    keypoints: tuple[Row, ...] = ()
    captions: tuple[CaptionEntry, ...] = ()
    panoptic: PanopticEntry | None = None
    class_name: str | None = None
    line: str = ""
    objects: int = 0
    lost: dict[str, int] = {}
    notes: dict[str, int] = {}


Extracted = tuple[RecordRows, tuple[ExtractedFile, ...], list[tuple[str, str]]]
"""Rows of a record; its files, the image first; reason and detail of each error. Everything else was extracted."""


class RowExtractor:
    """Extractor of the records of one split.

    Args:
        table: Features of the records.
        labels: Classes of the data set.
    """

    def __init__(self, table: FeatureTable, labels: LabelMap, split: str):
        self._parts = table.parts
        self._has_keypoints = Part.KEYPOINTS in table.parts
        self._fields = field_columns(table)
        self._categories = {category.id: category for category in labels.categories}
        self._segments = labels.segments
        # A data set of maps alone gets no JSON with names of images, so the names need not repeat their folder.
        self._own_folder = f"images/{split}/" if has_maps_only(table, labels) else ""
        self._map_folders = MAPS | ({"semantic.png": PAIRED_MASKS} if labels.has_pixel_ids else {})
        self._keypoints = labels.keypoints
        self._split = split

    def __call__(self, values: dict[str, Any]) -> Extracted:
        """Return rows and files of values that `read_record` returned.

        Raises:
            UnusableRecordError: The image has no usable name, no id, or no size.
        """
        faults: list[tuple[str, str]] = []
        record, image = self.read_image(values, faults)
        name = image.file_name.removeprefix(self._own_folder)
        data, source = read_image_file(values, Use.LINK, Use.WITHOUT_EXIF)  # COCO's readers ignore EXIF
        path = extraction_path(f"images/{self._split}", name)
        image_file = ExtractedFile(path, data, source.file if source else None)
        instances = list(self._instances(record, image, faults))
        fields = [nest_fields("object", own) for own in self.object_fields(record, len(instances))]
        files = [image_file, *self._maps(values, name)]
        panoptic = self._panoptic(values, image, faults)
        if panoptic:
            files.append(ExtractedFile(panoptic_path(self._split, panoptic.file_name), values["panoptic.png"]))
        rows = RecordRows(
            image,
            self.image_fields(record),
            tuple(
                _encode_instance(msgspec.structs.replace(instance, num_keypoints=_UNSET, keypoints=_UNSET), own)
                for instance, own in zip(instances, fields, strict=True)
            ),
            tuple(
                _encode_instance(instance, own)
                for instance, own in zip(instances, fields, strict=True)
                if instance.keypoints is not _UNSET
            ),
            tuple(self._captions(values, image.id)),
            panoptic,
            decode_class_name(values),
        )
        return rows, tuple(files), faults

    def read_image(self, values: dict[str, Any], faults: list[tuple[str, str]]) -> tuple[RecordView, ImageEntry]:
        """Return the record with its size, and its image row.

        Raises:
            UnusableRecordError: The image has no usable name, no id, or no size.
        """
        file_name = decode_text(values["image.file_name"], "the image's file name")
        extraction_path(self._split, file_name)
        width, height = _read_image_size(values, faults)
        record = RecordView(values, (width, height))
        try:
            image_id = record.image_id
        except ValueError as fault:
            raise UnusableRecordError("schema", str(fault)) from fault
        lvis = ("image.neg_category_ids", "image.not_exhaustive_category_ids") if Part.LVIS in self._parts else ()
        return record, ImageEntry(
            image_id, file_name, width, height, *(tuple(values[source].tolist()) for source in lvis)
        )

    def _instances(self, record: RecordView, image: ImageEntry, faults: list[tuple[str, str]]) -> Iterator[InstanceRow]:
        values, ids = record.values, record.column("objects.id")
        exact = values.get("objects.area_whole")
        areas = [shortest_decimal(area) for area in values.get("objects.area", ())] if exact is None else exact.tolist()
        columns = zip(
            ids,
            record.category_ids,
            record.boxes_xywh_px(),
            areas,
            record.column("objects.is_crowd") or [0] * len(ids),
            yield_segmentations(record, faults) if ids else (),
            record.keypoints(len(ids), self._keypoints) if self._has_keypoints else [None] * len(ids),
            strict=True,
        )
        for id_, category_id, box, area, is_crowd, mask, keypoints in columns:
            category = self._categories.get(category_id)
            if category is None:
                faults.append(("class", f"annotation {id_}: category id {category_id} is not in the manifest"))
            row = InstanceRow(id_, image.id, category_id, box, area, is_crowd, mask)
            if keypoints is not None and category and category.keypoints:
                own = keypoints[: len(category.keypoints)]
                number = int((keypoints[:, 2] > 0).sum())
                xyv = keypoints_px(own, image.width, image.height)
                row = msgspec.structs.replace(row, num_keypoints=number, keypoints=xyv)
            yield row

    def image_fields(self, record: RecordView) -> dict[str, Any]:
        """Return the open fields of the image by path, as in the source; without missing ones."""
        by_path = {column.path: record.field(column)[0] for column in self._fields if column.axis == "image"}
        return {path: value for path, value in by_path.items() if value is not None}

    def object_fields(self, record: RecordView, objects: int) -> list[dict[str, Any]]:
        """Return the open fields of each object by path, as in the source; without missing ones."""
        by_path = {column.path: record.field(column) for column in self._fields if column.axis == "object"}
        return [
            {path: column[row] for path, column in by_path.items() if column[row] is not None} for row in range(objects)
        ]

    def _captions(self, values: dict[str, Any], image_id: int) -> Iterator[CaptionEntry]:
        captions = values["captions.text"].tolist() if Part.CAPTIONS in self._parts else []
        ids = values["captions.id"].tolist() if "captions.id" in values else [None] * len(captions)
        for id_, caption in zip(ids, captions, strict=True):
            yield CaptionEntry(id_, image_id, decode_text(caption, "a caption"))

    def _maps(self, values: dict[str, Any], file_name: str) -> Iterator[ExtractedFile]:
        for source, folder in self._map_folders.items():
            if source in values:
                stem, _ = posixpath.splitext(extraction_path(f"{folder}/{self._split}", file_name))
                yield ExtractedFile(f"{stem}.png", values[source])

    def _panoptic(
        self, values: dict[str, Any], image: ImageEntry, faults: list[tuple[str, str]]
    ) -> PanopticEntry | None:
        """Return the panoptic row; None without a usable one."""
        if not values.get("panoptic.file_name"):
            return None
        try:
            file_name = decode_text(values["panoptic.file_name"], "the panoptic PNG's file name")
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
            (exact_edges_px(edges, image.width, image.height) for edges in values["segments.bbox_yxyx"].reshape(-1, 4)),
            values["segments.is_crowd"].tolist(),
            strict=True,
        )
        return PanopticEntry(image.id, file_name, tuple(SegmentEntry(*column) for column in columns))


def has_maps_only(table: FeatureTable, labels: LabelMap) -> bool:
    """Return True if the labels of images are a semantic mask or a depth map, without objects."""
    is_paired = (labels.has_pixel_ids and Part.SEMANTIC in table.parts) or Part.DEPTH in table.parts
    return is_paired and not labels.categories


def panoptic_path(split: str, file_name: str) -> str:
    """Return the path of a panoptic PNG; raise UnusableRecordError if its name cannot be used."""
    return extraction_path(f"panoptic/{split}", file_name)


def keypoints_px(keypoints: np.ndarray, width: int, height: int) -> tuple[float, ...]:
    """Return x and y in pixels and visibility of each keypoint; 0, 0, 0 if it is not labelled.

    Args:
        keypoints: float32 [K, 3]: x and y as fractions, and visibility.

    >>> keypoints_px(np.float32([[0.25, 0.5, 2], [0.9, 0.9, 0]]), 40, 30)
    (10.0, 15.0, 2, 0.0, 0.0, 0)
    """
    numbers: list[float] = []
    for x, y, seen in keypoints:
        numbers += [shortest_px(x, width), shortest_px(y, height), int(seen)] if seen else [0.0, 0.0, 0]
    return tuple(numbers)


def nest_fields(axis: Axis, fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields nested for a row of COCO's JSON, without those that `name_clashes` returns."""
    return {name: value for name, value in nest_values(fields).items() if name not in COCO_KEYS[axis]}


def name_clashes(columns: Iterable[FieldColumn], label_columns: Collection[str] = ()) -> list[str]:
    """Return the fields that have the name of another value.

    Args:
        label_columns: Columns of the table of images with one class; empty for COCO's JSON.
    """
    if label_columns:
        return [column.shown for column in columns if column.path in label_columns]
    return [column.shown for column in columns if column.path.partition(".")[0] in COCO_KEYS[column.axis]]


def _encode_instance(instance: InstanceRow, fields: dict[str, Any]) -> Row:
    row = msgspec.to_builtins(instance) | fields if fields else instance
    return Row(instance.id, msgspec.json.encode(row))


def decode_class_name(values: dict[str, Any]) -> str | None:
    """Return the class name of an image with one class."""
    return decode_text(values["image.class_name"], "the class") if "image.class_name" in values else None


def _read_image_size(values: dict[str, Any], faults: list[tuple[str, str]]) -> tuple[int, int]:
    """Return width and height in pixels: those in the record, which scale its boxes, or else the image's."""
    stored = tuple(values[f"image.{side}"].item() for side in ("width", "height") if f"image.{side}" in values)
    if "image.encoded" not in values:
        return stored
    try:
        with open_image(values["image.encoded"], image_kind(values["image.encoded"]) or "png") as image:
            image_size = image.size
    except Exception as error:  # Pillow's decoders raise nearly anything on damaged bytes
        fault = "image_undecodable", f"its header cannot be read ({describe_pillow_error(error)})"
        if not stored or min(stored) < 1:
            raise UnusableRecordError(*fault) from error
        faults.append(fault)
        return stored
    if stored and stored != image_size:
        detail = f"the image is {image_size[0]}x{image_size[1]}, the record says {stored[0]}x{stored[1]}"
        if min(stored) < 1:
            raise UnusableRecordError("image_size", detail)
        faults.append(("image_size", detail))
    return stored or image_size


def read_image_file(values: dict[str, Any], *links: Use) -> tuple[bytes, ImageSource | None]:
    """Return the bytes of the image, or the file to link in their place.

    Args:
        links: Uses of files that are linked.

    Raises:
        UnusableRecordError: The file is gone, was replaced, or cannot be read.
    """
    if "image.encoded" in values:
        return values["image.encoded"], None
    source = decode_source(values["image.file"])
    return (b"", source) if source.use in links else (read_source(source.file), None)


def yield_segmentations(
    record: RecordView, faults: list[tuple[str, str]]
) -> Iterator[Segmentation | msgspec.UnsetType]:
    """Yield each object's mask: its polygons if the record has them; `[]` if unusable or empty."""
    ids, (width, height) = record.column("objects.id"), record.size
    source, polygons = record.mask_source, record.column("objects.polygons") or [b""] * len(ids)
    masks: Iterator[Any] = repeat(None)
    if source:
        encoded = [mask for mask, text in zip(record.values[source], polygons, strict=True) if not text]
        masks = RecordView({source: encoded}, record.size).masks()
    for id_, text in zip(ids, polygons, strict=True):
        pixels = None if text else next(masks)
        if text:
            yield list_polygons(text)
        elif pixels is None:
            yield _UNSET
        elif isinstance(pixels, np.ndarray) and pixels.shape == (height, width):
            # pycocotools' encode writes out of bounds for masks with few runs and 2 ** 24 pixels.
            rle = mask_rle(run_lengths(pixels != 0)).decode()
            yield RunLengths(rle, (height, width)) if pixels.any() else []
        else:
            fault = str(pixels)
            if isinstance(pixels, np.ndarray):
                fault = f"{pixels.shape[1]}x{pixels.shape[0]} pixels; its image is {width}x{height}"
            faults.append(("mask", f"annotation {id_}: {fault}"))
            yield []
