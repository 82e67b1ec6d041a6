"""Keep one of the images whose files have the same bytes; the others are rejects of reason `duplicate`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsDict, PCollection

from recordmill.schemas.block import Block
from recordmill.schemas.rejects import Reason
from recordmill.transforms.blocks.image_tasks import image_paths
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.blocks.run_step import run_step
from recordmill.transforms.dataset.facts import FACTS, Facts
from recordmill.transforms.insight.list_problems import copy_order
from recordmill.transforms.join.exclude_images import leave_out, without_rejected
from recordmill.transforms.storage.interface import UnreadableFileError
from recordmill.transforms.storage.resolve import storage_for

_OTHER_LABELS = ", with other labels"


class Candidate(NamedTuple):
    """An image that may be a copy of another.

    Attributes:
        labels: Digest of its class, and of the classes and boxes of its objects.
    """

    split: str
    file_name: str
    image_id: int
    path: str
    labels: bytes


@dataclass(eq=False, repr=False)
class DropCopies(beam.PTransform):
    """Convert (BlockKey, packed Block) to the same without copies, and a PCollection of Facts.

    Files are read once more if others have the same size. Those that cannot be read are kept: the step that writes
    records rejects them.
    """

    splits: Sequence[str]

    def expand(self, blocks: PCollection) -> tuple[PCollection, tuple[PCollection, ...]]:
        copies = (
            blocks
            | "Candidates" >> beam.FlatMap(_candidates, tuple(self.splits)).with_output_types(tuple[int, Any])
            | "BySize" >> beam.GroupByKey()
            | "OfEqualSize" >> beam.FlatMap(_of_equal_size).with_output_types(Any)
            | "SpreadReads" >> beam.Reshuffle()
            | "Digest" >> beam.FlatMap(_digested).with_output_types(tuple[bytes, Any])
            | "ByDigest" >> beam.GroupByKey()
            | "Copies" >> beam.FlatMap(_copies)  # ((split, image id), text)
        )
        drop = beam.FlatMap(_drop, tuple(self.splits), AsDict(copies))
        kept = blocks | "Drop" >> drop.with_outputs(FACTS, main="blocks")
        differing = (
            copies | "OtherLabels" >> beam.Filter(_has_other_labels) | "Number" >> beam.combiners.Count.Globally()
        )
        return kept.blocks, (kept[FACTS], differing | "Warn" >> beam.Map(_warned, self.splits[0]))


def _has_other_labels(copy: tuple[tuple[str, int], str]) -> bool:
    return copy[1].endswith(_OTHER_LABELS)


def _warned(number: int, split: str) -> Facts:
    text = (
        f"--duplicates drop: {number:,} of the dropped images have other labels than the copy that is kept. "
        "rejects-SPLIT.jsonl names both: look which labels are right."
    )
    return Facts(warnings={(split, text)} if number else set())


def _candidates(keyed: tuple[Any, bytes], splits: tuple[str, ...]) -> Iterator[tuple[int, Candidate]]:
    block = unpack_block(keyed[1])
    columns = block.split.tolist(), block.file_name.texts(), block.image_id.tolist(), image_paths(block)
    for row, (split, name, id_, path) in enumerate(zip(*columns, strict=True)):
        labels = labels_digest(block.cut(row, row + 1))
        yield int(block.file_bytes[row]), Candidate(splits[split], name, id_, path, labels)


def labels_digest(image: Block) -> bytes:
    """Return a digest of the labels of a Block of one image: equal for equal objects in any order."""
    data = image.class_name.values.tobytes() if image.class_name is not None else b""
    if image.num_objects:
        rows = np.column_stack((image.category_id, image.boxes_xywh_px))
        data += rows[np.lexsort(rows.T)].tobytes()
    return blake2b(data, digest_size=8).digest()


def _of_equal_size(group: tuple[int, Iterable[Candidate]]) -> Iterator[Candidate]:
    candidates = iter(group[1])
    pair = list(islice(candidates, 2))
    if len(pair) > 1:
        yield from pair
        yield from candidates


def _digested(candidate: Candidate) -> Iterator[tuple[bytes, Candidate]]:
    try:
        yield blake2b(storage_for(candidate.path).read(candidate.path), digest_size=16).digest(), candidate
    except (FileNotFoundError, UnreadableFileError):
        return


def _copies(group: tuple[bytes, Iterable[Candidate]]) -> Iterator[tuple[tuple[str, int], str]]:
    return find_copies(map(Candidate._make, group[1]))


def find_copies(candidates: Iterable[Candidate]) -> Iterator[tuple[tuple[str, int], str]]:
    """Yield split and id of each image but the one that is kept, and why it is left out.

    Args:
        candidates: Images of the same bytes.
    """
    kept, *others = sorted(candidates, key=lambda each: (copy_order(each.split, each.file_name), each))
    for other in others:
        labels = "" if other.labels == kept.labels else _OTHER_LABELS
        yield (
            (other.split, other.image_id),
            f"the same bytes as {kept.file_name!r} of {kept.split}, which is kept{labels}",
        )


def _drop(keyed: tuple[Any, bytes], splits: tuple[str, ...], copies: dict[tuple[str, int], str]) -> Iterator[Any]:
    def drop(blocks: list[Block]) -> Any:
        (block,) = blocks
        keys = zip((splits[split] for split in block.split.tolist()), block.image_id.tolist(), strict=True)
        texts = {row: copies[key] for row, key in enumerate(keys) if key in copies}
        return leave_out(block, splits, Reason.DUPLICATE, texts)

    yield from without_rejected(keyed[0], *run_step("drop copies", drop, [unpack_block(keyed[1])]))
