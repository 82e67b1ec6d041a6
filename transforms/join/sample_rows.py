"""Convert Samples to rows of Blocks."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from recordmill.schemas.block import Block, ragged_texts, starts_of
from recordmill.schemas.inputs.annotations import Annotation, Caption, ImageLabels
from recordmill.schemas.inputs.boxes import LARGEST, box_fault, keypoints_fault
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.inputs.splits import name_id
from recordmill.schemas.names import name_key
from recordmill.schemas.rejects import Reason, Rejected, UnusableError
from recordmill.transforms.blocks.image_tasks import label_column, object_columns

_INT64 = 1 << 63


def id_of(sample: Sample) -> int:
    return name_id(name_key(sample.file_name)) if sample.image_id is None else sample.image_id


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

    def find(self, each: SampleObject) -> int:
        """Return the category id of an object. Raise UnusableError unless exactly one category matches."""
        found = self._by_both.get((each.category, each.category_id)) if each.category_id is not None else None
        found = self.by_name.get(each.category) if found is None else found
        if found is None and self._makes_ids:
            if not each.category.strip():
                raise UnusableError(Reason.UNKNOWN_CATEGORY, "no class")
            found = self.by_name[each.category] = name_id(each.category)
        if found is None:
            is_known = each.category in self._numbers
            detail = "is that of several ids, and category_id is none of these" if is_known else "is not a label"
            raise UnusableError(Reason.UNKNOWN_CATEGORY, f"category {each.category!r} {detail}")
        return found

    def keypoints(self, each: SampleObject, category_id: int) -> int:
        """Return the number of keypoints that the object should have."""
        return len(each.keypoints) // 3 if self._makes_ids else self._keypoints[category_id]


class UsableObject(NamedTuple):
    """A checked object of a Sample."""

    annotation: Annotation
    source: SampleObject


def usable_objects(
    sample: Sample, finder: CategoryFinder, reject: Callable[[Rejected], None], places: Sequence[str] = ()
) -> list[UsableObject]:
    """Return a Sample's usable objects; pass rejects to `reject`.

    Args:
        places: beginning of the detail of each object; empty to name the Sample.
    """
    objects = []
    for number, each in enumerate(sample.objects):
        try:
            objects.append(UsableObject(_annotation(sample, number, each, finder), each))
        except UnusableError as fault:
            detail = (places[number] if places else f"Sample {sample.file_name!r}: ") + fault.detail
            reject(Rejected("annotation", each.id, fault.reason, detail, id_of(sample)))
    return objects


def sample_rows(samples: Sequence[Sample], objects: Sequence[Sequence[UsableObject]], of_image: bool = False) -> Block:
    """Return Samples as the images of a Block, without the columns of splits and files."""
    block = Block(
        image_id=np.array(list(map(id_of, samples)), np.int64),
        file_name=ragged_texts([sample.file_name for sample in samples]),
        image_size_px=np.array([(each.width or 0, each.height or 0) for each in samples], np.int64).reshape(-1, 2),
        class_name=ragged_texts([sample.class_name or "" for sample in samples]) if of_image else None,
        labels=None if of_image else label_column(list(map(_labels, samples))),
    )
    found = [each for of_sample in objects for each in of_sample]
    if not found:
        return block
    return block.replace(
        first_object_of_image=starts_of(np.array(list(map(len, objects)), np.int64)),
        **object_columns([each.annotation for each in found]),
    )


def _annotation(sample: Sample, number: int, each: SampleObject, finder: CategoryFinder) -> Annotation:
    category_id, box = finder.find(each), each.box
    if fault := box_fault(box):
        raise UnusableError(Reason.MALFORMED_BOX, f"{fault}: {box}")
    if each.keypoints:
        expected = finder.keypoints(each, category_id)
        if fault := keypoints_fault(each.keypoints, expected):
            detail = f"category {each.category!r} has {expected} keypoints: {fault}"
            raise UnusableError(Reason.MALFORMED_KEYPOINTS, detail)
    if len(each.corners) not in (0, 8) or not all(abs(number) <= LARGEST for number in each.corners):
        raise UnusableError(Reason.MALFORMED_BOX, f"corners are not four finite points: {each.corners}")
    if each.track_id is not None and not 0 <= each.track_id < _INT64:
        raise UnusableError(Reason.MALFORMED_ANNOTATION, f"track_id {each.track_id} is not 0 to 2**63 - 1")
    id_ = name_id(f"{name_key(sample.file_name)} object {number}") if each.id is None else each.id
    area = box[2] * box[3] if each.area_px2 is None else each.area_px2
    if not (abs(area) <= LARGEST and -_INT64 <= id_ < _INT64):
        raise UnusableError(Reason.MALFORMED_ANNOTATION, f"area {area}, id {id_}")
    more = each.difficult, each.truncated, each.view, -1 if each.track_id is None else each.track_id, each.corners
    segmentation, in_fractions = each.segmentation.encode(), each.frame == "fraction"
    return Annotation(id_, category_id, box, area, each.is_crowd, segmentation, each.keypoints, *more, in_fractions)


def _labels(sample: Sample) -> ImageLabels:
    return ImageLabels(
        tuple(Caption(number, text) for number, text in enumerate(sample.captions)),
        sample.stuff,
        () if sample.panoptic is None else (sample.panoptic,),
        sample.neg_category_ids,
        sample.not_exhaustive_category_ids,
        tags=sample.tags,
    )
