"""Registry of verbs, for the command line, its help, the docs, templates and Params."""

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from recordmill.schemas.inputs.option import OptionField, Options, option_fields


class Verb(NamedTuple):
    """A verb of the command line."""

    options_path: str  # module and class of its options, imported when the verb is used
    # module that runs the verb. Conversions have `prepare(options)`, which returns a
    # `recordmill.pipelines.convert.Job`; other verbs have `run`.
    module: str
    text: str  # description; the first sentence is its line in the help
    usage: str  # required flags and arguments
    examples: tuple[str, ...]  # commands that run in this order in an empty folder, except those of FORMATS
    converts: bool = False  # True if it writes a data set
    resumes: bool = False  # True if the same command continues after an interruption
    runs_beam: bool = True  # True if it needs Beam, and takes Beam's flags after a lone --
    needs_tensorflow: bool = False  # True if it needs TensorFlow
    # True if it stands for commands of other verbs, which `recognise_commands` and `recognise_values` of its module
    # yield; it has no `prepare`.
    recognises: bool = False
    service_options_path: str = ""  # options in a service, of a verb that does not convert
    # function that takes DataContents and the options' class, and yields each Interpretation; empty if
    # `auto` does not find the verb
    ways_path: str = ""

    @property
    def help(self) -> str:
        return self.text.partition(". ")[0]

    @property
    def options(self) -> type[Options]:
        return _import_name(self.options_path)

    @property
    def service_options(self) -> type[Options]:
        return _import_name(self.service_options_path or self.options_path)

    def ways(self, contents: Any) -> Iterator[Any]:
        """Yield each Interpretation of DataContents by this verb."""
        yield from _import_name(self.ways_path)(contents, self.options)

    def load(self, function: str) -> Any:
        """Import the module, and Beam if it needs it, and return one of its functions."""
        return getattr(import_module(self.module), function)


def _import_name(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


_DRAW = "recordmill sample sample"
_CONVERT = "recordmill coco --images sample/images --instances sample/annotations/instances.json"
_CONVERTED = (_DRAW, f"{_CONVERT} --output tfrecords")

_FORMATS_MODULE = "recordmill.pipelines.annotated"
_conversion = partial(Verb, converts=True, resumes=True)


_FORMATS = {
    "yolo": ("a YOLO data set", "Boxes, polygons, keypoints or oriented boxes; all splits of data.yaml."),
    "imagefolder": ("Hugging Face's imagefolder", "A metadata file beside images has objects or captions."),
    "labelme": (
        "JSON files of LabelMe and X-AnyLabeling",
        "Each names its image. Shapes of one label and one group_id are one object.",
    ),
    "via": (
        "JSON files of the VGG Image Annotator (VIA)",
        "Exports of annotations, and projects, of versions 1 and 2. Folders train and val are splits.",
    ),
    "createml": ("CreateML's JSON", "Boxes by their centre, in pixels. Folders train, valid and test are splits."),
    "tfcsv": ("TensorFlow CSV", "Rows `filename,width,height,class,xmin,ymin,xmax,ymax`, an object each, in pixels."),
    "labelstudio": ("Label Studio's JSON", "Tasks with their annotations, in percent."),
    "openimages": ("Open Images' CSV", "Boxes in fractions; IsGroupOf is a crowd."),
    "vertex": (
        "import files of Vertex AI",
        "JSON Lines, or CSV, of images with boxes in fractions; `ml_use` is the split.",
    ),
    "voc": ("a data set of Pascal VOC", "Boxes of XML files; all splits of ImageSets, or of folders."),
    "cvat": ("CVAT's XML", "Boxes, polygons, masks, points, tags and tracks of CVAT's XML 1.1; all subsets."),
}


def _format(name: str, what: str, text: str) -> Verb:
    """Return a format's verb. Its options are NAME_options.NameOptions in transforms/NAME."""
    examples = f"recordmill {name} --data DATA --output tfrecords"
    return _conversion(
        f"recordmill.transforms.{name}.{name}_options.{name.title()}Options",
        _FORMATS_MODULE,
        f"Convert {what} to TFRecord shards. {text}",
        "--data FILE|DIR|ZIP --output DIR [more flags]",
        (f"{examples} --dry-run", examples),
        ways_path="recordmill.transforms.annotated.recognise_format.ways",
    )


VERBS = {
    "coco": _conversion(
        "recordmill.transforms.coco.coco_options.CocoOptions",
        "recordmill.pipelines.coco",
        "Convert COCO annotations and images to TFRecord shards. A manifest says what is in them. At least one "
        "annotation file is needed: instances, keypoints, captions, panoptic, stuff or image-info; or with --data the "
        "folder that a tool exported.",
        "--images DIR|ZIP --instances FILE --output DIR [more flags]",
        (
            _DRAW,
            f"{_CONVERT} --output tfrecords --dry-run",
            f"{_CONVERT} --captions sample/annotations/captions.json --masks png --output with-masks",
            f"{_CONVERT} --categories circle,square --num-shards 4 --output small",
        ),
        ways_path="recordmill.transforms.coco.recognise_coco.ways",
    ),
    "folder": _conversion(
        "recordmill.transforms.folder.folder_options.FolderOptions",
        "recordmill.pipelines.folder",
        "Convert class folders, or labelled images, to TFRecord shards. Each image has one class: the folder that it "
        "is in, the start of its file's name, or its row in a table.",
        "--images DIR|ZIP --output DIR [more flags]",
        (
            _DRAW,
            "recordmill folder --images sample/classes --split train=0.8,val=0.2 --output by-class --dry-run",
            "recordmill folder --images sample/classes --split train=0.8,val=0.2 --stratify --format jpeg"
            " --output by-class",
        ),
        ways_path="recordmill.transforms.folder.recognise_folder.ways",
    ),
    "table": _conversion(
        "recordmill.transforms.table.table_options.TableOptions",
        "recordmill.pipelines.table",
        "Convert CSV, JSON Lines or Parquet rows to TFRecord shards. Each column is a feature. Types of columns "
        "follow from all their values, or from a schema.",
        "--rows FILE|GLOB --output DIR [more flags]",
        (
            _DRAW,
            "recordmill table --rows sample/objects.csv --label shape --split train=0.8,val=0.2 --gzip"
            " --output objects",
            "recordmill table --rows sample/pictures.csv --images sample/classes --image-column image --label label"
            " --text-column description --text tfidf --output pictures --dry-run",
        ),
        ways_path="recordmill.transforms.table.recognise_table.ways",
    ),
    "embed": _conversion(
        "recordmill.pipelines.embed_options.EmbedOptions",
        "recordmill.pipelines.embed",
        "Convert images to features of a Keras model, in TFRecord shards. Labelled images, as `folder` and `table` "
        "read them, go through the model up to a layer.",
        "--images DIR|ZIP --model NAME|FILE|DIR --output DIR [more flags]",
        (
            _DRAW,
            "recordmill embed --images sample/classes --model efficientnet-b0 --weights none --input-size 64x64"
            " --output features",
        ),
        needs_tensorflow=True,
    ),
    **{name: _format(name, *texts) for name, texts in _FORMATS.items()},
    "auto": _conversion(
        "recordmill.pipelines.dataset_options.AutoOptions",
        "recordmill.launch.verbs.auto",
        "Recognise a data set and convert it. The command that reads it is printed and run; its flags may be given, "
        "--dry-run first.",
        "--data FILE|DIR|ZIP --output DIR [flags of the command that is found]",
        (_DRAW, "recordmill auto --data sample/classes --output by-class --dry-run"),
        recognises=True,
    ),
    "verify": Verb(
        "recordmill.pipelines.dataset_options.VerifyOptions",
        "recordmill.launch.verbs.verify",
        "Read a data set back and check all of it. Every record is read, parsed and decoded, and compared with the "
        "manifest.",
        "OUT [more flags]",
        (*_CONVERTED, "recordmill verify tfrecords"),
        service_options_path="recordmill.pipelines.dataset_options.ServiceVerifyOptions",
    ),
    "extract": Verb(
        "recordmill.pipelines.dataset_options.ExtractOptions",
        "recordmill.launch.verbs.extract",
        "Convert records back to image files and labels. Image files get their stored bytes. Labels are COCO JSON, or "
        "files of YOLO, Pascal VOC, LabelMe or Hugging Face's imagefolder.",
        "OUT DIR [more flags]",
        (
            *_CONVERTED,
            "recordmill extract tfrecords extracted --split train",
            "recordmill extract tfrecords yolo --as yolo",
        ),
        resumes=True,
    ),
    "show": Verb(
        "recordmill.pipelines.dataset_options.ShowOptions",
        "recordmill.launch.verbs.show",
        "Show a data set, or the records of any TFRecord files. Contents are printed as tables, or drawn: boxes, "
        "masks, keypoints, names.",
        "OUT [more flags]",
        (*_CONVERTED, "recordmill show tfrecords", "recordmill show tfrecords --find category=star --save star.png"),
        runs_beam=False,
    ),
    "report": Verb(
        "recordmill.pipelines.dataset_options.DataSetOptions",
        "recordmill.launch.verbs.report",
        "Write the page of a data set, report.html, again. It shows splits side by side, classes, sizes, rejects and "
        "images. Each conversion writes it.",
        "OUT",
        (*_CONVERTED, "recordmill report tfrecords"),
        runs_beam=False,
    ),
    "index": Verb(
        "recordmill.pipelines.dataset_options.IndexOptions",
        "recordmill.launch.verbs.index",
        "Write the index of any TFRecord files, for random access. It has the offsets of records, for DALI, PyPI's "
        "tfrecord and recordmill.open. Conversions write it. The checksums of the lengths are checked. GZIP files "
        "have no random access, so no index.",
        "PATH...",
        (*_CONVERTED, "recordmill index tfrecords"),
        runs_beam=False,
    ),
    "sample": Verb(
        "recordmill.pipelines.dataset_options.SampleOptions",
        "recordmill.launch.verbs.sample",
        "Write a small generated COCO data set. It has every kind of annotation, JPEG and PNG, grey and colour, "
        "crowds, images without objects, one missing file and one broken one; and its objects, cut out, in class "
        "folders.",
        "DIR [more flags]",
        (_DRAW, "recordmill sample odd --odd --count 24"),
        runs_beam=False,
    ),
}

EXAMPLES = (*_CONVERTED, "recordmill verify tfrecords")  # of the complete program
CONVERSIONS = tuple(name for name, verb in VERBS.items() if verb.converts)
FORMATS = tuple(name for name, verb in VERBS.items() if verb.module == _FORMATS_MODULE)
"""Formats of annotated images. DATA in their examples is the user's."""


def verb_fields(verb: str) -> tuple[OptionField, ...]:
    """Return all options of a verb, in help's order."""
    terminal: type[Options] = import_module("recordmill.pipelines.dataset_options").TerminalOptions
    hidden = () if VERBS[verb].runs_beam else ("progress",)
    return (
        *option_fields(VERBS[verb].options),
        *(option for option in option_fields(terminal) if option.name not in hidden),
    )
