"""Labels that are observed in Samples: kinds of annotations, and classes."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from recordmill.schemas.errors import CategoryError, ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category, unnamed_keypoints
from recordmill.schemas.inputs.labels import LabelMap, name_warnings
from recordmill.schemas.inputs.sample import Sample
from recordmill.transforms.join.choose_categories import class_labels

NEGATIVE_AREA = "negative area"
_AREAS = "some objects have a negative area, which records store. Leave it out, and records have the area of the box"
OPTIONAL_KINDS = ("keypoints", "captions", "stuff", "panoptic", "masks")


class ObservedLabel(NamedTuple):
    """Kind of annotation, or class, of some Samples.

    Attributes:
        kind: An option that stores it, `part` that no option stores, `class` of images, `category` of objects, or
            `negative area` of an object.
        name: Name of the class or part; empty for other kinds.
        category_id: -1 if the object gives none.
        keypoints: Number of keypoints of the object.
    """

    kind: str
    name: str = ""
    category_id: int = -1
    keypoints: int = 0


def find_negative_areas(sample: Sample) -> set[ObservedLabel]:
    return {ObservedLabel(NEGATIVE_AREA) for object_ in sample.objects if (object_.area_px2 or 0) < 0}


def choose_labels(labels: Iterable[ObservedLabel], is_image_class: bool) -> LabelMap:
    """Return the classes of Samples. Ids are those of the Samples if names and ids match one to one; otherwise classes
    are numbered from 1 in the order of names.

    Args:
        is_image_class: Records have the class of the image, not those of its objects.

    Raises:
        CategoryError: Objects of one class have different numbers of keypoints.
        ConfigError: The classes of segments are unknown.

    >>> observed = [ObservedLabel("category", "dog", 18), ObservedLabel("category", "cat", 17)]
    >>> labels = choose_labels(observed, is_image_class=False)
    >>> [(category.id, category.name) for category in labels.categories]
    [(17, 'cat'), (18, 'dog')]
    """
    labels = list(labels)
    if any(label.kind in ("stuff", "panoptic") for label in labels):
        raise ConfigError(
            "Samples have segments, whose classes have no names. Give labels=read.labels of read = p | ReadDataset(…)"
        )
    if is_image_class:
        return class_labels((label.name for label in labels if label.kind == "class"), ())
    pairs = {(label.name, label.category_id) for label in labels if label.kind == "category"}
    names = sorted({name for name, _ in pairs})
    ids = {id_ for _, id_ in pairs}
    id_by_name = dict(pairs) if len(pairs) == len(names) == len(ids) and -1 not in ids else {}
    categories = []
    for number, name in enumerate(names, 1):
        points = {label.keypoints for label in labels if label.name == name and label.keypoints}
        if len(points) > 1:
            raise CategoryError(f"objects of category {name!r} have {' and '.join(map(str, sorted(points)))} keypoints")
        categories.append(Category(id_by_name.get(name, number), name, keypoints=unnamed_keypoints(sum(points))))
    return LabelMap(tuple(sorted(categories, key=lambda category: category.id)))


def label_warnings(labels: Iterable[ObservedLabel], classes: LabelMap) -> Iterator[str]:
    """Yield warnings about names of classes, and about areas."""
    yield from name_warnings(classes)
    yield from [_AREAS] if ObservedLabel(NEGATIVE_AREA) in labels else ()


def observed_parts(labels: Iterable[ObservedLabel]) -> tuple[Part, ...]:
    """Return the parts of records that depend on Samples and not on an option."""
    return tuple(Part(label.name) for label in labels if label.kind == "part")
