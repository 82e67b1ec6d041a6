"""What was read of each annotation file, and which of its fields no record carries."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsDict, PCollection

from recordmill.schemas.coco import AnnotationFile, AnnotationKind, FieldRows
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.manifest import InputRows, SplitRows
from recordmill.transforms.coco.file_fields import without

_SOURCES = {
    "iscrowd": "objects.is_crowd",
    "neg_category_ids": "image.neg_category_ids",
    "not_exhaustive_category_ids": "image.not_exhaustive_category_ids",
}
"""The feature that each field that only some layouts carry is in."""


class DescribeInputs(beam.PTransform):
    """AnnotationFile become SplitRows of each of `splits`; `rows` are SplitRows of those that are not the first."""

    def __init__(self, layout: FeatureTable, splits: tuple[str, ...], rows: PCollection):
        super().__init__()
        self._layout = layout
        self._splits = splits
        self._rows = rows

    def expand(self, files: PCollection[AnnotationFile]):
        counts = (
            self._rows
            | "ByInput" >> beam.Map(_by_input).with_output_types(tuple[Input, tuple[int, int]])
            | "AddRows" >> beam.CombinePerKey(beam.combiners.TupleCombineFn(sum, sum))
        )
        described = (
            files | "CollectInputs" >> beam.combiners.ToList() | "Describe" >> beam.Map(describe_inputs, self._layout)
        )
        return described | "Divide" >> beam.FlatMap(divide_inputs, self._splits, AsDict(counts))


Input = tuple[str, str, str]
"""A split, and an input's path and kind."""


def _by_input(of_split: SplitRows) -> tuple[Input, tuple[int, int]]:
    split, rows = of_split
    return (split, rows.path, rows.kind), (rows.images, rows.annotations)


def divide_inputs(
    inputs: Iterable[InputRows], splits: Sequence[str], counts: Mapping[Input, tuple[int, int]]
) -> Iterator[SplitRows]:
    """The rows of each split. Those that are of no other are the first split's, also rows that give no image. Fields
    that no record carries are told of the whole input.

    Args:
        counts: how many image and annotation rows are of a split that is not the first.
    """
    first, *others = splits
    for rows in inputs:
        images, annotations = rows.images, rows.annotations
        for split in others:
            of_split = counts.get((split, rows.path, rows.kind), (0, 0))
            yield SplitRows(split, msgspec.structs.replace(rows, images=of_split[0], annotations=of_split[1]))
            images, annotations = images - of_split[0], annotations - of_split[1]
        yield SplitRows(first, msgspec.structs.replace(rows, images=images, annotations=annotations))


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
