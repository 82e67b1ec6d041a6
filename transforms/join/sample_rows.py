"""Convert Samples to rows of Blocks."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from recordmill.schemas.block import Block, ragged_bytes, ragged_texts, starts_of
from recordmill.schemas.inputs.annotations import NO_LABELS, Annotation, Caption, ImageLabels
from recordmill.schemas.inputs.boxes import LARGEST, box_fault, keypoints_fault
from recordmill.schemas.inputs.images import MAX_PIXELS
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.inputs.splits import name_id
from recordmill.schemas.names import name_key
from recordmill.schemas.rejects import Reason, Rejected, UnusableError
from recordmill.schemas.sizes import shorten
from recordmill.transforms.blocks.image_tasks import label_column, object_columns

_INT64 = 1 << 63


def id_of(sample: Sample) -> int:
    return name_id(name_key(sample.file_name)) if sample.image_id is None else sample.image_id


def image_order_of(sample: Sample) -> tuple[int, int, int]:
    """Return the id of the image that a Sample is or is a tile of, and top and left of the tile."""
    return (sample.tile.id, sample.tile.y, sample.tile.x) if sample.tile else (id_of(sample), 0, 0)


def size_fault(sample: Sample) -> str:
    """Return the fault of a stated image size that no readable image has; "" for a usable or unknown size."""
    width, height = sample.width or 0, sample.height or 0
    if min(width, height) >= 0 and max(width, height, width * height) <= MAX_PIXELS:
        return ""
    return f"{shorten(str(width), 20)}x{shorten(str(height), 20)} pixels; the limit is {MAX_PIXELS:,}"


class CategoryFinder:
    """Finder of category ids of objects, by name and id, or only by name if a single category has it.

    Args:
        labels: All classes; None if they are not known yet, so that an id is the `name_id` of the category's name.
    """

    def __init__(self, labels: LabelMap | None):
        self._makes_ids = labels is None
        categories = labels.categories if labels else ()
        self._keypoints = {category.id: len(category.keypoints) for category in categories}
        self._numbers = Counter(category.name for category in categories)
        self._by_both = {(category.name, category.id): category.id for category in categories}
        self.by_name = {name: id_ for (name, id_) in self._by_both if self._numbers[name] == 1}
        self._known: dict[tuple[str, int | None], int] = {}

    @property
    def knows_names(self) -> bool:
        """True if the classes are known, so that another name is a fault."""
        return not self._makes_ids

    def find(self, given: SampleObject) -> int:
        """Return the category id of an object. Raise UnusableError unless exactly one category matches."""
        name, given_id = key = given.category, given.category_id
        if (category_id := self._known.get(key)) is not None:
            return category_id
        category_id = self._by_both.get((name, given_id)) if given_id is not None else None
        category_id = self.by_name.get(name) if category_id is None else category_id
        if category_id is None and self._makes_ids:
            if not name.strip():
                raise UnusableError(Reason.UNKNOWN_CATEGORY, "no class")
            category_id = self.by_name[name] = name_id(name)
        if category_id is None:
            is_known = name in self._numbers
            detail = (
                "is ambiguous: several categories have this name. Set category_id" if is_known else "is not a label"
            )
            raise UnusableError(Reason.UNKNOWN_CATEGORY, f"category {name!r} {detail}")
        self._known[key] = category_id
        return category_id

    def keypoints(self, given: SampleObject, category_id: int) -> int:
        """Return the number of keypoints that the object should have."""
        return len(given.keypoints) // 3 if self._makes_ids else self._keypoints[category_id]


def usable_objects(
    sample: Sample,
    finder: CategoryFinder,
    reject: Callable[[Rejected], None],
    place: Callable[[int], str] | None = None,
) -> list[tuple[Annotation, SampleObject]]:
    """Return a Sample's usable objects, checked and as they were given; pass rejects to `reject`.

    Args:
        place: Returns the beginning of the detail of an object, by its number; None to name the Sample.
    """
    objects, name = [], name_key(sample.file_name)
    for number, given in enumerate(sample.objects):
        try:
            objects.append((_check_object(name, number, given, finder), given))
        except UnusableError as fault:
            detail = (place(number) if place else f"Sample {sample.file_name!r}: ") + fault.detail
            id_ = given.id if given.id is None or -_INT64 <= given.id < _INT64 else None
            rejected = Rejected("annotation", id_, fault.reason, detail, id_of(sample))
            reject(rejected.named(sample.file_name))
    return objects


def sample_rows(
    samples: Sequence[Sample],
    objects: Sequence[Sequence[tuple[Annotation, SampleObject]]],
    is_image_class: bool = False,
) -> Block:
    """Return Samples as the images of a Block, without the columns of splits and files.

    Args:
        objects: See `usable_objects`, of each Sample.
        is_image_class: True if each image has one class.
    """
    block = Block(
        image_id=np.array(list(map(id_of, samples)), np.int64),
        file_name=ragged_texts([sample.file_name for sample in samples]),
        image_size_px=np.array([(sample.width or 0, sample.height or 0) for sample in samples], np.int64).reshape(
            -1, 2
        ),
        class_name=ragged_texts([sample.class_name or "" for sample in samples]) if is_image_class else None,
        labels=None if is_image_class else label_column(list(map(_labels, samples))),
    )
    if any(sample.fields for sample in samples):
        block = block.replace(image_fields=ragged_bytes([_field_bytes(sample.fields) for sample in samples]))
    if any(sample.ignores_exif for sample in samples):
        block = block.replace(ignores_exif=np.array([sample.ignores_exif for sample in samples]))
    block = block.replace(**_tile_columns(samples))
    annotations = [annotation for pairs in objects for annotation, _ in pairs]
    if not annotations:
        return block
    columns = object_columns(annotations)
    if block.tile_xy_px is not None:
        columns["whole_object_id"] = columns["object_id"]
    return block.replace(first_object_of_image=starts_of(np.array(list(map(len, objects)), np.int64)), **columns)


def _tile_columns(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return the columns of Samples that are tiles; none without any."""
    tiles = [sample.tile for sample in samples]
    if not any(tiles):
        return {}
    orders = [image_order_of(sample) if sample.tile else None for sample in samples]
    firsts: dict[int, tuple[int, int, int]] = {}
    for order in sorted(filter(None, orders)):
        firsts.setdefault(order[0], order)
    return {
        "tile_xy_px": np.array([(tile.x, tile.y) if tile else (-1, -1) for tile in tiles], np.int64),
        "whole_size_px": np.array([(tile.width, tile.height) if tile else (0, 0) for tile in tiles], np.int64),
        "whole_name": ragged_texts([tile.name if tile else "" for tile in tiles]),
        "whole_id": np.array([tile.id if tile else 0 for tile in tiles], np.int64),
        "is_first_tile": np.array([order is not None and firsts[order[0]] == order for order in orders]),
        "is_measured": np.array([bool(tile and tile.is_measured) for tile in tiles]),
    }


def _check_object(name: str, number: int, given: SampleObject, finder: CategoryFinder) -> Annotation:
    """Return the object `number` of an image, whose `name_key` is `name`. Raise UnusableError for an unusable one."""
    category_id, box = finder.find(given), given.box
    if fault := box_fault(box):
        raise UnusableError(Reason.MALFORMED_BOX, f"{fault}: {box}")
    if given.keypoints:
        expected = finder.keypoints(given, category_id)
        if fault := keypoints_fault(given.keypoints, expected):
            detail = f"category {given.category!r} has {expected} keypoints: {fault}"
            raise UnusableError(Reason.MALFORMED_KEYPOINTS, detail)
    if given.corners and not (len(given.corners) == 8 and all(abs(number) <= LARGEST for number in given.corners)):
        raise UnusableError(Reason.MALFORMED_BOX, f"corners are not four finite points: {given.corners}")
    id_ = name_id(f"{name} object {number}") if given.id is None else given.id
    area = box[2] * box[3] if given.area_px2 is None else given.area_px2
    if not (-LARGEST <= area <= LARGEST and -_INT64 <= id_ < _INT64):
        raise UnusableError(Reason.MALFORMED_ANNOTATION, f"area {area}, id {id_}")
    fields = _field_bytes(given.fields)
    mask, is_fraction = given.segmentation.encode(), given.frame == "fraction"
    return Annotation(
        id_, category_id, box, area, given.is_crowd, mask, given.keypoints, given.corners, is_fraction, fields
    )


def _field_bytes(fields: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(fields) if fields else b""


def _labels(sample: Sample) -> ImageLabels:
    if not (sample.captions or sample.tags or sample.stuff or sample.panoptic or sample.neg_category_ids) and (
        not sample.not_exhaustive_category_ids
    ):
        return NO_LABELS
    return ImageLabels(
        tuple(Caption(number, text) for number, text in enumerate(sample.captions)),
        sample.stuff,
        () if sample.panoptic is None else (sample.panoptic,),
        sample.neg_category_ids,
        sample.not_exhaustive_category_ids,
        tags=sample.tags,
    )
