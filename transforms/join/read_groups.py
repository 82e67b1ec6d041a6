"""Read groups of related images, for example copies of an image or images of a patient."""

import csv
import io
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apache_beam as beam
import msgspec
from apache_beam.pvalue import PCollection

from recordmill.schemas.errors import AnnotationFileError, ConfigError
from recordmill.schemas.inputs.splits import Division
from recordmill.schemas.names import name_key
from recordmill.transforms.storage.read_unpacked import read_unpacked

_COLUMNS = ("file_name", "group")
_DELIMITERS = ",;\t"
_MAX_FIELD = 1 << 20

Group = tuple[str, list[str]]
"""Name of a group, and names of its images."""


class _Image(msgspec.Struct):
    file_name: str


class _GroupLine(msgspec.Struct):
    """Fields of a line of duplicates.jsonl; others are ignored."""

    images: list[_Image]


@dataclass(eq=False, repr=False)
class ReadGroups(beam.PTransform):
    """Convert a path to one Division: `division` with the groups of the file."""

    division: Division

    def expand(self, paths: PCollection[str]):
        return paths | "ReadFile" >> beam.Map(_divided, self.division)


def _divided(path: str, division: Division) -> Division:
    return msgspec.structs.replace(division, groups=read_groups(path))


def read_groups(path: str) -> dict[str, str]:
    """Return the group of each name, see `merge_groups`. The file is JSON Lines of objects whose `images` is a list of
    objects with a `file_name`, or CSV with the columns `file_name` and `group`.

    Raises:
        ConfigError: it is neither; the message says which line is not. Or it has no group.
        OSError: storage fails.
    """
    try:
        text = read_unpacked(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"--groups {path} is not UTF-8 ({error.reason} at byte {error.start})") from error
    except AnnotationFileError as error:  # of gzip
        raise ConfigError(f"--groups {error}") from error
    if not text.strip():
        raise ConfigError(f"--groups {path} is empty: leave the option out, if there are no groups")
    is_json = text.lstrip().startswith(("{", "["))
    try:
        groups = merge_groups(_of_json(text) if is_json else _of_csv(text))
    except ValueError as error:
        raise ConfigError(f"--groups {path} {error}") from error
    if not groups:
        raise ConfigError(f"--groups {path} has no group in it: leave the option out, if there are none")
    return groups


def _of_json(text: str) -> Iterator[Group]:
    """
    Raises:
        ValueError: a line is no group.
    """
    decoder = msgspec.json.Decoder(_GroupLine)
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            names = [name_key(image.file_name) for image in decoder.decode(line).images]
        except msgspec.DecodeError as error:
            raise ValueError(
                f'line {number} is no group ({error}); each line is to be {{"images": [{{"file_name": …}}, …]}}'
            ) from error
        if names:
            yield min(names), names


def _of_csv(text: str) -> Iterator[Group]:
    """
    Raises:
        ValueError: it is no CSV, lacks a column, or a row lacks a value.
    """
    delimiter = max(_DELIMITERS, key=text.partition("\n")[0].count)
    csv.field_size_limit(_MAX_FIELD)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    line = 1
    try:
        header = [name.strip() for name in next(rows, [])]
        missing = [name for name in _COLUMNS if name not in header]
        if missing:
            there = ", ".join(map(repr, header)) or "nothing"
            raise ValueError(
                f"has no column {' and no column '.join(missing)}: its first line has {there}; it is to be "
                "duplicates.jsonl of a data set, or CSV with the columns file_name and group"
            )
        name_index, group_index = map(header.index, _COLUMNS)
        while True:
            line = rows.line_num + 1
            fields = next(rows, None)
            if fields is None:
                return
            if any(map(str.strip, fields)):
                name, group = (
                    fields[index].strip() if index < len(fields) else "" for index in (name_index, group_index)
                )
                if not name or not group:
                    raise ValueError(
                        f"line {line} has no {'file_name' if not name else 'group'}; leave out images that are in no "
                        "group"
                    )
                yield unicodedata.normalize("NFC", group), [name_key(name)]
    except csv.Error as error:
        raise ValueError(f"line {line} cannot be read as CSV ({error})") from error


def merge_groups(groups: Iterable[Group]) -> dict[str, str]:
    """Return the group of each name, independent of the order of groups. Groups that share a name are merged, with the
    alphabetically first name.

    >>> merge_groups([("b", ["1", "2"]), ("c", ["3"]), ("a", ["2", "4"])])
    {'1': 'a', '2': 'a', '3': 'c', '4': 'a'}
    """
    above: dict[str, str] = {}  # of a group, itself or one that it is part of
    group_of: dict[str, str] = {}

    def whole(group: str) -> str:
        while above[group] != group:
            above[group] = above[above[group]]
            group = above[group]
        return group

    for group, names in groups:
        above.setdefault(group, group)
        for name in names:
            first, other = sorted((whole(group), whole(group_of.setdefault(name, group))))
            above[other] = first
    return {name: whole(group) for name, group in group_of.items()}
