"""COCO files read as a job reads them, in one process."""

from collections.abc import Iterator

import msgspec

from recordmill.schemas.coco import AnnotationFile, AnnotationSource, BlockRows, FileAnnotations
from recordmill.schemas.rejects import Rejected
from recordmill.transforms.coco.complete_annotations import complete_annotations
from recordmill.transforms.coco.cut_blocks import BLOCK_BYTES
from recordmill.transforms.coco.describe_file import BlockSummary, describe_file
from recordmill.transforms.coco.merge_blocks import merge_blocks
from recordmill.transforms.coco.read_coco import cut_file, read_block
from recordmill.transforms.join.join_images import categories_by_id
from recordmill.transforms.join.merge_categories import merge_categories


def read_whole(
    source: AnnotationSource, masks: bool = False, block_bytes: int = BLOCK_BYTES
) -> Iterator[FileAnnotations | AnnotationFile | Rejected]:
    """What a file says of each image, what is rejected, and its summary."""
    blocks, summaries = [], []
    for block in cut_file(source, block_bytes):
        for item in read_block(block, masks):
            if isinstance(item, BlockRows):
                blocks.append(item)
            elif isinstance(item, BlockSummary):
                summaries.append(item)
            else:
                yield item
    file = describe_file(source, summaries)
    categories = categories_by_id(merge_categories([file]))
    for _, (part,) in merge_blocks(blocks):
        completed = complete_annotations(part, categories)
        yield from completed.rejected
        yield msgspec.structs.replace(completed, rejected=(), bbox_format=None)
    yield file
