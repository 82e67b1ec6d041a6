"""Match image rows with files by name."""

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from zlib import crc32

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton

from recordmill.schemas.block import Block, Ragged, join_blocks, ragged_texts
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.inputs.files import NO_FILE, NOT_A_FILE
from recordmill.schemas.inputs.images import MAX_FILE_BYTES
from recordmill.schemas.inputs.splits import Division
from recordmill.schemas.names import name_fault, name_key, name_parts
from recordmill.schemas.paths import is_remote
from recordmill.schemas.rejects import Metric, Reason
from recordmill.schemas.sizes import first_texts
from recordmill.transforms.blocks.image_tasks import file_folder, image_paths, labels_of
from recordmill.transforms.blocks.pack_block import Keyed, pack_parts, unpack_block
from recordmill.transforms.blocks.run_step import hash_images, ranges_of, run_step
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.storage.resolve import find_archive, join_path

_CHECKSUM = 8
"""Digits of the checksum of an image in the version of a range of a label file."""


class FileState(IntEnum):
    """State of an image's file: the column `state`."""

    FOUND = 0
    UNSAFE_NAME = 1
    MISSING = 2
    NOT_A_FILE = 3
    TOO_LARGE = 4
    NO_GROUP = 5


def name_keys(names: Sequence[str]) -> list[str]:
    """Return the `name_key` of each name. For most names it is the name itself."""
    return [name if _is_plain(name) else name_key(name) for name in names]


def _is_plain(name: str) -> bool:
    is_clean = name[:1] not in ("", ".", "/") and name[-1] != "/" and "//" not in name and "/." not in name
    return is_clean and name.isascii()


def assign_buckets(names: Sequence[str], match: str, number: int) -> np.ndarray:
    """Return the bucket, 0..number - 1, of each name and of its file: int64 [N].

    Args:
        names: Keys of names.
        match: A `recordmill.schemas.names.Match`.
    """
    keys = names if match == "path" else list(map(base_name, names))
    encoded = (key.encode(errors="surrogatepass") for key in keys)
    return np.fromiter(map(crc32, encoded), np.int64, len(names)) % number


def match_rows(
    rows: Block, files: Block | None, match: str, division: Division | None = None
) -> tuple[Block, list[str]]:
    """Add the columns of their files to image rows of one bucket: folder, size, version, state; and their split.

    Args:
        division: None if rows have their splits.
        rows: Rows with image_id and file_name. If `match` is not path, a row gets the name of its file.
        files: Files with file_name, file_folder, file_bytes and file_version; None to use columns of the rows.

    Returns:
        The rows, and the names of files without a row.

    Raises:
        CollidingImagesError: Two files have the same name; or see `match_names`.
    """
    names = rows.file_name.texts()
    keys = name_keys(names)
    is_path = np.ones(len(rows), bool)
    file_names = files.file_name.texts() if files is not None else []
    if match != "path":
        pairs = _match_ends(keys, file_names, match)
        is_path = np.array([key in pairs for key in keys], bool)
        names = [pairs.get(key, name) for key, name in zip(keys, names, strict=True)]
        keys = [pairs.get(key, key) for key in keys]
        rows = rows.replace(file_name=ragged_texts(names))
    unlisted: list[str] = []
    has_file = np.ones(len(rows), bool)
    if files is not None:
        indices = _file_indices(keys, file_names, files)
        unlisted = sorted(set(file_names) - set(keys))
        has_file = indices >= 0
        row_files = join_blocks([files, _NO_FILE]).take(indices)  # -1 is the last row
        if rows.file_folder is not None:  # label files that contain their images
            is_held = ~has_file & (rows.file_folder.lengths > 0)
            has_file |= is_held
            row_files = join_blocks([row_files, rows]).take(np.arange(len(rows)) + len(rows) * is_held)
            if rows.file_offset is not None:
                check_held_images(keys, rows)
        rows = rows.replace(
            file_folder=_file_folders(row_files, names, keys),
            file_bytes=row_files.file_bytes,
            file_version=row_files.file_version,
        )
    if division:
        rows = rows.replace(split=_split_indices(keys, division))
    rows = rows.replace(state=_file_states(rows, names, keys, has_file, is_path, division))
    shared = _shared_rows(keys, rows.image_id) if files is not None else np.ones(len(rows), bool)
    return rows.replace(is_shared=shared), unlisted


def _file_folders(files: Block, names: Sequence[str], keys: Sequence[str]) -> Ragged:
    """Return the column `file_folder` of rows. The names of their files are the keys."""
    if all(name is key or name == key for name, key in zip(names, keys, strict=True)):
        return files.file_folder
    paths = image_paths(files)
    return ragged_texts([file_folder(path, name) for path, name in zip(paths, names, strict=True)])


_NO_FILE = Block(
    file_name=ragged_texts([""]),
    file_folder=ragged_texts([""]),
    file_bytes=np.zeros(1, np.int64),
    file_version=ragged_texts([""]),
)


NO_FILES = _NO_FILE.cut(0, 0)


def _match_ends(keys: Sequence[str], files: Sequence[str], match: str) -> dict[str, str]:
    """Return the file of each image's name, see `match_names`."""
    by_end = defaultdict[str, tuple[list[str], list[str]]](lambda: ([], []))
    for side, names in enumerate((keys, files)):
        for name in names:
            by_end[base_name(name)][side].append(name)
    pairs: dict[str, str] = {}
    for end in sorted(by_end):
        pairs |= match_names(*by_end[end], match)
    return pairs


def _file_indices(keys: Sequence[str], names: Sequence[str], files: Block) -> np.ndarray:
    """Return the index of the file of each image's name: int64 [N], -1 if it has no file."""
    first: dict[str, int] = {}
    collisions: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        if first.setdefault(name, index) != index:
            collisions.setdefault(name, [first[name]]).append(index)
    for name in collisions.keys() & set(keys):
        check_same_files(name, files.take(np.array(collisions[name], np.int64)))
    return np.fromiter((first.get(key, -1) for key in keys), np.int64, len(keys))


def _split_indices(keys: Sequence[str], division: Division) -> np.ndarray:
    """Return the index of each name's split: int64."""
    if len(division.names) == 1:
        return np.zeros(len(keys), np.int64)
    index = {name: number for number, name in enumerate(division.names)}
    return np.fromiter((index[division.split_of(key)] for key in keys), np.int64, len(keys))


def _shared_rows(keys: Sequence[str], image_ids: np.ndarray) -> np.ndarray:
    """Return bool: the row's name belongs to several ids."""
    _, names = np.unique(np.array(keys, object), return_inverse=True) if keys else (None, np.zeros(0, np.int64))
    pairs = np.unique(np.stack([names, image_ids], axis=1), axis=0)
    return np.bincount(pairs[:, 0], minlength=1)[names] > 1


def _file_states(
    rows: Block,
    names: Sequence[str],
    keys: Sequence[str],
    has_file: np.ndarray,
    is_path: np.ndarray,
    division: Division | None,
) -> np.ndarray:
    """Return each row's FileState, by its first error: int64."""
    unsafe = np.array([bool(name_fault(name)) for name in names], bool) & is_path
    no_file = np.array([version == NO_FILE for version in rows.file_version.texts()], bool)
    groups = division if division and division.group_from else None
    ungrouped = np.array([bool(groups and groups.fault(key)) for key in keys], bool)
    faults = [unsafe, ~has_file, no_file, rows.file_bytes > MAX_FILE_BYTES, ungrouped]
    return np.select(faults, list(FileState)[1:], FileState.FOUND).astype(np.int64)


def check_same_files(name: str, files: Block) -> None:
    """Refuse several files with one name. One file may be listed several times.

    Raises:
        CollidingImagesError: There are several files.
    """
    paths = sorted(set(image_paths(files)))
    if len(paths) == 1:
        return
    if len(set(map(name_key, paths))) == 1:
        forms = " and ".join(map(ascii, paths))
        raise CollidingImagesError(
            f"{name!r} exists in {len(paths)} Unicode normalizations, {forms}. Rename or delete one"
        )
    raise CollidingImagesError(
        f"several files are called {name!r}: {' and '.join(paths)}. Give only the folder of one, or rename one"
    )


def check_held_images(keys: Sequence[str], rows: Block) -> None:
    """Refuse different images of one name in label files that hold them.

    Args:
        keys: Key of the name of each row.

    Raises:
        CollidingImagesError: There are some in a split.
    """
    first: dict[tuple[str, int], int] = {}
    versions, splits = rows.file_version.texts(), rows.split.tolist()
    files, entries = rows.label_file.texts(), rows.label_entry.texts()
    for row in sorted(range(len(rows)), key=lambda row: (files[row], rows.part[row])):
        other = first.setdefault((keys[row], splits[row]), row)
        if versions[row][:_CHECKSUM] != versions[other][:_CHECKSUM]:
            places = " and ".join(f"{entries[at]} of {files[at]}" for at in (other, row))
            raise CollidingImagesError(
                f"different images are called {keys[row]!r}: {places}. Add --keys image/filename= to name images by "
                "their file and the number of their record"
            )


# Long list of arguments: how names find files, for the details of rejects.
def drop_faulty_images(
    block: Block,
    splits: Sequence[str],
    facts: FactsBuilder,
    match: str = "path",
    group_from: str = "",
    folder: str = "",
) -> Block:
    """Drop images with unusable files, and reject them in `facts`.

    Args:
        folder: Folder of images, where files that have a URL are missing.
    """
    is_faulty = block.state != FileState.FOUND
    faulty = block.take(np.flatnonzero(is_faulty))
    urls = [""] * len(faulty) if faulty.image_url is None else faulty.image_url.texts()
    columns = faulty.state, faulty.image_id, faulty.file_bytes, faulty.split, faulty.objects_per_image
    for (state, image_id, size_bytes, split, objects), name, labels, url in zip(
        np.stack(columns, axis=1).tolist(), faulty.file_name.texts(), labels_of(faulty), urls, strict=True
    ):
        if state in (FileState.UNSAFE_NAME, FileState.MISSING):
            facts.add_unmatched(name)
        reason, detail = _describe_state(state, name, size_bytes, match, group_from)
        detail += _fetch_text(name, url, folder) if url and state == FileState.MISSING else ""
        facts.reject(splits[split], labels.rejected(image_id, reason, detail, objects + labels.rows, name))
    if len(faulty):
        block = block.take(np.flatnonzero(~is_faulty))
    is_shared = block.is_shared if block.is_shared is not None and block.is_shared.any() else None
    return block.replace(state=None, is_shared=is_shared, image_url=None)


def _fetch_text(name: str, url: str, folder: str) -> str:
    """Return how to fetch an image file from its URL, without a command for a path outside of the folder, or for a URL
    of a local file.

    >>> _fetch_text("a b.jpg", "https://x/1?k=2", "set")
    ", only a URL. To fetch it: curl --create-dirs -fLo 'set/a b.jpg' 'https://x/1?k=2'"
    >>> _fetch_text("../b.jpg", "https://x/1", "set"), _fetch_text("b.jpg", "file:///etc/passwd", "set")
    (', only a URL, and its name has .. in it', ", only the URL 'file:///etc/passwd'")
    """
    if fault := name_fault(name):
        return f", only a URL, and its name {fault}"
    path = join_path(folder, name)
    if not url.startswith(("https://", "http://")):
        return f", only the URL {url!r}"
    if is_remote(path) or find_archive(path):
        return f", only the URL {url}. Put the file there"
    return f", only a URL. To fetch it: {shlex.join(['curl', '--create-dirs', '-fLo', path, url])}"


def _describe_state(state: int, name: str, size_bytes: int, match: str, group_from: str) -> tuple[Reason, str]:
    """Return the reason and detail of the reject for a FileState."""
    if state == FileState.UNSAFE_NAME:
        return Reason.UNSAFE_FILE_NAME, f"the file name {name!r} {name_fault(name)}"
    if state == FileState.MISSING:
        hint = ". Separate the parts of a path by /" if match == "path" and "\\" in name else ""
        return Reason.IMAGE_MISSING, f"no file {name!r} in the folders of images{hint}"
    if state == FileState.NOT_A_FILE:
        return Reason.IMAGE_INACCESSIBLE, f"{name!r}: {NOT_A_FILE}"
    if state == FileState.TOO_LARGE:
        return Reason.TOO_LARGE, f"{name!r}: {size_bytes:,} bytes; the limit is {MAX_FILE_BYTES:,}"
    return Reason.NO_GROUP, f"{name!r} does not match --group-from {group_from}"


_SHOWN = 3


def base_name(name: str) -> str:
    r"""Return the last part of a name, which an image and its file share.

    >>> base_name("img/1.jpg"), base_name("C:\\img\\1.jpg")
    ('1.jpg', '1.jpg')
    """
    return name_parts(name)[-1]


def match_names(images: Iterable[str], files: Iterable[str], match: str) -> dict[str, str]:
    """Return the file of each image. All names have one `base_name`; images without a file are not in the result.

    With `suffix`, equal names are matched first, then names with the longest common suffix in complete parts. With
    `name`, names with the same last part are matched.

    Raises:
        CollidingImagesError: Two images match one file equally well, or two files match one image.

    >>> match_names(["train/1.jpg", "val/1.jpg"], ["img/val/1.jpg", "img/train/1.jpg"], "suffix")
    {'train/1.jpg': 'img/train/1.jpg', 'val/1.jpg': 'img/val/1.jpg'}
    """
    images, files = set(images), set(files)
    if match == "name":
        return _pair_names(images, files, match) if images and files else {}
    pairs = {name: name for name in images & files}
    images, files = images - pairs.keys(), files - pairs.keys()
    for length in range(max((len(name_parts(name)) for name in images), default=0), 0, -1):
        images_by_end, files_by_end = _group_by_end(images, length), _group_by_end(files, length)
        for end in sorted(images_by_end.keys() & files_by_end.keys()):
            pair = _pair_names(images_by_end[end], files_by_end[end], match)
            pairs |= pair
            images, files = images - pair.keys(), files - set(pair.values())
    return dict(sorted(pairs.items()))


def _group_by_end(names: Iterable[str], length: int) -> dict[tuple[str, ...], set[str]]:
    """Return names by their last parts; shorter names are skipped."""
    by_end = defaultdict(set)
    for name in names:
        if len(parts := name_parts(name)) >= length:
            by_end[tuple(parts[-length:])].add(name)
    return by_end


def _pair_names(images: set[str], files: set[str], match: str) -> dict[str, str]:
    """Return the file of the only image; raise CollidingImagesError if there are several images or files."""
    if len(images) == len(files) == 1:
        return dict(zip(images, files, strict=True))
    raise CollidingImagesError(
        f"--match {match}: the images {_quote_names(images)} match the files {_quote_names(files)} equally well. "
        "Rename them, or give only one of the folders"
    )


def _quote_names(names: set[str]) -> str:
    return first_texts(map(repr, sorted(names)), _SHOWN, " and ")


class MatchRows(beam.PTransform):
    """Convert (bucket of names, Block) of image rows, and of files, to (range, Block) of rows with the columns of their
    files.

    Without files, rows have the columns of their files, and stay in their buckets until they are keyed by range.

    Args:
        match: A `recordmill.schemas.names.Match`.
        division: None if rows have their splits.
        bits: 2 ** bits ranges of images.
    """

    def __init__(self, match: str, division: Division | AsSingleton | None, seed: int, bits: int | AsSingleton):
        super().__init__()
        self._match, self._division, self._seed, self._bits = match, division, seed, bits

    def expand(self, sides):
        has_files = len(sides) > 1
        if has_files:
            grouped = sides | "BothSides" >> beam.Flatten() | "GroupByName" >> beam.GroupByKey()
        else:
            grouped = sides[0] | "Alone" >> beam.MapTuple(_as_group)
        options = self._division, self._match, has_files, self._seed, self._bits
        return grouped | "Match" >> WithFacts(_match_bucket, *options, types=Keyed)


def _as_group(bucket: int, packed: bytes) -> tuple[int, list[bytes]]:
    return bucket, [packed]


# Long list of arguments: the options of MatchRows, as this runs on workers.
def _match_bucket(
    group: tuple[int, Iterable[bytes]],
    facts: FactsBuilder,
    division: Division | None,
    match: str,
    has_files: bool,
    seed: int,
    bits: int,
) -> Iterator[Keyed]:
    blocks = list(map(unpack_block, group[1]))
    rows = [block for block in blocks if block.image_id is not None]
    files = [block for block in blocks if block.image_id is None]
    if rows:
        all_files = join_blocks([NO_FILES, *files]) if has_files else None
        matched, unlisted = run_step(
            "match rows", lambda blocks: match_rows(join_blocks(blocks), all_files, match, division), rows
        )
        facts.add_unlisted(*unlisted)
        if division and has_files:
            is_found = matched.state == FileState.FOUND
            facts.count(division.names[0], Metric.SHARED_FILES, int(np.sum(matched.is_shared & is_found)))
        yield from pack_parts(matched, ranges_of(hash_images(matched.image_id, seed), bits))
    else:
        facts.add_unlisted(*{name for block in files for name in block.file_name.texts()})
