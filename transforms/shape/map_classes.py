"""Give classes other names and ids: merge them, or drop them."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.errors import CategoryError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category, ImageLabels, MapFile, PanopticAnnotation
from recordmill.schemas.inputs.labels import SEMANTIC_IGNORE, LabelMap
from recordmill.transforms.blocks.image_tasks import label_column, labels_of


class ClassMapping(msgspec.Struct, frozen=True):
    """Classes that stay. Objects, segments and tags of other classes are dropped, and images of such a class.

    Attributes:
        ids: New id of each category id.
        names: New name of each class name.
        is_federated: True if a class is only known to be absent from images that list it, as in LVIS, also for images
            without lists.
        void: Values of semantic masks that become unknown: those of dropped classes.
    """

    ids: dict[int, int]
    names: dict[str, str]
    is_federated: bool = False
    void: tuple[int, ...] = ()


def map_labels(labels: LabelMap, new_names: Mapping[int, str]) -> tuple[LabelMap, ClassMapping]:
    """Return the label map of classes that get other names, and the mapping of their ids and names.

    Classes that get one name become one class, with the id and place of the first. A class of an unchanged name is
    merged with classes that get this name. Other classes that share a name in `labels` stay apart.

    Args:
        new_names: New name of each category id that stays.

    Raises:
        CategoryError: A thing and stuff, or classes with different keypoints or skeletons, get one name.

    >>> labels = LabelMap((Category(1, "car"), Category(3, "cat"), Category(6, "bus")))
    >>> mapped, mapping = map_labels(labels, {1: "vehicle", 6: "vehicle"})
    >>> [(category.id, category.name) for category in mapped.categories], mapping.ids, mapping.names
    ([(1, 'vehicle')], {1: 1, 6: 1}, {'car': 'vehicle', 'bus': 'vehicle'})
    """
    ordered = {category.id: category for category in (*labels.categories, *labels.segments)}
    renamed = {
        new_names[id_] for id_, category in ordered.items() if new_names.get(id_, category.name) != category.name
    }
    members: dict[tuple[str, int], list[Category]] = {}
    for id_, category in ordered.items():
        if (name := new_names.get(id_)) is not None:
            members.setdefault((name, 0 if name in renamed else id_), []).append(category)
    object_ids = {category.id for category in labels.categories}
    merged: dict[int, Category] = {}
    for (name, _), classes in members.items():
        category = _merge_classes(classes, name, object_ids)
        merged |= {member.id: category for member in classes}
    by_id = {category.id: category for category in merged.values()}
    categories, segments = (
        tuple(by_id[id_] for id_ in dict.fromkeys(merged[one.id].id for one in part if one.id in merged))
        for part in (labels.categories, labels.segments)
    )
    names = {category.name: merged[id_].name for id_, category in ordered.items() if id_ in merged}
    void = tuple(id_ for id_ in ordered if id_ not in merged) if labels.has_pixel_ids else ()
    mapping = ClassMapping({id_: category.id for id_, category in merged.items()}, names, void=void)
    return msgspec.structs.replace(labels, categories=categories, segments=segments), mapping


def _merge_classes(classes: list[Category], name: str, object_ids: set[int]) -> Category:
    """Return the class `name` with the properties of several; its id is that of the first.

    Raises:
        CategoryError: See `map_labels`.
    """
    first = classes[0]
    merged = msgspec.structs.replace(first, name=name)
    for other in classes[1:]:
        one, two = (f"class {category.name!r} (id {category.id})" for category in (first, other))
        if is_thing(first, object_ids) != is_thing(other, object_ids):
            thing, stuff = (one, two) if is_thing(first, object_ids) else (two, one)
            raise CategoryError(f"{thing} is a thing and {stuff} is stuff, so they cannot become one class {name!r}")
        for what in ("keypoints", "skeleton"):
            have, has = getattr(merged, what), getattr(other, what)
            if have and has and have != has:
                raise CategoryError(f"{one} and {two} have different {what}, so they cannot become one class {name!r}")
        merged = msgspec.structs.replace(
            merged,
            supercategory=merged.supercategory or other.supercategory,
            keypoints=merged.keypoints or other.keypoints,
            skeleton=merged.skeleton or other.skeleton,
            isthing=other.isthing if merged.isthing is None else merged.isthing,
        )
    return merged


def is_thing(category: Category, object_ids: Collection[int]) -> bool:
    """Return True for a class of objects, and False for stuff, unless the class says so itself."""
    return category.id in object_ids if category.isthing is None else bool(category.isthing)


def map_block(block: Block, mapping: ClassMapping) -> Block:
    """Return a complete Block with the new classes of its images, objects, segments and tags.

    Objects, regions, panoptic segments, tags and entries of LVIS's lists are dropped if their class is, and images
    whose own class is. Images without objects stay. The pixels of dropped panoptic segments become void.
    """
    if block.class_name is not None:
        names = [mapping.names.get(name) for name in block.class_name.texts()]
        block = block.replace(class_name=ragged_texts([name or "" for name in names]))
        if None in names:
            block = block.take(np.array([name is not None for name in names], bool))
    if mapping.is_federated or (block.labels is not None and block.labels.values.size):
        labels = labels_of(block.replace(class_name=None))
        starts, ids = block.first_object_of_image, block.category_id
        new_labels = []
        for row, image_labels in enumerate(labels):
            object_ids = ids[starts[row] : starts[row + 1]].tolist() if block.num_objects else ()
            new_labels.append(map_image_labels(image_labels, object_ids, mapping))
        block = block.replace(labels=label_column(new_labels))
    if not block.num_objects:
        return block
    ids, rows = np.unique(block.category_id, return_inverse=True)
    stays = np.array([id_ in mapping.ids for id_ in ids.tolist()], bool)[rows]
    new_ids = np.array([mapping.ids.get(id_, 0) for id_ in ids.tolist()], np.int64)[rows]
    block = block.replace(category_id=new_ids)
    return block if stays.all() else block.take_objects(stays)


def map_image_labels(labels: ImageLabels, object_ids: Iterable[int], mapping: ClassMapping) -> ImageLabels:
    """Return the labels of an image, other than its objects, with new classes; see `map_block`.

    Args:
        object_ids: Category ids of the objects of the image, before the mapping.
    """
    ids = mapping.ids
    lists = labels.neg_category_ids, labels.not_exhaustive_category_ids
    has_lists = mapping.is_federated or any(lists)
    negative, not_exhaustive = map_lists(*lists, {*object_ids}, ids) if has_lists else lists
    return msgspec.structs.replace(
        labels,
        regions=tuple(
            msgspec.structs.replace(region, category_id=ids[region.category_id])
            for region in labels.regions
            if region.category_id in ids
        ),
        panoptic=tuple(map_panoptic(panoptic, ids) for panoptic in labels.panoptic),
        maps=tuple(map_values(file, mapping) if file.part is Part.SEMANTIC else file for file in labels.maps),
        neg_category_ids=negative,
        not_exhaustive_category_ids=not_exhaustive,
        tags=tuple(dict.fromkeys(mapping.names[tag] for tag in labels.tags if tag in mapping.names)),
    )


def map_values(file: MapFile, mapping: ClassMapping) -> MapFile:
    """Return a semantic mask whose pixels get the values of new classes.

    >>> from recordmill.schemas.inputs.files import File
    >>> file = MapFile(Part.SEMANTIC, File("1.png"), "1.png", ((9, 255),))
    >>> map_values(file, ClassMapping({1: 1, 2: 1}, {}, void=(3,))).changes
    ((2, 1), (3, 255), (9, 255))
    """
    known = {value: value for value in (*mapping.ids, *mapping.void)} | dict(file.changes)
    new_values = mapping.ids | dict.fromkeys(mapping.void, SEMANTIC_IGNORE)
    changes = {value: new_values.get(before, before) for value, before in known.items()}
    return msgspec.structs.replace(file, changes=tuple(pair for pair in sorted(changes.items()) if len({*pair}) > 1))


def map_lists(
    negative: Sequence[int], not_exhaustive: Sequence[int], object_ids: Collection[int], ids: Mapping[int, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return LVIS's lists of an image with new category ids.

    A merged class is absent from the image only if all its members are. Its objects are not all annotated if those of a
    member are not, or if a member is neither annotated nor absent.

    Args:
        negative: Category ids that are known to be absent from the image.
        not_exhaustive: Category ids of which not all objects are annotated.
        object_ids: Category ids of the objects of the image.
        ids: New id of each category id that stays.

    >>> map_lists((1, 6, 9), (), {3}, {1: 1, 6: 1, 3: 3, 9: 3}), map_lists((9,), (), {1}, {1: 1, 6: 1, 9: 9})
    (((1,), ()), ((9,), (1,)))
    """
    members: dict[int, set[int]] = {}
    for id_, new_id in ids.items():
        members.setdefault(new_id, set()).add(id_)
    listed = dict.fromkeys(ids[id_] for id_ in (*negative, *not_exhaustive, *object_ids) if id_ in ids)
    absent = tuple(new_id for new_id in listed if members[new_id] <= {*negative})
    partial = tuple(
        new_id
        for new_id in listed
        if members[new_id] & {*not_exhaustive}
        or (members[new_id] & {*object_ids} and members[new_id] - {*object_ids, *negative})
    )
    return absent, partial


def map_panoptic(panoptic: PanopticAnnotation, ids: Mapping[int, int]) -> PanopticAnnotation:
    """Return panoptic segments with new category ids. The pixels of segments without one become void."""
    segments = tuple(
        msgspec.structs.replace(segment, category_id=ids[segment.category_id])
        for segment in panoptic.segments
        if segment.category_id in ids
    )
    void = tuple(segment.id for segment in panoptic.segments if segment.category_id not in ids)
    return msgspec.structs.replace(panoptic, segments=segments, void_ids=(*panoptic.void_ids, *void))


class ClassNumbers(NamedTuple):
    """Numbers of labels by class.

    Attributes:
        objects: By category id.
        segments: Regions of stuff and panoptic segments, by category id.
        images: Classes and tags of images, by name.
    """

    objects: Counter[int]
    segments: Counter[int]
    images: Counter[str]


def count_labels(block: Block) -> ClassNumbers:
    """Count the labels of a complete Block."""
    objects = Counter(block.category_id.tolist() if block.num_objects else ())
    segments, images = Counter[int](), Counter[str]()
    for labels in labels_of(block):
        segments.update(region.category_id for region in labels.regions)
        segments.update(segment.category_id for panoptic in labels.panoptic for segment in panoptic.segments)
        images.update((*labels.tags, *filter(None, [labels.class_name])))
    return ClassNumbers(objects, segments, images)
