"""A class folder that holds folders named like other classes is most likely a copy of the data set, or a split."""

from collections import Counter
from collections.abc import Iterable, Iterator

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.labels import LabelMap
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.dataset.facts import Facts

_SHOWN = 5

Nested = tuple[tuple[str, str], int]
"""((class, folder below it), number of images)."""


class WarnOfNestedClasses(beam.PTransform):
    """Convert (range, packed Block) of image rows whose first folder is their class to Facts with warnings.

    Args:
        labels: a PCollection of one LabelMap.
        splits: each gets the warnings.
    """

    def __init__(self, labels: PCollection, splits: tuple[str, ...]):
        super().__init__()
        self._labels = labels
        self._splits = splits

    def expand(self, rows: PCollection[tuple[int, bytes]]):
        return (
            rows
            | "Folders" >> beam.FlatMap(_folders).with_output_types(Nested)
            | "CountFolders" >> beam.CombinePerKey(sum)
            | "CollectFolders" >> beam.combiners.ToList()
            | "Warn" >> beam.Map(_warned, AsSingleton(self._labels), self._splits)
        )


def _folders(keyed: tuple[int, bytes]) -> Iterable[Nested]:
    found: Counter[tuple[str, str]] = Counter()
    for name in unpack_block(keyed[1]).file_name.texts():
        first, *others = name.split("/")[:-1]
        found.update((first, folder) for folder in set(others))
    return found.items()


def _warned(nested: list[Nested], labels: LabelMap, splits: tuple[str, ...]) -> Facts:
    return Facts(warnings={(split, text) for text in nested_classes(nested, labels) for split in splits})


def nested_classes(nested: Iterable[Nested], labels: LabelMap) -> Iterator[str]:
    """A sentence for each class whose folder holds some that are named like other classes, in whatever case."""
    names = [category.name for category in labels.categories]
    known = {name.casefold(): name for name in names}
    found: dict[str, list[tuple[str, int]]] = {}
    for (name, folder), number in sorted(nested):
        if name in names and known.get(folder.casefold(), name) != name:
            found.setdefault(name, []).append((folder, number))
    others = [name for name in names if name not in found]
    for name, folders in found.items():
        shown = ", ".join(f"{folder!r} {number:,}" for folder, number in folders[:_SHOWN])
        more = f" and {len(folders) - _SHOWN} more" if len(folders) > _SHOWN else ""
        cure = f"--classes {','.join(others)}" if 0 < len(others) <= _SHOWN else "--classes with the others"
        yield (
            f"class {name!r} holds folders named like other classes, with so many images: {shown}{more}; if it is a "
            f"copy, or a split, leave it out by {cure}"
        )
