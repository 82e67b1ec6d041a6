"""Traits: kinds of annotations, and classes, of some images."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from recordmill.schemas.errors import CategoryError, ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category, unnamed_keypoints
from recordmill.schemas.inputs.labels import LabelMap, name_warnings
from recordmill.schemas.inputs.sample import Sample
from recordmill.transforms.join.choose_categories import class_labels

NEGATIVE_AREA = "negative area"
_AREAS = "some objects have a negative area, which records store: leave it out, and records have the area of the box"
OPTIONAL_KINDS = ("keypoints", "captions", "stuff", "panoptic", "masks")


class Trait(NamedTuple):
    """Kind of annotation, or class, of some Samples.

    Attributes:
        kind: An option that stores it, `part` that no option stores, `class` of images, `category` of objects, or
            `negative area` of an object.
        name: Name of the class or part; empty for others.
        category_id: -1 if the object gives none.
        keypoints: Number of keypoints of the object.
    """

    kind: str
    name: str = ""
    category_id: int = -1
    keypoints: int = 0


def area_traits(sample: Sample) -> set[Trait]:
    return {Trait(NEGATIVE_AREA) for each in sample.objects if (each.area_px2 or 0) < 0}


def choose_labels(traits: Iterable[Trait], of_image: bool) -> LabelMap:
    """Return the classes of Samples. Ids are those of the Samples if names and ids match one to one; otherwise classes
    are numbered from 1 in the order of names.

    Raises:
        CategoryError: Objects of one class have different numbers of keypoints.
        ConfigError: The classes of segments are unknown.

    >>> labels = choose_labels([Trait("category", "dog", 18), Trait("category", "cat", 17)], of_image=False)
    >>> [(category.id, category.name) for category in labels.categories]
    [(17, 'cat'), (18, 'dog')]
    """
    traits = list(traits)
    if any(trait.kind in ("stuff", "panoptic") for trait in traits):
        raise ConfigError("Samples have segments, whose classes have no names: give labels=, as ReadCoco returns them")
    if of_image:
        return class_labels((trait.name for trait in traits if trait.kind == "class"), ())
    found = {(trait.name, trait.category_id) for trait in traits if trait.kind == "category"}
    names = sorted({name for name, _ in found})
    ids = {id_ for _, id_ in found}
    ids_of = dict(found) if len(found) == len(names) == len(ids) and -1 not in ids else {}
    categories = []
    for number, name in enumerate(names, 1):
        points = {trait.keypoints for trait in traits if trait.name == name and trait.keypoints}
        if len(points) > 1:
            raise CategoryError(f"objects of category {name!r} have {' and '.join(map(str, sorted(points)))} keypoints")
        categories.append(Category(ids_of.get(name, number), name, keypoints=unnamed_keypoints(sum(points))))
    return LabelMap(tuple(sorted(categories, key=lambda category: category.id)))


def trait_warnings(traits: Iterable[Trait], labels: LabelMap) -> Iterator[str]:
    """Yield warnings of names of classes, and of areas."""
    yield from name_warnings(labels)
    yield from [_AREAS] if Trait(NEGATIVE_AREA) in traits else ()


def parts_of(traits: Iterable[Trait]) -> tuple[Part, ...]:
    """Return the parts of records that depend on Samples and not on an option."""
    return tuple(Part(trait.name) for trait in traits if trait.kind == "part")
