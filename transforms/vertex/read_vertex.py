"""Convert lines of Vertex AI's import files to images."""

import csv
import io
import re
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any, BinaryIO

import msgspec
from msgspec.structs import replace

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.file_kinds import describe_content
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.inputs.scalars import read_number
from recordmill.schemas.inputs.splits import SPLIT_OF_FOLDER, USUAL_SPLITS
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.naming import (
    check_keys,
    decode_part,
    fraction_box,
    naming_source,
    one_folder,
    other_values,
    resolve_image_name,
)
from recordmill.transforms.annotated.source import (
    ImageParts,
    LabelledImage,
    Source,
    parser,
    unusable_image,
)
from recordmill.transforms.storage.resolve import join_path, split_folder, storage_for
from recordmill.transforms.vertex.vertex_options import VertexOptions

_IMAGE_LABELS = "dataItemResourceLabels"
_ML_USE = "aiplatform.googleapis.com/ml_use"
_SPLITS = {"training": "train", "validate": "val"} | SPLIT_OF_FOLDER
_NO_USE = ("", "unassigned")
_ML_USE_PATTERNS = {
    ".jsonl": re.compile(rb'/ml_use"\s*:\s*"(\w+)"', re.IGNORECASE),
    ".csv": re.compile(rb'^\s*"?(train|training|validation|validate|test)"?\s*,', re.IGNORECASE),
}


class _VertexLine(msgspec.Struct):
    uri: str = msgspec.field(name="imageGcsUri")
    boxes: list[msgspec.Raw] = msgspec.field(name="boundingBoxAnnotations", default_factory=list)
    labels: dict[str, str] = msgspec.field(name=_IMAGE_LABELS, default_factory=dict)
    classes: Any = msgspec.field(name="classificationAnnotation", default=None)


class _VertexBox(msgspec.Struct):
    name: str = msgspec.field(name="displayName")
    left: float = msgspec.field(name="xMin")
    top: float = msgspec.field(name="yMin")
    right: float = msgspec.field(name="xMax")
    bottom: float = msgspec.field(name="yMax")


def source(options: VertexOptions) -> Source:
    """Return the Source of import files. Each file is read once before the job, for its values of `ml_use`.

    Raises:
        ConfigError: DATA has no import file.
    """
    data, storage = options.data, storage_for(options.data)
    folder, name = split_folder(data) if storage.size(data) is not None else (data, "")
    names = [name] if name else [file for file in storage.names(data) if file.endswith(tuple(_ML_USE_PATTERNS))]
    if not names:
        raise ConfigError(f"{data} has no .jsonl or .csv file. Give the import file of Vertex AI")
    paths = [join_path(folder, name) for name in names]
    file_splits = {_SPLITS.get(use) for path in paths for use in _read_ml_uses(path)}
    splits = tuple(split for split in USUAL_SPLITS if split in file_splits)
    parse = partial(parse_lines, has_splits=bool(splits))
    labels = one_folder(folder, names, options.images)
    fields: dict[str, Any] = {"image_fields": (f"{_IMAGE_LABELS}.",), "text_fields": True}
    return naming_source(options, labels, parse, splits=splits, inputs=tuple(paths), **fields)


def _read_ml_uses(path: str) -> set[str]:
    """Return the values of ml_use in a file, in lower case.

    Raises:
        ConfigError: The file is not Vertex AI's.
    """
    pattern = _ML_USE_PATTERNS[".csv" if path.endswith(".csv") else ".jsonl"]
    with storage_for(path).open(path) as file:
        first = next(file, b"")
        if what := describe_content(first):
            raise ConfigError(f"{path} is {what}")
        return {match[1].decode().lower() for line in chain([first], file) if (match := pattern.search(line))}


@parser
def parse_lines(stream: BinaryIO, file: str, has_splits: bool = False) -> Iterator[LabelledImage]:
    """Yield the images of a file.

    Args:
        has_splits: True if lines have splits.

    >>> box = '{"displayName": "cat", "xMin": "0.25", "yMin": 0.5, "xMax": 0.5, "yMax": 1}'
    >>> line = '{"imageGcsUri": "gs://b/1.jpg", "boundingBoxAnnotations": [' + box + ']}'
    >>> image, = parse_lines(io.BytesIO(line.encode()), "a.jsonl")
    >>> image.sample.file_name, image.sample.objects[0].box
    ('gs://b/1.jpg', (0.25, 0.5, 0.25, 0.5))
    >>> image, = parse_lines(io.BytesIO(b"TEST,gs://b/1.jpg,cat,0.25,0.5,,,0.5,1,,"), "a.csv", True)
    >>> image.sample.split, image.sample.objects[0].box
    ('test', (0.25, 0.5, 0.25, 0.5))
    """
    if file.endswith(".csv"):
        yield from _convert_csv(stream, file, has_splits)
        return
    for number, text in enumerate(stream, 1):
        if not (text := text.removeprefix(b"\xef\xbb\xbf").strip()):
            continue
        try:
            check_keys(text, Reason.MALFORMED_IMAGE)
            line = decode_part(text, _VertexLine)
            if line.classes:
                raise UnusableError(Reason.MALFORMED_IMAGE, "it has a class of the image instead of boxes")
            sample = Sample(
                resolve_image_name(file, line.uri), split=_ml_use_split(line.labels.get(_ML_USE, ""), has_splits)
            )
        except UnusableError as fault:
            yield unusable_image(fault.detail, number)
            continue
        parts = ImageParts()
        labels = {key: value for key, value in line.labels.items() if key != _ML_USE}
        sample = replace(sample, fields=other_values(text, _VertexLine) | {_IMAGE_LABELS: labels})
        for raw in line.boxes:
            with parts.rejecting(line=number):
                box = decode_part(raw, _VertexBox, parts)
                edges = fraction_box(box.left, box.top, box.right, box.bottom)
                fields = other_values(raw, _VertexBox)
                parts.objects.append(SampleObject(box.name, edges, "fraction", fields=fields))
        yield parts.image(sample)


def _ml_use_split(use: str, has_splits: bool) -> str:
    """Return the split of an ml_use; "" if no line has a split.

    Raises:
        UnusableError: The line has no split, but other lines have.
    """
    if not has_splits:
        return ""
    if use.lower() in _NO_USE:
        raise UnusableError(Reason.MALFORMED_IMAGE, "it has no ml_use, but other lines have, so its split is unknown")
    if use.lower() not in _SPLITS:
        raise UnusableError(Reason.MALFORMED_IMAGE, f"ml_use {use!r} is not a split")
    return _SPLITS[use.lower()]


def _convert_csv(stream: BinaryIO, file: str, has_splits: bool) -> Iterator[LabelledImage]:
    """Yield one image per row. The join merges rows of the same image."""
    rows = csv.reader(io.TextIOWrapper(stream, "utf-8-sig", newline=""), strict=True)
    try:
        for row in rows:
            cells = [cell.strip() for cell in row]
            if any(cells):
                yield _convert_csv_row(cells, file, rows.line_num, has_splits)
    except (UnicodeDecodeError, csv.Error) as error:
        detail = f"after line {rows.line_num}, it is not valid CSV in UTF-8 ({error})"
        raise UnusableError(Reason.MALFORMED_LABELS, detail) from error


def _convert_csv_row(cells: list[str], file: str, number: int, has_splits: bool) -> LabelledImage:
    has_use = cells[0].lower() in (*_SPLITS, *_NO_USE)
    use, uri, label, *corners = [*([] if has_use else [""]), *cells, "", ""]
    try:
        sample = Sample(resolve_image_name(file, uri), split=_ml_use_split(use, has_splits))
    except UnusableError as fault:
        return unusable_image(fault.detail, number)
    parts = ImageParts()
    with parts.rejecting(line=number):
        if label or any(corners):
            parts.objects.append(SampleObject(label, _corners_box(corners), "fraction"))
    return parts.image(sample)


def _corners_box(cells: list[str]) -> tuple[float, float, float, float]:
    """Return the bounds of two or four corners. Cells of absent corners are empty.

    Raises:
        UnusableError: There are fewer than two corners, or one is not a point.
    """
    pairs = [pair for pair in zip(cells[:8:2], cells[1:8:2], strict=False) if any(pair)]
    if len(pairs) < 2:
        raise UnusableError(Reason.MALFORMED_BOX, f"a box needs two corners (got {len(pairs)})")
    try:
        xs, ys = zip(*((read_number(x), read_number(y)) for x, y in pairs), strict=True)
    except ValueError as error:
        raise UnusableError(
            Reason.MALFORMED_BOX, f"corners {' '.join(map(', '.join, pairs))} are not points"
        ) from error
    return fraction_box(min(xs), min(ys), max(xs), max(ys))
