"""Convert rows of Open Images (`ImageID,…,LabelName,…,XMin,XMax,YMin,YMax,…` in fractions) to objects."""

import csv
import posixpath
import re
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.inputs.splits import SPLIT_OF_FOLDER, USUAL_SPLITS
from recordmill.transforms.annotated.csv_rows import Cells, RowFormat, read_images
from recordmill.transforms.annotated.naming import find_labels, fraction_box, naming_source, one_folder
from recordmill.transforms.annotated.shapes import finite_numbers
from recordmill.transforms.annotated.source import ImageParts, LabelledImage, Source
from recordmill.transforms.openimages.openimages_options import OpenimagesOptions
from recordmill.transforms.storage.resolve import join_path, list_existing, split_folder, storage_for

_EDGES = ("XMin", "YMin", "XMax", "YMax")
_FLAGS = ("IsOccluded", "IsDepiction", "IsInside")
_BOXES = re.compile(r"(?:^|.*/)(?:(?:.*[-_])?annotations-bbox|detections)\.csv")
_SPLIT = re.compile(r"(?:^|[-_])(train|validation|test)-annotations-bbox\.csv$")
_UNNAMED = "class without a name"
_NO_NAMES = (
    "no file has the names of classes, so they are Open Images' codes, such as /m/01g317: --class-descriptions names it"
)


def source(options: OpenimagesOptions) -> Source:
    """Return what is read: a file of boxes; or files TRAIN-annotations-bbox.csv of splits in one folder; or folders of
    splits, as FiftyOne writes them.

    Raises:
        ConfigError: see `find_labels`; or there are several files of classes, or some files are of no split.
    """
    storage, data = storage_for(options.data), options.data
    is_file = storage.size(data) is not None
    folder = split_folder(data)[0] if is_file else data.rstrip("/")
    boxes = [] if is_file else [name for name in storage.names(folder) if _is_boxes(name)]
    splits = {name: _split_of(name) for name in boxes}
    if len(set(splits.values())) > 1 and "" in splits.values():
        raise ConfigError(f"--data {data}: of {', '.join(boxes)}, some name a split, and some do not: give one file")
    by_name = any(splits.values())
    warnings = [f"splits are those of the files {', '.join(boxes)}"] if by_name else []
    if boxes:
        used = tuple(split for split in USUAL_SPLITS if split in splits.values())
        labels = one_folder(folder, boxes, options.images)._replace(splits=used)
    else:
        labels = find_labels(options, _is_boxes)
    described = _class_files(options, folder)
    names: dict[str, str] = {}
    for code, name in (each for path in described for each in _read_names(path)):
        if names.setdefault(code, name) != name:
            raise ConfigError(f"{' and '.join(described)}: {code} is {names[code]!r} and {name!r}: keep one of them")
    warnings += [] if described else [_NO_NAMES]
    return naming_source(
        options,
        labels,
        partial(parse_boxes, names=names, by_name=by_name),
        check=_check,
        inputs=(*([data] if is_file else []), *described),
        warnings=tuple(warnings),
    )


def _is_boxes(name: str) -> bool:
    return bool(_BOXES.fullmatch(name))


def _split_of(file: str) -> str:
    """Return the split in a file's name; empty if none.

    >>> _split_of("oidv6-train-annotations-bbox.csv"), _split_of("validation-annotations-bbox.csv")
    ('train', 'val')
    """
    found = _SPLIT.search(posixpath.basename(file))
    return SPLIT_OF_FOLDER[found[1]] if found else ""


def _class_files(options: OpenimagesOptions, folder: str) -> list[str]:
    if options.class_descriptions:
        return [options.class_descriptions]
    names = [name for name in storage_for(folder).names(folder) if re.fullmatch(r"class-descriptions.*\.csv", name)]
    if len(names) > 1:
        raise ConfigError(f"{folder} has {', '.join(names)}: give the names of classes as --class-descriptions")
    usual = (posixpath.join(split, "metadata/classes.csv") for split in ("", "train", "validation", "test"))
    return [join_path(folder, name) for name in names or list_existing(folder, usual)]


def _read_names(path: str) -> Iterator[tuple[str, str]]:
    """Yield code and name of each class.

    Raises:
        ConfigError: A row is not a code and a name.
    """
    try:
        text = storage_for(path).read(path).decode("utf-8-sig")
        for number, row in enumerate(csv.reader(text.splitlines(), strict=True), 1):
            if row and row[0] != "LabelName":
                if len(row) != 2:
                    raise ConfigError(f"{path}, line {number}: {len(row)} cells, and not a class and its name")
                yield row[0], row[1].strip()
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path} is no CSV in UTF-8 ({error})") from error


def _check(notes: frozenset[str]) -> Iterator[str]:
    if flags := [flag for flag in _FLAGS if flag in notes]:
        yield f"boxes have {', '.join(flags)}, and records have no key for that"
    if _UNNAMED in notes:
        yield "some classes are not in --class-descriptions, so their names are Open Images' codes"


def parse_boxes(stream: BinaryIO, file: str, names: dict[str, str], by_name: bool = False) -> Iterator[LabelledImage]:
    """Yield the images of a file.

    Args:
        names: of the classes, by their codes.
        by_name: True if the name of the file says the split.

    >>> import io
    >>> data = b"ImageID,LabelName,XMin,XMax,YMin,YMax,IsGroupOf\\n0a,/m/1,0.25,0.5,0.5,1,1\\n"
    >>> image, = parse_boxes(io.BytesIO(data), "test-annotations-bbox.csv", {"/m/1": "Cat"}, True)
    >>> image.sample.file_name, image.sample.split, image.sample.objects[0].box, image.sample.objects[0].is_crowd
    ('0a.jpg', 'test', (0.25, 0.5, 0.25, 0.5), True)
    """
    split = _split_of(file) if by_name else ""

    def sample_of(cells: Cells, _: ImageParts) -> Sample:
        name = cells["ImageID"]
        return Sample(name if is_image_name(name) else f"{name}.jpg", split=split)

    how = RowFormat(
        ("ImageID", "LabelName", *_EDGES),
        ("IsGroupOf", "IsTruncated", *_FLAGS),
        sample_of,
        partial(_object, names=names),
    )
    yield from read_images(stream, file, how)


def _object(cells: Cells, notes: set[str], names: dict[str, str]) -> SampleObject:
    code = cells["LabelName"]
    box = fraction_box(*finite_numbers({column: cells[column] for column in _EDGES}, "of the box"))
    set_flags = {name for name, text in cells.items() if text.lower() in ("1", "1.0", "true")}
    notes |= set_flags & {*_FLAGS}
    notes |= {_UNNAMED} if names and code and code not in names else set()
    is_crowd, truncated = (flag in set_flags for flag in ("IsGroupOf", "IsTruncated"))
    return SampleObject(names.get(code, code), box, "fraction", is_crowd=is_crowd, truncated=truncated)
