"""Find TFRecord files of any name by their first bytes, which are the header of a record."""

import re
import shlex
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import NamedTuple

from recordmill.schemas.dataset.dataset_files import MANIFEST
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.paths import is_remote
from recordmill.schemas.sizes import first_texts
from recordmill.transforms.annotated.recognise_format import own_data_set_error, source_fault
from recordmill.transforms.records.tfrecord import HEADER_BYTES, is_tfrecord
from recordmill.transforms.rows.data_contents import RECORDS, SOLE_RECORDS, DataContents, Interpretation
from recordmill.transforms.storage.resolve import GZIP, find_archive, join_path, match_files, split_folder, storage_for
from recordmill.transforms.storage.zip_storage import WHOLE_BYTES
from recordmill.transforms.tfrecord.tfrecord_options import TfrecordOptions

_USUAL = re.compile(r".*\.(tf_?records?|tfrec|records?)([-_.].*)?|.*-\d{5}-of-\d{5}", re.IGNORECASE)
"""Usual names of TFRecord files."""
_OTHERS = re.compile(
    r"(.*/)?\..*|.*\.(json|jsonl|ndjson|xml|csv|tsv|txt|ya?ml|md|pbtxt|parquet|npy|zip|tar|idx|html|py|ipynb|config)",
    re.IGNORECASE,
)
"""Names of files that are not looked into."""
_TABLE_OF_IMAGES = re.compile(r"\.(parquet|jsonl|ndjson)$", re.IGNORECASE)
"""Names of tables that may have images or their URLs."""
_PATTERN = re.compile(r"[*?\[]")
RECORD_FILE, GZIPPED, DEFLATED, EMPTY, OTHER = "record file", "gzip", "zlib", "empty", "other"
_PACKED = (GZIPPED, DEFLATED)
_SAMPLE = 20
"""Number of files of unusual names, and of usual ones, by which a data set is recognised."""
_HEAD = 4096
_ZLIB, _ANY_HEADER = b"x", 47
"""First byte of zlib's files, and the argument of `zlib.decompressobj` for gzip and zlib."""
_INFLATE = "import sys, zlib; sys.stdout.buffer.write(zlib.decompress(sys.stdin.buffer.read()))"
_SHOWN = 5
_THREADS = 16
"""Threads that read the first bytes of files, each a request to a bucket."""


class TfrecordFiles(NamedTuple):
    """TFRecord files of a data set.

    Attributes:
        folder: Folder that their names begin at.
        names: Paths below it, sorted.
        packed: Those that are compressed by gzip or zlib.
        misnamed: Files with the usual names of TFRecord files that are not, and are not empty.
        empty: Files with the usual names that are empty.
        others: Paths of the other files below it.
    """

    folder: str
    names: tuple[str, ...]
    packed: tuple[str, ...] = ()
    misnamed: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def list_record_files(folder: str, names: Sequence[str], most: int | None = None) -> TfrecordFiles:
    """Return the TFRecord files among the files below a folder.

    Args:
        most: Maximum number of files of usual names that are looked into, and of unusual ones; None for all. Other
            files of usual names count as TFRecord files.
    """
    usual = [name for name in names if _USUAL.fullmatch(name) and not _OTHERS.fullmatch(name)]
    unusual = [name for name in names if not (_USUAL.fullmatch(name) or _OTHERS.fullmatch(name) or is_image_name(name))]
    looked_into = [*usual[:most], *unusual[:most]]
    with ThreadPoolExecutor(_THREADS) as pool:
        found_kinds = pool.map(content_kind, [join_path(folder, name) for name in looked_into])
        kinds = dict(zip(looked_into, found_kinds, strict=True))
    records = sorted(name for name in {*usual, *looked_into} if kinds.get(name, RECORD_FILE) in (RECORD_FILE, *_PACKED))
    return TfrecordFiles(
        folder,
        names=tuple(records),
        packed=tuple(name for name in records if kinds.get(name) in _PACKED),
        misnamed=tuple(name for name in usual if kinds.get(name) == OTHER),
        empty=tuple(name for name in usual if kinds.get(name) == EMPTY),
        others=tuple(name for name in names if name not in {*records}),
    )


def content_kind(path: str) -> str:
    """Return RECORD_FILE, its compression (GZIPPED, DEFLATED), EMPTY or OTHER."""
    storage = storage_for(path)
    head = storage.read_range(path, 0, _HEAD if not is_remote(path) else HEADER_BYTES)
    if not head or is_tfrecord(head):
        return RECORD_FILE if head else EMPTY
    kind = GZIPPED if head.startswith(GZIP) else DEFLATED
    if kind == DEFLATED and (head[:1] != _ZLIB or int.from_bytes(head[:2], "big") % 31):  # RFC 1950
        return OTHER
    head = head if len(head) > HEADER_BYTES else storage.read_range(path, 0, _HEAD)
    try:
        return kind if is_tfrecord(zlib.decompressobj(_ANY_HEADER).decompress(head, HEADER_BYTES)) else OTHER
    except zlib.error:
        return OTHER


def find_record_files(options: TfrecordOptions) -> TfrecordFiles:
    """Return the files of DATA.

    Raises:
        ConfigError: There are none, or a file of `--files` is missing; or they are compressed, or a data set of ours.
    """
    data, storage = options.data, storage_for(options.data)
    if storage.size(data) is not None and not storage.is_folder(data):
        folder, name = split_folder(data)
        files = list_record_files(folder, [name])
        files = files._replace(others=tuple(other for other in storage.names(folder) if other != name))
    else:
        files = list_record_files(data.rstrip("/"), sorted(storage.walk_names(data)))
    if options.files:
        if missing := [name for name in options.files if name not in files.names]:
            raise ConfigError(f"--files: {files.folder} has no TFRecord file {missing[0]!r}")
        files = files._replace(names=tuple(sorted(options.files)))
    if not files.names:
        raise ConfigError(f"{data} has no TFRecord file: none begins with the header of a record")
    if packed := [name for name in files.packed if name in files.names]:
        raise ConfigError(_packed_text(files.folder, packed[0], data, is_alone=len(files.names) == 1))
    if MANIFEST in files.others:
        raise own_data_set_error(files.folder, options.as_ if options.labels_only else "")
    return files


def file_warnings(files: TfrecordFiles) -> Iterator[str]:
    """Yield warnings of files that are not read, and of files that are slow to read."""
    if files.misnamed:
        yield (
            f"files with names of TFRecord files are not read, because they do not begin with the header of a record: "
            f"{first_texts(files.misnamed, _SHOWN)}"
        )
    if files.empty:
        yield f"files with names of TFRecord files are empty: {first_texts(files.empty, _SHOWN)}"
    archive = find_archive(files.folder)
    members = (storage_for(path).stat(path) for path in (join_path(files.folder, name) for name in files.names))
    if archive and any(file and file.packed_bytes is not None and file.size_bytes > WHOLE_BYTES for file in members):
        target = f"{archive.removesuffix('.zip')}.unpacked"
        yield (
            f"{archive} compresses TFRecord files, and all of a file is decompressed for each of its images. It is "
            f"quicker to unpack the archive: {shlex.join(['python3', '-m', 'zipfile', '-e', archive, target])}, and "
            f"give {target}"
        )


def _record_files_at(paths: Sequence[str]) -> TfrecordFiles:
    """Return the TFRecord files at these paths."""
    folders = zip(*(path.split("/")[:-1] for path in paths), strict=False)  # up to the shortest
    folder = "/".join(parts[0] for parts in takewhile(lambda parts: len({*parts}) == 1, folders))
    names = [path.removeprefix(f"{folder}/") if folder else path for path in paths]
    return list_record_files(folder or ".", names)


def _packed_text(folder: str, name: str, data: str, is_alone: bool) -> str:
    """Return the error of compressed files, with the command that unpacks them.

    Args:
        name: The first of them.
        is_alone: True if DATA has no other TFRecord file.
    """
    path = join_path(folder, name)
    compression = content_kind(path)
    what = f"{path} is compressed by {compression}, so its images cannot be read by ranges of bytes. Unpack it"
    if is_remote(path) or find_archive(path):
        return f"{what} into a folder, and give that"
    command = "gzip -dc" if compression == GZIPPED else f"python3 -c {shlex.quote(_INFLATE)}"
    if path == data or is_alone:
        target = f"{path.removesuffix('.gz')}.unpacked"
        return f"{what}: {command} < {shlex.quote(path)} > {shlex.quote(target)}, and give {target}"
    if compression == DEFLATED:
        return f"{what}, and all others like it, into a folder, each by {command} < FILE, and give that"
    target = f"{folder}.unpacked"
    copied, script = shlex.quote(folder), 'gzip -dcf < "$1" > "$1.part" && mv "$1.part" "$1"'
    return (
        f"{what}, and all others like it: cp -r {copied} {shlex.quote(target)} && find {shlex.quote(target)} -type f "
        f"-exec sh -c {shlex.quote(script)} sh {{}} \\;, and give {target}"
    )


def ways(contents: DataContents, options: type[TfrecordOptions]) -> Iterator[Interpretation]:
    """Yield the Interpretation of TFRecord files."""
    files = list_record_files(contents.folder, contents.names, _SAMPLE)
    if files.names:
        why = f"{files.names[0]} is a TFRecord file"
        rank = SOLE_RECORDS if _are_sole_images(files, contents) else RECORDS
        yield Interpretation(why, {"data": [contents.data]}, rank, fault=source_fault(contents, options))


def _are_sole_images(files: TfrecordFiles, contents: DataContents) -> bool:
    """Return True if label files beside TFRecord files of usual names can only be those that they were made from."""
    has_others = contents.images or contents.given.get("images") or any(map(_TABLE_OF_IMAGES.search, files.others))
    return not has_others and any(map(_USUAL.fullmatch, files.names))


def recognise_paths(data: Sequence[str]) -> Mapping[str, object]:
    """Return the options that name TFRecord files, by several paths or patterns; empty if a path is another file."""
    if len(data) == 1 and not _PATTERN.search(data[0]):
        return {}
    try:
        if any(storage_for(path).is_folder(path) for path in data):
            return {}
        paths = sorted({path for pattern in data for path in match_files(pattern)})
        if paths == list(data[:1]) or any(storage_for(path).size(path) is None for path in paths):
            return {}
        files = _record_files_at(paths)
        if len(files.names) < len(paths):
            return {}
        below = list_record_files(files.folder, sorted(storage_for(files.folder).walk_names(files.folder)))
    except (ConfigError, OSError):
        return {}
    inputs: dict[str, object] = {"data": [files.folder]}
    return inputs if below.names == files.names else inputs | {"files": list(files.names)}
