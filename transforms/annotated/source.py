"""Source: what a format says of a data set before the job, and the parser of its label files. It knows no Beam."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple

import msgspec

from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.rejects import Reason, UnusableError

_SHOWN = 60


class XmlError(ValueError):
    """Error of a file that is not XML to its end, or not the expected XML.

    Attributes:
        line: from 1.
    """

    def __init__(self, detail: str, line: int):
        super().__init__(detail)
        self.detail = detail
        self.line = line


class LabelFault(NamedTuple):
    """A part of a label file that cannot be used.

    Attributes:
        line: its line in the file, from 1; 0 for the whole file, or where lines say nothing.
        where: the part of the file, or of the line: `shape 3`.
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
    """An image of a label file.

    Attributes:
        sample: None if nothing of the image can be used. A label file beside an image leaves `file_name` empty. One
            that holds its image, as LabelMe's imageData, has its own name as `path`, which is read if there is no
            file; one that holds many images gives the bytes of each as `data`.
        faults: its annotations that cannot be used; or without a Sample, why that is.
        notes: what `Source.check` is to know of the file. A data set has few different ones.
        warnings: texts with `{number}` and `{names}`, for number and names of the images that have the same.
        places: where each object is, with the beginning of a detail; empty if that is not known.
    """

    sample: Sample | None
    faults: tuple[LabelFault, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    places: tuple[LabelFault, ...] = ()


class ImageParts:
    """Objects, faults, notes and warnings of an image, during parsing."""

    def __init__(self) -> None:
        self.objects: list[SampleObject] = []
        self.faults: list[LabelFault] = []
        self.places: list[LabelFault] = []
        self.notes: set[str] = set()
        self.warnings: set[str] = set()

    @contextmanager
    def rejecting(self, where: str = "", line: int = 0, text: str = "") -> Iterator[None]:
        """Make an UnusableError a fault, whose detail ends with the beginning of `text`."""
        try:
            yield
        except UnusableError as fault:
            shown = f": {text[:_SHOWN] + '…' * (len(text) > _SHOWN)!r}" if text else ""
            self.faults.append(LabelFault(fault.reason, f"{fault.detail}{shown}", line, where))
        new = len(self.objects) - len(self.places)
        self.places += [LabelFault(Reason.MALFORMED_ANNOTATION, "", line, where)] * new

    def image(self, sample: Sample) -> LabelledImage:
        """Return the image of a Sample that lacks its objects."""
        sample = msgspec.structs.replace(sample, objects=tuple(self.objects))
        notes, warnings = (tuple(sorted(texts)) for texts in (self.notes, self.warnings))
        return LabelledImage(sample, tuple(self.faults), notes, warnings, tuple(self.places))


def not_usable(detail: str, line: int = 0, where: str = "") -> LabelledImage:
    """Return a label file's entry that is no image."""
    return LabelledImage(None, (LabelFault(Reason.MALFORMED_IMAGE, detail, line, where),))


class SourceFolder(NamedTuple):
    """A folder that is listed.

    Attributes:
        prefix: what the names of its files begin with in the data set: `train/images/`; empty for its root.
        split: of its images; empty if label files or --split decide, or if only images of lists are wanted.
        has_images: False if only label files are looked for in it.
    """

    path: str
    prefix: str = ""
    split: str = ""
    has_images: bool = True


class SplitList(NamedTuple):
    """A file that lists the images of a split."""

    path: str
    split: str


Parse = Callable[[Any, str], Iterator[LabelledImage]]
"""Parser of a label file. It takes the bytes of one that is beside an image, of which it yields one LabelledImage; of
one that names images, a stream. And its name in the data set, for messages."""


def parser(parse: Callable[..., Iterator[LabelledImage]]) -> Callable[..., Iterator[LabelledImage]]:
    """Make an UnusableError or XmlError of a parser the fault of its file, after the images that it has yielded."""

    @wraps(parse)
    def parse_file(*args: Any, **named: Any) -> Iterator[LabelledImage]:
        try:
            yield from parse(*args, **named)
        except UnusableError as fault:
            yield LabelledImage(None, (LabelFault(fault.reason, fault.detail),))
        except XmlError as error:
            yield LabelledImage(None, (LabelFault(Reason.MALFORMED_LABELS, error.detail, error.line),))

    return parse_file


NOTE, FILES, FRACTIONS, PIXELS = "note", "files", "fractions", "pixels"
"""Kinds of Traits: a note; label files that name their images; boxes in pixels, all within 0..1 or beyond."""


def nothing(*_: Any) -> Iterator[str]:
    """Yield no warning, or no name."""
    yield from ()


@dataclass(frozen=True)
class Source:
    """A data set in one format.

    Attributes:
        path: what the user named, for the numbers of rows.
        kind: name of the format.
        folders: where images and label files are.
        parse: see Parse. It is sent to workers, so it is a function of a module, or a `partial` of one.
        is_label: whether a file of a folder, by its name in the data set, is a label file.
        unmissed: regular expression of label files without an image that are no loss.
        label_of: the name of the label file of an image, by the image's name; None if label files name their images.
        stated_label: the name that a label file without an image should have, by its name and its `Sample.file_name`;
            None if these files are left out.
        categories: the classes with their ids; None to collect the names of classes, which get ids from 1.
        splits: that folders, lists or label files name; none if --split decides.
        lists: files that list images.
        names_of: takes the path and the lines of a list, and yields the names of images. One may lack the suffix.
        check: takes all notes before the first image is read, and yields warnings, or raises ConfigError.
        parts: of records, if the layout has them.
        inputs: files that determine what is read: the data set's own, and lists.
        warnings: for the summary: unlikely contents.
    """

    path: str
    kind: str
    folders: tuple[SourceFolder, ...]
    parse: Parse
    is_label: Callable[[str], bool]
    unmissed: str = ""
    label_of: Callable[[str], str] | None = None
    stated_label: Callable[[str, str], str] | None = None
    categories: tuple[Category, ...] | None = None
    splits: tuple[str, ...] = ()
    lists: tuple[SplitList, ...] = ()
    names_of: Callable[[str, Iterable[str]], Iterator[str]] = nothing
    check: Callable[[frozenset[str]], Iterator[str]] = nothing
    parts: tuple[Part, ...] = ()
    inputs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def split_index(self, split: str, splits: tuple[str, ...]) -> int:
        """Return the index of a split of the data set in those of the job; -1 if --split decides."""
        return splits.index(split) if splits == self.splits else -1

    @property
    def images(self) -> tuple[str, ...]:
        """Folders of images."""
        return tuple(dict.fromkeys(folder.path for folder in self.folders if folder.has_images))
