"""Read groups of related images, for example copies of an image or images of a patient."""

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apache_beam as beam
import msgspec
from apache_beam.pvalue import PCollection

from recordmill.schemas.errors import AnnotationFileError, ConfigError
from recordmill.schemas.inputs.splits import Division
from recordmill.schemas.names import name_key
from recordmill.transforms.rows.read_rows import read_texts
from recordmill.transforms.storage.resolve import open_unpacked, read_unpacked

_COLUMNS = ("file_name", "group")
_HEAD = 64
_BOM = b"\xef\xbb\xbf"

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
    objects with a `file_name`, as duplicates.jsonl; or a table with the columns `file_name` and `group`.

    Raises:
        ConfigError: it is neither; the message says which row is not. Or it has no group.
        OSError: storage fails.
    """
    try:
        start = next(open_unpacked(path)[1], b"")[:_HEAD].removeprefix(_BOM).lstrip()
        is_json = start.startswith((b"{", b"["))
        groups = merge_groups(_of_json(read_unpacked(path).removeprefix(_BOM)) if is_json else _of_table(path))
    except (ValueError, AnnotationFileError) as error:
        raise ConfigError(f"--groups {error if path in str(error) else f'{path} {error}'}") from error
    if not groups:
        raise ConfigError(f"--groups {path} has no group in it: leave the option out, if there are none")
    return groups


def _of_json(data: bytes) -> Iterator[Group]:
    """
    Raises:
        ValueError: a line is no group.
    """
    decoder = msgspec.json.Decoder(_GroupLine)
    for number, line in enumerate(data.split(b"\n"), 1):
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


def _of_table(path: str) -> Iterator[Group]:
    """
    Raises:
        AnnotationFileError: see `read_texts`.
        ValueError: it lacks a column, or a row lacks a value.
    """
    for row in read_texts(path, _choose).rows:
        name, group = row.cells or ("", "")
        if not name or not group:
            what = row.fault or f"no {'group' if name else 'file_name'}; leave out images that are in no group"
            raise ValueError(f"row {row.number}: {what}")
        yield unicodedata.normalize("NFC", group), [name_key(name)]


def _choose(names: list[str]) -> list[str]:
    by_text = {name.strip(): name for name in names}
    if missing := [name for name in _COLUMNS if name not in by_text]:
        raise ValueError(
            f"has no column {' and no column '.join(missing)}: there are {', '.join(map(repr, by_text)) or 'none'}; it "
            "is to be duplicates.jsonl of a data set, or a table with the columns file_name and group"
        )
    return [by_text[name] for name in _COLUMNS]


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
