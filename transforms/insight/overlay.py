"""Overlays of images: the annotations of a record. A class has the same colour in all images of a data set."""

import colorsys
import zlib
from collections.abc import Iterator
from itertools import chain, islice, repeat, zip_longest
from typing import NamedTuple

import numpy as np

from recordmill.schemas.dataset.manifest import label_by_id
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import SEMANTIC_IGNORE, SEMANTIC_THING, THINGS, LabelMap, is_background
from recordmill.schemas.rejects import UnusableError
from recordmill.transforms.dataset.record_view import RecordView

Colour = tuple[int, int, int]
"""Red, green and blue, 0..255."""

_GOLDEN_ANGLE = 0.381966
"""Golden angle, as a fraction of a turn: consecutive hues are as far apart as possible, for any number of them."""
_TONES = ((0.9, 1.0), (0.5, 1.0), (0.95, 0.68), (0.55, 0.8))
"""Saturation and value of consecutive classes. The eye distinguishes only about twenty hues. Four tones, because hues
nearly repeat after 13, 21, 34, 55 classes."""
_BRIGHT = 0.18
"""Luminance above which black text is easier to read than white text."""


def class_colour(index: int) -> Colour:
    """Return the colour of a class by its index.

    >>> class_colour(0), class_colour(1) == class_colour(2)
    ((255, 25, 25), False)
    """
    red, green, blue = colorsys.hsv_to_rgb(index * _GOLDEN_ANGLE % 1, *_TONES[index % len(_TONES)])
    return round(255 * red), round(255 * green), round(255 * blue)


def name_colour(name: str) -> Colour:
    """Return the colour of a class without index, by name."""
    return class_colour(zlib.crc32(name.encode()) % 4096)


def text_colour(colour: Colour) -> Colour:
    """Return black or white: the text colour that is easier to read on `colour`.

    >>> text_colour((255, 255, 0)), text_colour((0, 0, 160))
    ((0, 0, 0), (255, 255, 255))
    """
    red, green, blue = ((channel / 255) ** 2.2 for channel in colour)
    is_bright = 0.2126 * red + 0.7152 * green + 0.0722 * blue > _BRIGHT
    return (0, 0, 0) if is_bright else (255, 255, 255)


class Shape(NamedTuple):
    """An object, or a region of a map.

    Attributes:
        name: Name of the class; empty without a class.
        box_yxyx_frac: ymin, xmin, ymax, xmax as fractions of the image's height and width.
        mask: bool [height, width], with the aspect ratio of the image, at any resolution.
        keypoints: (x, y, visibility) of each: fractions; 0 not labelled, 1 hidden, 2 visible.
        skeleton: Pairs of keypoints to join by a line, counted from 1 as in COCO.
    """

    name: str
    colour: Colour
    box_yxyx_frac: tuple[float, float, float, float] | None = None
    mask: np.ndarray | None = None
    keypoints: tuple[tuple[float, float, int], ...] = ()
    skeleton: tuple[tuple[int, int], ...] = ()
    is_crowd: bool = False


class Layer(NamedTuple):
    """Overlay of one image copy: `objects`, `panoptic`, `semantic` or `depth`.

    Attributes:
        depth_m: Depth of each pixel in metres, float32 [height, width], 0 unknown; drawn in place of the image.
    """

    title: str
    shapes: tuple[Shape, ...] = ()
    depth_m: np.ndarray | None = None


class Overlay(NamedTuple):
    """Drawing of a record.

    Attributes:
        layers: Layers, at least one. Each is drawn on a copy of the image, side by side.
        lines: Texts below: file name, class, captions.
        faults: Messages about annotations that cannot be drawn.
    """

    layers: tuple[Layer, ...]
    lines: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


class OverlayReader:
    """Function from a data set's record to its Overlay.

    Args:
        labels: Classes of the data set. If empty, classes have the names in the record, else their numbers.
        table: Features of the records.
    """

    def __init__(self, labels: LabelMap, table: FeatureTable):
        self._labels = labels
        ordered = dict.fromkeys(category.id for category in (*labels.categories, *labels.segments))
        self._colours = {id_: number for number, id_ in enumerate(ordered)}
        by_id = {category.id: category for category in labels.segments}
        self._by_value = {value: by_id[id_] for id_, value in labels.semantic_by_id().items()}
        if self._by_value and not labels.has_pixel_ids:
            self._by_value.pop(SEMANTIC_THING, None)
        self._metres_per_unit = table.depth_scale or 1.0
        by_label = label_by_id(labels, table)
        self._by_label = {by_label[category.id]: category for category in labels.all}
        self._by_number: dict[str, dict[int, Category]] = {
            "objects.class_index": dict(enumerate(labels.categories)),
            "objects.category_id": {category.id: category for category in labels.categories},
            "objects.label": self._by_label,
        }

    def __call__(self, record: RecordView) -> Overlay:
        """Return the overlay of a record. The view must have the size of the image."""
        faults: list[str] = []
        layers = [Layer("objects", tuple(self._objects(record, faults)))]
        maps = {"panoptic": self._panoptic(record, faults), "semantic": self._semantic(record, faults)}
        layers += [Layer(title, shapes) for title, regions in maps.items() if (shapes := tuple(regions))]
        if (units := _read_map(record, "depth.png", faults)) is not None:
            layers.append(Layer("depth", depth_m=units.astype(np.float32) * np.float32(self._metres_per_unit)))
        layers_with_shapes = [layer for layer in layers if layer.shapes or layer.depth_m is not None] or layers[:1]
        return Overlay(tuple(layers_with_shapes), tuple(self._lines(record)), tuple(faults))

    def _objects(self, record: RecordView, faults: list[str]) -> Iterator[Shape]:
        boxes = record.boxes_yxyx_frac.tolist()
        masks = list(_read_masks(record, faults))
        objects = max(len(boxes), len(masks))
        columns = zip_longest(
            boxes, masks, _read_keypoints(record, objects), record.column("objects.is_crowd")[:objects]
        )
        for number, (name, colour, category) in enumerate(self._classes(record, objects)):
            box, mask, keypoints, is_crowd = next(columns)
            if box and not np.isfinite(box).all():
                faults.append(f"the box of object {number} is not finite: {box}")
                box = None
            skeleton = category.skeleton if category else ()
            yield Shape(name, colour, box and tuple(box), mask, keypoints or (), skeleton, bool(is_crowd))

    def _classes(self, record: RecordView, objects: int) -> Iterator[tuple[str, Colour, Category | None]]:
        """Yield name and colour of each object's class, and its category; None if the class is unknown."""
        sources = ("objects.category_name", *self._by_number)
        columns = (chain(record.column(source), repeat(None)) for source in sources)  # lists may be too short
        for text, *values in islice(zip(*columns, strict=True), objects):
            known = zip(values, self._by_number.values(), strict=True)
            numbers = [(value, by_number.get(value)) for value, by_number in known if value is not None]
            category = next((category for _, category in numbers if category), None)
            name, colour = self._name_and_colour(category, numbers[0][0]) if numbers else ("", name_colour(""))
            if text:
                name = decode_text(text)
                colour = colour if numbers else name_colour(name)
            yield name, colour, category

    def _panoptic(self, record: RecordView, faults: list[str]) -> Iterator[Shape]:
        if (ids := _read_map(record, "panoptic.png", faults)) is not None and "segments.id" in record.values:
            segments = dict(enumerate(self._labels.segments))
            classes = dict(zip(record.column("segments.id"), record.column("segments.class_index"), strict=False))
            for id_ in np.unique(ids).tolist():
                if id_ in classes:
                    segment = segments.get(classes[id_])
                    yield Shape(*self._name_and_colour(segment, classes[id_]), mask=ids == id_)
        elif (labels := _read_map(record, "panoptic.category_png", faults)) is not None:
            instances = _read_map(record, "panoptic.instance_png", faults)
            if instances is None or instances.shape != labels.shape:
                instances = np.zeros_like(labels)
            both = labels * (1 << 16) + instances
            for value in np.unique(both[labels > 0]).tolist():
                label = value >> 16
                yield Shape(*self._name_and_colour(self._by_label.get(label), label), mask=both == value)

    def _semantic(self, record: RecordView, faults: list[str]) -> Iterator[Shape]:
        """Yield the regions of the classes of a semantic mask; the background keeps the image's colours."""
        pixels = _read_map(record, "semantic.png", faults)
        if pixels is None:
            return
        for value in np.unique(pixels).tolist():
            category = self._by_value.get(value)
            if value == SEMANTIC_IGNORE or (value == 0 and (category is None or is_background(category))):
                continue
            name, colour = self._name_and_colour(category, value)
            if category is None and value == SEMANTIC_THING and self._by_value:
                name, colour = THINGS, (255, 255, 255)
            yield Shape(name, colour, mask=pixels == value)

    def _name_and_colour(self, category: Category | None, number: int) -> tuple[str, Colour]:
        if category is None:
            return f"class {number}", class_colour(number)
        return category.name, class_colour(self._colours[category.id])

    def _lines(self, record: RecordView) -> Iterator[str]:
        """Yield the texts of a record: file name, class, captions."""
        texts = (decode_text(record.values.get(source, b"")) for source in ("image.file_name", "image.id"))
        yield from filter(None, (next(filter(None, texts), ""), self.image_class_name(record)))
        yield from (decode_text(caption) for caption in record.values.get("captions.text", ()))

    def image_class_name(self, record: RecordView) -> str:
        """Return the name of the image's class; empty if only objects have classes."""
        if name := record.values.get("image.class_name"):
            return decode_text(name)
        if (index := record.image_class) is None:
            return ""
        return self._name_and_colour(self._by_number["objects.class_index"].get(index), index)[0]

    def classes(self, record: RecordView) -> set[str]:
        """Return the names of all classes in a record: of the image, its objects and its maps."""
        objects = max(len(record.column(source)) for source in ("objects.category_name", *self._by_number))
        names = {name for name, _, _ in self._classes(record, objects)} | {self.image_class_name(record)}
        maps = (*self._panoptic(record, []), *self._semantic(record, []))
        values = _read_map(record, "semantic.png", []) if 0 in self._by_value else None
        background = {self._by_value[0].name} if values is not None and not values.all() else set[str]()
        return ({*names, *(shape.name for shape in maps)} - {"", THINGS}) | background


def decode_text(value: bytes) -> str:
    """Decode UTF-8. Invalid bytes are shown as escapes."""
    return value.decode(errors="backslashreplace")


def _read_masks(record: RecordView, faults: list[str]) -> Iterator[np.ndarray | None]:
    """Yield the mask of each object; None if it cannot be read, or is empty."""
    for number, mask in enumerate(record.masks()):
        if isinstance(mask, UnusableError):
            faults.append(f"the mask of object {number} cannot be drawn: {mask}")
        yield mask > 0 if isinstance(mask, np.ndarray) and mask.any() else None


def _read_keypoints(record: RecordView, objects: int) -> list[tuple[tuple[float, float, int], ...]]:
    """Return (x, y, visibility) of the keypoints of each object. x and y are fractions."""
    number = len(record.column("objects.keypoint_x"))
    try:
        points = record.keypoints(objects, number // max(objects, 1))
    except ValueError:  # the lists have inconsistent lengths
        return []
    return [tuple((x, y, int(seen)) for x, y, seen in object_points) for object_points in points.tolist()]


def _read_map(record: RecordView, source: str, faults: list[str]) -> np.ndarray | None:
    try:
        return record.map(source) if record.values.get(source) else None
    except UnusableError as fault:
        faults.append(f"{source} cannot be drawn: {fault}")
        return None
