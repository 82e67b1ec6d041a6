"""`recordmill coco`: convert COCO annotations and images to TFRecord shards."""

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from itertools import chain
from typing import Any

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection
from msgspec.structs import astuple

from recordmill.pipelines.choose_encoder import choose_encoder, text_files
from recordmill.pipelines.convert import Gathered, Job, choose_images, image_contents, input_file, read_division
from recordmill.schemas.dataset.recipes import InputFile
from recordmill.schemas.inputs.encoders import EncoderSource, TextEncoder, TextForm
from recordmill.schemas.inputs.splits import Division, SplitShares
from recordmill.schemas.layouts import LAYOUTS
from recordmill.transforms.blocks.cut_range import BlockKey
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.coco.coco_options import CAPTIONS, CocoOptions
from recordmill.transforms.coco.describe_files import DescribeFiles, FileRules
from recordmill.transforms.coco.find_exports import ExportPart, Given, find_exports
from recordmill.transforms.coco.join_annotations import ListMasks
from recordmill.transforms.coco.join_images import JoinedImages, JoinImages, JoinRules
from recordmill.transforms.coco.read_coco import CocoFiles, ReadAnnotations, ReadRules, range_bits, united
from recordmill.transforms.dataset.compare_names import NO_NAMES
from recordmill.transforms.dataset.dataset_folder import labels_beside
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.encoders.encode_captions import EncodeCaptions
from recordmill.transforms.encoders.fit_encoder import encoder_warnings
from recordmill.transforms.join.list_images import ListFolders, files_by_name
from recordmill.transforms.join.screen_objects import Filters


def prepare(options: CocoOptions) -> Job:
    """Return the job of `recordmill coco`.

    Raises:
        ConfigError: The existing vocabulary cannot encode the captions; or see `find_exports`.
    """
    options, given = find_exports(options)
    form, splits = options.text_form, given.splits
    text = None if form is TextForm.RAW else choose_encoder(options, form, CAPTIONS, options.output, splits)
    steps = partial(gather, options=options, given=given, text=text)
    contents = image_contents(options, splits, options.table)
    return Job(options, splits, partial(inputs, options, text), steps, contents, notes=given.notes)


def inputs(options: CocoOptions, text: EncoderSource | None = None) -> Iterator[InputFile]:
    """Yield the annotation files and others that determine bytes."""
    for source in sorted(options.sources, key=astuple):
        yield input_file(source.kind.value, source.path, source.masks)
    yield from text_files(options, text)


def gather(p: beam.Pipeline, options: CocoOptions, given: Given, text: EncoderSource | None = None) -> Gathered:
    """Return annotations joined with image files, and the categories; captions are encoded by `text`."""
    splits = given.splits
    division = read_division(p, options)
    read = [p | f"ReadCoco{part.split}" >> ReadAnnotations(read_rules(part, options)) for part in given.parts]
    tables = options.table, options.layout_table, LAYOUTS[options.layout]
    beside = labels_beside(options.output, splits)
    split_of = {source.path: part.split for part in given.parts for source in part.sources if part.split}
    asked = FileRules(options.categories, splits, *tables, beside, split_of, given.warnings, bool(given.data))
    described = united([coco.files for coco in read], "Files") | "DescribeFiles" >> DescribeFiles(asked)
    joined = [
        join_part(part, coco, described.categories, division, options, splits)
        for part, coco in zip(given.parts, read, strict=True)
    ]
    chosen = choose_images(options, united([each.blocks for each in joined], "Blocks"), splits)
    gathered = Gathered(
        chosen.blocks,
        described.labels,
        described.table,
        (*chain.from_iterable(each.facts for each in (*read, *joined)), described.facts, *chosen.facts),
        division=division if options.keeps_groups else None,
    )
    if text is None:
        return gathered
    blocks, encoder, text_facts = chosen.blocks | "EncodeCaptions" >> EncodeCaptions(text, splits)
    warned = encoder | "EncoderWarnings" >> beam.Map(_warned, splits)
    facts = (*gathered.facts, text_facts, warned)
    return gathered._replace(blocks=blocks, facts=facts, encoders=encoder)


def read_rules(part: ExportPart, options: CocoOptions) -> ReadRules:
    assumed = part.images[0] if options.no_list else ""
    first, bits = part.split or options.splits[0], range_bits(part.sources)
    return ReadRules(part.sources, options.masks != "none", bits, options.match, options.seed, assumed, first)


# Long list of arguments: the steps of a part need everything that parts share.
def join_part(
    part: ExportPart,
    coco: CocoFiles,
    categories: PCollection,
    division: Division | AsSingleton,
    options: CocoOptions,
    splits: tuple[str, ...],
) -> JoinedImages:
    """Return a part's images; `splits` are the job's."""
    p, named, bits = coco.rows.pipeline, part.split, range_bits(part.sources)
    files = masks = None
    if not options.no_list:
        list_files = ListFolders(options.output, files_by_name, options.match, 1 << bits, is_noted=False)
        files = (p | f"ImageFolders{named}" >> beam.Create(part.images) | f"ListImages{named}" >> list_files).blocks
    folders = sorted({source.masks for source in part.sources if source.masks})
    if folders and not options.no_list:
        masks = p | f"MaskFolders{named}" >> beam.Create(folders) | f"ListMasks{named}" >> ListMasks()
    filters = Filters(options.categories, not options.no_crowd, options.min_area)
    divides: Any = "by labels" if options.stratify else f"by {options.split_by}"
    rules = JoinRules(
        part.sources, bits, options.match, options.seed, filters, options.table, options.max_side, divides
    )
    own = Division(SplitShares(((named, Fraction(1)),))) if named else division
    join = JoinImages(rules, categories, own, (named,) if named else splits, files, masks)
    joined = (coco.rows, coco.annotations) | f"JoinImages{named}" >> join
    if not named:
        return joined
    of_split = beam.Map(_of_split, splits.index(named)).with_output_types(tuple[BlockKey, bytes])
    facts = joined.facts
    if part.shares_images:  # rows of this part do not name the files of other parts
        facts = tuple(each | f"Listed{named}{i}" >> beam.Map(_without_unlisted) for i, each in enumerate(facts))
    return JoinedImages(joined.blocks | f"OfSplit{named}" >> of_split, facts)


def _of_split(keyed: tuple[BlockKey, bytes], split: int) -> tuple[BlockKey, bytes]:
    """Return a part's Block with the index of its split, and with a key that is unique in the job."""
    key, block = keyed[0], unpack_block(keyed[1])
    return key + (split << _KEY_BITS), pack_block(block.replace(split=np.full(len(block), split, np.int64)))


_KEY_BITS = 48
"""A part has fewer than 2 ** 16 ranges of 2 ** 32 Blocks."""


def _without_unlisted(facts: Facts) -> Facts:
    return msgspec.structs.replace(facts, unlisted=NO_NAMES)


def _warned(encoder: TextEncoder, splits: tuple[str, ...]) -> Facts:
    return Facts(warnings={(split, text) for text in encoder_warnings(encoder) for split in splits})
