"""Union of the classes, and of the features of records, of several data sets."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from recordmill.schemas.dataset.manifest import label_by_id
from recordmill.schemas.errors import CategoryError, ConfigError
from recordmill.schemas.features import FeatureKind, FeatureTable, Part
from recordmill.schemas.field_features import RAGGED, FieldColumn, add_fields, field_columns
from recordmill.schemas.inputs.annotations import Category, unnamed_keypoints
from recordmill.schemas.inputs.fields import select_fields
from recordmill.schemas.inputs.labels import ExistingLabels, LabelMap, adopt_labels
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.sizes import first_texts
from recordmill.transforms.join.choose_fields import adopt_fields
from recordmill.transforms.shape.map_classes import ClassMapping, is_thing


class SetLabels(NamedTuple):
    """Classes of a data set, and its name for messages."""

    name: str
    labels: LabelMap


_ONE_BY_ONE = "Rename one of the two by the class map of its set, or convert the sets one by one"


class LabelUnion(NamedTuple):
    """Classes of several data sets.

    Attributes:
        mappings: Ids and names of the union for the classes of each set.
    """

    labels: LabelMap
    mappings: tuple[ClassMapping, ...]


def union_labels(parts: Sequence[SetLabels], cure: str = _ONE_BY_ONE) -> LabelUnion:
    """Return the classes of several sets, which meet by name.

    Ids of the first set stay. Each new name gets the id after the largest one, in the order of the sets and of their
    ids. If several classes of a set have one name, the first meets the first of the other sets, and so on.

    Args:
        cure: Fix, for the error.

    Raises:
        CategoryError: A class is a thing in one set and stuff in another, or has other keypoints or another skeleton;
            or see `_union_values`.

    >>> pair = (Category(1, "cat"), Category(3, "dog")), (Category(0, "dog"), Category(1, "cow"))
    >>> union = union_labels([SetLabels(name, LabelMap(labels)) for name, labels in zip("ab", pair)])
    >>> [(category.id, category.name) for category in union.labels.categories], union.mappings[1].ids
    ([(1, 'cat'), (3, 'dog'), (4, 'cow')], {0: 3, 1: 4})
    """
    if any(labels.has_pixel_ids for _, labels in parts):
        return _union_values(parts)
    ids: dict[tuple[str, int], int] = {}
    members: dict[int, list[_Member]] = {}
    objects, segments = set[int](), set[int]()
    mappings = []
    new_ids: Iterator[int] | None = None
    for name, labels in parts:
        numbers, mapping = Counter[str](), dict[int, int]()
        for member in _list_members(name, labels):
            category = member.category
            key = category.name, numbers[category.name]
            numbers[category.name] += 1
            if key not in ids:
                ids[key] = next(new_ids) if new_ids else category.id
            mapping[category.id] = ids[key]
            members.setdefault(ids[key], []).append(member)
        if members and not new_ids:
            new_ids = count(max(members) + 1)
        objects |= {mapping[category.id] for category in labels.categories}
        segments |= {mapping[category.id] for category in labels.segments}
        mappings.append(ClassMapping(mapping, {category.name: category.name for category in labels.all}))
    merged = {id_: _merge_members(id_, members[id_], cure) for id_ in sorted(members)}
    categories, stuff = (tuple(merged[id_] for id_ in merged if id_ in part) for part in (objects, segments))
    return LabelUnion(LabelMap(categories, stuff), tuple(mappings))


def _union_values(parts: Sequence[SetLabels]) -> LabelUnion:
    """Return the classes of several sets of which some have masks with the ids of classes as pixels. All ids stay.

    Raises:
        CategoryError: A set has other classes than these, or two sets have another class for a value, or another value
            for a class.
    """
    owner = next(name for name, labels in parts if labels.has_pixel_ids)
    known: dict[int, tuple[str, Category]] = {}
    for name, labels in parts:
        if labels.categories or (labels.segments and not labels.has_pixel_ids):
            raise CategoryError(
                f"pixels of masks are numbers of classes in {owner}, and {name} has objects or other segments. Convert "
                "each to its own --output"
            )
        values = {category.name: category.id for category in labels.segments}
        for set_name, category in [*known.values()]:
            if values.get(category.name, category.id) != category.id and category.id not in values.values():
                other = values[category.name]
                raise CategoryError(
                    f"class {category.name!r} is the value {category.id} in masks of {set_name}, and {other} in those "
                    f"of {name}. Write the masks with the same values, or convert the sets one by one"
                )
        for category in labels.segments:
            set_name, same = known.setdefault(category.id, (name, category))
            if same.name != category.name:
                raise CategoryError(
                    f"the value {category.id} is {same.name!r} in masks of {set_name}, and {category.name!r} in those "
                    f"of {name}. Write the masks with the same values, or convert the sets one by one"
                )
    segments = tuple(known[id_][1] for id_ in sorted(known))
    mappings = tuple(
        ClassMapping({one.id: one.id for one in labels.segments}, {one.name: one.name for one in labels.segments})
        for _, labels in parts
    )
    return LabelUnion(LabelMap((), segments, has_pixel_ids=True), mappings)


class _Member(NamedTuple):
    """Class of a set."""

    set_name: str
    category: Category
    is_thing: bool


def _list_members(name: str, labels: LabelMap) -> Iterator[_Member]:
    """Yield each class of a set, by id. A class of objects is a thing, and another one stuff, unless they say so."""
    segments = {category.id: category for category in labels.segments}
    objects = {category.id for category in labels.categories}
    for category in labels.all:
        if category.isthing is None and category.id in segments:
            category = msgspec.structs.replace(category, isthing=segments[category.id].isthing)
        yield _Member(name, category, is_thing(category, objects))


def _merge_members(id_: int, members: Sequence[_Member], cure: str) -> Category:
    """Return the class of several sets.

    Raises:
        CategoryError: See `union_labels`.
    """
    for number, member in enumerate(members):
        for other in members[:number]:
            if fault := _contradiction(other, member):
                raise CategoryError(f"class {member.category.name!r} {fault}. {cure}")
    categories = [member.category for member in members]

    def first(name: str) -> Any:
        return next(filter(None, (getattr(category, name) for category in categories)), getattr(categories[0], name))

    points = sorted((category.keypoints for category in categories), key=_are_unnamed)
    return msgspec.structs.replace(
        categories[0],
        id=id_,
        supercategory=first("supercategory"),
        keypoints=next(filter(None, points), ()),
        skeleton=first("skeleton"),
        isthing=next((category.isthing for category in categories if category.isthing is not None), None),
    )


def _contradiction(one: _Member, other: _Member) -> str:
    """Return how the classes of two sets contradict each other; empty if they do not."""
    if one.is_thing != other.is_thing:
        thing, stuff = (one, other) if one.is_thing else (other, one)
        return f"is a thing in {thing.set_name} and stuff in {stuff.set_name}"
    points = one.category.keypoints, other.category.keypoints
    if all(points) and len(points[0]) != len(points[1]):
        return f"has {len(points[0])} keypoints in {one.set_name} and {len(points[1])} in {other.set_name}"
    if all(points) and points[0] != points[1] and not any(map(_are_unnamed, points)):
        return f"has keypoints of other names, or in another order, in {one.set_name} than in {other.set_name}"
    skeletons = [{tuple(sorted(line)) for line in member.category.skeleton} for member in (one, other)]
    if all(skeletons) and skeletons[0] != skeletons[1]:
        return f"has another skeleton in {one.set_name} than in {other.set_name}"
    return ""


def _are_unnamed(keypoints: tuple[str, ...]) -> bool:
    return keypoints == unnamed_keypoints(len(keypoints))


def adopt_union(parts: Sequence[SetLabels], existing: ExistingLabels) -> tuple[LabelUnion, str]:
    """Return the classes of a data set that gets splits of several sets, which meet them by name, and a sentence that
    names its classes that no set has; empty if there are none.

    Raises:
        CategoryError: The data set lacks a class; or see `union_labels`.
    """
    labels, absent = adopt_labels(union_labels(parts).labels, existing, False, _SAME_CLASSES)
    _, (_, *mappings) = union_labels([SetLabels(existing.where, labels), *parts])
    return LabelUnion(labels, tuple(mappings)), absent


def meet_labels(labels: LabelMap, existing: ExistingLabels) -> tuple[LabelMap, ClassMapping]:
    """Return the classes with the ids of the classes of a data set that have their names, and the mapping of their ids.

    Classes that the data set lacks get ids that it does not have.

    Raises:
        CategoryError: See `union_labels`.

    >>> known = ExistingLabels(LabelMap((Category(1, "cat"), Category(3, "dog"))), "train of out")
    >>> meet_labels(LabelMap((Category(1, "dog"), Category(2, "cow"))), known)[1].ids
    {1: 3, 2: 4}
    """
    union, (_, mapping) = union_labels([SetLabels(existing.where, existing.labels), SetLabels("the data sets", labels)])
    by_id = {category.id: category for category in union.all}
    categories, segments = (
        tuple(by_id[id_] for id_ in sorted(mapping.ids[category.id] for category in part))
        for part in (labels.categories, labels.segments)
    )
    return LabelMap(categories, segments, union.has_pixel_ids), mapping


def grow_labels(labels: LabelMap, existing: ExistingLabels, table: FeatureTable) -> tuple[LabelMap, ClassMapping]:
    """Return the classes of a data set that gets more images, and the mapping of the ids of their classes.

    Classes meet by name. Those of the data set keep their ids, indices and numbers in records; new ones follow.

    Args:
        labels: Classes of the images.
        table: Features of the records.

    Raises:
        CategoryError: See `union_labels`; or a new class would change the numbers of others in records.

    >>> known = ExistingLabels(LabelMap((Category(3, "dog"), Category(1, "cat"))), "out")
    >>> grown, mapping = grow_labels(LabelMap((Category(1, "dog"), Category(2, "cow"))), known, LAYOUTS["detection"])
    >>> [(category.id, category.name) for category in grown.categories], mapping.ids
    ([(3, 'dog'), (1, 'cat'), (4, 'cow')], {1: 3, 2: 4})
    """
    parts = SetLabels(existing.where, existing.labels), SetLabels("the images to add", labels)
    union, (_, mapping) = union_labels(parts, _RENAME)
    by_id = {category.id: category for category in union.all}
    isthing = {category.id: category.isthing for category in existing.labels.all}  # decides values of semantic masks
    by_id |= {id_: msgspec.structs.replace(by_id[id_], isthing=value) for id_, value in isthing.items()}
    categories, segments = (
        tuple(by_id[id_] for id_ in dict.fromkeys(category.id for category in (*old, *new)))
        for old, new in (
            (existing.labels.categories, union.categories),
            (existing.labels.segments, union.segments),
        )
    )
    grown = LabelMap(categories, segments, union.has_pixel_ids)
    for what, number_of in _numbers_in_records(table):
        before, now = number_of(existing.labels), number_of(grown)
        if any(now[id_] != number for id_, number in before.items()):
            new = [category.name for category in grown.all if category.id not in isthing]
            raise CategoryError(
                f"the images have {_classes(new or [category.name for category in labels.all])}, which would change "
                f"the {what} of other classes in the records of {existing.where}. Drop it by --class-map, or write all "
                "images to another output"
            )
    return grown, mapping


def _numbers_in_records(table: FeatureTable) -> Iterator[tuple[str, Callable[[LabelMap], Mapping[int, int]]]]:
    """Yield each kind of numbers that records store for classes, and the function that returns them by category id."""
    yield "labels", partial(label_by_id, table=table)
    if Part.SEMANTIC in table.parts:
        yield "values in semantic masks", LabelMap.semantic_by_id
    if Part.KEYPOINTS in table.parts:
        yield "number of keypoints", lambda labels: dict.fromkeys((one.id for one in labels.all), labels.keypoints)


def _classes(names: Sequence[str]) -> str:
    return f"the class{'es' * (len(names) > 1)} {first_texts(map(repr, names), _SHOWN)}"


_RENAME = "Rename it by --class-map, or write all images to another output"
_SAME_CLASSES = "Convert all splits with one command, or give another --output"


class SetTable(NamedTuple):
    """Features of the records of a data set, and its name for messages."""

    name: str
    table: FeatureTable


class RecordRequest(NamedTuple):
    """Options of the records of all sets.

    Attributes:
        layout: Features of the layout, with the names of `--rename`.
        renames: Other keys of fields by their usual ones, those of `--rename`.
        fields: Names of open fields, those of `--fields`.
        existing: Data set that gets more splits. Its fields, their kinds and keys stay.
    """

    layout: FeatureTable
    renames: Mapping[str, str] = MappingProxyType({})
    fields: Sequence[str] = ()
    existing: ExistingLabels | None = None


def union_tables(parts: Sequence[SetTable], labels: LabelMap, request: RecordRequest) -> tuple[FeatureTable, list[str]]:
    """Return the features that the records of any set have, and warnings about open fields.

    A field whose kinds differ between sets is stored as within one set: whole numbers and other numbers as `float`,
    anything else as text. A set without the field has the value that stands for a missing one.

    Args:
        labels: Classes of the union.

    Raises:
        ConfigError: Two sets have different layouts, a field has no key, no set has a requested one, or the data set
            that gets more splits has others.
    """
    first = parts[0]
    for name, table in parts[1:]:
        if table.layout != first.table.layout:
            raise ConfigError(
                f"set {first.name} has layout {first.table.layout} and set {name} has layout {table.layout}. The "
                "records of a data set have one layout. Give all sets the same one, or convert them one by one"
            )
    held = dict.fromkeys(part for _, table in parts for part in table.parts if part is not Part.CATEGORY_ID)
    shifted = (Part.CATEGORY_ID,) if labels.is_shifted else ()
    columns, warnings = _union_fields(parts)
    _check_requested(request.fields, columns, parts)
    is_default = request.layout.layout != first.table.layout  # Samples decided it
    layout = LAYOUTS[first.table.layout] if is_default else request.layout
    table, faults = add_fields(layout.with_parts((*held, *shifted)), columns, request.renames)
    if faults:
        raise ConfigError(f"--fields: {faults[0]}")
    return adopt_fields(table, request.existing) if request.existing else table, warnings


def _check_requested(names: Sequence[str], columns: Sequence[FieldColumn], parts: Sequence[SetTable]) -> None:
    """Raise ConfigError if no set has a requested field. It has the sentence of the set that helps most."""
    paths = {column.path for column in columns}
    for selection in select_fields(names):
        for path in sorted(selection.kinds.keys() - paths):
            absences = [(name, text) for name, table in parts for lacking, text in table.lacking if lacking == path]
            near = [(name, text) for mark in _HINTS for name, text in absences if mark in text]
            shown = "".join(f". Set {name}: {text}" for name, text in (near or absences)[:1])
            raise ConfigError(f"--fields {path}: no set has this field{shown}")


_HINTS = "Did you mean", "has several values", "lists of objects", "They have"
"""Parts of the sentences about fields that a set lacks, the most helpful one first."""


def _union_fields(parts: Sequence[SetTable]) -> tuple[list[FieldColumn], list[str]]:
    by_field: dict[tuple[str, str], dict[str, FieldColumn]] = defaultdict(dict)
    for name, table in parts:
        for column in field_columns(table):
            by_field[column.axis, column.path][name] = column
    columns, warnings = [], []
    for _, in_sets in sorted(by_field.items()):
        column = _union_column([*in_sets.values()])
        columns.append(column)
        if len({(one.kind, one.is_bool, one.size) for one in in_sets.values()}) > 1:
            kinds = ", ".join(f"{_kind_text(one)} in {name}" for name, one in in_sets.items())
            warnings.append(f"field {column.shown} is stored as {_kind_text(column)}, as it has {kinds}")
        lacking = [name for name, _ in parts if name not in in_sets]
        if lacking and not column.is_well_known:
            stored = column.missing or "empty text"
            warnings.append(
                f"field {column.shown}: {first_texts(lacking, _SHOWN)} has no value; {stored} is stored there"
            )
    return columns, warnings


_SHOWN = 3
_KIND_TEXTS = {FeatureKind.INT64: "int", FeatureKind.FLOAT: "float", FeatureKind.BYTES: "text"}


def _kind_text(column: FieldColumn) -> str:
    kind = "bool" if column.is_bool else _KIND_TEXTS[column.kind]
    return f"lists of {kind}" if column.size else kind


def _union_column(columns: Sequence[FieldColumn]) -> FieldColumn:
    """Return the form that stores the values of a field of several sets, see `union_tables`."""
    first, kinds = columns[0], {(column.kind, column.is_bool) for column in columns}
    sizes = {column.size for column in columns}
    if len(sizes) > 1 and 0 in sizes:
        return FieldColumn(first.axis, first.path, FeatureKind.BYTES)  # as JSON text
    size = RAGGED if len(sizes) > 1 else first.size
    kind, is_bool = (FeatureKind.BYTES, False) if len(kinds) > 1 else next(iter(kinds))
    if kinds == {(FeatureKind.INT64, False), (FeatureKind.FLOAT, False)}:
        kind = FeatureKind.FLOAT
    return FieldColumn(first.axis, first.path, kind, size, is_bool)
