"""Choose the rows that `--limit` and `--max-per-class` leave, of tables without images. Rows are read once more."""

from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.inputs.limits import Limits
from recordmill.schemas.inputs.tables import RowsFile, RowsReading
from recordmill.transforms.blocks.flatten_collections import flatten_collections
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.beam_steps import pack
from recordmill.transforms.shape.limit_blocks import ChooseImages, LimitUnits, hash_texts, make_units
from recordmill.transforms.table.choose_schema import ChosenSchema
from recordmill.transforms.table.make_records import MadeRows, RowEncoder
from recordmill.transforms.table.read_records import hash_rows, map_batches
from recordmill.transforms.table.table_options import TableOptions

Part = tuple[Iterable[RowsFile], TableOptions, tuple[str, ...]]
"""Files, their options, and the splits of their rows."""


def limit_rows(
    p: beam.Pipeline, parts: Iterable[Part], chosen: PCollection[ChosenSchema], limits: Limits, reading: RowsReading
) -> PCollection[ChosenSchema]:
    """Return one ChosenSchema with the rows that remain.

    Args:
        chosen: One ChosenSchema.
    """
    units = [
        p
        | f"FilesToLimit{number}" >> beam.Create(files)
        | f"SpreadToLimit{number}" >> beam.Reshuffle()
        | f"ListRows{number}"
        >> beam.FlatMap(_list_rows, AsSingleton(chosen), options, splits, reading).with_output_types(bytes)
        for number, (files, options, splits) in enumerate(parts)
    ]
    remaining = flatten_collections(units, "RowsToLimit") | "LimitRows" >> ChooseImages(limits)
    add = beam.Map(lambda schema, hashes: schema._replace(remaining=hashes), AsSingleton(remaining))
    return chosen | "WithRemaining" >> add


def _list_rows(
    file: RowsFile, chosen: ChosenSchema, options: TableOptions, splits: tuple[str, ...], reading: RowsReading
) -> Iterator[bytes]:
    progress.set_step("choosing rows")
    for made in map_batches(RowEncoder(chosen, options, splits), file, reading):
        yield from map(pack, list_units(made, options, splits))


def list_units(made: MadeRows, options: TableOptions, splits: tuple[str, ...]) -> Iterator[LimitUnits]:
    """Yield the rows of each split of a batch."""
    names = hash_rows(made, options)
    groups = hash_texts(group.decode() for group in made.groups) if made.groups else None
    for index in np.unique(made.split).tolist():
        rows = np.flatnonzero(made.split == index)
        pairs = None
        if options.max_per_class and made.classes is not None:
            pairs = np.stack([np.arange(len(rows)), made.classes[rows]], axis=1).astype(np.int64)
        yield make_units(splits[index], names[rows], None if groups is None else groups[rows], pairs)
