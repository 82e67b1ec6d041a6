"""Classes of semantic masks and their pixels: parsed from files and options, or those of known data sets."""

import csv
import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.class_tables import (
    ADE20K,
    COLOUR_COLUMNS,
    NAME_COLUMNS,
    VALUE_COLUMNS,
)
from recordmill.schemas.inputs.file_kinds import describe_container
from recordmill.schemas.inputs.option import join_names
from recordmill.transforms.annotated.class_names import match_names

_STATED = r"(.*)=(?:(\d{1,5})|#([0-9A-Fa-f]{6}))"
"""Name and value, or name and colour."""
_LINES = (
    r"(?P<name>.*?):(?P<red>\d{1,3}),\s*(?P<green>\d{1,3}),\s*(?P<blue>\d{1,3}):.*",
    r"(?P<red>\d{1,3})\s+(?P<green>\d{1,3})\s+(?P<blue>\d{1,3})\s+(?P<name>\S.*)",
)
"""Lines of CVAT's labelmap.txt, and of CamVid's label_colors.txt."""
_TABLES = (".csv", ".tsv")
_COLUMNS = "name,value or name,r,g,b"


class MaskClass(NamedTuple):
    """A class of semantic masks.

    Attributes:
        name: Empty if pixels of the class are unknown.
        value: Number of the class.
        colour: Colour of its pixels, 0xRRGGBB; None if its pixels are `value`.
    """

    name: str
    value: int
    colour: int | None = None


class ClassTable(NamedTuple):
    """Classes of masks, and where they come from.

    Attributes:
        where: File or option that names them; empty without classes.
        inputs: The file.
        notes: Sentences about the classes, for the terminal.
    """

    classes: Sequence[MaskClass] = ()
    where: str = ""
    inputs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def parse_names(names: Sequence[str]) -> list[MaskClass]:
    """Return the classes of `--class-names`: name n is the class of value n, unless names state values or colours.

    Raises:
        ConfigError: Some names state their value or colour, and others do not.

    >>> parse_names(["sky", "car"])[1], parse_names(["polyp=255"])[0], parse_names(["car=#000001"])[0]
    (MaskClass(name='car', value=1, colour=None), MaskClass(name='polyp', value=255, colour=None), \
MaskClass(name='car', value=0, colour=1))
    """
    stated = match_names(names, _STATED)
    colours = [match[3] for match in stated if match[3]]
    if len(colours) not in (0, len(names)):
        raise ConfigError(f"--class-names {join_names(names)}: some classes are values, and others colours")
    if not stated:
        return [MaskClass(name, value) for value, name in enumerate(names)]
    return [
        MaskClass(match[1], row, int(match[3], 16)) if match[3] else MaskClass(match[1], int(match[2]))
        for row, match in enumerate(stated)
    ]


def parse_class_file(path: str, data: bytes) -> list[MaskClass]:
    """Return the classes of a file: a name per line, a table, CVAT's labelmap.txt, or lines `R G B name`.

    Raises:
        ConfigError: It is none of these, or has no class.
    """
    if what := describe_container(data, is_table=True):
        raise ConfigError(f"{path} is {what}")
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: {error}") from error
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise ConfigError(f"{path} is empty. Write a name of a class per line")
    if path.lower().endswith(_TABLES):
        return _parse_table(path, lines)
    numbered = [(number, line.strip()) for number, line in enumerate(lines, 1) if not re.match(r"#|\s*$", line)]
    for pattern in _LINES:
        matches = [(number, match) for number, line in numbered if (match := re.fullmatch(pattern, line))]
        if matches and len(matches) == len(numbered):
            return [
                MaskClass(match["name"].strip(), row, _pack_colour(path, number, match.group("red", "green", "blue")))
                for row, (number, match) in enumerate(matches)
            ]
    if "\t" in lines[0]:
        return _parse_table(path, lines)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            raise ConfigError(
                f"{path}, line {number} is blank, so the value {number - 1} has no name. Write its name, or a CSV file "
                f"with the columns {_COLUMNS}"
            )
    return [MaskClass(line.strip(), value) for value, line in enumerate(lines)]


def _parse_table(path: str, lines: Sequence[str]) -> list[MaskClass]:
    separator = "\t" if "\t" in lines[0] else ";" if ";" in lines[0] and "," not in lines[0] else ","
    try:
        header, *rows = ([cell.strip() for cell in row] for row in csv.reader(lines, delimiter=separator))
    except csv.Error as error:
        raise ConfigError(f"{path} is not a table of classes: {error}") from error
    columns = {name.lower(): index for index, name in enumerate(header)}
    name = next((columns[column] for column in NAME_COLUMNS if column in columns), None)
    value = next((columns[column] for column in VALUE_COLUMNS if column in columns), None)
    colour = next(([columns[c] for c in channels] for channels in COLOUR_COLUMNS if {*channels} <= {*columns}), None)
    if name is None or (value is None and colour is None):
        raise ConfigError(
            f"{path}: its first line has the columns {', '.join(header)}. Name the classes in a table with the columns "
            f"{_COLUMNS}"
        )
    classes = list[MaskClass]()
    for line, row in enumerate(rows, 2):
        if not any(row):
            continue
        try:
            number = len(classes) if value is None else int(row[value])
            packed = None if colour is None else _pack_colour(path, line, [row[index] for index in colour])
            classes.append(MaskClass(row[name], number, packed))
        except (IndexError, ValueError) as error:
            raise ConfigError(f"{path}, line {line}: a value, or a cell, is missing or not a whole number") from error
    if not classes:
        raise ConfigError(f"{path} has no class below its first line")
    return [MaskClass("", 0), *classes] if posixpath.basename(path) == ADE20K else classes


def _pack_colour(path: str, line: int, channels: Iterable[str]) -> int:
    red, green, blue = map(int, channels)
    if not all(0 <= channel <= 255 for channel in (red, green, blue)):
        raise ConfigError(f"{path}, line {line}: {red},{green},{blue} is not a colour: its numbers must be 0 to 255")
    return red << 16 | green << 8 | blue


def colour_text(colour: int) -> str:
    """
    >>> colour_text(0x80FF00)
    '#80ff00'
    """
    return f"#{colour:06x}"


_CITYSCAPES = (
    *("unlabeled", "ego vehicle", "rectification border", "out of roi", "static", "dynamic", "ground"),
    *("road", "sidewalk", "parking", "rail track", "building", "wall", "fence", "guard rail", "bridge"),
    *("tunnel", "pole", "polegroup", "traffic light", "traffic sign", "vegetation", "terrain", "sky"),
    *("person", "rider", "car", "truck", "bus", "caravan", "trailer", "train", "motorcycle", "bicycle"),
)
_TRAIN_IDS = (
    *("road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign"),
    *("vegetation", "terrain", "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle"),
    "bicycle",
)
_VOC = (
    *("background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train"),
    "tvmonitor",
)
_LABEL_IDS_NOTE = (
    "the masks are Cityscapes' labelIds, of 34 classes; labelTrainIds, of 19 classes, are read where they exist: "
    "csCreateTrainIdLabelImgs of cityscapesscripts writes them"
)
_VOC_NOTE = "the names of the classes are those of Pascal VOC"
_KNOWN = {
    "_labelTrainIds": ClassTable(parse_names(_TRAIN_IDS), "Cityscapes' labelTrainIds"),
    "_labelIds": ClassTable(parse_names(_CITYSCAPES), "Cityscapes' labelIds", notes=(_LABEL_IDS_NOTE,)),
    "SegmentationClass": ClassTable(parse_names(_VOC), "Pascal VOC's list of classes", notes=(_VOC_NOTE,)),
}


def known_classes(mask_folder: str, map_end: str, is_voc: bool) -> ClassTable | None:
    """Return the classes of Cityscapes or Pascal VOC, by the names of masks; None for any other data set.

    Args:
        mask_folder: Folder of the masks.
        map_end: End of their names.
        is_voc: True if the data set has Pascal VOC's lists of splits.
    """
    match = re.fullmatch("_gt(?:Fine|Coarse)(_label(?:Train)?Ids)", map_end)
    name = match[1] if match else posixpath.basename(mask_folder) if is_voc else ""
    return _KNOWN.get(name)
