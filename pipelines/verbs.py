"""The registry of verbs: the command line, its help, the docs, templates and Params are made of it."""

from importlib import import_module
from typing import Any, NamedTuple

from recordmill.schemas.option import OptionField, Options, options_of


class Verb(NamedTuple):
    """A verb of the command line.

    Attributes:
        options_path: Module and class of its options, which are imported when the verb is used.
        module: What runs it. That of a conversion has `prepare(options)`, which returns a
            `recordmill.pipelines.convert.Job`; that of another verb has `run`.
        help: The input and the result.
        usage: Required flags and arguments.
        examples: Commands that run in this order in an empty folder.
        converts: True if it writes a data set.
        resumes: True if the same command continues after an interruption.
        runs_beam: True if it needs Beam, and takes Beam's flags after a lone --.
        needs_tensorflow: True if it cannot do without TensorFlow.
    """

    options_path: str
    module: str
    help: str
    description: str
    usage: str
    examples: tuple[str, ...]
    converts: bool = False
    resumes: bool = False
    runs_beam: bool = True
    needs_tensorflow: bool = False

    @property
    def options(self) -> type[Options]:
        module, _, name = self.options_path.rpartition(".")
        return getattr(import_module(module), name)

    def load(self, function: str) -> Any:
        """Import the module, and Beam if it needs it, and return one of its functions."""
        return getattr(import_module(self.module), function)


_DRAW = "recordmill sample sample"
_CONVERT = "recordmill coco --images sample/images --instances sample/annotations/instances.json"
_CONVERTED = (_DRAW, f"{_CONVERT} --output tfrecords")

VERBS = {
    "coco": Verb(
        "recordmill.transforms.coco.coco_options.CocoOptions",
        "recordmill.pipelines.coco",
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
        converts=True,
        resumes=True,
    ),
    "folder": Verb(
        "recordmill.transforms.folder.folder_options.FolderOptions",
        "recordmill.pipelines.folder",
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
        converts=True,
        resumes=True,
    ),
    "embed": Verb(
        "recordmill.pipelines.embed_options.EmbedOptions",
        "recordmill.pipelines.embed",
        "images -> what a Keras model makes of them, in TFRecord shards",
        "Labelled images, as folder takes them, go through a Keras model up to a layer, and its features are written "
        "as tf.Examples into sharded TFRecord files.",
        "--images DIR|ZIP --model NAME|FILE|DIR --output DIR [more flags]",
        (
            _DRAW,
            "recordmill embed --images sample/classes --model efficientnet-b0 --weights none --input-size 64x64"
            " --output features",
        ),
        converts=True,
        resumes=True,
        needs_tensorflow=True,
    ),
    "table": Verb(
        "recordmill.transforms.table.table_options.TableOptions",
        "recordmill.pipelines.table",
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
        converts=True,
        resumes=True,
    ),
    "verify": Verb(
        "recordmill.pipelines.dataset_options.VerifyOptions",
        "recordmill.launch.verbs.verify",
        "read a data set back and prove it whole",
        "Every record of a data set is read, parsed and decoded, and held against its manifest.",
        "OUT [more flags]",
        (*_CONVERTED, "recordmill verify tfrecords"),
    ),
    "extract": Verb(
        "recordmill.pipelines.dataset_options.ExtractOptions",
        "recordmill.launch.verbs.extract",
        "records back to image files + COCO JSON",
        "The images of a data set become files again, and what its records say of them COCO's JSON.",
        "OUT DIR [more flags]",
        (*_CONVERTED, "recordmill extract tfrecords extracted --split train"),
        resumes=True,
    ),
    "show": Verb(
        "recordmill.pipelines.dataset_options.ShowOptions",
        "recordmill.launch.verbs.show",
        "look at a data set, and at the records of anybody's TFRecords",
        "What is in a data set, and in its records, is printed as tables, or drawn: boxes, masks, keypoints, names.",
        "OUT [more flags]",
        (*_CONVERTED, "recordmill show tfrecords", "recordmill show tfrecords --find category=star --save star.png"),
        runs_beam=False,
    ),
    "report": Verb(
        "recordmill.pipelines.dataset_options.ReportOptions",
        "recordmill.launch.verbs.report",
        "make a data set's page, report.html, again",
        "A page says what is in a data set: its splits side by side, classes, sizes, what was left out, and pictures. "
        "Each conversion writes it.",
        "OUT",
        (*_CONVERTED, "recordmill report tfrecords"),
        runs_beam=False,
    ),
    "index": Verb(
        "recordmill.pipelines.dataset_options.IndexOptions",
        "recordmill.launch.verbs.index",
        "write the index of anybody's TFRecords, for random access",
        "Says where each record begins and ends, so that readers may take any of them: DALI, PyPI's tfrecord, and "
        "recordmill.open. Conversions write it; TFRecords of other programs get theirs here, from the "
        "lengths of their records, whose checksums are checked. Not of GZIP, which has no random access.",
        "PATH...",
        (*_CONVERTED, "recordmill index tfrecords"),
        runs_beam=False,
    ),
    "sample": Verb(
        "recordmill.pipelines.dataset_options.SampleOptions",
        "recordmill.launch.verbs.sample",
        "write a small COCO data set, drawn by the program",
        "A small COCO data set of every kind is drawn: JPEG and PNG, grey and colour, crowds, images without "
        "objects, one missing file and one broken one; and its objects, cut out, in class folders.",
        "DIR [more flags]",
        (_DRAW, "recordmill sample odd --odd --count 24"),
        runs_beam=False,
    ),
}

EXAMPLES = (*_CONVERTED, "recordmill verify tfrecords")  # of the complete program
CONVERSIONS = tuple(name for name, verb in VERBS.items() if verb.converts)


def fields_of(verb: str) -> tuple[OptionField, ...]:
    """Return all options of a verb, in the order of its help."""
    terminal: type[Options] = import_module("recordmill.pipelines.dataset_options").TerminalOptions
    hidden = () if VERBS[verb].runs_beam else ("progress",)
    return (*options_of(VERBS[verb].options), *(each for each in options_of(terminal) if each.name not in hidden))
