"""COCO files read as a job reads them, in one process."""

from collections.abc import Iterator

import msgspec
import numpy as np

from recordmill.schemas.block import Block, join_blocks
from recordmill.schemas.inputs.coco import AnnotationFile, AnnotationSource, FileAnnotations
from recordmill.schemas.rejects import Rejected
from recordmill.transforms.blocks.image_tasks import NO_IMAGES
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.coco.convert_rows import annotation_block, image_block
from recordmill.transforms.coco.cut_blocks import BLOCK_BYTES
from recordmill.transforms.coco.describe_file import describe_file, summarize
from recordmill.transforms.coco.describe_files import merge_categories
from recordmill.transforms.coco.join_annotations import NO_ANNOTATIONS, parts_of
from recordmill.transforms.coco.merge_annotations import complete_annotations
from recordmill.transforms.coco.read_coco import cut_file, read_block


def read_whole(
    source: AnnotationSource, masks: bool = False, block_bytes: int = BLOCK_BYTES
) -> Iterator[FileAnnotations | AnnotationFile | Rejected]:
    """What a file says of each image, what is rejected, and its summary."""
    images, annotations, summaries = [NO_IMAGES], [NO_ANNOTATIONS], []
    for block in cut_file(source, block_bytes):
        rows = read_block(block, masks)
        summaries.append(summarize(block, rows))
        yield from (reject for reject in rows.rejected if reject.image_id is None)
        images.append(unpacked(image_block(block, rows, [source]), NO_IMAGES))
        annotations.append(unpacked(annotation_block(block, rows, [source]), NO_ANNOTATIONS))
    file = describe_file(source, summaries)
    categories = {category.id: category for category in merge_categories([file]).categories}
    of_images, of_annotations = join_blocks(images), join_blocks(annotations)
    ids = np.unique(np.concatenate([of_images.image_id, of_annotations.image_id]))
    for _, (part,), _ in parts_of(ids, of_images, of_annotations, [source]):
        completed = complete_annotations(part, categories)
        yield from completed.rejected
        yield msgspec.structs.replace(completed, rejected=(), bbox_format=None)
    yield file


def unpacked(block: Block, empty: Block) -> Block:
    return unpack_block(pack_block(block)) if len(block) else empty
