"""Registry of the formats of data sets that `recordmill convert` reads: ours, and those of other packages."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

from recordmill.schemas.errors import ConfigError, RecordmillError
from recordmill.schemas.inputs.option import OptionField, Options, flag, option_fields

_LOGGER = logging.getLogger(__name__)

ENTRY_POINTS = "recordmill.formats"
"""Group of entry points. `NAME = package.module` registers a format."""
_NAME = re.compile("[a-z][a-z0-9_-]*")


class Format(NamedTuple):
    """A format of data sets.

    Attributes:
        name: Value of `--format`.
        options_path: Module and class of its options, imported when the format is used; or another package's module.
        module: Module with `prepare(options)`, which returns a `recordmill.pipelines.convert.Job`.
        text: Description of the data. The first sentence names it.
        data: What DATA is.
        ways_path: Function that takes DataContents and the options' class, and yields each Interpretation.
        model_options_path: Module and class of its options with `--model`; empty without images of one class each.
        files: Options that name the label files, which tell the format.
        paths_path: Function that takes paths and patterns of files, and returns the options that name them as one data
            set, or none. Empty if each path is a data set.
        package: Other package that registers the format; empty for ours.
    """

    name: str
    options_path: str
    module: str
    text: str
    data: str
    ways_path: str
    model_options_path: str = ""
    files: tuple[str, ...] = ()
    paths_path: str = ""
    package: str = ""

    @property
    def what(self) -> str:
        """Name of the data."""
        return self.text.partition(". ")[0]

    @property
    def options(self) -> type[Options]:
        if self.package:
            from recordmill.transforms.annotated.format_options import registered_options

            return registered_options(self.name, self.options_path)
        return import_name(self.options_path)

    @property
    def has_label_files(self) -> bool:
        """True for images with label files, whose options are FormatOptions."""
        return self.module == _LABEL_FILES_MODULE

    @property
    def has_model(self) -> bool:
        """True with `--model`."""
        return self.module == FEATURES_MODULE

    def with_model(self) -> "Format":
        """Return the format of features that a model computes from its images."""
        return self._replace(options_path=self.model_options_path, module=FEATURES_MODULE)

    def ways(self, contents: Any) -> Iterator[Any]:
        """Yield each Interpretation of DataContents as this format. A format of another package whose recognition
        fails yields none, with a warning."""
        try:
            yield from import_name(self.ways_path)(contents, self.options)
        except Exception as error:  # whatever the package does
            if not self.package or isinstance(error, RecordmillError | OSError):
                raise
            text = f"{type(error).__name__}: {error}"
            _LOGGER.warning("the format %s of the package %s is not recognised: %s", self.name, self.package, text)

    def options_of_paths(self, paths: Sequence[str]) -> Mapping[str, Any]:
        """Return the options that name several files as one data set; empty if the format reads no such files."""
        inputs: Mapping[str, Any] = import_name(self.paths_path)(paths) if self.paths_path else {}
        return inputs

    def load(self, function: str) -> Any:
        """Import the module, and Beam, and return one of its functions."""
        return getattr(import_module(self.module), function)


def import_name(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


FEATURES_MODULE = "recordmill.pipelines.embed"
_LABEL_FILES_MODULE = "recordmill.pipelines.annotated"
_LABEL_FILE_FORMATS = {
    "yolo": "a YOLO data set. Boxes, polygons, keypoints or oriented boxes; all splits of data.yaml.",
    "voc": "a data set of Pascal VOC. Boxes of XML files; all splits of ImageSets, or of folders.",
    "cvat": "CVAT's XML. Boxes, polygons, masks, points, tags and tracks of CVAT's XML 1.1; all subsets.",
    "labelme": "JSON files of LabelMe and X-AnyLabeling. Each file names its image. Shapes with the same label and "
    "group_id are one object.",
    "via": "JSON files of the VGG Image Annotator (VIA). Exported annotations and projects of versions 1 and 2. "
    "Folders train and val are splits.",
    "createml": "CreateML's JSON. Boxes as centre, width and height in pixels. Folders train, valid and test are "
    "splits.",
    "labelstudio": "Label Studio's JSON. Tasks with annotations, in percent of the image size.",
    "tfcsv": "TensorFlow CSV. One object per row, `filename,width,height,class,xmin,ymin,xmax,ymax`, in pixels.",
    "openimages": "Open Images' CSV. Boxes in fractions; IsGroupOf is a crowd.",
    "vertex": "import files of Vertex AI. JSON Lines, or CSV, of images with boxes in fractions; `ml_use` is the "
    "split.",
    "ndjson": "Ultralytics' NDJSON. The export of its platform: one line for the data set, and one line per image "
    "with its `split` and its boxes, polygons, keypoints, oriented boxes or classes.",
    "imagefolder": "Hugging Face's imagefolder. A metadata file next to the images has objects or captions.",
    "masks": "images with semantic masks. Masks are PNGs with the class of each pixel. The layouts of Cityscapes, "
    "ADE20K, CamVid, Pascal VOC's SegmentationClass, Roboflow and CVAT are recognised.",
    "tfrecord": "TFRecord files of other tools. Records of the Object Detection API, of keras.io's recipe, of TFDS, "
    "or of images with a class. Each record contains its image.",
}


def _label_file_format(name: str, text: str, options_path: str = "", package: str = "") -> Format:
    """Return a format of images with label files. Our options are NAME_options.NameOptions in transforms/NAME."""
    return Format(
        name,
        options_path or f"recordmill.transforms.{name}.{name}_options.{name.title()}Options",
        _LABEL_FILES_MODULE,
        text,
        "its folder, .zip or file",
        "recordmill.transforms.annotated.recognise_format.ways",
        package=package,
    )


FORMATS = {
    "coco": Format(
        "coco",
        "recordmill.transforms.coco.coco_options.CocoOptions",
        "recordmill.pipelines.coco",
        "COCO's JSON. Files of instances, keypoints, captions, panoptic, stuff or image-info, or the folder that a "
        "tool exported.",
        "the folder that a tool exported; or with annotation files, the folder or .zip of images",
        "recordmill.transforms.coco.recognise_coco.ways",
        files=("instances", "keypoints", "captions", "panoptic", "stuff", "image_info"),
    ),
    **{name: _label_file_format(name, text) for name, text in _LABEL_FILE_FORMATS.items()},
    "masks": _label_file_format("masks", _LABEL_FILE_FORMATS["masks"])._replace(
        ways_path="recordmill.transforms.masks.recognise_masks.ways"
    ),
    "tfrecord": _label_file_format("tfrecord", _LABEL_FILE_FORMATS["tfrecord"])._replace(
        ways_path="recordmill.transforms.tfrecord.find_records.ways",
        paths_path="recordmill.transforms.tfrecord.find_records.recognise_paths",
    ),
    "folder": Format(
        "folder",
        "recordmill.transforms.folder.folder_options.FolderOptions",
        "recordmill.pipelines.folder",
        "class folders, or images with a table of labels. Each image has one class: the folder that contains it, the "
        "start of its file name, or its row in a table.",
        "folders or .zip files of images",
        "recordmill.transforms.folder.recognise_folder.ways",
        "recordmill.pipelines.model_options.LabelledModelOptions",
        files=("labels",),
    ),
    "table": Format(
        "table",
        "recordmill.transforms.table.table_options.TableOptions",
        "recordmill.pipelines.table",
        "rows of CSV, JSON Lines or Parquet. Each column is a feature. The type of a column is inferred from all its "
        "values, or set by a schema.",
        "files of rows, with `*` and `?`",
        "recordmill.transforms.table.recognise_table.ways",
        "recordmill.pipelines.model_options.RowsModelOptions",
    ),
}
"""Our formats."""
LABEL_FILE_FORMATS = tuple(_LABEL_FILE_FORMATS)
"""Our formats of images with label files."""


@cache
def formats() -> Mapping[str, Format]:
    """Return our formats, and those that other packages register, by name.

    A package whose format cannot be used is left out with a warning.
    """
    known = dict(FORMATS)
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: (point.name, point.value)):
        package = point.dist.name if point.dist else point.value
        try:
            known[point.name] = _registered_format(point, package, known)
        except (Exception, SystemExit) as error:  # whatever the package does when it is imported
            what = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
            _LOGGER.warning("the format %s of the package %s is left out: %s", point.name, package, what)
    return known


def _registered_format(point: EntryPoint, package: str, known: Mapping[str, Format]) -> Format:
    """Return the format of an entry point.

    Raises:
        ConfigError: Its name or an option is taken, or its module does not have what a format needs.
    """
    from recordmill.pipelines.dataset_options import DataOptions, TerminalOptions

    if not _NAME.fullmatch(point.name):
        raise ConfigError("a name has lower-case letters, digits, - and _")
    if point.name in known:
        raise ConfigError(f"{known[point.name].package or 'Recordmill'} has a format of this name")
    entry = _label_file_format(point.name, "", point.value, package)
    for name, info in entry.options.model_fields.items():
        if not info.json_schema_extra:
            raise ConfigError(f"its option {name} is not declared by READ.opt")
    known_fields = {field.name: field for options in (DataOptions, TerminalOptions) for field in option_fields(options)}
    known_fields |= {name: next(iter(fields.values())) for name, fields in fields_by_name(known).items()}
    for field in option_fields(entry.options):
        other = known_fields.get(field.name, field)
        if (field.type, field.is_list) != (other.type, other.is_list) and not field.is_argument:
            raise ConfigError(f"its option {field.name} has another type than {flag(field.name)} has in Recordmill")
    text = import_module(point.value).__doc__ or entry.options.__doc__ or ""
    return entry._replace(text=" ".join(text.split("\n\n")[0].split()) or f"data of {package}.")


def all_formats(known: Mapping[str, Format] | None = None) -> tuple[Format, ...]:
    """Return formats, also those with a model. None for all."""
    entries = (formats() if known is None else known).values()
    return (*entries, *(entry.with_model() for entry in entries if entry.model_options_path))


def fields_by_name(known: Mapping[str, Format] | None = None) -> dict[str, dict[str, OptionField]]:
    """Return the options of formats: by name, then by format, `folder` or `folder --model` for example. None for all
    formats."""
    fields: dict[str, dict[str, OptionField]] = {}
    for entry in all_formats(known):
        for field in option_fields(entry.options):
            fields.setdefault(field.name, {})[f"{entry.name} --model" if entry.has_model else entry.name] = field
    return fields
