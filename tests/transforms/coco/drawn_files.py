"""COCO files that tests draw, as rows of JSON and as Blocks."""

import itertools
import json
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from recordmill.schemas.block import Block, join_blocks
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.coco import AnnotationBlock, AnnotationKind, AnnotationSource, BoxFormat
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.transforms.blocks.pack_block import pack_parts, unpack_block
from recordmill.transforms.blocks.run_step import hash_images, ranges_of
from recordmill.transforms.coco.convert_rows import convert_annotation_rows, convert_image_rows, convert_plain_objects
from recordmill.transforms.coco.decode_coco import decode_coco
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.join.list_images import file_block
from recordmill.transforms.join.match_blocks import NO_FILES, assign_buckets, match_rows, name_keys

Kind = AnnotationKind
LARGE_ID = 1 << 40
CATEGORIES = LabelMap(
    (Category(1, "cat", keypoints=("nose",)), Category(3, "dog"), Category(LARGE_ID, "yak")),
    (Category(1, "cat", isthing=1), Category(92, "sky", isthing=0)),
)
SOURCES = [
    AnnotationSource(Kind.INSTANCES, "a.json"),
    AnnotationSource(Kind.INSTANCES, "b.json", bbox_format=BoxFormat.XYWH),
    AnnotationSource(Kind.INSTANCES, "r.json", bbox_format=BoxFormat.REL_XYXY),
    AnnotationSource(Kind.KEYPOINTS, "k.json"),
    AnnotationSource(Kind.CAPTIONS, "c.json"),
    AnnotationSource(Kind.CAPTIONS, "a.json"),  # a file of two kinds
    AnnotationSource(Kind.STUFF, "s.json"),
    AnnotationSource(Kind.PANOPTIC, "p.json", masks="masks"),
    AnnotationSource(Kind.IMAGE_INFO, "i.json"),
]
IMAGE_IDS = [1, 2, 3, LARGE_ID, -2]
_IDS = st.sampled_from([*IMAGE_IDS, 1, 1, 2, 2, 1, 2])
_OBJECT_IDS = st.integers(0, 4)
_CATEGORIES = st.sampled_from([1, 1, 3, LARGE_ID, 9, LARGE_ID + 1])
_SIZES = st.sampled_from([(40, 30)] * 6 + [(None, None)] * 3 + [(30, 40), (10**6, 10**6), (178_000_000, 1)])


class DrawnFile(NamedTuple):
    source: AnnotationSource
    images: list[dict[str, Any]]
    annotations: list[dict[str, Any]]


def name_of(id_: int) -> str:
    return f"x/{id_}.jpg"


def _spelled(id_: int, number: int, other: str) -> str:
    return {0: other, 1: f"./x//{id_}.jpg"}.get(number, name_of(id_))


def _image_row(id_: int, name: str, size: tuple, lists: list | None) -> dict[str, Any]:
    row = {"id": id_, "file_name": name, "width": size[0], "height": size[1]}
    return row if lists is None else {**row, "neg_category_ids": lists, "not_exhaustive_category_ids": lists[:1]}


def image_rows(names: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Image rows, of which some have a name of `names`, such as that of another image."""
    spelled = st.tuples(_IDS, st.integers(0, 11), names).map(lambda row: (row[0], _spelled(*row)))
    lists = st.sampled_from([None, None, None, [5, 2], []])
    return st.builds(lambda named, size, lists: _image_row(*named, size, lists), spelled, _SIZES, lists)


_BOXES = st.sampled_from([[1, 2, 3, 4], [0.25, 0.5, 0.5, 0.75], [5.5, 5, 2, 1.25], [0, 0, 50, 60]])
_OBJECTS = st.fixed_dictionaries(
    {"id": _OBJECT_IDS, "image_id": _IDS, "category_id": _CATEGORIES, "bbox": _BOXES},
    optional={
        "area": st.sampled_from([None, 12, -1, 0.5, 2000]),
        "iscrowd": st.integers(0, 1),
        "segmentation": st.just([[1, 2]]),
    },
)
_ODD = st.sampled_from(
    [{"bbox": []}, {"bbox": [1, 2, -3, 4]}, {"area": 1e30}, {"id": "x"}, {"category_id": None}, {"iscrowd": 7}]
)
_POINTS = st.sampled_from([[1, 2, 2], [1, 2, 2], [0, 0, 0], [1, 2, 2, 3, 4, 1], [], [1]])
_SEGMENTS = st.lists(
    st.fixed_dictionaries({"id": st.integers(1, 3), "category_id": st.sampled_from([1, 92, 92, 93])}), max_size=2
)


def annotation_rows(kind: Kind) -> st.SearchStrategy[dict[str, Any]]:
    if kind is Kind.CAPTIONS:
        return st.fixed_dictionaries({"id": _OBJECT_IDS, "image_id": _IDS, "caption": st.sampled_from(["a", "ü"])})
    if kind is Kind.PANOPTIC:
        return st.fixed_dictionaries(
            {"image_id": _IDS, "file_name": st.sampled_from(["1.png", "2.png", "big.png"]), "segments_info": _SEGMENTS}
        )
    if kind is Kind.STUFF:
        region = {"id": _OBJECT_IDS, "image_id": _IDS, "category_id": st.sampled_from([92, 93])}
        return st.fixed_dictionaries(region | {"segmentation": st.just([[1]])})
    objects = _OBJECTS
    if kind is Kind.KEYPOINTS:
        objects = st.tuples(_OBJECTS, _POINTS).map(lambda both: {**both[0], "keypoints": both[1]})
    return st.tuples(objects, st.integers(0, 9), _ODD).map(
        lambda drawn: {**drawn[0], **drawn[2]} if drawn[1] == 9 else drawn[0]
    )


@st.composite
def files(draw: st.DrawFn, names: st.SearchStrategy[str]) -> list[DrawnFile]:
    chosen = draw(st.lists(st.sampled_from(SOURCES), min_size=1, max_size=4, unique=True))
    drawn = []
    for source in chosen:
        images = draw(st.lists(image_rows(names), max_size=6))
        annotations = [] if source.kind is Kind.IMAGE_INFO else draw(st.lists(annotation_rows(source.kind), max_size=9))
        drawn.append(DrawnFile(source, images, annotations))
    return drawn


def blocks_of(drawn: Sequence[DrawnFile], rng: random.Random) -> tuple[list[Block], list[Block]]:
    """Image rows and annotations, cut anywhere into parts of their files."""
    sources = [file.source for file in drawn]
    rows, annotations = [], []
    for file in drawn:
        number = 0
        for name in ("images", "annotations") if rng.random() < 0.5 else ("annotations", "images"):
            list_rows = getattr(file, name)
            if not list_rows:
                continue
            cuts = [
                0,
                *sorted(rng.sample(range(1, len(list_rows)), min(2, max(len(list_rows) - 1, 0)))),
                len(list_rows),
            ]
            for start, end in itertools.pairwise(cuts):
                block = AnnotationBlock(file.source, number, name, start, 0, 0, 0, 0)
                number += 1
                text = b",".join(json.dumps(row).encode() for row in list_rows[start:end])
                rows_read = decode_coco(file.source.path, name, text, file.source.kind, True)
                rows.append(convert_image_rows(block, rows_read, sources))
                rows_read = rows_read._replace(objects=convert_plain_objects(file.source, rows_read.annotations))
                annotations.append(convert_annotation_rows(block, rows_read, sources))
    return [block for block in rows if len(block)], [block for block in annotations if len(block)]


def in_groups(blocks: Sequence[Block], keys: Any, rng: random.Random) -> dict[int, list[Block]]:
    """Blocks by key as a runner groups them: in any order."""
    groups: dict[int, list[Block]] = {}
    for block in blocks:
        for key, packed in pack_parts(block, keys(block)):
            groups.setdefault(key, []).append(unpack_block(packed))
    for group in groups.values():
        rng.shuffle(group)
    return groups


def matched_rows(
    rows: Sequence[Block], files: dict[str, ImageFile], division: Any, facts: FactsBuilder, rng: random.Random
) -> list[Block]:
    """Rows that have met their files, in eight buckets of names."""
    matched = []
    listed = [file_block(files.items())]
    rows_by_bucket = in_groups(rows, lambda block: assign_buckets(name_keys(block.file_name.texts()), "path", 8), rng)
    files_by_bucket = in_groups(listed, lambda block: assign_buckets(block.file_name.texts(), "path", 8), rng)
    for bucket in rows_by_bucket.keys() | files_by_bucket.keys():
        bucket_files = join_blocks([NO_FILES, *files_by_bucket.get(bucket, [])])
        if bucket in rows_by_bucket:
            block, unlisted = match_rows(join_blocks(rows_by_bucket[bucket]), bucket_files, "path", division)
            matched.append(block)
            facts.add_unlisted(*unlisted)
        else:
            facts.add_unlisted(*bucket_files.file_name.texts())
    return matched


def in_ranges(blocks: Sequence[Block], seed: int, bits: int, rng: random.Random) -> dict[int, list[Block]]:
    return in_groups(blocks, lambda block: ranges_of(hash_images(block.image_id, seed), bits), rng)
