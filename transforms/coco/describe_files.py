"""Merge the categories of all annotation files, choose the features of records, and count rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsList, PCollection, TaggedOutput

from recordmill.schemas.dataset.manifest import InputRows
from recordmill.schemas.errors import CategoryError, ConfigError
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.field_features import Axis, FieldColumn, field_columns
from recordmill.schemas.inputs.annotations import Category, name_keypoints
from recordmill.schemas.inputs.coco import AnnotationFile, AnnotationKind, FieldRows, Given
from recordmill.schemas.inputs.fields import OBJECTS, FieldSelection
from recordmill.schemas.inputs.image_options import ALLOW_EMPTY
from recordmill.schemas.inputs.labels import SEMANTIC_IGNORE, ExistingLabels, LabelMap, adopt_labels, name_warnings
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.rejects import Metric
from recordmill.transforms.coco.coco_options import CocoOptions
from recordmill.transforms.coco.describe_file import OBJECT_KINDS
from recordmill.transforms.coco.file_fields import COUNTED, drop_fields
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.join.choose_categories import choose_features, select_categories
from recordmill.transforms.join.choose_fields import FieldRequest, add_requested_fields
from recordmill.transforms.join.observed_labels import ObservedLabel

_LABELS, _TABLE = "labels", "table"
_LIST_OF_AXIS: dict[Axis, str] = {"image": "images", "object": "annotations"}


class DescribeFiles(beam.PTransform):
    """Convert AnnotationFile to one LabelMap of all categories, one LabelMap of the classes, and one FeatureTable.

    Args:
        existing: Labels of the data set that the splits are added to; None for a new data set.
    """

    def __init__(self, options: CocoOptions, given: Given, existing: ExistingLabels | None):
        super().__init__()
        self._arguments = options, given, existing

    def expand(self, files: PCollection[AnnotationFile]):  # Beam accepts no type hints of several outputs
        once = files.pipeline | "Once" >> beam.Impulse()
        return once | "Describe" >> WithFacts(_describe_files, *self._arguments, AsList(files), tags=(_LABELS, _TABLE))


# Long list of arguments: the options of DescribeFiles, as this runs on workers.
def _describe_files(
    _: bytes,
    facts: FactsBuilder,
    options: CocoOptions,
    given: Given,
    existing: ExistingLabels | None,
    files: list[AnnotationFile],
) -> Iterator[Any]:
    categories = merge_categories(files)
    facts.warn_all(given.splits[:1], filter(None, given.warnings))
    if given.data and (unused := find_placeholder(categories, files)):
        facts.warn(
            given.splits[0],
            f"category {unused.name!r} (id {unused.id}) is dropped: no annotation has it, and it is the supercategory "
            "of all others, as in exports of Roboflow. To keep it, name the files by --instances, and the folder of "
            "the images as DATA",
        )
        classes = tuple(category for category in categories.categories if category is not unused)
        categories = msgspec.structs.replace(categories, categories=classes)
    labels = select_categories(categories, options.read_categories, options.add)
    if existing and options.has_final_labels:
        labels, absent = adopt_labels(labels, existing, True, _CURE)
        facts.warn_all(given.splits[:1], filter(None, [absent]))
    yield categories
    yield TaggedOutput(_LABELS, labels)
    selections = options.selected_fields()
    _check_unread(selections[1], files)
    table, field_warnings, previews = add_requested_fields(
        choose_features(files, labels, options.table, options.layout_table, options.has_final_labels),
        FieldRequest(*selections, options.names_of_fields, existing, is_part=options.is_part, is_added=options.add),
        (ObservedLabel(*label) for file in files for label in file.observed),
    )
    facts.warn_all(given.splits[:1], field_warnings)
    facts.preview(previews)
    yield TaggedOutput(_TABLE, table)
    for split, text in () if options.allow_empty else empty_splits(files, given.split_by_file):
        facts.warn(split, text)
    fields = field_columns(table)
    report_inputs(files, LAYOUTS[options.layout], given.splits, given.split_by_file, facts, fields)
    facts.warn_all(given.splits[:1], _name_warnings(files) if options.has_final_labels else ())


_NEED_LABELS = (AnnotationKind.INSTANCES, AnnotationKind.KEYPOINTS, AnnotationKind.STUFF)


def empty_splits(files: Sequence[AnnotationFile], split_by_file: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each split whose files have no annotation, with a warning. Files of captions, panoptic segments and lists
    of images may have none.

    Args:
        split_by_file: Split by path, for files whose images all belong to one split.

    Raises:
        ConfigError: No file of the job has an annotation.
    """
    by_split: dict[str, list[AnnotationFile]] = {}
    for file in files:
        by_split.setdefault(split_by_file.get(file.path, ""), []).append(file)
    empty = {}
    for split, split_files in sorted(by_split.items()):
        paths = sorted(file.path for file in split_files if file.kind in _NEED_LABELS)
        if paths and not any(file.annotations for file in split_files):
            fault = f"{', '.join(paths)}: the list annotations is empty, so all images would be background"
            empty[split] = f"{fault}. Give files with annotations, or add {ALLOW_EMPTY}"
    if empty and not any(file.annotations for file in files):
        raise ConfigError(next(iter(empty.values())))
    yield from ((split, text) for split, text in empty.items() if split)


def _check_unread(selection: FieldSelection, files: Sequence[AnnotationFile]) -> None:
    """Refuse fields that only annotations other than objects have.

    Raises:
        ConfigError: There is such a field.
    """
    for path in selection.kinds:
        names = {path, path.partition(".")[0], f"segments_info.{path}"}
        files_with_field = [file for file in files if names & file.unread.get("annotations", {}).keys()]
        if files_with_field and not any(file.kind in OBJECT_KINDS for file in files_with_field):
            raise ConfigError(
                f"--fields {path}: only rows of --{files_with_field[0].kind.value} {files_with_field[0].path} have it, "
                "and fields of captions, of regions of stuff and of panoptic segments are not read. Leave it out"
            )


_CURE = "Write all splits by one command, or give files with the same categories to each"


_SOURCES = {
    "iscrowd": "objects.is_crowd",
    "neg_category_ids": "image.neg_category_ids",
    "not_exhaustive_category_ids": "image.not_exhaustive_category_ids",
}
"""Feature of each field that only some layouts store."""


def find_placeholder(labels: LabelMap, files: Sequence[AnnotationFile]) -> Category | None:
    """Return the category that Roboflow adds as the parent of all others, with id 0 and no annotation; None without."""
    parent, *children = labels.categories or (None,)
    if parent is None or parent.id or not children or any(file.uses_zero for file in files):
        return None
    return parent if all(child.supercategory == parent.name for child in children) else None


# Long list of arguments: what the summary says of all files.
def report_inputs(
    files: Sequence[AnnotationFile],
    layout: FeatureTable,
    splits: Sequence[str],
    split_by_file: Mapping[str, str],
    facts: FactsBuilder,
    fields: Iterable[FieldColumn] = (),
) -> None:
    """Add the row counts and warnings of all files to `facts`. A file without a split is counted for the first split,
    and joining moves the counts. Fields that no record stores are those of the complete input.

    Args:
        split_by_file: Split by path, for files whose images all belong to one split.
        fields: Open fields that records have.
    """
    for rows in describe_inputs(files, layout, fields):
        first, *other_splits = (split_by_file[rows.path],) if rows.path in split_by_file else splits
        facts.add_rows(first, rows)
        for split in other_splits:
            facts.add_rows(split, msgspec.structs.replace(rows, images=0, annotations=0))
    facts.count(splits[0], Metric.NEGATIVE_AREAS, sum(file.negative_areas for file in files))
    file_warnings = chain.from_iterable(file.warnings for file in files)
    for text in (*file_warnings, *_isthing_warnings(files), *_category_warnings(files)):
        facts.warn(splits[0], text)


def _isthing_warnings(files: Sequence[AnnotationFile]) -> Iterator[str]:
    """Yield a warning that panoptic categories are written as stuff, because no file has `isthing`."""
    panoptic = [file for file in files if file.kind is AnnotationKind.PANOPTIC]
    known = {category.id for file in files for category in file.categories if category.isthing is not None}
    names = {category.id: category.name for file in panoptic for category in file.categories}
    missing = [names[id_] for id_ in sorted(names.keys() - known)]
    if missing:
        shown = ", ".join(missing[:_CATEGORIES_SHOWN]) + " …" * (len(missing) > _CATEGORIES_SHOWN)
        yield (
            f"{', '.join(file.path for file in panoptic)}: {len(missing):,} of {len(names):,} categories have no "
            f"isthing ({shown}) and are written as stuff, without instances. Add isthing, 1 for things and 0 for stuff"
        )


_CATEGORIES_SHOWN = 3
_NEED_NONE = (AnnotationKind.CAPTIONS, AnnotationKind.IMAGE_INFO)


def _category_warnings(files: Sequence[AnnotationFile]) -> Iterator[str]:
    """Yield a warning if no annotation has a class because no file has categories."""
    paths = [file.path for file in files if file.annotations and file.kind not in _NEED_NONE]
    if paths and not any(file.categories for file in files):
        yield (
            f"{', '.join(paths)}: the list categories is missing or empty, so no annotation has a class. Add it, for "
            "example from the file of another split: objects with an integer id and a name"
        )


def _name_warnings(files: Sequence[AnnotationFile]) -> Iterator[str]:
    by_id = {category.id: category for file in files for category in file.categories}
    return name_warnings(LabelMap(tuple(by_id[id_] for id_ in sorted(by_id))))


def describe_inputs(
    files: Iterable[AnnotationFile], layout: FeatureTable, fields: Iterable[FieldColumn] = ()
) -> list[InputRows]:
    """Return each file's row counts, by path and kind.

    Args:
        fields: Open fields that records have.
    """
    files = sorted(files, key=lambda file: (file.path, file.kind))
    by_layout = [name for name, source in _SOURCES.items() if source in layout.sources]
    # Rows of a keypoints file are joined with those of instances.
    joined = ("keypoints", "num_keypoints") if any(file.kind is AnnotationKind.KEYPOINTS for file in files) else ()
    stored = {list_: {field.path for field in fields if field.axis == axis} for axis, list_ in _LIST_OF_AXIS.items()}
    leaves = {
        list_: {label[1] for file in files for label in file.observed if label[0] == f"{axis} path"}
        for axis, list_ in _LIST_OF_AXIS.items()
    }
    uncarried: dict[str, FieldRows] = {}
    for file in files:
        unread = {list_: file.unread.get(list_, {}) for list_ in COUNTED}
        rows = {
            list_: drop_fields(
                names, {*joined, *_stored_names(names, leaves.get(list_, set()), stored.get(list_, set()))}
            )
            | drop_fields(file.optional.get(list_, {}), by_layout)
            for list_, names in unread.items()
        }
        before = uncarried.get(file.path, rows)  # a file may be given to two flags
        uncarried[file.path] = {
            list_: {name: before[list_][name] for name in sorted(before[list_].keys() & rows[list_].keys())}
            for list_ in rows
        }
    described = []
    for file in files:
        rows = {list_: counts for list_, counts in uncarried.pop(file.path, {}).items() if counts}
        unwritten = {
            list_: {name: paths for name in rows.get(list_, ()) if (paths := _below(name, all_ - stored[list_]))}
            for list_, all_ in leaves.items()
        }
        nested = {list_: paths for list_, paths in unwritten.items() if paths}
        described.append(InputRows(file.path, file.kind.value, file.images, file.annotations, rows, nested))
    return described


def _stored_names(names: Iterable[str], leaves: set[str], stored: set[str]) -> Iterator[str]:
    """Yield the fields that records store, or all of whose leaves they store."""
    for name in names:
        below = {leaf for leaf in leaves if leaf.startswith(f"{name}.")}
        if name in stored or (below and below <= stored):
            yield name


def _below(name: str, leaves: Iterable[str]) -> tuple[str, ...]:
    """Return the first paths that begin with a name."""
    return tuple(sorted(leaf for leaf in leaves if leaf.startswith((f"{name}.", f"{name}{OBJECTS}")))[:_NAMES_SHOWN])


_NAMES_SHOWN = 20
_INT64_MAX = (1 << 63) - 1


def merge_categories(files: Iterable[AnnotationFile]) -> LabelMap:
    """Merge the categories of all files, ordered by id. Classes of objects come from files of objects (without any,
    from image_info files), segments from panoptic and stuff files.

    Raises:
        CategoryError: One id has two names, or different keypoints; or there are more stuff categories than the 253
            values of a uint8 mask; or the largest id is too large for num_classes.
    """
    files = sorted(files, key=lambda file: file.path)
    by_id: dict[int, tuple[Category, str]] = {}
    for file in files:
        for category in file.categories:
            known, source = by_id.setdefault(category.id, (category, file.path))
            by_id[category.id] = _merge_category(known, source, category, file.path), source
    for file in files:
        for id_, number in file.keypoints.items():
            known, source = by_id[id_]
            by_id[id_] = _add_keypoint_names(known, source, number, file.path), source
    objects = _category_ids(files, AnnotationKind.INSTANCES, AnnotationKind.KEYPOINTS)
    if not objects:
        objects = _category_ids(files, AnnotationKind.IMAGE_INFO)
    segments = _category_ids(files, AnnotationKind.PANOPTIC, AnnotationKind.STUFF)
    labels = LabelMap(
        tuple(by_id[id_][0] for id_ in sorted(objects)),
        tuple(by_id[id_][0] for id_ in sorted(segments)),
    )
    if max(labels.semantic_by_id().values(), default=0) >= SEMANTIC_IGNORE:
        raise CategoryError(
            f"{len(labels.segments)} categories of segments include more stuff than the 253 values of a one-byte "
            "mask. Remove some from the file"
        )
    largest = max(labels.label_by_id().values(), default=0)
    if largest >= _INT64_MAX:
        raise CategoryError(
            f"category {by_id[largest][0].name!r} has the id {largest}: num_classes, the largest label + 1, would "
            "exceed the 64-bit integers of readers. Renumber it"
        )
    return labels


def _category_ids(files: Iterable[AnnotationFile], *kinds: AnnotationKind) -> set[int]:
    return {category.id for file in files if file.kind in kinds for category in file.categories}


def _merge_category(known: Category, source: str, other: Category, path: str) -> Category:
    """Return the union of two rows with one id: a panoptic file adds isthing, a keypoints file its keypoints."""
    if known.name != other.name:
        raise CategoryError(
            f"category id {known.id} is {known.name!r} in {source} and {other.name!r} in {path}: records would mix two "
            "classes under one label. Renumber one, or convert the files separately"
        )
    if known.keypoints and other.keypoints and known.keypoints != other.keypoints:
        raise CategoryError(
            f"category {known.name!r} (id {known.id}) has {len(known.keypoints)} keypoints in {source} and others, or "
            f"in another order, in {path}. Convert the files separately"
        )
    return msgspec.structs.replace(
        known,
        supercategory=known.supercategory or other.supercategory,
        keypoints=known.keypoints or other.keypoints,
        skeleton=known.skeleton or other.skeleton,
        isthing=known.isthing if known.isthing is not None else other.isthing,
    )


def _add_keypoint_names(known: Category, source: str, number: int, path: str) -> Category:
    """Name the keypoints of a category by number, if no file names them. `number` is that of its rows in `path`."""
    named = name_keypoints(known, number)
    if len(named.keypoints) != number:
        raise CategoryError(
            f"category {known.name!r} (id {known.id}) has {len(named.keypoints)} keypoints in {source} and others, and "
            f"its rows in {path}, which names none, have {number}. Convert the files separately"
        )
    return named
