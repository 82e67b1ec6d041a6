"""Registry of verbs, for the command line, its help, the docs, templates and Params."""

from importlib import import_module
from typing import Any, NamedTuple

from recordmill.pipelines.formats import LABEL_FILE_FORMATS, import_name
from recordmill.schemas.inputs.option import OptionField, Options, option_fields


class Verb(NamedTuple):
    """A verb of the command line."""

    options_path: str  # module and class of its options, imported when the verb is used
    module: str  # module that runs the verb, with `run`; of a conversion, each format has its own
    text: str  # description; the first sentence is its line in the help
    usage: str  # required flags and arguments
    examples: tuple[str, ...]  # commands that run in this order in an empty folder
    converts: bool = False  # True if it writes a data set
    resumes: bool = False  # True if the same command continues after an interruption
    runs_beam: bool = True  # True if it needs Beam, and takes Beam's flags after a lone --
    service_options_path: str = ""  # options in a service, of a verb that does not convert

    @property
    def help(self) -> str:
        return self.text.partition(". ")[0]

    @property
    def options(self) -> type[Options]:
        return import_name(self.options_path)

    @property
    def service_options(self) -> type[Options]:
        return import_name(self.service_options_path or self.options_path)

    def load(self, function: str) -> Any:
        """Import the module, and Beam if it needs it, and return one of its functions."""
        return getattr(import_module(self.module), function)


_DRAW = "recordmill sample sample"
_CONVERT = "recordmill convert sample/images --instances sample/annotations/instances.json"
_CONVERTED = (_DRAW, f"{_CONVERT} -o tfrecords")

VERBS = {
    "convert": Verb(
        "recordmill.pipelines.dataset_options.DataOptions",
        "recordmill.launch.verbs.convert",
        "Convert a data set of images, labels or rows to TFRecord shards. The format of DATA is recognised and "
        "printed. A manifest lists the contents of the shards.",
        "[DATA ...] -o OUT [more flags]",
        (
            _DRAW,
            "recordmill convert sample/classes -o by-class --split train=0.8,val=0.2 --stratify",
            f"{_CONVERT} -o masked --masks png",
            "recordmill convert sample/objects.csv -o rows --label shape",
        ),
        converts=True,
        resumes=True,
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
        "files of YOLO, Pascal VOC, LabelMe, Hugging Face's imagefolder, Ultralytics' NDJSON, CVAT or CreateML.",
        "OUT DIR [more flags]",
        (
            *_CONVERTED,
            "recordmill extract tfrecords extracted --split train",
            "recordmill extract tfrecords yolo --as yolo",
        ),
        resumes=True,
    ),
    "repack": Verb(
        "recordmill.pipelines.dataset_options.RepackOptions",
        "recordmill.launch.verbs.repack",
        "Write a finished data set in another container, or in shards planned again. The records are the same. "
        "The sources of the data set are not needed.",
        "OUT OUT2 [--container NAME] [--replan] [more flags]",
        (*_CONVERTED, "recordmill repack tfrecords tars --container webdataset", "recordmill verify tars"),
        resumes=True,
    ),
    "seal": Verb(
        "recordmill.pipelines.dataset_options.SealOptions",
        "recordmill.launch.verbs.seal",
        "Complete a data set whose parts were written by separate processes. Each part is a conversion with --part "
        "K/N, and the parts share only the output. Compare the parts, report missing ones, and write the manifest.",
        "OUT [more flags]",
        (
            _DRAW,
            f"{_CONVERT} -o parts --num-shards 4 --part 0/2",
            f"{_CONVERT} -o parts --num-shards 4 --part 1/2",
            "recordmill seal parts",
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
        "Write the index of any TFRecord or tar files, for random access. It has the offsets of records, for DALI, "
        "PyPI's tfrecord and recordmill.open. Conversions write it. The checksums of the lengths are checked. GZIP "
        "files have no random access, so no index.",
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
OLD_VERBS = ("coco", "folder", "table", "embed", "auto", *LABEL_FILE_FORMATS)
"""Verbs of earlier versions, which `convert` replaces."""


def verb_fields(verb: str) -> tuple[OptionField, ...]:
    """Return all options of a verb, in help's order."""
    from recordmill.pipelines.choose_format import convert_fields
    from recordmill.pipelines.dataset_options import TerminalOptions

    hidden = () if VERBS[verb].runs_beam else ("progress",)
    own = convert_fields() if VERBS[verb].converts else option_fields(VERBS[verb].options)
    return (*own, *(option for option in option_fields(TerminalOptions) if option.name not in hidden))
