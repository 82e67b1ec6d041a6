"""The verbs of the command line, and the flags of each."""

from dataclasses import dataclass
from typing import NamedTuple

from recordmill.pipelines.options.coco_options import CocoOptions
from recordmill.pipelines.options.dataset_options import (
    ExtractOptions,
    IndexOptions,
    ReportOptions,
    SampleOptions,
    ShowOptions,
    VerifyOptions,
)
from recordmill.pipelines.options.embed_options import EmbedOptions
from recordmill.pipelines.options.folder_options import FolderOptions
from recordmill.pipelines.options.option import RUN, Kind, OptionField, Options, option, options_of
from recordmill.pipelines.options.table_options import TableOptions


@dataclass(frozen=True, kw_only=True)
class TerminalOptions(Options):
    """What a command shows while it runs, whatever it does."""

    progress: str = option(Kind.CHOICE, RUN, "auto", choices=("auto", "plain", "none")).says(
        "a live line, plain lines, or none", "a live line on a terminal and plain lines elsewhere; plain lines; nothing"
    )
    debug: bool = option(Kind.SWITCH, RUN, False).says("show tracebacks and Beam's log")


class Verb(NamedTuple):
    """A verb of the command line.

    Attributes:
        help: what becomes of what.
        usage: what is needed at least, after the verb.
        examples: commands that run in this order in an empty folder.
        runs_beam: whether it needs Beam, and flags after a lone -- do anything.
    """

    options: type[Options]
    help: str
    description: str
    usage: str
    examples: tuple[str, ...]
    runs_beam: bool = True


_DRAW = "recordmill sample sample"
_CONVERT = "recordmill coco --images sample/images --instances sample/annotations/instances.json"
_CONVERTED = (_DRAW, f"{_CONVERT} --output tfrecords")

VERBS = {
    "coco": Verb(
        CocoOptions,
        "COCO annotations and images -> TFRecord shards",
        "COCO annotations and images become TFRecord shards, with a manifest that says what is in them. At least one "
        "annotation file is needed: instances, keypoints, captions, panoptic, stuff or image-info.",
        "--images DIR|ZIP --instances FILE --output DIR [more flags]",
        (
            _DRAW,
            f"{_CONVERT} --output tfrecords --dry-run",
            f"{_CONVERT} --captions sample/annotations/captions.json --masks png --output with-masks",
            f"{_CONVERT} --categories circle,square --num-shards 4 --output small",
        ),
    ),
    "folder": Verb(
        FolderOptions,
        "class folders, or labelled images -> TFRecord shards",
        "Images of one class each are checked and written as tf.Examples into sharded TFRecord files. The class is "
        "the folder that an image is in, the beginning of its name, or what a table says.",
        "--images DIR|ZIP --output DIR [more flags]",
        (
            _DRAW,
            "recordmill folder --images sample/classes --split train=0.8,val=0.2 --output by-class --dry-run",
            "recordmill folder --images sample/classes --split train=0.8,val=0.2 --stratify --format jpeg"
            " --output by-class",
        ),
    ),
    "embed": Verb(
        EmbedOptions,
        "images -> what a Keras model makes of them, in TFRecord shards",
        "Labelled images, as folder takes them, go through a Keras model up to a layer, and its features are written "
        "as tf.Examples into sharded TFRecord files.",
        "--images DIR|ZIP --model NAME|FILE|DIR --output DIR [more flags]",
        (
            _DRAW,
            "recordmill embed --images sample/classes --model efficientnet-b0 --weights none --input-size 64x64"
            " --output features",
        ),
    ),
    "table": Verb(
        TableOptions,
        "CSV, JSON Lines or Parquet rows -> TFRecord shards",
        "Rows of a table become tf.Examples, one feature a column, in sharded TFRecord files. The types of columns "
        "follow from all their values, or from a schema.",
        "--rows FILE|GLOB --output DIR [more flags]",
        (
            _DRAW,
            "recordmill table --rows sample/objects.csv --label shape --split train=0.8,val=0.2 --gzip"
            " --output objects",
            "recordmill table --rows sample/pictures.csv --images sample/classes --image-column image --label label"
            " --text-column description --text tfidf --output pictures --dry-run",
        ),
    ),
    "verify": Verb(
        VerifyOptions,
        "read a data set back and prove it whole",
        "Every record of a data set is read, parsed and decoded, and held against its manifest.",
        "OUT [more flags]",
        (*_CONVERTED, "recordmill verify tfrecords"),
    ),
    "extract": Verb(
        ExtractOptions,
        "records back to image files + COCO JSON",
        "The images of a data set become files again, and what its records say of them COCO's JSON.",
        "OUT DIR [more flags]",
        (*_CONVERTED, "recordmill extract tfrecords extracted --split train"),
    ),
    "show": Verb(
        ShowOptions,
        "look at a data set, and at the records of anybody's TFRecords",
        "What is in a data set, and in its records, is printed as tables, or drawn: boxes, masks, keypoints, names.",
        "OUT [more flags]",
        (*_CONVERTED, "recordmill show tfrecords", "recordmill show tfrecords --find category=star --save star.png"),
        runs_beam=False,
    ),
    "report": Verb(
        ReportOptions,
        "make a data set's page, report.html, again",
        "A page says what is in a data set: its splits side by side, classes, sizes, what was left out, and pictures. "
        "Each conversion writes it.",
        "OUT",
        (*_CONVERTED, "recordmill report tfrecords"),
        runs_beam=False,
    ),
    "index": Verb(
        IndexOptions,
        "write the index of anybody's TFRecords, for random access",
        "Says where each record begins and ends, so that readers may take any of them: DALI, PyPI's tfrecord, and "
        "recordmill.open. Conversions write it; TFRecords of other programs get theirs here, from the "
        "lengths of their records, whose checksums are checked. Not of GZIP, which has no random access.",
        "PATH...",
        (*_CONVERTED, "recordmill index tfrecords"),
        runs_beam=False,
    ),
    "sample": Verb(
        SampleOptions,
        "write a small COCO data set, drawn by the program",
        "A small COCO data set of every kind is drawn: JPEG and PNG, grey and colour, crowds, images without "
        "objects, one missing file and one broken one; and its objects, cut out, in class folders.",
        "DIR [more flags]",
        (_DRAW, "recordmill sample odd --odd --count 24"),
        runs_beam=False,
    ),
}

EXAMPLES = (*_CONVERTED, "recordmill verify tfrecords")
"""Of the whole program."""


def fields_of(verb: str) -> tuple[OptionField, ...]:
    """All options of a verb, in the order of its help."""
    shown = options_of(TerminalOptions)
    if not VERBS[verb].runs_beam:  # nor has it progress to show
        shown = tuple(each for each in shown if each.name != "progress")
    return (*options_of(VERBS[verb].options), *shown)


def metavar(each: OptionField) -> str:
    """What stands for an option's value in the help; empty for a switch."""
    if each.option.kind is Kind.SWITCH:
        return ""
    return "|".join(each.option.choices) or each.option.metavar or each.name.replace("_", "-").upper()
