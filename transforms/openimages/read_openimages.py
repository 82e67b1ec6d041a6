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
from recordmill.schemas.inputs.scalars import read_flag
from recordmill.schemas.inputs.splits import SPLIT_OF_FOLDER, USUAL_SPLITS
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.csv_rows import Cells, RowFormat, read_csv_images
from recordmill.transforms.annotated.naming import find_labels, fraction_box, naming_source, one_folder
from recordmill.transforms.annotated.shapes import finite_numbers
from recordmill.transforms.annotated.source import ImageParts, LabelledImage, Source
from recordmill.transforms.openimages.openimages_options import OpenimagesOptions
from recordmill.transforms.storage.resolve import join_path, list_existing, split_folder, storage_for

_EDGES = ("XMin", "YMin", "XMax", "YMax")
_FLAGS = ("IsGroupOf", "IsTruncated")
_BOXES = re.compile(r"(?:^|.*/)(?:(?:.*[-_])?annotations-bbox|detections)\.csv")
_SPLIT = re.compile(r"(?:^|[-_])(train|validation|test)-annotations-bbox\.csv$")
_UNNAMED = "class without a name"
_NO_NAMES = (
    "no file has the names of the classes, so Open Images' codes, such as /m/01g317, are written. Add "
    "--class-descriptions"
)


def source(options: OpenimagesOptions) -> Source:
    """Return the Source of a file of boxes, of a folder's files SPLIT-annotations-bbox.csv, or of folders of splits.

    FiftyOne writes folders of splits.

    Raises:
        ConfigError: See `find_labels`; or there are several files of classes, or only some files name a split.
    """
    storage, data = storage_for(options.data), options.data
    is_file = storage.size(data) is not None
    folder = split_folder(data)[0] if is_file else data.rstrip("/")
    boxes = [] if is_file else [name for name in storage.names(folder) if _is_boxes_file(name)]
    splits = {name: _boxes_split(name) for name in boxes}
    if len(set(splits.values())) > 1 and "" in splits.values():
        raise ConfigError(f"{data}: only some of {', '.join(boxes)} name a split. Give one file")
    by_name = any(splits.values())
    warnings = [f"the files {', '.join(boxes)} give the splits"] if by_name else []
    if boxes:
        used = tuple(split for split in USUAL_SPLITS if split in splits.values())
        labels = one_folder(folder, boxes, options.images)._replace(splits=used)
    else:
        labels = find_labels(options, _is_boxes_file)
    class_files = _find_class_files(options, folder)
    names: dict[str, str] = {}
    for code, name in (pair for path in class_files for pair in _read_class_names(path)):
        if names.setdefault(code, name) != name:
            raise ConfigError(f"{' and '.join(class_files)}: {code} is {names[code]!r} and {name!r}. Keep one of them")
    warnings += [] if class_files else [_NO_NAMES]
    return naming_source(
        options,
        labels,
        partial(parse_boxes, names=names, by_name=by_name, has_fields=bool(options.fields)),
        check=_check_names,
        inputs=(*([data] if is_file else []), *class_files),
        warnings=tuple(warnings),
        text_fields=True,
    )


def _is_boxes_file(name: str) -> bool:
    return bool(_BOXES.fullmatch(name))


def _boxes_split(file: str) -> str:
    """Return the split in the name of a file; "" without one.

    >>> _boxes_split("oidv6-train-annotations-bbox.csv"), _boxes_split("validation-annotations-bbox.csv")
    ('train', 'val')
    """
    match = _SPLIT.search(posixpath.basename(file))
    return SPLIT_OF_FOLDER[match[1]] if match else ""


def _find_class_files(options: OpenimagesOptions, folder: str) -> list[str]:
    if options.class_descriptions:
        return [options.class_descriptions]
    names = [name for name in storage_for(folder).names(folder) if re.fullmatch(r"class-descriptions.*\.csv", name)]
    if len(names) > 1:
        raise ConfigError(f"{folder} has {', '.join(names)}. Add --class-descriptions with one of them")
    usual = (posixpath.join(split, "metadata/classes.csv") for split in ("", "train", "validation", "test"))
    return [join_path(folder, name) for name in names or list_existing(folder, usual)]


def _read_class_names(path: str) -> Iterator[tuple[str, str]]:
    """Yield the code and the name of each class.

    Raises:
        ConfigError: A row is not a code and a name.
    """
    try:
        text = storage_for(path).read(path).decode("utf-8-sig")
        for number, row in enumerate(csv.reader(text.splitlines(), strict=True), 1):
            if row and row[0] != "LabelName":
                if len(row) != 2:
                    raise ConfigError(
                        f"{path}, line {number}: a row must be a class and its name (got {len(row)} cells)"
                    )
                yield row[0], row[1].strip()
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path} is not valid CSV in UTF-8 ({error})") from error


def _check_names(notes: frozenset[str]) -> Iterator[str]:
    if _UNNAMED in notes:
        yield "some classes are not in --class-descriptions, so their Open Images codes are written"


def parse_boxes(
    stream: BinaryIO, file: str, names: dict[str, str], by_name: bool = False, has_fields: bool = False
) -> Iterator[LabelledImage]:
    """Yield the images of a file.

    Args:
        names: Names of the classes, by their codes.
        by_name: True if the name of the file gives the split.
        has_fields: True if records store open fields.

    >>> import io
    >>> data = b"ImageID,LabelName,XMin,XMax,YMin,YMax,IsGroupOf\\n0a,/m/1,0.25,0.5,0.5,1,1\\n"
    >>> image, = parse_boxes(io.BytesIO(data), "test-annotations-bbox.csv", {"/m/1": "Cat"}, True)
    >>> image.sample.file_name, image.sample.split, image.sample.objects[0].box, image.sample.objects[0].is_crowd
    ('0a.jpg', 'test', (0.25, 0.5, 0.25, 0.5), True)
    """
    split = _boxes_split(file) if by_name else ""

    def make_sample(cells: Cells, _: ImageParts) -> Sample:
        name = cells["ImageID"]
        return Sample(name if is_image_name(name) else f"{name}.jpg", split=split)

    row_format = RowFormat(
        ("ImageID", "LabelName", *_EDGES),
        _FLAGS,
        make_sample,
        partial(_convert_box_row, names=names),
        has_fields=has_fields,
    )
    yield from read_csv_images(stream, file, lambda _: row_format)


def _convert_box_row(cells: Cells, notes: set[str], names: dict[str, str]) -> SampleObject:
    code = cells["LabelName"]
    box = fraction_box(*finite_numbers({column: cells[column] for column in _EDGES}, "the box"))
    set_flags = {name for name in _FLAGS if _read_flag(name, cells.get(name, ""))}
    notes |= {_UNNAMED} if names and code and code not in names else set()
    is_crowd, truncated = (flag in set_flags for flag in ("IsGroupOf", "IsTruncated"))
    fields = {"truncated": True} if truncated else {}
    return SampleObject(names.get(code, code), box, "fraction", is_crowd=is_crowd, fields=fields)


def _read_flag(column: str, text: str) -> bool:
    """Return the value of a flag. Open Images writes -1 where it is unknown."""
    if text in ("", "-1", "-1.0"):
        return False
    try:
        return read_flag(text)
    except ValueError as error:
        detail = f"{column} must be 1, 0 or -1 (got {text[:20]!r})"
        raise UnusableError(Reason.MALFORMED_ANNOTATION, detail) from error
