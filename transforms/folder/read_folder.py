"""Image folders, and tables of labels, become Blocks of images of one class each."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.inputs.splits import Division
from recordmill.transforms.blocks.cut_range import BlockKey
from recordmill.transforms.blocks.pack_block import Keyed, pack_parts, unpack_block
from recordmill.transforms.blocks.run_step import hash_images, ranges_of
from recordmill.transforms.dataset.facts import FACTS, Facts, FactsBuilder, tagged
from recordmill.transforms.folder.choose_classes import label_paths, named_rows
from recordmill.transforms.folder.read_labels import LabelTable, read_labels
from recordmill.transforms.join.join_files import RANGE_BITS, FolderRules, _add_rows
from recordmill.transforms.join.list_images import Files, file_block


def folder_rows(files: Files, facts: FactsBuilder, rules: FolderRules, division: Division) -> Iterator[Keyed]:
    """Yield (range, packed Block) of image rows, if paths give the classes, or else of files. Their rejects are
    counted in `facts`."""
    if rules.rule:
        block = label_paths(files, rules.rule, division, rules.splits, facts)
        facts.count_rejected_rows(rules.source, rules.kind)
    else:
        block = named_rows(file_block(files))
    yield from pack_parts(block, ranges_of(hash_images(block.image_id, rules.seed), RANGE_BITS))


@dataclass(eq=False, repr=False)
class ReadTables(beam.PTransform):
    """Convert LabelTable to (range, packed Block of image rows) in the output `rows`, and Facts in `facts`."""

    rules: FolderRules
    division: Division | AsSingleton

    def expand(self, tables: PCollection[LabelTable]):
        read = beam.FlatMap(_read, self.rules, self.division).with_output_types(Keyed)
        return tables | "ReadTable" >> read.with_outputs(FACTS, main="rows")


def _read(table: LabelTable, rules: FolderRules, division: Division) -> Iterator[Any]:
    facts = FactsBuilder()
    for block in read_labels(table, division, rules.splits, facts):
        yield from pack_parts(block, ranges_of(hash_images(block.image_id, rules.seed), RANGE_BITS))
    facts.count_rejected_rows(rules.source, rules.kind)
    yield tagged(facts)


def count_rows(keyed: tuple[BlockKey, bytes], rules: FolderRules) -> Facts:
    """Return the numbers of rows of a Block, whose images have their final splits."""
    facts = FactsBuilder()
    _add_rows(facts, [unpack_block(keyed[1]).split], rules)
    return facts.build()
