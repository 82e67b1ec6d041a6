"""`recordmill coco`: COCO annotations and images become TFRecord shards."""

from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.pipelines.convert import Gathered, read_division
from recordmill.pipelines.options.coco_options import CocoOptions
from recordmill.schemas.coco import AnnotationFile
from recordmill.schemas.encoders import EncoderSource, TextEncoder
from recordmill.schemas.layouts import LAYOUTS
from recordmill.transforms.coco.choose_features import ChooseFeatures
from recordmill.transforms.coco.describe_inputs import DescribeInputs
from recordmill.transforms.coco.join_images import JoinImages, JoinRules
from recordmill.transforms.coco.match_masks import ListMasks
from recordmill.transforms.coco.merge_categories import MergeCategories, select_categories
from recordmill.transforms.coco.read_coco import ReadCoco, ReadRules, range_bits
from recordmill.transforms.coco.screen_annotations import Filters
from recordmill.transforms.dataset.facts import FindFacts
from recordmill.transforms.images.list_images import ListFiles
from recordmill.transforms.metadata.write_metadata import Findings
from recordmill.transforms.runtime.outputs import of_split
from recordmill.transforms.text.encode_captions import EncodeCaptions, EncodedCaptions
from recordmill.transforms.text.encoder_warnings import encoder_warnings


def gather(p: beam.Pipeline, options: CocoOptions, text: EncoderSource | None = None) -> Gathered:
    """Annotations, image files and categories, joined and screened; captions encoded, if `text` says by what."""
    division = read_division(p, options)
    first, bits = options.splits[0], range_bits(options.sources)
    assumed = options.images[0] if options.no_list else ""
    rules = ReadRules(options.sources, options.masks != "none", bits, options.match, options.seed, assumed, first)
    coco = p | "AnnotationFiles" >> beam.Create(options.sources) | "ReadCoco" >> ReadCoco(rules)
    files = masks = None
    if not options.no_list:
        list_files = ListFiles(options.output, options.match, 1 << bits)
        files = p | "ImageFolders" >> beam.Create(options.images) | "ListImages" >> list_files
    if options.panoptic_masks and not options.no_list:
        masks = p | "MaskFolders" >> beam.Create(sorted(set(options.panoptic_masks))) | "ListMasks" >> ListMasks()
    categories = coco.files | "MergeCategories" >> MergeCategories()
    joining = JoinRules(
        options.sources, bits, options.match, options.seed, _filters(options), options.table, options.max_side
    )
    joined = (coco.rows, coco.annotations) | "JoinImages" >> JoinImages(joining, categories, division, files, masks)
    facts = (*coco.facts, *joined.facts) | "FindFacts" >> FindFacts()
    labels = categories | "SelectCategories" >> beam.Map(select_categories, options.categories)
    encoded = joined.blocks | "EncodeCaptions" >> EncodeCaptions(text, options.splits) if text else None
    return Gathered(
        encoded.blocks if encoded else joined.blocks,
        labels,
        coco.files | "ChooseFeatures" >> ChooseFeatures(labels, options.table, options.layout_table),
        Findings(
            coco.files | "DescribeInputs" >> DescribeInputs(LAYOUTS[options.layout], options.splits, facts.rows),
            facts.rejected,
            facts.counted,
            facts.unlisted,
            facts.unmatched,
            _all_warnings(
                coco.files | "InputWarnings" >> beam.FlatMap(_warnings) | "WarningsBySplit" >> of_split(first),
                encoded,
                options.splits,
            ),
        ),
        encoded.texts if encoded else None,
        division=division if options.keeps_groups else None,
    )


def _all_warnings(of_inputs: PCollection, encoded: EncodedCaptions | None, splits: tuple[str, ...]) -> PCollection:
    if not encoded:
        return of_inputs
    of_texts = encoded.texts.encoders | "EncoderWarnings" >> beam.FlatMap(_encoder_warnings, splits).with_output_types(
        Any
    )  # as those of files
    return (of_inputs, of_texts) | "AllWarnings" >> beam.Flatten()


def _encoder_warnings(encoder: TextEncoder, splits: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(split, text) for text in encoder_warnings(encoder) for split in splits]


def _warnings(file: AnnotationFile) -> tuple[str, ...]:
    return file.warnings


def _filters(options: CocoOptions) -> Filters:
    return Filters(options.categories, not options.no_crowd, options.min_area)
