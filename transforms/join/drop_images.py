"""Drop images that files name (reason `excluded`), and copies of other images (`duplicate`)."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby, islice
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsDict, AsIter, AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.block import Block
from recordmill.schemas.errors import AnnotationFileError, ConfigError
from recordmill.schemas.inputs.annotations import Int64
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.splits import name_id
from recordmill.schemas.names import name_key
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.schemas.sizes import number_text
from recordmill.transforms.blocks.image_tasks import image_tasks, labels_of
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.blocks.run_step import run_step
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.images.load_images import fetch_file
from recordmill.transforms.insight.list_problems import copy_order
from recordmill.transforms.join.match_blocks import name_keys
from recordmill.transforms.storage.interface import FileTooLargeError, UnreadableFileError
from recordmill.transforms.storage.resolve import read_unpacked, storage_for

_IMAGE_ID = re.compile("[0-9]{1,19}")  # 64 bits
_SHOWN = 3
_MATCHED = "matched"


class ExcludedLine(msgspec.Struct, frozen=True):
    """A line of problems-SPLIT.jsonl; other fields are ignored."""

    file_name: str
    what: str = "image"
    id: Int64 | None = None
    split: str = ""
    kind: str = ""


_DECODER = msgspec.json.Decoder(ExcludedLine)


class Exclusions:
    """Lines of the files of `--exclude`, by the images that they name."""

    def __init__(self, lines: Iterable[ExcludedLine]):
        self.lines = [*lines]
        self._by_name, self._by_id = defaultdict[str, list[int]](list), defaultdict[int, list[int]](list)
        for number, line in enumerate(self.lines):
            self._by_name[name_key(line.file_name)].append(number)
            if not line.kind:
                is_number = _IMAGE_ID.fullmatch(line.file_name)
                self._by_id[int(line.file_name) if is_number else name_id(line.file_name)].append(number)

    def lines_of(
        self, key: str, image_id: int, split: str, splits: Sequence[str]
    ) -> Iterator[tuple[int, ExcludedLine]]:
        """Yield the lines that name an image or one of its annotations, with their indices.

        Args:
            key: `name_key` of the image's name.
            splits: Splits of the job. A line with another split names an image of any split.
        """
        for number in (*self._by_name.get(key, ()), *self._by_id.get(image_id, ())):
            line = self.lines[number]
            if line.split not in splits or line.split == split:
                yield number, line


def read_exclusions(paths: Iterable[str], kinds: Sequence[str] = ()) -> Exclusions:
    """Read files that are problems-SPLIT.jsonl, or have a file name or an image id per line.

    Args:
        kinds: Kinds of problems to take; empty for all. A line without a kind is always taken.

    Raises:
        ConfigError: A file is neither, or has no entries; the message names the line.
        OSError: Storage fails.
    """
    lines: list[ExcludedLine] = []
    for path in paths:
        before = len(lines)
        lines += [line for line in _read_exclusion_lines(path) if not kinds or line.kind in ("", *kinds)]
        if len(lines) == before and not path.endswith(".jsonl"):  # a split without problems has an empty list
            raise ConfigError(f"--exclude {path} has no lines. Leave it out if nothing should be excluded.")
    return Exclusions(lines)


def _read_exclusion_lines(path: str) -> Iterator[ExcludedLine]:
    try:
        text = read_unpacked(path).decode("utf-8-sig")
    except (UnicodeDecodeError, AnnotationFileError) as error:  # damaged gzip
        raise ConfigError(f"--exclude {path} cannot be read as UTF-8 text: {error}") from error
    for number, row in enumerate(map(str.strip, text.split("\n")), 1):
        try:
            line = _DECODER.decode(row) if row.startswith("{") else ExcludedLine(row)
        except msgspec.DecodeError as error:
            raise ConfigError(
                f"--exclude {path}, line {number} does not name an image ({error}). Each line must be one of "
                "problems-SPLIT.jsonl of a data set, a file name or an image id."
            ) from error
        if (line.what == "image") != (line.id is None):
            raise ConfigError(f"--exclude {path}, line {number} is about an {line.what}, with id {line.id}.")
        if row:
            yield line


def exclude_images(
    block: Block, splits: Sequence[str], exclusions: Exclusions, facts: FactsBuilder
) -> tuple[Block, list[int]]:
    """Drop the excluded images and annotations of a complete Block. Return it, and the indices of lines that name an
    image or annotation in it.

    A line with a split of the job names an image of that split. Any other line names an image of any split.

    Args:
        splits: Splits of the job, by the column `split`.
        facts: Gets the rejects.
    """
    images, objects = defaultdict[int, set[str]](set), defaultdict[int, set[str]](set)
    matched: list[int] = []
    columns = name_keys(block.file_name.texts()), block.image_id.tolist(), block.split.tolist()
    for row, (key, id_, split) in enumerate(zip(*columns, strict=True)):
        for number, line in exclusions.lines_of(key, id_, splits[split], splits):
            if line.id is None:
                images[row].add(line.kind)
                matched.append(number)
            elif block.num_objects:
                first, last = block.first_object_of_image[row : row + 2].tolist()
                for object_ in np.flatnonzero(block.object_id[first:last] == line.id).tolist():
                    objects[first + object_].add(line.kind)
                    matched.append(number)
    dropped = []
    for object_, kinds in objects.items():
        row = int(np.searchsorted(block.first_object_of_image, object_, "right")) - 1
        if row not in images:  # the reject of an image counts all of its objects
            dropped.append(object_)
            id_, image_id = int(block.object_id[object_]), int(block.image_id[row])
            reject = Rejected(
                "annotation", id_, Reason.EXCLUDED, f"{columns[0][row]!r}: {_exclusion_detail(kinds)}", image_id
            )
            facts.reject(splits[columns[2][row]], reject.named(columns[0][row]))
    if dropped:
        block = block.take_objects(~np.isin(np.arange(block.num_objects), dropped))
    texts = {row: _exclusion_detail(kinds) for row, kinds in images.items()}
    return reject_images(block, splits, Reason.EXCLUDED, texts, facts), matched


def _exclusion_detail(kinds: set[str]) -> str:
    problems = ", ".join(sorted(kinds - {""}))
    return f"--exclude names it{f' ({problems})' if problems else ''}"


def reject_images(
    block: Block, splits: Sequence[str], reason: Reason, texts: Mapping[int, str], facts: FactsBuilder
) -> Block:
    """Return a Block without some images, which become rejects.

    Args:
        texts: Details of the rejects, by the row of the image.
    """
    if not texts:
        return block
    rows = np.array(list(texts), np.int64)
    for task, text in zip(image_tasks(block.take(rows), splits), texts.values(), strict=True):
        facts.reject(task.split, task.rejected(reason, text))
    return block.take(~np.isin(np.arange(len(block)), rows))


class ExcludeImages(beam.PTransform):
    """Convert (BlockKey, packed Block) to Blocks without excluded images.

    At run time, raises the errors of `unmatched_warning`.

    Args:
        paths, kinds: See `read_exclusions`.
        splits: Splits of the job.
        is_added: True for images that are added to a data set, whose other images the files may name.
    """

    def __init__(self, paths: Sequence[str], kinds: Sequence[str], splits: Sequence[str], is_added: bool = False):
        super().__init__()
        self._paths, self._kinds, self._splits = tuple(paths), tuple(kinds), tuple(splits)
        self._is_added = is_added

    def expand(self, blocks: PCollection) -> PCollection:
        once = blocks.pipeline | "ExcludeFiles" >> beam.Create([self._paths])
        exclusions = AsSingleton(once | "ReadExclusions" >> beam.Map(read_exclusions, self._kinds))
        exclude = WithFacts(_exclude_images, self._splits, exclusions, tags=(_MATCHED,))
        remaining, matched = blocks | "Exclude" >> exclude
        arguments = AsIter(matched), exclusions, self._splits[0], self._is_added
        once | "WarnUnmatched" >> WithFacts(_warn_unmatched, *arguments)
        return remaining


def _exclude_images(
    keyed: tuple[Any, bytes], facts: FactsBuilder, splits: tuple[str, ...], exclusions: Exclusions
) -> Iterator[Any]:
    key, packed = keyed

    def exclude(blocks: list[Block]) -> tuple[Block, list[int]]:
        return exclude_images(blocks[0], splits, exclusions, facts)

    block, matched = run_step("exclude images", exclude, [unpack_block(packed)])
    yield from (TaggedOutput(_MATCHED, number) for number in matched)
    if len(block):
        yield key, pack_block(block)


def _warn_unmatched(
    _: Any, facts: FactsBuilder, matched: Iterable[int], exclusions: Exclusions, split: str, is_added: bool
) -> None:
    if text := unmatched_warning(exclusions, matched, is_added):
        facts.warn(split, text)


def unmatched_warning(exclusions: Exclusions, matched: Iterable[int], is_added: bool = False) -> str:
    """Return a warning about lines that name nothing; empty if each line names something.

    Args:
        matched: Indices of lines that name an image or annotation of the job.
        is_added: See ExcludeImages.

    Raises:
        ConfigError: No line names anything, and images are not added.
    """
    named = set(matched)
    unmatched = [line for number, line in enumerate(exclusions.lines) if number not in named]
    if not unmatched:
        return ""
    names = (line.file_name if line.id is None else f"{line.what} {line.id} of {line.file_name}" for line in unmatched)
    examples = ", ".join(map(repr, islice(names, _SHOWN))) + " …" * (len(unmatched) > _SHOWN)
    number = f"{len(unmatched):,} of {len(exclusions.lines):,} lines do not name" if named else "no line names"
    text = (
        f"--exclude: {number} an image or annotation of this job ({examples}). File names are paths below the folders "
        "of images, as in image/filename of records. A line with a split names an image of that split only. To exclude "
        "the image from any split, remove `split` from the line."
    )
    if not named and not is_added:
        raise ConfigError(text)
    return text


# Copies

_OTHER_LABELS = ", with other labels"


CopyKey = tuple[str, int, str, int]
"""Split and id of an image, path of its file, and offset in it. Rows of a table with one id may have several files."""


class Candidate(NamedTuple):
    """An image that may be a copy of another.

    Attributes:
        labels: Digest of its class, and of the classes and boxes of its objects.
        is_row: Row of a table. Rows of one image are not copies.
        offset, size_bytes: Of the image, see ImageFile.
        digest: Of an image without a file.
    """

    split: str
    file_name: str
    image_id: int
    path: str
    labels: bytes
    is_row: bool = False
    offset: int = -1
    size_bytes: int = 0
    digest: bytes = b""

    @property
    def set_name(self) -> str:
        """Set of the image, if it is of several sets."""
        return self.file_name.partition("/")[0]


class DropCopies(beam.PTransform):
    """Convert (BlockKey, packed Block) to Blocks without copies, see GroupCopies."""

    def __init__(self, splits: Sequence[str]):
        super().__init__()
        self._splits = tuple(splits)

    def expand(self, blocks: PCollection) -> PCollection:
        copies = blocks | GroupCopies(self._splits) | "Copies" >> beam.FlatMap(_find_copies)  # (CopyKey, text)
        differing = (
            copies
            | "FilterOtherLabels" >> beam.Filter(_has_other_labels)
            | "CountOtherLabels" >> beam.combiners.Count.Globally()
        )
        differing | "Warn" >> WithFacts(_warn_other_labels, self._splits[0])
        return blocks | "Drop" >> WithFacts(_drop_copies, self._splits, AsDict(copies))


class ReportCopies(beam.PTransform):
    """Report the images of (BlockKey, packed Block) that several sets have, see GroupCopies, by a warning in Facts."""

    def __init__(self, splits: Sequence[str]):
        super().__init__()
        self._splits = tuple(splits)

    def expand(self, blocks: PCollection):  # has no output
        pairs = blocks | GroupCopies(self._splits, across_sets=True) | "Pairs" >> beam.FlatMap(_pair_copies)
        number = pairs | "CountCopies" >> beam.combiners.Count.Globally()
        first = pairs | "FirstCopies" >> beam.combiners.Top.Smallest(_SHOWN)
        number | "WarnCopies" >> WithFacts(_warn_copies, AsSingleton(first), self._splits[0])


class GroupCopies(beam.PTransform):
    """Convert (BlockKey, packed Block) to a group of Candidates for each content that several images have.

    Images are compared by size, those of one size by the first and last END_BYTES, and those with equal ends by all
    bytes. Unreadable files are in no group, because the step that writes records rejects them.

    Args:
        across_sets: True for groups of several sets only, by the first folder of `file_name`.
    """

    def __init__(self, splits: Sequence[str], across_sets: bool = False):
        super().__init__()
        self._splits, self._across_sets = tuple(splits), across_sets

    def expand(self, blocks: PCollection) -> PCollection:
        list_all = beam.FlatMap(_list_candidates, self._splits).with_output_types(tuple[int, Any])
        digest_ends, digest = (
            beam.FlatMap(step).with_output_types(tuple[bytes, Any]) for step in (_digest_ends, _digest_candidate)
        )
        same_size = self._several(blocks | "Candidates" >> list_all, "Size")
        same_ends = self._several(same_size | "DigestEnds" >> digest_ends, "Ends")
        return same_ends | "Digest" >> digest | "ByDigest" >> beam.GroupByKey()

    def _several(self, candidates: PCollection, key: str) -> PCollection:
        """Return the candidates that share their key with others."""
        return (
            candidates
            | f"By{key}" >> beam.GroupByKey()
            | f"DropUnique{key}" >> beam.FlatMap(_drop_unique, self._across_sets).with_output_types(Any)
            | f"SpreadReads{key}" >> beam.Reshuffle()
        )


def _has_other_labels(copy: tuple[CopyKey, str]) -> bool:
    return copy[1].endswith(_OTHER_LABELS)


def _warn_other_labels(number: int, facts: FactsBuilder, split: str) -> None:
    if number:
        facts.warn(
            split,
            f"--duplicates drop: {number:,} of the dropped images have other labels than the copy that is kept. "
            "rejects-SPLIT.jsonl names both. Check which labels are right.",
        )


def _list_candidates(keyed: tuple[Any, bytes], splits: tuple[str, ...]) -> Iterator[tuple[int, Candidate]]:
    block = unpack_block(keyed[1])
    tasks = image_tasks(block.replace(first_object_of_image=None), splits)
    for row, task in enumerate(tasks):
        labels = labels_digest(block.cut(row, row + 1))
        ref, is_row = task.ref, task.labels.row is not None
        digest = _digest_bytes(ref.data) if ref.data else b""
        image = task.split, task.file_name, task.image_id
        yield ref.size_bytes, Candidate(*image, ref.path, labels, is_row, ref.offset, ref.size_bytes, digest)


def labels_digest(image: Block) -> bytes:
    """Return a digest of the labels of a Block of one image: equal for equal objects in any order."""
    data = (labels_of(image)[0].class_name or "").encode()
    if image.num_objects:
        rows = np.column_stack((image.category_id, image.boxes_xywh_px))
        data += rows[np.lexsort(rows.T)].tobytes()
    return blake2b(data, digest_size=8).digest()


def _drop_unique(group: tuple[Any, Iterable[Candidate]], across_sets: bool) -> Iterator[Candidate]:
    """Yield the images of a group, unless it has a single one, or with `across_sets` those of a single set."""
    if len(list(islice(_different_sets(group[1]) if across_sets else group[1], 2))) > 1:
        yield from group[1]


def _different_sets(candidates: Iterable[Candidate]) -> Iterator[str]:
    """Yield the set of each image that differs from the set of the one before."""
    return (name for name, _ in groupby(Candidate._make(image).set_name for image in candidates))


END_BYTES = 4096
"""Bytes at each end of a file that are compared before its content is."""


def _digest_ends(candidate: Candidate) -> Iterator[tuple[bytes, Candidate]]:
    """Yield an image with the digest of its size and ends, or of its content if that is known. An image in a
    label file may have a copy with other ends."""
    size, start = candidate.size_bytes, max(candidate.offset, 0)
    if candidate.digest:
        yield candidate.digest, candidate
        return
    try:
        head = _read_part(candidate, start, min(size, END_BYTES))
        tail = _read_part(candidate, start + size - END_BYTES, END_BYTES) if size > END_BYTES else b""
    except _UNREADABLE:
        return
    ends = b"" if head.startswith(b"{") else head + tail
    yield _digest_bytes(b"%d/" % size + ends), candidate


def _read_part(candidate: Candidate, start: int, length: int) -> bytes:
    return storage_for(candidate.path).read_range(candidate.path, start, length)


def _digest_candidate(candidate: Candidate) -> Iterator[tuple[bytes, Candidate]]:
    ref = ImageFile(candidate.path, candidate.size_bytes, offset=candidate.offset)
    try:
        yield candidate.digest or _digest_bytes(fetch_file(ref)), candidate
    except _UNREADABLE:
        return


_UNREADABLE = (FileNotFoundError, UnreadableFileError, FileTooLargeError)


def _digest_bytes(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _find_copies(group: tuple[bytes, Iterable[Candidate]]) -> Iterator[tuple[CopyKey, str]]:
    return find_copies(map(Candidate._make, group[1]))


def find_copies(candidates: Iterable[Candidate]) -> Iterator[tuple[CopyKey, str]]:
    """Yield the key of each image except the one that is kept, and the detail of its reject. Rows of the kept file are
    kept.

    Args:
        candidates: Images of the same bytes.
    """
    original, *copies = sorted(candidates, key=lambda image: (copy_order(image.split, image.file_name), image))
    for copy in copies:
        if copy.is_row and (copy.path, copy.offset) == (original.path, original.offset):
            continue
        labels = "" if copy.labels == original.labels else _OTHER_LABELS
        yield (
            (copy.split, copy.image_id, copy.path, copy.offset),
            f"the same bytes as {original.file_name!r} of {original.split}, which is kept{labels}",
        )


def _pair_copies(group: tuple[bytes, Iterable[Candidate]]) -> Iterator[tuple[str, str]]:
    """Yield the name of each image of another set than the first image of its content, and the name of that."""
    first, *copies = sorted(map(Candidate._make, group[1]), key=lambda image: copy_order(image.split, image.file_name))
    yield from ((image.file_name, first.file_name) for image in copies if image.set_name != first.set_name)


def _warn_copies(number: int, facts: FactsBuilder, first: list[tuple[str, str]], split: str) -> None:
    if number:
        shown = ", ".join(f"{copy!r} is {original!r}" for copy, original in first) + " …" * (number > len(first))
        facts.warn(
            split,
            f"the sets share {number_text(number, 'image')} with the same bytes ({shown}). Add --duplicates drop to "
            "keep one of each",
        )


def _drop_copies(
    keyed: tuple[Any, bytes], facts: FactsBuilder, splits: tuple[str, ...], copies: dict[CopyKey, str]
) -> Iterator[Any]:
    def drop(blocks: list[Block]) -> Block:
        (block,) = blocks
        tasks = image_tasks(block.replace(first_object_of_image=None), splits)
        keys = ((task.split, task.image_id, task.ref.path, task.ref.offset) for task in tasks)
        texts = {row: copies[key] for row, key in enumerate(keys) if key in copies}
        return reject_images(block, splits, Reason.DUPLICATE, texts, facts)

    block = run_step("drop copies", drop, [unpack_block(keyed[1])])
    if len(block):
        yield keyed[0], pack_block(block)
