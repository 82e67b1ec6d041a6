"""The values of a record become what is drawn of it."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from recordmill.schemas.annotations import Category
from recordmill.schemas.features import CLASS_OF_ROW, FeatureTable
from recordmill.schemas.labels import SEMANTIC_IGNORE, SEMANTIC_THING, LabelMap
from recordmill.schemas.manifest import label_by_id
from recordmill.schemas.rejects import UnusableError
from recordmill.transforms.draw.open_record_picture import open_record_picture
from recordmill.transforms.draw.overlay import Colour, Layer, Overlay, Shape, class_colour, name_colour
from recordmill.transforms.masks.bitmaps import bitmap
from recordmill.transforms.masks.decode_segmentation import decode_counts

Values = Mapping[str, Any]
"""Of a record, by their sources (`recordmill.schemas.layouts`), as `RecordParser` gives them; any of them may be
missing."""

_THINGS = "things"
"""All of them have one number in semantic maps."""


class OverlayReader:
    """Reads the overlays of one data set's records.

    Args:
        labels: the data set's classes; without any, classes have the names that the record has, or their numbers.
        table: what is in the records.
    """

    def __init__(self, labels: LabelMap, table: FeatureTable):
        self._labels = labels
        ordered = dict.fromkeys(category.id for category in (*labels.categories, *labels.segments))
        self._colours = {id_: number for number, id_ in enumerate(ordered)}
        by_label = label_by_id(labels, table)
        self._by_label = {by_label[category.id]: category for category in labels.all}
        self._by_number: dict[str, dict[int, Category]] = {
            "objects.class_index": dict(enumerate(labels.categories)),
            "objects.category_id": {category.id: category for category in labels.categories},
            "objects.label": self._by_label,
        }

    def __call__(self, values: Values, size: tuple[int, int]) -> Overlay:
        """What is drawn of a record.

        Args:
            size: width and height of its picture, in pixels.
        """
        faults: list[str] = []
        layers = [Layer("objects", tuple(self._objects(values, size, faults)))]
        regions = {"panoptic": self._panoptic(values, faults), "semantic": self._semantic(values, faults)}
        layers += [Layer(title, shapes) for title, found in regions.items() if (shapes := tuple(found))]
        kept = [layer for layer in layers if layer.shapes] or layers[:1]
        return Overlay(tuple(kept), tuple(self._lines(values)), tuple(faults))

    def _objects(self, values: Values, size: tuple[int, int], faults: list[str]) -> Iterator[Shape]:
        boxes = _boxes(values, size)
        masks = list(_masks(values, size, faults))
        keypoints = _keypoints(values, max(len(boxes), len(masks)))
        crowds = np.atleast_1d(values.get("objects.is_crowd", ()))
        for number in range(max(len(boxes), len(masks))):
            name, colour, category = self._class(values, number)
            box = None
            if number < len(boxes) and np.isfinite(boxes[number]).all():
                ymin, xmin, ymax, xmax = boxes[number].tolist()
                box = ymin, xmin, ymax, xmax
            elif number < len(boxes):
                faults.append(f"the box of object {number} is not finite: {boxes[number].tolist()}")
            yield Shape(
                name,
                colour,
                box,
                masks[number] if number < len(masks) else None,
                keypoints[number] if number < len(keypoints) else (),
                category.skeleton if category else (),
                bool(number < len(crowds) and crowds[number]),
            )

    def _class(self, values: Values, number: int) -> tuple[str, Colour, Category | None]:
        """Name and colour of an object's class, and its category where the data set's classes are known."""
        known = ((_at(values, source, number), by_number) for source, by_number in self._by_number.items())
        numbers = [(value, by_number.get(value)) for value, by_number in known if value is not None]
        category = next((category for _, category in numbers if category), None)
        if category:
            name, colour = category.name, class_colour(self._colours[category.id])
        elif numbers:
            name, colour = f"class {numbers[0][0]}", class_colour(numbers[0][0])
        else:
            name, colour = "", name_colour("")
        if text := _at(values, "objects.category_name", number):
            name = shown_text(text)
            colour = colour if numbers else name_colour(name)
        return name, colour, category

    def _panoptic(self, values: Values, faults: list[str]) -> Iterator[Shape]:
        if (ids := _map(values, "panoptic.png", faults)) is not None and "segments.id" in values:
            classes = dict(zip(values["segments.id"].tolist(), values["segments.class_index"].tolist(), strict=False))
            for id_ in np.unique(ids).tolist():
                if id_ in classes:
                    category = _nth(self._labels.segments, classes[id_])
                    yield self._region(category, classes[id_], ids == id_)
        elif (labels := _map(values, "panoptic.category_png", faults)) is not None:
            instances = _map(values, "panoptic.instance_png", faults)
            if instances is None or instances.shape != labels.shape:
                instances = np.zeros_like(labels)
            segments = labels * (1 << 16) + instances
            for segment in np.unique(segments[labels > 0]).tolist():
                label = segment >> 16
                yield self._region(self._by_label.get(label), label, segments == segment)

    def _semantic(self, values: Values, faults: list[str]) -> Iterator[Shape]:
        pixels = _map(values, "semantic.png", faults)
        if pixels is None:
            return
        by_value = {value: id_ for id_, value in self._labels.semantic_by_id().items() if value != SEMANTIC_THING}
        known = {category.id: category for category in self._labels.segments}
        for value in np.unique(pixels).tolist():
            if value == SEMANTIC_THING and by_value:
                yield Shape(_THINGS, (255, 255, 255), mask=pixels == value)
            elif value not in (0, SEMANTIC_IGNORE):
                yield self._region(known.get(by_value.get(value, -1)), value, pixels == value)

    def _region(self, category: Category | None, number: int, mask: np.ndarray) -> Shape:
        if category is None:
            return Shape(f"class {number}", class_colour(number), mask=mask)
        return Shape(category.name, class_colour(self._colours[category.id]), mask=mask)

    def _lines(self, values: Values) -> Iterator[str]:
        """The texts of a record: its file's name, its class, its captions."""
        if name := shown_text(values.get("image.file_name", b"")) or shown_text(values.get("image.id", b"")):
            yield name
        if class_name := self.class_of_image(values):
            yield class_name
        yield from (shown_text(caption) for caption in values.get("captions.text", ()))

    def class_of_image(self, values: Values) -> str:
        """The class of a record that has one as a whole; empty for any other."""
        if name := values.get("image.class_name"):
            return shown_text(name)
        source = next((source for source in values if source.startswith(CLASS_OF_ROW)), "image.class_index")
        if (index := _at(values, source, 0)) is None:
            return ""
        category = _nth(self._labels.categories, index)
        return category.name if category else f"class {index}"

    def classes(self, values: Values) -> set[str]:
        """The names of all classes in a record: of its objects, of itself, of its maps."""
        objects = max(len(_listed(values.get(source))) for source in ("objects.category_name", *self._by_number))
        names = {self._class(values, number)[0] for number in range(objects)} | {self.class_of_image(values)}
        maps = (*self._panoptic(values, []), *self._semantic(values, []))
        return {*names, *(shape.name for shape in maps)} - {"", _THINGS}


def shown_text(value: bytes) -> str:
    """UTF-8 as text; what is none of it stays to be seen."""
    return value.decode(errors="backslashreplace")


def _at(values: Values, source: str, number: int) -> Any:
    """The `number`-th value of a list; None where there is none."""
    listed = _listed(values.get(source))
    return listed[number] if number < len(listed) else None


def _listed(found: Any) -> list[Any]:
    if found is None:
        return []
    return found if isinstance(found, list) else np.atleast_1d(found).tolist()


def _nth(categories: tuple[Category, ...], index: int) -> Category | None:
    return categories[index] if 0 <= index < len(categories) else None


def _boxes(values: Values, size: tuple[int, int]) -> np.ndarray:
    """float [N, 4]: ymin, xmin, ymax, xmax as fractions, from whichever form the layout has."""
    if "objects.bbox_xywh_px" in values:
        x, y, width, height = _fours(values["objects.bbox_xywh_px"]).astype(float).T
        return np.column_stack((y / size[1], x / size[0], (y + height) / size[1], (x + width) / size[0]))
    if "objects.bbox_yxyx" in values:
        return _fours(values["objects.bbox_yxyx"])
    edges = [values.get(f"objects.{edge}", np.empty(0)) for edge in ("ymin", "xmin", "ymax", "xmax")]
    shortest = min(map(len, edges))
    return np.column_stack([edge[:shortest] for edge in edges])


def _fours(numbers: Any) -> np.ndarray:
    """[N, 4], as far as they go."""
    listed = np.asarray(numbers)
    return listed[: len(listed) // 4 * 4].reshape(-1, 4)


def _masks(values: Values, size: tuple[int, int], faults: list[str]) -> Iterator[np.ndarray | None]:
    """The mask of each object; None where it cannot be read, or is empty."""
    if "objects.mask_png" in values:
        for number, png in enumerate(values["objects.mask_png"]):
            pixels = _grey(png, f"the mask of object {number}", faults)
            yield pixels > 0 if pixels is not None and pixels.any() else None
        return
    for number, counts in enumerate(values.get("objects.mask_rle", ())):
        try:
            runs = decode_counts(counts, *size)
        except UnusableError as fault:
            faults.append(f"the mask of object {number} cannot be drawn: {fault}")
            yield None
            continue
        yield bitmap(runs, *size) if runs[1::2].any() else None


def _keypoints(values: Values, objects: int) -> list[tuple[tuple[float, float, int], ...]]:
    """x and y as fractions, and visibility, of the keypoints of each object."""
    x, y = (np.asarray(values.get(f"objects.keypoint_{axis}", ()), float) for axis in "xy")
    seen = np.asarray(values.get("objects.keypoint_visibility", np.full(len(x), 2)), int)
    if not objects or not len(x) or len({len(x), len(y), len(seen)}) > 1 or len(x) % objects:
        return []
    each = len(x) // objects
    points = list(zip(x.tolist(), y.tolist(), seen.tolist(), strict=True))
    return [tuple(points[number * each : (number + 1) * each]) for number in range(objects)]


def _map(values: Values, source: str, faults: list[str]) -> np.ndarray | None:
    """int64 [height, width] of a PNG of labels, or of ids as COCO's panoptic PNGs have them; None without one."""
    png = values.get(source)
    return _grey(png, source, faults) if png else None


def _grey(png: bytes, what: str, faults: list[str]) -> np.ndarray | None:
    try:
        image = open_record_picture(png)
    except UnusableError as fault:
        faults.append(f"{what} cannot be drawn: {fault}")
        return None
    pixels = np.asarray(image if image.mode in ("L", "P", "I;16") else image.convert("RGB")).astype(np.int64)
    return pixels if pixels.ndim == 2 else pixels @ np.array([1, 256, 65536])
