"""`recordmill coco`: COCO annotations and images become TFRecord shards."""

from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.pipelines.convert import Gathered, read_division
from recordmill.pipelines.options.coco_options import CocoOptions
from recordmill.schemas.coco import AnnotationFile
from recordmill.schemas.encoders import EncoderSource, TextEncoder
from recordmill.schemas.layouts import LAYOUTS
from recordmill.transforms.coco.describe_inputs import DescribeInputs
from recordmill.transforms.coco.read_coco import ReadCoco
from recordmill.transforms.examples.limit_records import LimitRecords
from recordmill.transforms.images.list_images import ListImages
from recordmill.transforms.join.choose_features import ChooseFeatures
from recordmill.transforms.join.join_images import JoinImages
from recordmill.transforms.join.match_masks import ListMasks
from recordmill.transforms.join.merge_categories import MergeCategories, select_categories
from recordmill.transforms.join.screen_annotations import Filters, ScreenAnnotations
from recordmill.transforms.metadata.write_metadata import Findings
from recordmill.transforms.rejects.bounded_rejects import GatherRejects
from recordmill.transforms.runtime.outputs import REJECTED, of_split
from recordmill.transforms.text.encode_captions import EncodeCaptions, EncodedCaptions
from recordmill.transforms.text.fit_encoder import encoder_warnings


def gather(p: beam.Pipeline, options: CocoOptions, text: EncoderSource | None = None) -> Gathered:
    """Annotations, image files and categories, joined and screened; captions encoded, if `text` says by what."""
    division = read_division(p, options)
    first = options.splits[0]
    coco = p | "AnnotationFiles" >> beam.Create(options.sources) | "ReadCoco" >> ReadCoco(options.masks != "none")
    files = (
        None
        if options.no_list
        else p | "ImageFolders" >> beam.Create(options.images) | "ListImages" >> ListImages(options.output)
    )
    masks = (
        p | "MaskFolders" >> beam.Create(sorted(set(options.panoptic_masks))) | "ListMasks" >> ListMasks()
        if options.panoptic_masks and not options.no_list
        else None
    )
    categories = coco.files | "MergeCategories" >> MergeCategories()
    assumed = options.images[0] if options.no_list else ""
    joined = coco.parts | "JoinImages" >> JoinImages(categories, division, files, assumed, masks, options.match)
    filters = Filters(options.categories, not options.no_crowd, options.min_area)
    screened = joined.tasks | "ScreenAnnotations" >> ScreenAnnotations(categories, filters)
    limited = screened.tasks | "LimitRecords" >> LimitRecords(options.table, options.max_side)
    rejected = coco.rejected | "RejectedRows" >> of_split(first), screened.rejected, limited[REJECTED], *joined.rejected
    counted = screened.counted, joined.counted
    labels = categories | "SelectCategories" >> beam.Map(select_categories, options.categories)
    encoded = limited.tasks | "EncodeCaptions" >> EncodeCaptions(text) if text else None
    return Gathered(
        encoded.tasks if encoded else limited.tasks,
        labels,
        coco.files | "ChooseFeatures" >> ChooseFeatures(labels, options.table, options.layout_table),
        Findings(
            coco.files | "DescribeInputs" >> DescribeInputs(LAYOUTS[options.layout], options.splits, joined.rows),
            rejected | "FoundRejected" >> GatherRejects(),
            counted | "FoundCounted" >> beam.Flatten(),
            joined.unlisted,
            joined.unmatched,
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
