"""The categories of all annotation files become one label map."""

import difflib
from collections.abc import Iterable

import apache_beam as beam

from schemas.coco import AnnotationFile, Category
from schemas.errors import CategoryError
from schemas.labels import LabelMap


class MergeCategories(beam.PTransform):
    """AnnotationFile become one LabelMap of all their categories."""

    def expand(self, files):
        return files | "CollectFiles" >> beam.combiners.ToList() | "Merge" >> beam.Map(merge_categories)


def merge_categories(files: Iterable[AnnotationFile]) -> LabelMap:
    """One label map, by category id.

    Raises:
        CategoryError: an id that two rows name differently.
    """
    by_id: dict[int, tuple[Category, str]] = {}
    for file in sorted(files, key=lambda file: file.path):
        for category in file.categories:
            known, source = by_id.setdefault(category.id, (category, file.path))
            if known.name != category.name:
                raise CategoryError(
                    f"category id {category.id} is {known.name!r} in {source} and {category.name!r} in {file.path}: "
                    "records would mix two classes under one label; renumber one, or convert the files separately"
                )
    return LabelMap(tuple(by_id[id_][0] for id_ in sorted(by_id)))


def select_categories(labels: LabelMap, names: tuple[str, ...]) -> LabelMap:
    """The classes called `names`; all where that is empty.

    Raises:
        CategoryError: no category has one of the names.
    """
    known = {category.name for category in labels.categories}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(known)) or 'none'}"
            raise CategoryError(f"--categories {name!r}: no category has that name; {hint}")
    return LabelMap(tuple(category for category in labels.categories if not names or category.name in names))
