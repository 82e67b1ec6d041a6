"""What the blocks of annotation files say becomes what each file says of each image."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec

from recordmill.schemas.annotations import NO_LABELS, ImageLabels, ImageRow
from recordmill.schemas.coco import AnnotationKind, BlockRows, FileAnnotations
from recordmill.schemas.rejects import Rejected

LABELS = {
    AnnotationKind.CAPTIONS: "captions",
    AnnotationKind.STUFF: "regions",
    AnnotationKind.PANOPTIC: "panoptic",
}
"""Which of ImageLabels an annotation of a kind is."""


def merge_blocks(blocks: Iterable[BlockRows]) -> list[tuple[int, list[FileAnnotations]]]:
    """Image ids, in order, each with what every file says of it; of all blocks that say something of these ids."""
    of_images: dict[int, list[FileAnnotations]] = {}
    ordered = sorted(blocks, key=attrgetter("source", "kind", "block"))
    for _, of_file in groupby(ordered, attrgetter("source", "kind")):
        for part in _by_image(list(of_file)):
            of_images.setdefault(part.image_id, []).append(part)
    return sorted(of_images.items())


def _by_image(blocks: Sequence[BlockRows]) -> Iterator[FileAnnotations]:
    """What the blocks of a file, in order, say of each image."""
    first = blocks[0]
    images: dict[int, list[ImageRow]] = defaultdict(list)
    lists: dict[int, ImageLabels] = {}
    usable: dict[int, list[Any]] = defaultdict(list)
    rejected: dict[int, list[Rejected]] = defaultdict(list)
    label = LABELS.get(first.kind)
    for block in blocks:
        for row in block.images:
            images[row.id].append(row)
        for row, of_row in zip(block.images, block.lvis, strict=False):  # a block may have none
            if images[row.id][0] is row:
                lists[row.id] = of_row
        rows: tuple[Any, ...] = getattr(block.labels, label) if label else block.annotations
        for image_id, annotation in zip(block.image_ids, rows, strict=True):
            usable[image_id].append(annotation)
        for reject in block.rejected:
            if reject.image_id is not None:
                rejected[reject.image_id].append(reject)
    for image_id in images.keys() | usable.keys() | rejected.keys():
        annotations = tuple(usable.get(image_id, ()))
        labels = lists.get(image_id, NO_LABELS)
        yield FileAnnotations(
            image_id,
            first.source,
            first.kind,
            tuple(images.get(image_id, ())),
            () if label else annotations,
            msgspec.structs.replace(labels, **{label: annotations}) if label and annotations else labels,
            tuple(rejected.get(image_id, ())),
            first.bbox_format,
        )
