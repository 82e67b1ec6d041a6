"""Join COCO's image rows, annotations and image files: partial Blocks become complete Blocks."""

from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.block import Block
from recordmill.schemas.inputs.coco import AnnotationSource
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.splits import Division
from recordmill.transforms.blocks.cut_range import BlockKey, cut_range
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.blocks.run_step import hash_images, image_order, run_step
from recordmill.transforms.coco.coco_options import CocoOptions
from recordmill.transforms.coco.join_annotations import MaskFiles, join_annotations
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.encoders.estimate_records import RecordEstimate
from recordmill.transforms.join.divide_images import DivideImages
from recordmill.transforms.join.match_blocks import MatchRows, drop_faulty_images
from recordmill.transforms.join.screen_objects import screen_annotations, selected_labels
from recordmill.transforms.shape.shape_classes import MapPairs
from recordmill.transforms.shards.limit_records import limit_records


class JoinImages(beam.PTransform):
    """Convert (bucket of names, Block of image rows) and (range, Block of annotations) to (BlockKey, packed complete
    Block).

    Args:
        sources: Annotation files of the Blocks.
        bits: Binary logarithm of the number of image ranges.
        labels: PCollection of one LabelMap with all categories of the input.
        files: (bucket of names, Block of files). None if no folder is listed; image rows then have the file columns.
        masks: PCollection of one MaskFiles; None if no folder of panoptic PNGs is listed.
    """

    # Long list of arguments: a part of a job has its own files, masks and splits.
    def __init__(
        self,
        options: CocoOptions,
        sources: tuple[AnnotationSource, ...],
        bits: int,
        labels: PCollection,
        division: Division | AsSingleton,
        splits: Sequence[str],
        files: PCollection | None,
        masks: PCollection | None = None,
    ):
        super().__init__()
        self._options, self._sources, self._bits = options, sources, bits
        self._labels, self._files, self._masks = labels, files, masks
        self._division, self._splits = division, splits

    def expand(self, parts):
        rows, annotations = parts
        options, labels, masks = self._options, AsSingleton(self._labels), self._masks and AsSingleton(self._masks)
        sides = (rows,) if self._files is None else (rows, self._files)
        matched = sides | "MatchRows" >> MatchRows(options.match, self._division, options.seed, self._bits)
        if options.divides_ranked:
            selected = beam.FlatMap(_select_labels, labels, options).with_output_types(tuple[int, bytes])
            ranked_by = (annotations | "SelectedLabels" >> selected,) if options.stratify else ()
            if options.class_map:
                ranked_by = tuple(pairs | "MapPairs" >> MapPairs(options, self._labels) for pairs in ranked_by)
            matched = (matched, *ranked_by) | "DivideImages" >> DivideImages(self._division, self._splits)
        return (
            (matched, annotations)
            | "RowsAndAnnotations" >> beam.Flatten()
            | "GroupByRange" >> beam.GroupByKey()
            | "Join"
            >> WithFacts(
                _join_coco_range, options, self._sources, labels, self._division, masks, types=tuple[BlockKey, bytes]
            )
        )


def _select_labels(keyed: tuple[int, bytes], labels: LabelMap, options: CocoOptions) -> Iterator[tuple[int, bytes]]:
    block = unpack_block(keyed[1])
    if block.num_objects:
        yield keyed[0], selected_labels(block, labels, options)


# Long list of arguments: the options of JoinImages, as this runs on workers.
def _join_coco_range(
    group: tuple[int, Iterable[bytes]],
    facts: FactsBuilder,
    options: CocoOptions,
    sources: tuple[AnnotationSource, ...],
    labels: LabelMap,
    division: Division,
    masks: MaskFiles | None,
) -> Iterator[tuple[BlockKey, bytes]]:
    number, packed = group

    def join(blocks: list[Block]) -> Block:
        block = join_annotations(blocks, sources, labels, division, masks, facts)
        block = drop_faulty_images(block, division.names, facts, options.match, division.group_from)
        block = block.take(image_order(block, hash_images(block.image_id, options.seed)))
        block = screen_annotations(block, labels, options, division.names, facts)
        return limit_records(block, RecordEstimate(options.table, options.max_side), division.names, facts)

    paths = [source.path for source in sources]
    block = run_step("join annotations", join, list(map(unpack_block, packed)), paths)
    yield from cut_range(number, block)
