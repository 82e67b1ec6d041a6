"""What was read of each annotation file, and which of its fields no record carries."""

from collections.abc import Iterable, Sequence

import msgspec

from recordmill.schemas.coco import AnnotationFile, AnnotationKind, FieldRows
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.manifest import InputRows
from recordmill.transforms.coco.file_fields import without
from recordmill.transforms.dataset.facts import Facts, FactsBuilder

_SOURCES = {
    "iscrowd": "objects.is_crowd",
    "neg_category_ids": "image.neg_category_ids",
    "not_exhaustive_category_ids": "image.not_exhaustive_category_ids",
}
"""The feature that each field that only some layouts carry is in."""


def input_facts(files: Iterable[AnnotationFile], layout: FeatureTable, splits: Sequence[str]) -> Facts:
    """The rows of each file, all as of the first split; joining moves those that are of others. Fields that no record
    carries are those of the whole input. And the warnings of each file."""
    facts = FactsBuilder()
    for rows in describe_inputs(files, layout):
        facts.add_rows(splits[0], rows)
        for split in splits[1:]:
            facts.add_rows(split, msgspec.structs.replace(rows, images=0, annotations=0))
    for file in files:
        for text in file.warnings:
            facts.warn(splits[0], text)
    return facts.build()


def describe_inputs(files: Iterable[AnnotationFile], layout: FeatureTable) -> list[InputRows]:
    """Rows of each file by its path and kind."""
    files = sorted(files, key=lambda file: (file.path, file.kind))
    by_layout = [name for name, source in _SOURCES.items() if source in layout.sources]
    # Rows of a keypoints file are joined with those of instances.
    joined = ("keypoints", "num_keypoints") if any(file.kind is AnnotationKind.KEYPOINTS for file in files) else ()
    uncarried: dict[str, FieldRows] = {}
    for file in files:
        fields = {
            list_: without(file.unread.get(list_, {}), joined) | without(file.optional.get(list_, {}), by_layout)
            for list_ in ("file", "images", "annotations", "categories")
        }
        before = uncarried.get(file.path, fields)  # a file may be given to two flags
        uncarried[file.path] = {list_: _common(before[list_], fields[list_]) for list_ in fields}
    described = []
    for file in files:
        fields = {list_: of_list for list_, of_list in uncarried.pop(file.path, {}).items() if of_list}
        described.append(InputRows(file.path, file.kind.value, file.images, file.annotations, fields))
    return described


def _common(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    return {name: first[name] for name in sorted(first.keys() & second.keys())}
