"""Divide Samples of a user's pipeline into tiles."""

from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import msgspec
import numpy as np

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.inputs.annotations import Annotation
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import MAX_PIXELS, TileRules
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.rejects import Rejected, UnusableError
from recordmill.transforms.blocks.image_tasks import image_tasks
from recordmill.transforms.images.measure_size import measure_size
from recordmill.transforms.join.sample_rows import CategoryFinder, sample_rows, usable_objects
from recordmill.transforms.shape.divide_images import divide_images, object_id_in_tile
from recordmill.transforms.user_samples.convert_samples import find_sample_file, sample_tile, validate_sample
from recordmill.transforms.user_samples.log_rejects import RejectLog


class TileSamples(beam.DoFn):
    """Convert a Sample to the Samples of its tiles. Rejects of objects are counted; the first ten are logged.

    Args:
        upright: True if files without a size in the source are turned by EXIF.
    """

    def __init__(self, rules: TileRules, upright: bool):
        self._rules, self._upright, self._log = rules, upright, RejectLog()

    def process(self, sample: Sample) -> Iterator[Sample]:
        tiles, rejects = tile_sample(sample, self._rules, self._upright)
        for reject in rejects:
            self._log.add(reject)
        yield from tiles


def tile_sample(sample: Sample, rules: TileRules, upright: bool) -> tuple[list[Sample], list[Rejected]]:
    """Return the tiles of a Sample, and the rejects of its objects. A Sample that is a tile, or whose image cannot be
    read, is returned as it was given.

    Args:
        upright: See TileSamples.
    """
    try:
        checked, rejects = validate_sample(sample)
        sides = None if checked.tile else _find_size(checked, upright)
    except UnusableError:  # the step that makes records rejects it
        return [sample], []
    if sides is None or sides[0] * sides[1] > MAX_PIXELS:
        return [sample], []
    pairs = usable_objects(checked, CategoryFinder(None), rejects.append)
    block = sample_rows([checked], [pairs]).replace(
        image_size_px=np.array([sides], np.int64),
        is_measured=np.array([not checked.width]),
        file_folder=ragged_texts([checked.path]),
    )
    if pairs:
        block = block.replace(object_id=np.arange(len(pairs)))
    if checked.class_name is not None:  # all tiles have a label
        rules = msgspec.structs.replace(rules, keep_empty=1.0)
    # WriteDataset, which knows the policy, cuts or rejects boxes that cross the edge of the image.
    tiles = divide_images(block, rules, "keep")
    rejects += [
        msgspec.structs.replace(reject, id=None if reject.id is None else pairs[reject.id][1].id)
        for _, reject in tiles.rejects
    ]
    return [*_tile_samples(checked, pairs, tiles.block)], rejects


def _find_size(sample: Sample, upright: bool) -> tuple[int, int] | None:
    """Return width and height in pixels; None if the image cannot be read."""
    if sample.width and sample.height:
        return sample.width, sample.height
    file = find_sample_file(sample)
    image = ImageFile(sample.path, file.size_bytes, file.version, sample.data, sample.offset)
    return measure_size(image, upright and not sample.ignores_exif)


def _tile_samples(sample: Sample, pairs: Sequence[tuple[Annotation, SampleObject]], block: Block) -> Iterator[Sample]:
    """Yield the tiles of a Sample.

    Args:
        pairs: Objects of the Sample. Those of tiles have their indices in the column `whole_object_id`.
        block: Tiles.
    """
    index = iter(block.whole_object_id.tolist() if block.num_objects else ())
    for task in image_tasks(block.replace(split=np.zeros(len(block), np.int64), **_no_file(len(block))), ("",)):
        objects = []
        for annotation in task.annotations:
            source, given = pairs[next(index)]
            objects.append(_tile_object(task.file_name, annotation, source.id, given))
        tile = task.tile
        yield msgspec.structs.replace(
            sample,
            file_name=task.file_name,
            image_id=task.image_id,
            width=task.width,
            height=task.height,
            objects=tuple(objects),
            stuff=task.labels.regions,
            tile=sample_tile(tile) if tile else None,
        )


def _no_file(images: int) -> dict[str, Any]:
    return {"file_bytes": np.zeros(images, np.int64), "file_version": ragged_texts([""] * images)}


def _tile_object(name: str, annotation: Annotation, id_: int, given: SampleObject) -> SampleObject:
    """Return an object of a tile, by the name of the tile, and the id of the object in the image."""
    return msgspec.structs.replace(
        given,
        box=annotation.bbox_xywh_px,
        frame="px",
        keypoints=annotation.keypoints_xyv,
        segmentation=annotation.segmentation.decode(),
        area_px2=annotation.area_px2,
        corners=annotation.corners_px,
        id=object_id_in_tile(name, id_),
    )
