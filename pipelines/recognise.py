"""Recognise data sets: the verb that converts the files of a folder, and the evidence."""

import difflib
import posixpath
import re
from itertools import islice

from recordmill.pipelines.verbs import FORMATS, VERBS
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.splits import SPLIT_OF_WORD
from recordmill.transforms.rows.data_contents import DataContents, Interpretation
from recordmill.transforms.storage.resolve import join_path, storage_for

_MAX_NAMES = 20_000
"""Maximum number of names of a folder that are looked at, besides the files at its top."""
_FORMAT_FOLDERS = frozenset(("images", "labels", "annotations", "jpegimages", "data", *SPLIT_OF_WORD))
"""Folders that belong to a format, in lower case. Archives do not wrap a data set in one of them."""
_DOCUMENTS = re.compile(r"(\.|__MACOSX/|[^/]*(readme|licen[cs]e|source|citation)[^/]*$)", re.IGNORECASE)
_SOURCES = tuple(name for name, verb in VERBS.items() if verb.ways_path)


def choose_format(data: str, format_in: str | None) -> tuple[str, Interpretation]:
    """Return the verb that reads a data set, and its interpretation.

    Args:
        format_in: A verb; None to find it.

    Raises:
        ConfigError: `format_in` is not a format; or none, or several formats are recognised.
    """
    if format_in and format_in not in _SOURCES:
        near = difflib.get_close_matches(format_in, _SOURCES, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ConfigError(f"--format-in must be one of {', '.join(_SOURCES)} (got {format_in!r}).{hint}")
    data = unwrap_folder(data)
    matches = recognise(data, format_in)
    if not matches and format_in and "data" in VERBS[format_in].options.model_fields:
        return format_in, Interpretation("as --format-in says", (("--data", data),))
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise ConfigError(
            f"--data {data}: the format of the data set is not recognised. recordmill --help lists the formats that "
            f"have a command; class folders are one folder per class. To choose a format, add --format-in with one of "
            f"{', '.join(FORMATS)}"
        )
    choices = "; ".join(f"{verb} ({match.why})" for verb, match in matches)
    raise ConfigError(
        f"--data {data} can be read in {len(matches)} ways: {choices}. Add --format-in NAME to choose one"
    )


def unwrap_folder(data: str) -> str:
    """Return the folder that holds the data set: `data`, or the only folder in it if everything beside that folder is
    documents. Archives often wrap their files in a folder."""
    storage = storage_for(data)
    while storage.is_folder(data):
        names = (file.name for file in islice(storage.walk(data), _MAX_NAMES))
        tops = {name.partition("/")[0] if "/" in name else "" for name in names if not _DOCUMENTS.match(name)}
        if len(tops) != 1 or (top := tops.pop()).lower() in ("", *_FORMAT_FOLDERS):
            break
        data = join_path(data, top)
    return data


def recognise(data: str, format_in: str | None = None) -> list[tuple[str, Interpretation]]:
    """Return all verbs that can read a file, a folder or a .zip, with their interpretations of the lowest rank.

    Args:
        format_in: The only verb to try; None for all.

    Raises:
        ConfigError: The file does not exist; or nothing is recognised, and files of a format contradict each other.
    """
    storage = storage_for(data)
    if storage.size(data) is not None and not storage.is_folder(data):
        folder, names = posixpath.dirname(data), [posixpath.basename(data)]
    elif storage.is_folder(data):
        walked = (file.name for file in islice(storage.walk(data), _MAX_NAMES))
        folder, names = data.rstrip("/"), [*dict.fromkeys((*storage.names(data), *walked))]
    else:
        raise ConfigError(f"--data {data}: no such file or folder")
    contents = DataContents(data, folder, names)
    verbs = [format_in] if format_in else _SOURCES
    candidates = [(verb, match) for verb in verbs for match in VERBS[verb].ways(contents)]
    rank = min((match.rank for _, match in candidates), default=0)
    matches = [(verb, match) for verb, match in candidates if match.rank == rank]
    faults = [match.fault for _, match in matches if match.fault]
    if faults and len(faults) == len(matches) and not format_in:
        raise faults[0]
    return [(verb, match) for verb, match in matches if not (format_in and match.fault)]
