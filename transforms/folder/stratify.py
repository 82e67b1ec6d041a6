"""Stratified splits: each split gets its share of every class, not only of all images.

The names of images decide which images these are. An image at the border between two splits may move when others of its
class are added. All images of a group count as images of the most frequent class of the group. One worker has the
positions of all images in memory, 16 bytes per image.
"""

from collections.abc import Iterable, Sequence

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsIter, AsSingleton, PCollection

from recordmill.schemas.inputs.splits import Division
from recordmill.transforms.blocks.pack_block import Keyed, unpack_block
from recordmill.transforms.join.divide_images import assign_splits, class_borders, decode_pairs, image_positions
from recordmill.transforms.join.match_blocks import name_keys

Placed = tuple[tuple[str, ...], bytes]
"""Names of classes, and int64 [N, 2]: position of an image, and index of its class among the names."""


class Stratify(beam.PTransform):
    """Convert (range, packed Block) of image rows to the same rows with their splits by class.

    Args:
        splits: Splits of the job; the column `split` has their indices.
        counted: Rows of the images that count, with their final classes, if a class map follows; None for all.
    """

    def __init__(
        self, division: Division | AsSingleton, splits: Sequence[str], counted: PCollection[Keyed] | None = None
    ):
        super().__init__()
        self._division, self._splits, self._counted = division, splits, counted

    def expand(self, rows: PCollection[Keyed]) -> PCollection[Keyed]:
        divided = (
            (rows if self._counted is None else self._counted)
            | "PlaceInClass" >> beam.Map(_place_in_classes, self._division).with_output_types(tuple[int, Placed])
            | "AllPlaces" >> beam.GroupByKey()
            | "DivideClasses" >> beam.Map(_divide_classes, self._division).with_output_types(tuple[bytes, bytes])
        )
        assign = beam.Map(assign_splits, AsIter(divided), self._division, self._splits)
        return rows | "AssignSplits" >> assign.with_output_types(Keyed)


def _place_in_classes(keyed: Keyed, division: Division) -> tuple[int, Placed]:
    block = unpack_block(keyed[1])
    classes = block.class_name.texts()
    index = {name: number for number, name in enumerate(dict.fromkeys(classes))}
    positions = image_positions(name_keys(block.file_name.texts()), division)
    class_index = np.array([index[name] for name in classes], np.int64)
    return 0, (tuple(index), np.stack([positions, class_index], axis=1).tobytes())


def _divide_classes(keyed: tuple[int, Iterable[Placed]], division: Division) -> tuple[bytes, bytes]:
    """Return the positions of all units, ascending, and the number of the split of each."""
    parts = list(keyed[1])
    names = sorted({name for classes, _ in parts for name in classes})
    index = {name: number for number, name in enumerate(names)}
    pairs = [decode_pairs([data]) for _, data in parts]
    indices = (np.array([index[name] for name in classes], np.int64) for classes, _ in parts)
    image_class = np.concatenate([indexed[part[:, 1]] for indexed, part in zip(indices, pairs, strict=True)])
    positions, unit, images = np.unique(np.concatenate(pairs)[:, 0], return_inverse=True, return_counts=True)
    unit_classes, counts = np.unique(unit * len(names) + image_class, return_counts=True)
    counted_unit, counted_class = np.divmod(unit_classes, max(1, len(names)))
    most = np.lexsort((counted_class, -counts, counted_unit))  # of equal counts, the first name
    unit_class = counted_class[most[np.unique(counted_unit[most], return_index=True)[1]]]
    split = np.zeros(len(positions), np.int64)
    ordered, ends = (
        np.argsort(unit_class, kind="stable"),
        np.cumsum(np.bincount(unit_class, minlength=len(names))),
    )
    for name, units in zip(names, np.split(ordered, ends), strict=False):
        borders = class_borders(name, np.stack([positions[units], images[units]], axis=1), division.shares)
        split[units] = np.searchsorted(np.array(borders, np.int64), positions[units], side="right")
    return positions.tobytes(), split.tobytes()
