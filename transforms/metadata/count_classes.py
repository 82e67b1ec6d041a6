"""How many objects of each class there are to write; or images, where each has one class."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.schemas.labels import LabelMap
from recordmill.transforms.blocks.image_tasks import labels_of
from recordmill.transforms.blocks.pack_block import unpack_block

OfSplit = tuple[tuple[str, int | str], int]
"""((split, category id or class name), number)."""


class CountClasses(beam.PTransform):
    """Convert (BlockKey, packed Block) to OfSplit."""

    def __init__(self, splits: Sequence[str]):
        super().__init__()
        self._splits = tuple(splits)

    def expand(self, blocks: PCollection[tuple[int, bytes]]) -> PCollection[OfSplit]:
        return blocks | "Classes" >> beam.FlatMap(_classes, self._splits) | "AddClasses" >> beam.CombinePerKey(sum)


def _classes(keyed: tuple[int, bytes], splits: Sequence[str]) -> Iterator[OfSplit]:
    block = unpack_block(keyed[1])
    found: Counter[tuple[int, int | str]] = Counter()
    of_image = block.split.tolist()
    if block.num_objects:
        found.update(zip(block.split[block.image_of_object].tolist(), block.category_id.tolist(), strict=True))
    names = (labels.class_name for labels in labels_of(block))
    found.update((split, name) for split, name in zip(of_image, names, strict=True) if name is not None)
    return (((splits[split], kind), number) for (split, kind), number in found.items())


def class_counts(counts: Iterable[OfSplit], labels: LabelMap) -> dict[str, list[int]]:
    """The numbers of each split by class index.

    >>> from recordmill.schemas.annotations import Category
    >>> class_counts([(("val", "dog"), 3)], LabelMap((Category(0, "cat"), Category(1, "dog"))))
    {'val': [0, 3]}
    """
    of_id = labels.index_by_id()
    of_name = {category.name: index for index, category in enumerate(labels.categories)}
    by_split: dict[str, list[int]] = {}
    for (split, kind), number in sorted(counts, key=str):
        index: Mapping = of_name if isinstance(kind, str) else of_id
        by_split.setdefault(split, [0] * len(labels.categories))[index[kind]] += number
    return by_split
