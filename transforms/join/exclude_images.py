"""Images and annotations that files name are left out, as rejects of reason `excluded`."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsIter, AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.block import Block
from recordmill.schemas.errors import AnnotationFileError, ConfigError
from recordmill.schemas.inputs.annotations import Int64
from recordmill.schemas.names import name_key
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.blocks.image_tasks import image_tasks
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.blocks.run_step import run_step
from recordmill.transforms.dataset.facts import FACTS, Facts, FactsBuilder, tagged
from recordmill.transforms.join.match_blocks import name_keys
from recordmill.transforms.storage.read_unpacked import read_unpacked

_SHOWN = 3
_FOUND = "found"


class _ExcludedLine(msgspec.Struct):
    """A line of problems-SPLIT.jsonl; its other fields are not used."""

    file_name: str
    what: str = "image"
    id: Int64 | None = None
    split: str = ""
    kind: str = ""


_DECODER = msgspec.json.Decoder(_ExcludedLine)


class Exclusions(msgspec.Struct, frozen=True):
    """What is to be left out, as numbered entries.

    Attributes:
        names: Of each entry what it names, for messages.
        kinds: Of each entry the kind of problem; empty for none.
        by_name: Entries of images by the key of their name, each with a split or, for any, an empty text.
        by_id: Entries of images by their id.
        by_object: Likewise of annotations, by their id, each also with the key of the image's name.
    """

    names: list[str] = []
    kinds: list[str] = []
    by_name: dict[str, list[tuple[str, int]]] = {}
    by_id: dict[int, list[int]] = {}
    by_object: dict[int, list[tuple[str, str, int]]] = {}


def read_exclusions(paths: Iterable[str], kinds: Sequence[str] = ()) -> Exclusions:
    """Read files that are problems-SPLIT.jsonl, or have a file name or an image id a line.

    Args:
        kinds: Kinds of problems to take; empty for all. A line without a kind is always taken.

    Raises:
        ConfigError: A file is neither, or has nothing to leave out; the message names the line.
        OSError: storage fails.
    """
    found = Exclusions([], [], defaultdict(list), defaultdict(list), defaultdict(list))
    for path in paths:
        before = len(found.names)
        for number, line in enumerate(_text_of(path).split("\n"), 1):
            if line := line.strip():
                try:
                    _add(found, _DECODER.decode(line) if line.startswith("{") else line, kinds)
                except (msgspec.DecodeError, ValueError) as error:
                    raise ConfigError(
                        f"--exclude {path}, line {number} names no image ({error}). Each line must be one of "
                        "problems-SPLIT.jsonl of a data set, a file name or an image id."
                    ) from error
        if len(found.names) == before:
            of_kinds = f" of --exclude-kinds {','.join(kinds)}" if kinds else ""
            raise ConfigError(f"--exclude {path} has no line{of_kinds}. Leave it out if nothing is to be excluded.")
    return msgspec.structs.replace(
        found, by_name=dict(found.by_name), by_id=dict(found.by_id), by_object=dict(found.by_object)
    )


def _text_of(path: str) -> str:
    try:
        return read_unpacked(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"--exclude {path} is not UTF-8 ({error.reason} at byte {error.start}).") from error
    except AnnotationFileError as error:  # of gzip
        raise ConfigError(f"--exclude {error}") from error


def _add(found: Exclusions, line: _ExcludedLine | str, kinds: Sequence[str]) -> None:
    """
    Raises:
        ValueError: A line about an annotation has no id.
    """
    entry = len(found.names)
    if isinstance(line, str):
        found.by_name[name_key(line)].append(("", entry))
        if line.isascii() and line.isdecimal():
            found.by_id[int(line)].append(entry)
        name, kind = line, ""
    else:
        name, kind = line.file_name, line.kind
        if kinds and kind not in ("", *kinds):
            return
        if line.what == "image":
            found.by_name[name_key(name)].append((line.split, entry))
        elif line.id is None:
            raise ValueError(f"{line.what} without id")
        else:
            found.by_object[line.id].append((name_key(name), line.split, entry))
            name = f"{line.what} {line.id} of {name}"
    found.names.append(name)
    found.kinds.append(kind)


class Kept(NamedTuple):
    """What is left of a Block.

    Attributes:
        rejected: Splits and what is left out of each.
        found: Entries that name an image or annotation of the Block.
    """

    block: Block
    rejected: list[tuple[str, Rejected]]
    found: list[int]


def exclude_images(block: Block, splits: Sequence[str], exclusions: Exclusions) -> Kept:
    """Leave out images and annotations of a whole Block that has all columns of the join.

    A line with one of the splits of the job names an image of that split; any other line one of any split.

    Args:
        splits: Of the job, by the column `split`.
    """
    keys, split_of = name_keys(block.file_name.texts()), [splits[index] for index in block.split.tolist()]

    def is_of(split: str, row: int) -> bool:
        return split not in splits or split == split_of[row]

    of_image: dict[int, list[int]] = {}
    for row, (key, id_) in enumerate(zip(keys, block.image_id.tolist(), strict=True)):
        entries = [entry for split, entry in exclusions.by_name.get(key, ()) if is_of(split, row)]
        if entries := [*entries, *exclusions.by_id.get(id_, ())]:
            of_image[row] = entries
    of_object: dict[int, list[int]] = {}
    if exclusions.by_object and block.num_objects:
        image_of_object = block.image_of_object
        named = np.flatnonzero(np.isin(block.object_id, np.array(list(exclusions.by_object))))
        for object_ in named.tolist():
            row = int(image_of_object[object_])
            listed = exclusions.by_object[int(block.object_id[object_])]
            if entries := [entry for key, split, entry in listed if key == keys[row] and is_of(split, row)]:
                of_object[object_] = entries
    found = [entry for entries in (*of_image.values(), *of_object.values()) for entry in entries]
    if not found:
        return Kept(block, [], [])
    rows = np.array(list(of_image), np.int64)
    rejected = [
        (task.split, task.rejected(Reason.EXCLUDED, _reason(entries, exclusions)))
        for task, entries in zip(image_tasks(block.take(rows), splits), of_image.values(), strict=True)
    ]
    is_kept = np.ones(block.num_objects, bool)
    for object_, entries in of_object.items():
        row, is_kept[object_] = int(image_of_object[object_]), False
        if row not in of_image:
            detail = f"{keys[row]!r}: {_reason(entries, exclusions)}"
            id_, image_id = int(block.object_id[object_]), int(block.image_id[row])
            rejected.append((split_of[row], Rejected("annotation", id_, Reason.EXCLUDED, detail, image_id)))
    if of_object:
        block = block.take_objects(is_kept)
    is_image_kept = np.ones(len(block), bool)
    is_image_kept[rows] = False
    return Kept(block.take(is_image_kept), rejected, found)


def _reason(entries: Sequence[int], exclusions: Exclusions) -> str:
    kinds = ", ".join(sorted({exclusions.kinds[entry] for entry in entries} - {""}))
    return f"--exclude names it{f' ({kinds})' if kinds else ''}"


@dataclass(eq=False, repr=False)
class ExcludeImages(beam.PTransform):
    """Convert (BlockKey, packed Block) to the same without what files name, and two PCollections of Facts.

    Raises, when it runs, what `unmatched_warning` does.

    Args:
        paths, kinds: See `read_exclusions`.
        splits: Of the job.
    """

    paths: Sequence[str]
    kinds: Sequence[str]
    splits: Sequence[str]

    def expand(self, blocks: PCollection) -> tuple[PCollection, tuple[PCollection, ...]]:
        once = blocks.pipeline | "ExcludeFiles" >> beam.Create([tuple(self.paths)])
        exclusions = AsSingleton(once | "ReadExclusions" >> beam.Map(read_exclusions, tuple(self.kinds)))
        kept = blocks | "Exclude" >> beam.FlatMap(_exclude, tuple(self.splits), exclusions).with_outputs(
            FACTS, _FOUND, main="blocks"
        )
        found = AsIter(kept[_FOUND])
        unmatched = once | "Unmatched" >> beam.Map(_unmatched, found, exclusions, self.splits[0])
        return kept.blocks, (kept[FACTS], unmatched)


def _exclude(keyed: tuple[Any, bytes], splits: tuple[str, ...], exclusions: Exclusions) -> Iterator[Any]:
    key, packed = keyed
    kept = run_step(
        "exclude images", lambda blocks: exclude_images(blocks[0], splits, exclusions), [unpack_block(packed)]
    )
    facts = FactsBuilder()
    for split, rejected in kept.rejected:
        facts.reject(split, rejected)
    yield tagged(facts)
    yield from (TaggedOutput(_FOUND, entry) for entry in kept.found)
    if len(kept.block):
        yield key, pack_block(kept.block) if kept.found else packed


def _unmatched(_: Any, found: Iterable[int], exclusions: Exclusions, split: str) -> Facts:
    text = unmatched_warning(exclusions, found)
    return Facts(warnings={(split, text)} if text else set())


def unmatched_warning(exclusions: Exclusions, found: Iterable[int]) -> str:
    """Return a sentence about entries that name nothing; empty if each names something.

    Args:
        found: Entries that name an image or annotation of the job.

    Raises:
        ConfigError: No entry does.
    """
    named = set(found)
    unmatched = [name for entry, name in enumerate(exclusions.names) if entry not in named]
    if not unmatched:
        return ""
    shown = ", ".join(map(repr, unmatched[:_SHOWN])) + " …" * (len(unmatched) > _SHOWN)
    advice = (
        "File names are paths below --images, as image/filename of records has them. A line with a split names an "
        "image of that split only: to exclude it from any, leave `split` out of the line"
    )
    if not named:
        raise ConfigError(f"--exclude names nothing that is converted, but {shown}, so it would do nothing. {advice}.")
    return (
        f"--exclude: {len(unmatched):,} of {len(exclusions.names):,} lines name nothing that is converted ({shown}). "
        f"{advice}"
    )
