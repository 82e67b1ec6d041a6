"""Source: a data set in one format, and the parser of its label files. Parsers do not use Beam."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple

import msgspec

from recordmill.schemas.features import Part
from recordmill.schemas.field_features import AXES, WELL_KNOWN, Axis
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.fields import NO_FIELDS, FieldSelection, fields_flag, shortest_name, split_name
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.maps import MapFolder
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.schemas.sizes import printable

_SHOWN = 60
_MOST_FIELDS = 20


class XmlError(ValueError):
    """Error of a file that is not XML to its end, or not the expected XML.

    Attributes:
        line: Line of the error, from 1.
    """

    def __init__(self, detail: str, line: int):
        super().__init__(detail)
        self.detail = detail
        self.line = line


class LabelFault(NamedTuple):
    """A part of a label file that cannot be used.

    Attributes:
        line: Line in the file, from 1; 0 for the whole file, or where lines do not help.
        where: Part of the file or line: `shape 3`.
    """

    reason: Reason
    detail: str
    line: int = 0
    where: str = ""

    def text(self, file: str) -> str:
        """
        >>> LabelFault(Reason.EMPTY_BOX, "no area", where="shape 3").text("a.json")
        'shape 3 in a.json: no area'
        """
        if self.line:
            return f"{file}, line {self.line}{self.where and ', '}{self.where}: {self.detail}"
        return f"{self.where}{self.where and ' in '}{file}: {self.detail}"


class LabelledImage(NamedTuple):
    """Image and its annotations from a label file.

    Attributes:
        sample: None if the image is unusable. A label file beside an image leaves `file_name` empty. A label file that
            holds its image, as in LabelMe's imageData, gives its own name as `path`, which is read if the image file is
            missing. A file that holds many images gives the bytes of each as `data`.
        faults: Unusable annotations; without a Sample, why the image is unusable.
        notes: Facts for `Source.check`, and open fields with values, see `field_notes`. A data set has few different
            ones.
        warnings: Texts with `{number}` and `{names}`: number and names of the images with the same warning. Each
            occurrence of a text counts.
        places: Line or part of each object in the file; empty if unknown.
        is_omitted: True to leave out the image. Its notes and warnings count.
        entry: Entry of the file that has all objects of the image: `task 3`. Two entries of a file for one image are an
            error; images of rows, which have some of the objects, leave it empty.
        url: URL of the image, which the reject of a missing file names.
        file: Image that is a range of bytes of the label file. The reader adds the path. The version is a checksum of
            the image, of eight digits, and one of its entry: entries of an image with both are one entry.
        tag_ids: Ids of the Sample's tags, in their order; empty if unknown.
        id_text: Id of the image in the source, if `image_id` is its hash.
    """

    sample: Sample | None
    faults: tuple[LabelFault, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    places: tuple[LabelFault, ...] = ()
    is_omitted: bool = False
    entry: str = ""
    url: str = ""
    file: ImageFile | None = None
    tag_ids: tuple[int, ...] = ()
    id_text: str = ""


class ImageParts:
    """Objects, faults, notes and warnings of an image, during parsing."""

    def __init__(self) -> None:
        self.objects: list[SampleObject] = []
        self.faults: list[LabelFault] = []
        self.places: list[LabelFault] = []
        self.notes: set[str] = set()
        self.warnings: set[str] = set()

    def rejecting(self, where: str = "", line: int = 0, text: str = "") -> "_Rejecting":
        """Context manager: add a fault for an UnusableError. Its detail ends with the beginning of `text`."""
        return _Rejecting(self, where, line, text)

    def add(self, object_: SampleObject, where: str = "", line: int = 0) -> None:
        """Add an object with its place. Quicker than `rejecting`, for parsers of many small files."""
        self.objects.append(object_)
        self.places.append(LabelFault(Reason.MALFORMED_ANNOTATION, "", line, where))

    def reject(self, error: UnusableError, where: str = "", line: int = 0, text: str = "") -> None:
        """Add a fault. Its detail ends with the beginning of `text`."""
        shown = f": {text[:_SHOWN] + '…' * (len(text) > _SHOWN)!r}" if text else ""
        self.faults.append(LabelFault(error.reason, f"{error.detail}{shown}", line, where))

    def image(self, sample: Sample) -> LabelledImage:
        """Return the LabelledImage of a Sample, with these objects."""
        sample = msgspec.structs.replace(sample, objects=tuple(self.objects))
        notes, warnings = (tuple(sorted(texts)) for texts in (self.notes, self.warnings))
        return LabelledImage(sample, tuple(self.faults), notes, warnings, tuple(self.places))


class _Rejecting:
    """Context manager of `ImageParts.rejecting`. A class, because a generator takes twice the time for each object."""

    __slots__ = ("_line", "_parts", "_text", "_where")

    def __init__(self, parts: ImageParts, where: str, line: int, text: str):
        self._parts, self._where, self._line, self._text = parts, where, line, text

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> bool:
        parts = self._parts
        if new := len(parts.objects) - len(parts.places):
            parts.places += [LabelFault(Reason.MALFORMED_ANNOTATION, "", self._line, self._where)] * new
        if error is None or not isinstance(error, UnusableError):
            return False
        parts.reject(error, self._where, self._line, self._text)
        return True


def unusable_image(detail: str, line: int = 0, where: str = "") -> LabelledImage:
    """Return an entry of a label file whose image is unusable."""
    return LabelledImage(None, (LabelFault(Reason.MALFORMED_IMAGE, detail, line, where),))


class SourceFolder(NamedTuple):
    """A folder of images or label files.

    Attributes:
        prefix: Prefix of the names of its files in the data set: `train/images/`; empty for the root.
        split: Split of its images, and of its label files without an image; empty if label files or --split decide, or
            if only listed images are read.
        has_images: False if only its label files are read.
        has_labels: False if only its images are read.
    """

    path: str
    prefix: str = ""
    split: str = ""
    has_images: bool = True
    has_labels: bool = True


class SplitList(NamedTuple):
    """A file that lists the images of a split."""

    path: str
    split: str


Parse = Callable[[Any, str], Iterator[LabelledImage]]
"""Parser of a label file: takes its contents and its name in the data set, for messages. A label file beside an image
comes as bytes, and gives one LabelledImage; a label file that names its images comes as a stream."""


def parser(parse: Callable[..., Iterator[LabelledImage]]) -> Callable[..., Iterator[LabelledImage]]:
    """Decorate a parser: an UnusableError or XmlError becomes a fault of the file, after the images before it."""

    @wraps(parse)
    def parse_file(*args: Any, **keywords: Any) -> Iterator[LabelledImage]:
        try:
            yield from parse(*args, **keywords)
        except UnusableError as fault:
            yield LabelledImage(None, (LabelFault(fault.reason, fault.detail),))
        except XmlError as error:
            yield LabelledImage(None, (LabelFault(Reason.MALFORMED_LABELS, error.detail, error.line),))

    return parse_file


_FIELD = "field "


def field_notes(paths: Iterable[str]) -> set[str]:
    """Return the notes of open fields that have a value. A warning names those that are not written."""
    return {f"{_FIELD}{path}" for path in paths}


def unwritten_fields(notes: Iterable[str], source: "Source") -> Iterator[str]:
    """Yield a warning of the open fields that label files have and records do not, with the flag that stores them.

    >>> source = Source("a", "b", (), yield_nothing, bool, fields=(NO_FIELDS, FieldSelection({"score": ""})))
    >>> print(*unwritten_fields(field_notes(["score", "image.date", "a,b", "all"]), source))
    label files have fields that are not written. Add --fields '"a,b",image.date,objects.all'
    """
    fields = {split_name(name, source.image_fields) for name in noted_fields(notes)}
    unwritten = [field for field in fields if not _is_written(*field, source)]
    if unwritten:
        choices = sorted(shortest_name(axis, path, source.image_fields) for axis, path in unwritten)
        flag = fields_flag(choices, _MOST_FIELDS)
        cure = f". Add {flag}" if flag else printable(f": {', '.join(choices)}")
        yield f"label files have fields that are not written{cure}"


def noted_fields(notes: Iterable[str]) -> list[str]:
    """Return the names in notes of `field_notes`."""
    return [note.removeprefix(_FIELD) for note in notes if note.startswith(_FIELD)]


def _is_written(axis: Axis, path: str, source: "Source") -> bool:
    selection = source.fields[AXES.index(axis)]
    return selection.is_all or path in selection.kinds or (axis == "object" and path in WELL_KNOWN)


NOTE, FILES, FRACTIONS, PIXELS, OTHER_LABELS = "note", "files", "fractions", "pixels", "other labels"
"""Kinds of ObservedLabels: a note; label files that name their images; boxes in pixels, all within 0..1 or beyond;
labels that the layout `classification` does not store."""
LABELLED, EMPTY, NO_FILE = "labelled ", "empty ", "no label file "
"""Kinds of ObservedLabels, followed by a split, which is empty if --split decides: an image with a label, one whose
label file has none, and one without a label file. The name is that of the first image of a bucket."""


def yield_nothing(*_: Any) -> Iterator[Any]:
    """Yield nothing: no warnings, or no names."""
    yield from ()


def is_never(_: str) -> bool:
    return False


@dataclass(frozen=True)
class Source:
    """A data set in one format.

    Attributes:
        path: Path as the user gave it; names the input in the numbers of rows.
        kind: Name of the format.
        folders: Folders of images and label files.
        parse: Parser. It is sent to workers, so it is a function of a module, or a `partial` of one.
        is_label: Takes the name of a file in the data set; True for a label file. `is_never` for images without label
            files; `label_name` then returns their names without suffix.
        ignorable_labels: Regular expression of files that need no image, so that they are no rejects.
        label_name: Takes the name of an image; returns the name of its label file. None if label files name images.
        stated_label: Takes the name of a label file without an image, and its `Sample.file_name`; returns the name that
            the file should have. None to skip such files.
        categories: Classes with their ids; None to collect the names of classes, which get ids from 1.
        segments: Categories of semantic masks, whose ids are the values of pixels; empty without such masks.
        maps: Folders of the semantic masks of its images.
        is_map: Takes the name of a file in the data set; True for a mask that is in a folder of images.
        splits: Splits that folders, lists or label files name; empty if --split decides.
        lists: Files that list the images of splits.
        parse_list: Takes the path and the lines of a list; yields names of images, which may lack the suffix.
        check: Takes all notes before the first image is read; yields warnings, or raises ConfigError.
        parts: Parts of records that the format has, written if the layout has them.
        inputs: Files that determine what is read: the file of the data set, and lists.
        warnings: Warnings about unlikely contents, for the summary.
        image_fields: Beginnings of the paths of open fields that are the image's without the prefix `image.`; an empty
            one for all.
        text_fields: True if values of open fields are texts whose looks decide their kind, as in CSV and XML.
        holds_images: True if label files hold the images, each a `LabelledImage.file`. Entries of one image join.
        fields: Requested open fields of images, and of objects. `FormatOptions.source` sets them.
        has_image_classes: True if records have the only tag of an image, as its class. `FormatOptions.source` sets it.
        notes: Sentences about the contents, for the terminal.
    """

    path: str
    kind: str
    folders: tuple[SourceFolder, ...]
    parse: Parse
    is_label: Callable[[str], bool]
    ignorable_labels: str = ""
    label_name: Callable[[str], str] | None = None
    stated_label: Callable[[str, str], str] | None = None
    categories: tuple[Category, ...] | None = None
    segments: tuple[Category, ...] = ()
    maps: tuple[MapFolder, ...] = ()
    is_map: Callable[[str], bool] = is_never
    splits: tuple[str, ...] = ()
    lists: tuple[SplitList, ...] = ()
    parse_list: Callable[[str, Iterable[str]], Iterator[str]] = yield_nothing
    check: Callable[[frozenset[str]], Iterator[str]] = yield_nothing
    parts: tuple[Part, ...] = ()
    inputs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    image_fields: tuple[str, ...] = ()
    text_fields: bool = False
    holds_images: bool = False
    fields: tuple[FieldSelection, FieldSelection] = (NO_FIELDS, NO_FIELDS)
    has_image_classes: bool = False
    notes: tuple[str, ...] = ()

    def own_split(self, index: int, splits: tuple[str, ...]) -> str:
        """Return the name of a split of the job by its index; empty if --split decides."""
        return splits[index] if splits == self.splits and index >= 0 else ""

    def split_index(self, split: str, splits: tuple[str, ...]) -> int:
        """Return the index of a split of the data set in those of the job; -1 if --split decides."""
        return splits.index(split) if splits == self.splits else -1

    @property
    def has_labels(self) -> bool:
        """False for images whose only annotations are maps, or that have none."""
        return self.is_label is not is_never

    @property
    def images(self) -> tuple[str, ...]:
        """Folders of images."""
        return tuple(dict.fromkeys(folder.path for folder in self.folders if folder.has_images))

    @property
    def root(self) -> str:
        """Folder that the names of images begin at; empty if they begin at several."""
        roots = {f"{folder.path}/".removesuffix(folder.prefix) for folder in self.folders if folder.has_images}
        return roots.pop() if len(roots) == 1 else ""
