"""Find TFRecord files of any name by their first bytes, which are the header of a record."""

import re
import shlex
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from recordmill.schemas.dataset.dataset_files import MANIFEST
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.paths import is_remote
from recordmill.transforms.annotated.recognise_format import source_fault
from recordmill.transforms.records.tfrecord import HEADER_BYTES, is_tfrecord
from recordmill.transforms.rows.data_contents import RECORDS, DataContents, Interpretation
from recordmill.transforms.storage.resolve import GZIP, find_archive, join_path, match_files, split_folder, storage_for
from recordmill.transforms.tfrecord.tfrecord_options import TfrecordOptions

_USUAL = re.compile(r".*\.(tf_?records?|tfrec|records?)([-_.].*)?|.*-\d{5}-of-\d{5}", re.IGNORECASE)
"""Usual names of TFRecord files."""
_OTHERS = re.compile(
    r"(.*/)?\..*|.*\.(json|jsonl|ndjson|xml|csv|tsv|txt|ya?ml|md|pbtxt|parquet|npy|zip|tar|idx|html|py|ipynb|config)",
    re.IGNORECASE,
)
"""Names of files that are not looked into."""
_PATTERN = re.compile(r"[*?\[]")
_LOOKED_INTO = 20
"""Number of files of unusual names that are looked into, and of usual ones; others of usual names count as records."""
_HEAD = 4096


class TfrecordFiles(NamedTuple):
    """TFRecord files of a data set.

    Attributes:
        folder: Folder that their names begin at.
        names: Paths below it, sorted.
        packed: Those that are compressed by gzip.
        others: Paths of the other files below it.
    """

    folder: str
    names: tuple[str, ...]
    packed: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def list_record_files(folder: str, names: Sequence[str]) -> TfrecordFiles:
    """Return the TFRecord files among the files below a folder."""
    usual = [name for name in names if _USUAL.fullmatch(name) and not _OTHERS.fullmatch(name)]
    unusual = (name for name in names if not (_USUAL.fullmatch(name) or _OTHERS.fullmatch(name) or is_image_name(name)))
    looked_into = [*usual[:_LOOKED_INTO], *islice(unusual, _LOOKED_INTO)]
    kinds = {name: content_kind(join_path(folder, name)) for name in looked_into}
    records = [name for name in usual if kinds.get(name, "records")] + [
        name for name in looked_into if kinds[name] and name not in usual
    ]
    packed = tuple(sorted(name for name, kind in kinds.items() if kind == "gzip"))
    others = tuple(name for name in names if name not in {*records})
    return TfrecordFiles(folder, tuple(sorted(records)), packed, others)


def content_kind(path: str) -> str:
    """Return `records` for a TFRecord file, `gzip` for a compressed one, or ""."""
    storage = storage_for(path)
    head = storage.read_range(path, 0, _HEAD if not is_remote(path) else HEADER_BYTES)
    if head.startswith(GZIP):
        head = head if len(head) > HEADER_BYTES else storage.read_range(path, 0, _HEAD)
        try:
            return "gzip" if is_tfrecord(zlib.decompressobj(31).decompress(head, HEADER_BYTES)) else ""
        except zlib.error:
            return ""
    return "records" if is_tfrecord(head) else ""


def find_record_files(options: TfrecordOptions) -> TfrecordFiles:
    """Return the files of DATA.

    Raises:
        ConfigError: There are none, or a file of `--files` is missing; or they are compressed, or a data set of ours.
    """
    data, storage = options.data, storage_for(options.data)
    if storage.size(data) is not None and not storage.is_folder(data):
        folder, name = split_folder(data)
        found = list_record_files(folder, [name])
        found = found._replace(others=tuple(other for other in storage.names(folder) if other != name))
    else:
        found = list_record_files(data.rstrip("/"), sorted(storage.walk_names(data)))
    if options.files:
        if missing := [name for name in options.files if name not in found.names]:
            raise ConfigError(f"--files: {found.folder} has no TFRecord file {missing[0]!r}")
        found = found._replace(names=tuple(sorted(options.files)))
    if not found.names:
        raise ConfigError(f"{data} has no TFRecord file: none begins with the header of a record")
    if packed := [name for name in found.packed if name in found.names]:
        raise ConfigError(_packed_text(found.folder, packed, data))
    if MANIFEST in found.others:
        raise own_data_set_error(found.folder, options.as_ if options.labels_only else "")
    return found


def own_data_set_error(folder: str, labels: str) -> ConfigError:
    """Return the error of a data set that Recordmill wrote.

    Args:
        labels: Format of `--as`, if only labels are written.
    """
    what = f"{folder} is a data set that Recordmill wrote ({MANIFEST})"
    if labels:
        return ConfigError(
            f"{what}. To write it as {labels}, run: "
            f"{shlex.join(['recordmill', 'extract', folder, 'OUT', '--as', labels])}"
        )
    return ConfigError(
        f"{what}. To write it in other shards, run: {shlex.join(['recordmill', 'repack', folder, 'OUT', '--replan'])}"
    )


def _of_paths(paths: Sequence[str]) -> TfrecordFiles:
    """Return the TFRecord files at these paths."""
    folders = zip(*(path.split("/")[:-1] for path in paths), strict=False)  # up to the shortest
    folder = "/".join(parts[0] for parts in takewhile(lambda parts: len({*parts}) == 1, folders))
    names = [path.removeprefix(f"{folder}/") if folder else path for path in paths]
    return list_record_files(folder or ".", names)


def _packed_text(folder: str, packed: Sequence[str], data: str) -> str:
    """Return the error of compressed files, with the command that unpacks them."""
    path = join_path(folder, packed[0])
    what = f"{path} is compressed by gzip, so its images cannot be read by ranges of bytes. Unpack it"
    if is_remote(path) or find_archive(path):
        return f"{what} into a folder, and give that"
    if path == data or len(packed) == 1:
        target = f"{path.removesuffix('.gz')}.unpacked"
        return f"{what}: gzip -dc < {shlex.quote(path)} > {shlex.quote(target)}, and give {target}"
    target = f"{folder}.unpacked"
    copied, script = shlex.quote(folder), 'gzip -dcf < "$1" > "$1.part" && mv "$1.part" "$1"'
    return (
        f"{what}, and the others: cp -r {copied} {shlex.quote(target)} && find {shlex.quote(target)} -type f -exec sh "
        f"-c {shlex.quote(script)} sh {{}} \\;, and give {target}"
    )


def ways(contents: DataContents, options: type[TfrecordOptions]) -> Iterator[Interpretation]:
    """Yield the Interpretation of TFRecord files."""
    found = list_record_files(contents.folder, contents.names)
    if found.names:
        why = f"{found.names[0]} is a TFRecord file"
        yield Interpretation(why, {"data": [contents.data]}, RECORDS, fault=source_fault(contents, options))


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
        found = _of_paths(paths)
        if len(found.names) < len(paths):
            return {}
        below = list_record_files(found.folder, sorted(storage_for(found.folder).walk_names(found.folder)))
    except (ConfigError, OSError):
        return {}
    inputs: dict[str, object] = {"data": [found.folder]}
    return inputs if below.names == found.names else inputs | {"files": list(found.names)}
