"""Format `coco`: convert COCO annotations and images to TFRecord shards."""

from collections.abc import Iterator
from fractions import Fraction
from functools import partial

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsSingleton, PCollection
from msgspec.structs import astuple

from recordmill.pipelines.choose_encoder import choose_encoder, text_files
from recordmill.pipelines.convert import (
    Job,
    encode_and_plan,
    input_file,
    place_in_split,
    read_division,
    read_existing,
)
from recordmill.pipelines.gathered import Gathered
from recordmill.schemas.dataset.recipes import InputFile
from recordmill.schemas.inputs.coco import ExportPart, Given
from recordmill.schemas.inputs.encoders import EncoderSource, TextForm
from recordmill.schemas.inputs.splits import Division, SplitShares
from recordmill.transforms.blocks.flatten_collections import flatten_collections
from recordmill.transforms.coco.coco_options import CAPTIONS, CocoOptions
from recordmill.transforms.coco.describe_files import DescribeFiles
from recordmill.transforms.coco.find_exports import find_exports
from recordmill.transforms.coco.join_annotations import ListMasks
from recordmill.transforms.coco.join_images import JoinImages
from recordmill.transforms.coco.read_coco import ReadAnnotations, range_bits
from recordmill.transforms.dataset.collect_facts import collect_facts, hand_over
from recordmill.transforms.dataset.compare_names import NO_NAMES
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.join.list_images import ListFolders, files_by_name


def prepare(options: CocoOptions) -> Job:
    """Return the job of the format `coco`.

    Raises:
        ConfigError: The existing vocabulary cannot encode the captions; or see `find_exports`.
    """
    options, given = find_exports(options)
    form, splits = options.text_form, given.splits
    text = None if form is TextForm.RAW else choose_encoder(options, form, CAPTIONS, options.output, splits)
    steps = partial(gather, options=options, given=given)
    maker, plan = encode_and_plan(options, splits, options.table)
    names_splits = bool(given.parts[0].split)
    read = partial(inputs, options, text)
    return Job(options, splits, read, steps, maker, plan, notes=given.notes, captions=text, names_splits=names_splits)


def inputs(options: CocoOptions, text: EncoderSource | None = None) -> Iterator[InputFile]:
    """Yield the annotation files and others that determine bytes."""
    for source in sorted(options.sources, key=astuple):
        yield input_file(source.kind.value, source.path, source.masks)
    yield from text_files(options, text)


def gather(p: beam.Pipeline, options: CocoOptions, given: Given) -> Gathered:
    """Return annotations joined with image files, and the categories."""
    division = read_division(p, options)
    read = [p | f"ReadCoco{part.split}" >> _read_part(part, options) for part in given.parts]
    files = flatten_collections([files for _, _, files in read], "Files")
    existing = read_existing(options, given.splits)
    categories, labels, table = files | "DescribeFiles" >> DescribeFiles(options, given, existing)
    joined = [
        join_part(part, rows, annotations, categories, division, options, given.splits)
        for part, (rows, annotations, _) in zip(given.parts, read, strict=True)
    ]
    blocks = flatten_collections(joined, "Blocks")
    return Gathered(blocks, labels, table, division=division if options.keeps_groups else None)


def _read_part(part: ExportPart, options: CocoOptions) -> ReadAnnotations:
    return ReadAnnotations(options, part, range_bits(part.sources), part.split or options.splits[0])


# Long list of arguments: the steps of a part need everything that parts share.
def join_part(
    part: ExportPart,
    rows: PCollection,
    annotations: PCollection,
    categories: PCollection,
    division: Division | AsSingleton,
    options: CocoOptions,
    splits: tuple[str, ...],
) -> PCollection:
    """Return (BlockKey, packed complete Block) of a part; `splits` are the job's."""
    p, name, bits = rows.pipeline, part.split, range_bits(part.sources)
    files = masks = None
    if not options.no_list:
        list_files = ListFolders(options.output, files_by_name, options.match, 1 << bits, is_noted=False)
        files = p | f"ImageFolders{name}" >> beam.Create(part.images) | f"ListImages{name}" >> list_files
    folders = sorted({source.masks for source in part.sources if source.masks})
    if folders and not options.no_list:
        masks = p | f"MaskFolders{name}" >> beam.Create(folders) | f"ListMasks{name}" >> ListMasks()
    own = (Division(SplitShares(((name, Fraction(1)),))), (name,)) if name else (division, splits)
    join = JoinImages(options, part.sources, bits, categories, *own, files, masks)
    with collect_facts() as collected:
        blocks = (rows, annotations) | f"JoinImages{name}" >> join
    for number, facts in enumerate(collected):
        if part.shares_images:  # rows of this part do not name the files of other parts
            facts = facts | f"Listed{name}{number}" >> beam.Map(_without_unlisted)
        hand_over(facts)
    if not name:
        return blocks
    return place_in_split(blocks, name, splits)


def _without_unlisted(facts: Facts) -> Facts:
    return msgspec.structs.replace(facts, unlisted=NO_NAMES)
