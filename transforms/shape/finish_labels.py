"""Choose the classes of records from those of the source: map, select, compare with an existing data set."""

from typing import NamedTuple

import msgspec

from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import ExistingLabels, LabelMap, adopt_labels, misread_numbers, name_warnings
from recordmill.schemas.inputs.options import ChoiceOptions
from recordmill.transforms.join.choose_categories import check_label_names, class_labels, select_categories
from recordmill.transforms.shape.class_map import ClassMap, chain_warnings, new_class_names
from recordmill.transforms.shape.map_classes import ClassMapping, map_labels
from recordmill.transforms.shape.union_labels import meet_labels

_CURE = "Write all splits with one command, or give each the same classes and --class-map"


class FinishedLabels(NamedTuple):
    """Classes of records.

    Attributes:
        mapping: Classes that the map leaves, with their new ids and names, before the selection.
        selected: Selected classes.
        labels: Classes of the data set: the selected ones, or those of the data set that the splits are added to.
        table: Features of records.
        warnings: Sentences about the classes.
    """

    mapping: ClassMapping
    selected: LabelMap
    labels: LabelMap
    table: FeatureTable
    warnings: tuple[str, ...]


def finish_labels(
    labels: LabelMap,
    table: FeatureTable,
    options: ChoiceOptions,
    class_map: ClassMap | None = None,
    existing: ExistingLabels | None = None,
) -> FinishedLabels:
    """Return the classes and features of records.

    Args:
        labels: All classes of the source.
        table: Features, with the part CATEGORY_ID.
        existing: Labels of the data set that the splits are added to; None for a new data set.

    Raises:
        CategoryError: Two classes cannot be merged, all are dropped, or the data set lacks one.
        NoSuchClassError: The map or the selection names a class that does not exist.
    """
    mapped, mapping, warnings = map_by_name(labels, class_map, getattr(options, "add", False))
    joins_sets = bool(options.set_options)
    if existing and joins_sets:
        mapped, mapping = _meet_by_name(mapped, mapping, existing)
    labels = selected = select_classes(mapped, options)
    warnings += [*(misread_numbers(labels) if options.has_image_classes else ()), *name_warnings(labels)]
    if existing:
        by_id = not joins_sets and (bool(getattr(options, "classes", ())) or not options.has_image_classes)
        labels, absent = adopt_labels(labels, existing, by_id, _CURE)
        warnings += [absent] if absent else []
    if not options.is_part:
        check_label_names(labels, table)
        table = table.with_parts(
            tuple(part for part in table.parts if part is not Part.CATEGORY_ID or labels.is_shifted)
        )
    return FinishedLabels(mapping, selected, labels, table, tuple(warnings))


def _meet_by_name(labels: LabelMap, mapping: ClassMapping, existing: ExistingLabels) -> tuple[LabelMap, ClassMapping]:
    """Return the classes of several sets with the ids of the data set that the splits are added to."""
    met, to_existing = meet_labels(labels, existing)
    ids = {id_: to_existing.ids[new_id] for id_, new_id in mapping.ids.items()}
    return met, msgspec.structs.replace(mapping, ids=ids)


def map_by_name(
    labels: LabelMap, class_map: ClassMap | None, is_added: bool = False
) -> tuple[LabelMap, ClassMapping, list[str]]:
    """Return the label map of the new classes, see `map_labels`, and warnings. Without a class map, nothing changes.

    Args:
        is_added: See `new_class_names`.

    Raises:
        CategoryError, NoSuchClassError: See `map_labels` and `new_class_names`.
    """
    if class_map is None:
        unchanged = {category.id: category.name for category in labels.all}
        return labels, ClassMapping({id_: id_ for id_ in unchanged}, {name: name for name in unchanged.values()}), []
    mapped, mapping = map_labels(labels, new_class_names(labels, class_map, is_added))
    return mapped, mapping, [*chain_warnings(labels, class_map)]


def select_classes(labels: LabelMap, options: ChoiceOptions) -> LabelMap:
    """Return the classes that `--classes` or `--categories` names, in that order; all without a selection.

    Raises:
        NoSuchClassError: There is no class of such a name.
    """
    if options.has_image_classes:
        observed = [category.name for category in labels.categories]
        if classes := getattr(options, "classes", ()):
            return class_labels(observed, classes)
        return LabelMap(tuple(Category(index, name) for index, name in enumerate(observed)))
    names = getattr(options, "categories", ())
    selected = select_categories(labels, names, getattr(options, "add", False))
    order = {name: place for place, name in enumerate(names)}
    ordered = sorted(selected.categories, key=lambda category: order.get(category.name, 0))
    return msgspec.structs.replace(selected, categories=tuple(ordered))
