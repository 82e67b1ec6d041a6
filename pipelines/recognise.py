"""Recognition of data sets: which command converts the files of a folder, and why."""

import difflib
import posixpath
import re
from itertools import islice
from typing import NamedTuple

from recordmill.pipelines.verbs import FORMATS, VERBS
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.splits import SPLIT_OF_WORD
from recordmill.transforms.rows.data_contents import DataContents
from recordmill.transforms.storage.resolve import join_path, storage_for

_MOST_NAMES = 20_000
"""Names of a folder that are looked at; the files of its top always are."""
_PART_OF_FORMAT = frozenset(("images", "labels", "annotations", "jpegimages", "data", *SPLIT_OF_WORD))
"""Folders that say something about the files below them, in lower case. No archive wraps a data set in one of them."""
_DOCUMENTS = re.compile(r"(\.|__MACOSX/|[^/]*(readme|licen[cs]e|source|citation)[^/]*$)", re.IGNORECASE)
_SOURCES = tuple(name for name, verb in VERBS.items() if verb.ways_path)


class Recognised(NamedTuple):
    """A way to read a data set, see Way."""

    verb: str
    why: str
    commands: tuple[tuple[str, ...], ...]


def choose_format(data: str, asked: str | None) -> Recognised:
    """Return how a data set is read.

    Args:
        asked: A verb; None to find it.

    Raises:
        ConfigError: `asked` is no format; nothing is recognised, or several formats are, of which none is asked for.
    """
    if asked and asked not in _SOURCES:
        near = difflib.get_close_matches(asked, _SOURCES, 1)
        hint = f"; did you mean {near[0]}?" if near else ";"
        raise ConfigError(f"--format-in {asked!r} is not a format{hint} they are {', '.join(_SOURCES)}")
    data = unwrapped(data)
    found = recognise(data, asked)
    if not found and asked and "data" in VERBS[asked].options.model_fields:
        return Recognised(asked, "as --format-in says", (("--data", data),))
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigError(
            f"--data {data}: no data set is recognised in it. recordmill --help lists the formats that have a command; "
            f"class folders are a folder for each class, and --format-in names one of {', '.join(FORMATS)}"
        )
    ways = "; ".join(f"{each.verb} ({each.why})" for each in found)
    raise ConfigError(f"--data {data} may be read in {len(found)} ways: {ways}. --format-in NAME decides")


def unwrapped(data: str) -> str:
    """Return the folder that holds the data set: `data`, or the only folder in it, where nothing but documents is
    beside that folder. Archives often wrap their files in a folder.
    """
    storage = storage_for(data)
    while storage.is_folder(data):
        names = (file.name for file in islice(storage.walk(data), _MOST_NAMES))
        tops = {name.partition("/")[0] if "/" in name else "" for name in names if not _DOCUMENTS.match(name)}
        if len(tops) != 1 or (top := tops.pop()).lower() in ("", *_PART_OF_FORMAT):
            break
        data = join_path(data, top)
    return data


def recognise(data: str, asked: str | None = None) -> list[Recognised]:
    """Return all ways to read a file, or a folder or .zip. Those without annotations count if nothing else does.

    Args:
        asked: The only verb that counts; None for all.

    Raises:
        ConfigError: There is no such file; or nothing is recognised, and files of a format contradict each other.
    """
    storage = storage_for(data)
    if storage.size(data) is not None and not storage.is_folder(data):
        folder, names = posixpath.dirname(data), [posixpath.basename(data)]
    elif storage.is_folder(data):
        walked = (file.name for file in islice(storage.walk(data), _MOST_NAMES))
        folder, names = data.rstrip("/"), [*dict.fromkeys((*storage.names(data), *walked))]
    else:
        raise ConfigError(f"--data {data}: no such file or folder")
    contents = DataContents(data, folder, names)
    found = [(verb, way) for verb in ([asked] if asked else _SOURCES) for way in VERBS[verb].ways(contents)]
    rank = min((way.rank for _, way in found), default=0)
    found = [(verb, way) for verb, way in found if way.rank == rank]
    faults = [way.fault for _, way in found if way.fault]
    if faults and len(faults) == len(found) and not asked:
        raise faults[0]
    return [Recognised(verb, way.why, way.commands) for verb, way in found if not (asked and way.fault)]
