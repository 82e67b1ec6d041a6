"""`recordmill coco`: convert COCO annotations and images to TFRecord shards."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import apache_beam as beam
from msgspec.structs import astuple

from recordmill.pipelines.choose_encoder import choose_encoder, text_files
from recordmill.pipelines.convert import (
    Gathered,
    Job,
    choose_images,
    exclude_files,
    group_files,
    input_file,
    pictures,
    read_division,
)
from recordmill.schemas.dataset.recipes import InputFile
from recordmill.schemas.inputs.encoders import EncoderSource, TextEncoder, TextForm
from recordmill.schemas.layouts import LAYOUTS
from recordmill.transforms.coco.coco_options import CAPTIONS, CocoOptions
from recordmill.transforms.coco.describe_files import DescribeFiles, FileRules
from recordmill.transforms.coco.join_annotations import ListMasks
from recordmill.transforms.coco.join_images import Filters, JoinImages, JoinRules
from recordmill.transforms.coco.read_coco import ReadAnnotations, ReadRules, range_bits
from recordmill.transforms.dataset.dataset_folder import labels_beside
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.encoders.encode_captions import EncodeCaptions
from recordmill.transforms.encoders.fit_encoder import encoder_warnings
from recordmill.transforms.join.list_images import ListFolders, files_by_name


def prepare(options: CocoOptions) -> Job:
    """Return the job of `recordmill coco`.

    Raises:
        ConfigError: the captions cannot be encoded by the vocabulary that there is.
    """
    form, splits = options.text_form, options.splits
    text = None if form is TextForm.RAW else choose_encoder(options, form, CAPTIONS, options.output, splits)
    steps = partial(gather, options=options, text=text)
    return Job(options, splits, partial(inputs, options, text), steps, pictures(options, splits, options.table))


def inputs(options: CocoOptions, text: EncoderSource | None = None) -> Iterator[InputFile]:
    """Yield the annotation files, and others that determine the bytes of each split."""
    for source in sorted(options.sources, key=astuple):
        yield input_file(source.kind.value, source.path, source.masks)
    yield from text_files(options, text)
    yield from group_files(options)
    yield from exclude_files(options)


def gather(p: beam.Pipeline, options: CocoOptions, text: EncoderSource | None = None) -> Gathered:
    """Return annotations joined with image files, and the categories; captions are encoded by `text`."""
    division = read_division(p, options)
    first, bits = options.splits[0], range_bits(options.sources)
    assumed = options.images[0] if options.no_list else ""
    rules = ReadRules(options.sources, options.masks != "none", bits, options.match, options.seed, assumed, first)
    coco = p | "ReadCoco" >> ReadAnnotations(rules)
    files = masks = None
    if not options.no_list:
        list_files = ListFolders(options.output, files_by_name, options.match, 1 << bits, is_noted=False)
        files = (p | "ImageFolders" >> beam.Create(options.images) | "ListImages" >> list_files).blocks
    if options.panoptic_masks and not options.no_list:
        masks = p | "MaskFolders" >> beam.Create(sorted(set(options.panoptic_masks))) | "ListMasks" >> ListMasks()
    tables = options.table, options.layout_table, LAYOUTS[options.layout]
    beside = labels_beside(options.output, options.splits)
    asked = FileRules(options.categories, options.splits, *tables, beside)
    described = coco.files | "DescribeFiles" >> DescribeFiles(asked)
    filters = Filters(options.categories, not options.no_crowd, options.min_area)
    divides: Any = "by labels" if options.stratify else f"by {options.split_by}"
    joining = JoinRules(
        options.sources, bits, options.match, options.seed, filters, options.table, options.max_side, divides
    )
    join = JoinImages(joining, described.categories, division, options.splits, files, masks)
    joined = (coco.rows, coco.annotations) | "JoinImages" >> join
    chosen = choose_images(options, joined.blocks, options.splits)
    gathered = Gathered(
        chosen.blocks,
        described.labels,
        described.table,
        (*coco.facts, described.facts, *joined.facts, *chosen.facts),
        division=division if options.keeps_groups else None,
    )
    if text is None:
        return gathered
    encoded = chosen.blocks | "EncodeCaptions" >> EncodeCaptions(text, options.splits)
    warned = encoded.encoder | "EncoderWarnings" >> beam.Map(_warned, options.splits)
    facts = (*gathered.facts, encoded.facts, warned)
    return gathered._replace(blocks=encoded.blocks, facts=facts, encoders=encoded.encoder)


def _warned(encoder: TextEncoder, splits: tuple[str, ...]) -> Facts:
    return Facts(warnings={(split, text) for text in encoder_warnings(encoder) for split in splits})
