"""Compare names of images without a file with names of files without an image, and find the likely cause."""

import heapq
import posixpath
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from hashlib import blake2b
from itertools import accumulate, chain
from typing import NamedTuple
from urllib.parse import unquote

from recordmill.schemas.names import NameSources, is_absolute, name_parts

_COMPARED = 1000
_COMPARED_CHARACTERS = 50_000
_SHOWN = 5
_COMPARED_SHOWN = 3


class Names(NamedTuple):
    """Bounded sample of names.

    Attributes:
        number: Number of all names.
        first: Up to five names, sorted.
        compared: Up to 1,000 names, and 50,000 characters: those with the smallest hashes of the name without folder
            and suffix. So two samples have the same names if these belong together.
    """

    number: int = 0
    first: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()

    @staticmethod
    def sample(names: Sequence[str]) -> "Names":
        return Names(len(names), tuple(heapq.nsmallest(_SHOWN, names)), _sample_names(names))

    def with_set_name(self, name: str) -> "Names":
        """Return the names with that of their set."""
        first, compared = (tuple(f"{name}/{own_name}" for own_name in part) for part in self[1:])
        return Names(self.number, first, compared)


NO_NAMES = Names()


def add_names(parts: Iterable[Names]) -> Names:
    """Return the names of all parts."""
    parts = [part for part in parts if part.number]
    if len(parts) < 2:
        return parts[0] if parts else NO_NAMES
    first = heapq.nsmallest(_SHOWN, chain.from_iterable(part.first for part in parts))
    compared = _sample_names(chain.from_iterable(part.compared for part in parts))
    return Names(sum(part.number for part in parts), tuple(first), compared)


def _sample_names(names: Iterable[str]) -> tuple[str, ...]:
    chosen = heapq.nsmallest(_COMPARED, names, _sort_key)
    ends = accumulate(map(len, chosen))
    return tuple(name for name, end in zip(chosen, ends, strict=True) if end <= _COMPARED_CHARACTERS)


def _sort_key(name: str) -> tuple[bytes, str]:
    return blake2b(_stem_key(name).encode(errors="surrogatepass"), digest_size=8).digest(), name


def _fold_spelling(text: str) -> str:
    """Return a key that ignores case and Unicode normalisation."""
    return unicodedata.normalize("NFKC", text).casefold()


def _stem_key(name: str) -> str:
    """Return a key that spellings of one image name share."""
    return _fold_spelling(posixpath.splitext(_without_zeros(_without_hash(unquote(name_parts(name)[-1]))))[0])


def _without_zeros(name: str) -> str:
    return re.sub(r"(?<![0-9])0+(?=[0-9])", "", name)


def _without_hash(name: str) -> str:
    """Return the name of a file without the eight hexadecimal digits of Label Studio."""
    return re.sub(r"^[0-9a-f]{8}[-_](?=.)", "", name)


class Difference(Enum):
    """Differences between the name of an image and of a file, likeliest first, as sentences."""

    SPELLING = "Names are spelled differently"  # the same parts, which / does not separate, or not only
    CASE = "Names differ in case or in the spelling of a letter"
    ENCODED = "Names are percent-encoded"
    ZEROS = "Names differ in leading zeros"
    HASH = "Names differ in eight digits before them, as Label Studio's do"
    DEEPER = "Files are in the subfolder {folder!r}"
    PREFIX = "Names begin with {folder!r}, but paths of files do not"
    FOLDER = "Names differ only in their folders"
    ENDING = "The names differ in their file extension"
    ZEROS_AND_ENDING = "Names differ in leading zeros and in their ending"
    NOTHING_IN_COMMON = "No file has that name"


_ORDER = list(Difference)
_ENDINGS = (Difference.ENDING, Difference.ZEROS_AND_ENDING)
_SPELLINGS: dict[Difference, Callable[[str], str]] = {
    Difference.ENCODED: unquote,
    Difference.ZEROS: _without_zeros,
    Difference.HASH: _without_hash,
}
"""Functions that make two names of one image equal."""


class Pair(NamedTuple):
    """Name of an image, and of the file that it may stand for. `folder` is the prefix of one of them."""

    difference: Difference
    image: str
    file: str = ""
    folder: str = ""


def pair_names(images: Iterable[str], files: Iterable[str]) -> Iterator[Pair]:
    """Yield each image's name with the most likely file.

    >>> list(pair_names(["images/1.jpg"], ["1.jpg"]))[0].folder
    'images'
    """
    by_stem: dict[str, list[str]] = {}
    for file in sorted(files):
        by_stem.setdefault(_stem_key(file), []).append(file)
    for image in sorted(images):
        pairs = (_compare_pair(image, file) for file in by_stem.get(_stem_key(image), ()))
        yield min(
            pairs,
            key=lambda pair: _ORDER.index(pair.difference),
            default=Pair(Difference.NOTHING_IN_COMMON, image),
        )


def _compare_pair(image: str, file: str) -> Pair:
    ours, theirs = name_parts(image), name_parts(file)
    if ours == theirs:
        return Pair(Difference.SPELLING, image, file)
    if [_fold_spelling(part) for part in ours] == [_fold_spelling(part) for part in theirs]:
        return Pair(Difference.CASE, image, file)
    for difference, plain in _SPELLINGS.items():
        if plain(ours[-1]) == plain(theirs[-1]) and ours[-1] != theirs[-1]:
            return Pair(difference, image, file)
    if ours[-1] != theirs[-1]:
        if _fold_spelling(ours[-1]) == _fold_spelling(theirs[-1]):
            return Pair(Difference.CASE, image, file)
        one, other = (posixpath.splitext(_fold_spelling(parts[-1]))[0] for parts in (ours, theirs))
        is_of_zeros = one != other and _without_zeros(one) == _without_zeros(other)
        return Pair(Difference.ZEROS_AND_ENDING if is_of_zeros else Difference.ENDING, image, file)
    if theirs[-len(ours) :] == ours:
        return Pair(Difference.DEEPER, image, file, "/".join(theirs[: -len(ours)]))
    if ours[-len(theirs) :] == theirs:
        return Pair(Difference.PREFIX, image, file, "/".join(ours[: -len(theirs)]))
    return Pair(Difference.FOLDER, image, file)


def describe_mismatch(
    images: Names,
    files: Names,
    sources: NameSources,
    beside: str = "",
    is_all: bool = True,
    suffix_finds_all: bool = False,
) -> str:
    """Return sentences: the comparison, the likely cause, the cure.

    Args:
        images: Names of images without a file.
        files: Names of files without an image.
        beside: Folder that has the images after all, if known.
        is_all: True if no image has a file.
        suffix_finds_all: True if --match suffix was tried, and finds all files of the compared names.
    """
    rows, folders = " ".join(sources.rows), " ".join(sources.images)
    beside = "" if sources.most_folders == 0 else beside
    if not sources.is_listed:
        return f"{rows} names {_format_names(images)}; with --no-list, the contents of {folders} are not known."
    unused_files = f"{folders} has {_format_names(files)}" if files.number else f"{folders} has no other file"
    cause = _describe_cause(images, files, sources, is_all, suffix_finds_all)
    # Files of a folder within `beside` would be read twice.
    other_folders = [path for path in sources.images if beside != "." and not path.startswith(f"{beside}/")]
    kept_folders = [] if is_all or sources.most_folders else other_folders
    where = "the current folder" if beside == "." else beside
    return f"{rows} names {_format_names(images)}; {unused_files}. " + (
        f"They are in {where}. Use {sources.use_images(*kept_folders, beside)}." if beside else cause
    )


def _format_names(names: Names) -> str:
    return ", ".join(map(repr, names.first[:_COMPARED_SHOWN])) + (" …" if names.number > _COMPARED_SHOWN else "")


def describe_archives(files: Names, sources: NameSources, is_all: bool = True) -> str:
    """Return a sentence about archives in the folders of images; empty without.

    Args:
        is_all: True if no image has a file.
    """
    archives = [name for name in files.first if name.endswith(".zip")]
    if not archives:
        return ""
    is_readable = is_all and len(sources.images) == 1 and ".zip" not in sources.images[0] and sources.most_folders != 0
    path = posixpath.join(*sources.images[:1], archives[0])
    option = f", or use {sources.use_images(path)}" if is_readable else ""
    return f"Archives within the folders of images are not read. Unpack {archives[0]!r}{option}."


def _describe_cause(images: Names, files: Names, sources: NameSources, is_all: bool, suffix_finds_all: bool) -> str:
    pairs = list(pair_names(images.compared, files.compared))
    counts = Counter(pair.difference for pair in pairs if pair.file)
    if not counts:
        if archive := describe_archives(files, sources, is_all):
            return archive
        question = "Is it the folder of another split" if is_all else "Are some images in another folder"
        several = " DATA can be several folders." if sources.images_option == "DATA" else " --images can be repeated."
        return f"No file in the folder has such a name. {question}?{several * (sources.most_folders is None)}"
    cause = max(counts, key=lambda kind: (counts[kind], -_ORDER.index(kind)))
    example = next(pair for pair in pairs if pair.difference is cause)
    like = f"{example.image!r} may be {example.file!r} ({counts[cause]:,} of {len(pairs):,} names compared)"
    return f"{_describe_pair(example)}: {like}. {_suggest_fix(example, pairs, sources, is_all, suffix_finds_all)}."


def _describe_pair(pair: Pair) -> str:
    if is_absolute(pair.image):
        return "Names are absolute paths"
    if pair.difference not in (Difference.CASE, *_ENDINGS) and "\\" in pair.image:
        return "Names are Windows paths"
    return pair.difference.value.format(folder=pair.folder)


def _suggest_fix(pair: Pair, pairs: Iterable[Pair], sources: NameSources, is_all: bool, suffix_finds_all: bool) -> str:
    if pair.difference in (Difference.CASE, Difference.ZEROS, Difference.HASH):
        return "Rename the files, or correct the names"
    if pair.difference is Difference.ENCODED:
        return "Decode them, with urllib.parse.unquote for example"
    if pair.difference in _ENDINGS:
        return "If the images were converted, correct the names in the labels"
    cures = ["--match suffix"] if suffix_finds_all else []
    # In another folder, images that have files would lose them.
    folders = {other.folder for other in pairs if other.difference is pair.difference}
    if is_all and len(sources.images) == 1 and folders == {pair.folder} and sources.most_folders != 0:
        folder = sources.images[0].rstrip("/")
        if pair.difference is Difference.DEEPER:
            cures.append(sources.use_images(f"{folder}/{pair.folder}"))
        elif pair.image == f"{pair.folder}/{pair.file}" and f"/{folder}".endswith(f"/{pair.folder}"):
            cures.append(sources.use_images(folder.removesuffix(pair.folder) or "./"))
    return f"Use {' or '.join(cures)}" if cures else "Correct the names"
