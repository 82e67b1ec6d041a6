"""`recordmill coco`: COCO annotations and images become TFRecord shards."""

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.pipelines.convert import Gathered, read_division
from recordmill.pipelines.options.coco_options import CocoOptions
from recordmill.schemas.encoders import EncoderSource, TextEncoder
from recordmill.schemas.layouts import LAYOUTS
from recordmill.transforms.coco.describe_files import DescribeFiles, FileRules
from recordmill.transforms.coco.join_images import JoinImages, JoinRules
from recordmill.transforms.coco.match_masks import ListMasks
from recordmill.transforms.coco.read_coco import ReadCoco, ReadRules, range_bits
from recordmill.transforms.coco.screen_annotations import Filters
from recordmill.transforms.join.list_images import ListFiles
from recordmill.transforms.text.encode_captions import EncodeCaptions, EncodedCaptions
from recordmill.transforms.text.fit_encoder import encoder_warnings


def gather(p: beam.Pipeline, options: CocoOptions, text: EncoderSource | None = None) -> Gathered:
    """Annotations, image files and categories, joined and screened; captions encoded, if `text` says by what."""
    division = read_division(p, options)
    first, bits = options.splits[0], range_bits(options.sources)
    assumed = options.images[0] if options.no_list else ""
    rules = ReadRules(options.sources, options.masks != "none", bits, options.match, options.seed, assumed, first)
    coco = p | "ReadCoco" >> ReadCoco(rules)
    files = masks = None
    if not options.no_list:
        list_files = ListFiles(options.output, options.match, 1 << bits)
        files = p | "ImageFolders" >> beam.Create(options.images) | "ListImages" >> list_files
    if options.panoptic_masks and not options.no_list:
        masks = p | "MaskFolders" >> beam.Create(sorted(set(options.panoptic_masks))) | "ListMasks" >> ListMasks()
    asked = FileRules(options.categories, options.splits, options.table, options.layout_table, LAYOUTS[options.layout])
    described = coco.files | "DescribeFiles" >> DescribeFiles(asked)
    filters = Filters(options.categories, not options.no_crowd, options.min_area)
    joining = JoinRules(options.sources, bits, options.match, options.seed, filters, options.table, options.max_side)
    join = JoinImages(joining, described.categories, division, files, masks)
    joined = (coco.rows, coco.annotations) | "JoinImages" >> join
    encoded = joined.blocks | "EncodeCaptions" >> EncodeCaptions(text, options.splits) if text else None
    return Gathered(
        encoded.blocks if encoded else joined.blocks,
        described.labels,
        described.table,
        (*coco.facts, described.facts, *joined.facts),
        _text_warnings(p, encoded, options.splits),
        encoded.texts if encoded else None,
        division=division if options.keeps_groups else None,
    )


def _text_warnings(p: beam.Pipeline, encoded: EncodedCaptions | None, splits: tuple[str, ...]) -> PCollection:
    if not encoded:
        return p | "NoWarnings" >> beam.Create([])
    return encoded.texts.encoders | "EncoderWarnings" >> beam.FlatMap(_encoder_warnings, splits)


def _encoder_warnings(encoder: TextEncoder, splits: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(split, text) for text in encoder_warnings(encoder) for split in splits]
