"""Splits by class: each split gets its share of every class, not only of all images.

Which images those are still follows from their names; but an image at the border between two splits may come to lie
beyond it when others of its class are added. A group of images that belong together counts, with all of them, as of
the class that most of them have. One worker has the positions of all images in memory, 16 bytes per image.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsIter, AsSingleton, PCollection

from recordmill.schemas.inputs.splits import Division
from recordmill.transforms.blocks.pack_block import Keyed, unpack_block
from recordmill.transforms.join.divide_images import assign_splits, class_borders, pairs_of, positions_of
from recordmill.transforms.join.match_blocks import name_keys

Placed = tuple[tuple[str, ...], bytes]
"""Names of classes, and int64 [N, 2]: position of an image, and index of its class in them."""


@dataclass(eq=False, repr=False)
class Stratify(beam.PTransform):
    """Convert (range, packed Block) of image rows to the same rows with their splits by class.

    Args:
        splits: of the job; the column `split` is an index of them.
    """

    division: Division | AsSingleton
    splits: Sequence[str]

    def expand(self, rows: PCollection[Keyed]) -> PCollection[Keyed]:
        divided = (
            rows
            | "PlaceInClass" >> beam.Map(_placed, self.division).with_output_types(tuple[int, Placed])
            | "AllPlaces" >> beam.GroupByKey()
            | "DivideClasses" >> beam.Map(_divided, self.division).with_output_types(tuple[bytes, bytes])
        )
        assign = beam.Map(assign_splits, AsIter(divided), self.division, self.splits)
        return rows | "AssignSplits" >> assign.with_output_types(Keyed)


def _placed(keyed: Keyed, division: Division) -> tuple[int, Placed]:
    block = unpack_block(keyed[1])
    classes = block.class_name.texts()
    index = {name: number for number, name in enumerate(dict.fromkeys(classes))}
    positions = positions_of(name_keys(block.file_name.texts()), division)
    class_of = np.array([index[name] for name in classes], np.int64)
    return 0, (tuple(index), np.stack([positions, class_of], axis=1).tobytes())


def _divided(keyed: tuple[int, Iterable[Placed]], division: Division) -> tuple[bytes, bytes]:
    """Return the positions of all units, ascending, and the number of the split of each."""
    placed = list(keyed[1])
    names = sorted({name for of_block, _ in placed for name in of_block})
    index = {name: number for number, name in enumerate(names)}
    pairs = [pairs_of([data]) for _, data in placed]
    of_blocks = (np.array([index[name] for name in of_block], np.int64) for of_block, _ in placed)
    class_of = np.concatenate([of_block[of[:, 1]] for of_block, of in zip(of_blocks, pairs, strict=True)])
    positions, unit, images = np.unique(np.concatenate(pairs)[:, 0], return_inverse=True, return_counts=True)
    found, counts = np.unique(unit * len(names) + class_of, return_counts=True)
    of_unit, of_class = np.divmod(found, max(1, len(names)))
    most = np.lexsort((of_class, -counts, of_unit))  # of equal numbers, the first name
    class_of_unit = of_class[most[np.unique(of_unit[most], return_index=True)[1]]]
    split = np.zeros(len(positions), np.int64)
    ordered, ends = (
        np.argsort(class_of_unit, kind="stable"),
        np.cumsum(np.bincount(class_of_unit, minlength=len(names))),
    )
    for name, units in zip(names, np.split(ordered, ends), strict=False):
        borders = class_borders(name, np.stack([positions[units], images[units]], axis=1), division.shares)
        split[units] = np.searchsorted(np.array(borders, np.int64), positions[units], side="right")
    return positions.tobytes(), split.tobytes()
