"""The folders of a DAG's runs: which is the latest, and which are old enough to be deleted.

As in recordmill.launch.services.airflow_arguments, neither Airflow nor Beam is imported; nor is a file touched.

Publish leaves a note in each folder that is a run's own, by which tidy knows it again. Without it, or where the
manifest is another by now, as somebody has added a split, the folder is left alone.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from recordmill.schemas.errors import ConfigError

LATEST = "latest.json"
NOTE = ".airflow-run.json"

_RUN_NAME = re.compile(r"\d{8}t\d{6}(\d{6})?")


class RunNote(msgspec.Struct, frozen=True):
    """What publish leaves in a run's folder.

    Attributes:
        run: its `recordmill.launch.services.airflow_arguments.run_name`.
        is_going: whether tidy has begun to delete the folder.
    """

    dag_id: str
    run: str
    manifest_sha256: str
    is_going: bool = False


class Latest(msgspec.Struct, frozen=True):
    """What latest.json says: where the newest data set is."""

    folder: str
    run: str
    manifest_sha256: str


class RunFolder(NamedTuple):
    """A folder beside those of the other runs, with the bytes of its note and manifest; None where it has none."""

    name: str
    note: bytes | None
    manifest: bytes | None


class Retention(NamedTuple):
    """What tidy is to do: names of folders, the oldest first; of those that are neither, why not."""

    delete: list[str]
    keep: list[str]
    left: dict[str, str]


def encoded(value: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value)) + b"\n"


def decoded_latest(data: bytes, path: str) -> Latest:
    """What a latest.json says.

    Raises:
        ConfigError: it is none.
    """
    try:
        return msgspec.json.decode(data, type=Latest)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is none of publish's ({error}), which would replace it: move it away") from error


def is_newer(new: Latest, before: Latest | None) -> bool:
    """Whether latest.json is to say `new`: a backfill of older days does not turn it back."""
    return before is None or new.run >= before.run


def retention(dag_id: str, folders: Iterable[RunFolder], keep: int, spared: frozenset[str]) -> Retention:
    """Which runs' folders go: all whole ones but the newest `keep`, and those that were begun to be deleted.

    Args:
        spared: names of folders that stay whatever their age: this run's own, and the latest.
    """
    going, whole, left = [], [], {}
    for folder in sorted(folders):
        note = _note(folder)
        if note is None or (note.dag_id, note.run) != (dag_id, folder.name):
            left[folder.name] = "publish has left no note in it that it is a run of this DAG"
        elif note.is_going:
            going.append(folder.name)
        elif folder.manifest is None:
            left[folder.name] = "it has no manifest.json: it is not finished"
        elif hashlib.sha256(folder.manifest).hexdigest() != note.manifest_sha256:
            left[folder.name] = "its manifest.json is another than was published, as of a split that was added"
        else:
            whole.append(folder.name)
    newest = {*whole[-keep:], *spared}
    return Retention([*going, *(name for name in whole if name not in newest)], [n for n in whole if n in newest], left)


def _note(folder: RunFolder) -> RunNote | None:
    if folder.note is None or not _RUN_NAME.fullmatch(folder.name):
        return None
    try:
        return msgspec.json.decode(folder.note, type=RunNote)
    except msgspec.DecodeError:
        return None
