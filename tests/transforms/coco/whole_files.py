"""COCO files read as a job reads them, in one process."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from recordmill.schemas.block import Block, join_blocks
from recordmill.schemas.inputs.coco import AnnotationFile, AnnotationKind, AnnotationSource, BoxFormat, FileAnnotations
from recordmill.schemas.rejects import Rejected
from recordmill.transforms.blocks.image_tasks import NO_IMAGES
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.coco.convert_rows import convert_annotation_rows, convert_image_rows
from recordmill.transforms.coco.cut_blocks import BLOCK_BYTES
from recordmill.transforms.coco.describe_file import describe_file, summarize
from recordmill.transforms.coco.describe_files import merge_categories
from recordmill.transforms.coco.join_annotations import NO_ANNOTATIONS, group_rows
from recordmill.transforms.coco.merge_annotations import complete_annotations
from recordmill.transforms.coco.read_coco import cut_file, read_block

IMAGE = {"id": 1, "file_name": "a.jpg", "width": 40, "height": 30}
OBJECT = {"id": 7, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3.5, 4], "area": 12.5, "iscrowd": 0}
CATEGORY = {"id": 3, "name": "dog", "supercategory": "animal"}


def document(images: Any = (IMAGE,), annotations: Any = (OBJECT,), categories: Any = (CATEGORY,)) -> dict:
    return {"images": list(images), "annotations": list(annotations), "categories": list(categories)}


def without(row: dict, key: str) -> dict:
    return {name: value for name, value in row.items() if name != key}


class Read:
    """Contents of a file: what it says of each image, its rejects and its summary."""

    def __init__(
        self,
        folder: Path,
        content: dict,
        kind: AnnotationKind | str = AnnotationKind.INSTANCES,
        masks: bool = False,
        format_: BoxFormat | None = None,
        block_bytes: int = BLOCK_BYTES,
    ):
        self.path, kind = str(folder / "file.json"), AnnotationKind(kind)
        Path(self.path).write_text(json.dumps(content))
        pngs = str(folder / "masks") if kind is AnnotationKind.PANOPTIC else ""
        items = list(read_whole(AnnotationSource(kind, self.path, pngs, format_), masks, block_bytes))
        self.files = [item for item in items if isinstance(item, FileAnnotations)]
        self.rejected = [item for item in items if isinstance(item, Rejected)]
        (self.file,) = (item for item in items if isinstance(item, AnnotationFile))
        self.parts = {part.image_id: (part.rows, part.annotations) for part in self.files}
        assert len(self.files) == len(self.parts)
        assert {(part.source, part.kind) for part in self.files} <= {(self.path, kind)}
        assert (self.file.path, self.file.kind) == (self.path, kind)
        rows = len(content.get("images", ())), len(content.get("annotations", ()))
        assert (self.file.images, self.file.annotations) == rows

    @property
    def part(self) -> FileAnnotations:
        """Rows of the only image."""
        (part,) = self.files
        return part

    @property
    def reasons(self) -> list[tuple]:
        return [(reject.what, reject.id, reject.reason, reject.image_id) for reject in self.rejected]


def read_whole(
    source: AnnotationSource, masks: bool = False, block_bytes: int = BLOCK_BYTES
) -> Iterator[FileAnnotations | AnnotationFile | Rejected]:
    """Annotations of each image of a file, rejects, and the file's summary."""
    image_blocks, annotation_blocks, summaries = [NO_IMAGES], [NO_ANNOTATIONS], []
    for block in cut_file(source, block_bytes):
        rows = read_block(block, masks)
        summaries.append(summarize(block, rows))
        yield from (reject for reject in rows.rejected if reject.image_id is None)
        image_blocks.append(_unpacked(convert_image_rows(block, rows, [source]), NO_IMAGES))
        annotation_blocks.append(_unpacked(convert_annotation_rows(block, rows, [source]), NO_ANNOTATIONS))
    file = describe_file(source, summaries)
    categories = {category.id: category for category in merge_categories([file]).categories}
    images, annotations = join_blocks(image_blocks), join_blocks(annotation_blocks)
    ids = np.unique(np.concatenate([images.image_id, annotations.image_id]))
    for _, (part,), _ in group_rows(ids, images, annotations, [source]):
        completed = complete_annotations(part, categories)
        yield from completed.rejected
        yield msgspec.structs.replace(completed, rejected=(), bbox_format=None)
    yield file


def _unpacked(block: Block, empty: Block) -> Block:
    return unpack_block(pack_block(block)) if len(block) else empty
