"""Image rows and files meet by name, and go on by range."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsSingleton

from recordmill.schemas.block import join_blocks
from recordmill.schemas.splits import Division
from recordmill.transforms.blocks.order_images import hash_images, ranges_of
from recordmill.transforms.blocks.pack_block import pack_parts, unpack_block
from recordmill.transforms.blocks.run_step import run_step
from recordmill.transforms.dataset.facts import FACTS, FactsBuilder, tagged
from recordmill.transforms.join.match_blocks import NO_FILES, match_rows

Keyed = tuple[int, bytes]
"""Number of a bucket of names or of a range of images, and a packed Block."""


@dataclass(eq=False, repr=False)
class MatchRows(beam.PTransform):
    """Convert (bucket of names, Block) of image rows, and of files, to (range, Block) of rows with the columns of their
    files in the output `rows`; Facts are in `facts`.

    Without files, rows have the columns of their files, and stay in their buckets until they are keyed by range.

    Args:
        match: one of `recordmill.schemas.names.MATCHES`.
        division: None if rows have their splits.
        bits: 2 ** bits ranges of images.
    """

    match: str
    division: Division | AsSingleton | None
    seed: int
    bits: int

    def expand(self, sides):
        has_files = len(sides) > 1
        if has_files:
            grouped = sides | "BothSides" >> beam.Flatten() | "GroupByName" >> beam.GroupByKey()
        else:
            grouped = sides[0] | "Alone" >> beam.MapTuple(_alone)
        match = beam.FlatMap(_match, self.division, self.match, has_files, self.seed, self.bits)
        return grouped | "Match" >> match.with_output_types(Keyed).with_outputs(FACTS, main="rows")


def _alone(bucket: int, packed: bytes) -> tuple[int, list[bytes]]:
    return bucket, [packed]


def _match(
    group: tuple[int, Iterable[bytes]], division: Division | None, match: str, has_files: bool, seed: int, bits: int
) -> Iterator[Any]:
    facts = FactsBuilder()
    blocks = list(map(unpack_block, group[1]))
    rows = [block for block in blocks if block.image_id is not None]
    files = [block for block in blocks if block.image_id is None]
    if rows:
        found = join_blocks([NO_FILES, *files]) if has_files else None
        matched = run_step("match rows", lambda some: match_rows(join_blocks(some), found, match, division), rows)
        facts.add_unlisted(*matched.unlisted)
        yield from pack_parts(matched.rows, ranges_of(hash_images(matched.rows.image_id, seed), bits))
    else:
        facts.add_unlisted(*{name for block in files for name in block.file_name.texts()})
    yield tagged(facts)
