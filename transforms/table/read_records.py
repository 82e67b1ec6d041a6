"""Read rows of a file as records, with their Facts."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsDict, AsSingleton, PCollection

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.dataset.dataset_files import state_folder
from recordmill.schemas.dataset.manifest import InputRows
from recordmill.schemas.inputs.annotations import ImageLabels, TableRow
from recordmill.schemas.inputs.encoders import TextCounts
from recordmill.schemas.inputs.splits import SplitShares, name_id
from recordmill.schemas.inputs.tables import RowsFile, RowsReading
from recordmill.schemas.rejects import Metric
from recordmill.transforms.blocks.image_tasks import label_column
from recordmill.transforms.blocks.pack_block import Keyed, pack_parts, unpack_block
from recordmill.transforms.blocks.run_step import hash_images, ranges_of
from recordmill.transforms.dataset.collect_facts import collect_facts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.images.load_images import KEPT_BYTES, keep_files
from recordmill.transforms.join.divide_images import class_borders
from recordmill.transforms.join.join_files import RANGE_BITS
from recordmill.transforms.join.match_blocks import FileState, MatchRows, assign_buckets
from recordmill.transforms.rows.read_rows import read_rows
from recordmill.transforms.rows.row_batch import RowBatch
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.threads import look_ahead, usable_cores
from recordmill.transforms.shape.limit_blocks import are_remaining, hash_texts
from recordmill.transforms.storage.resolve import join_path
from recordmill.transforms.table.choose_schema import DROPPED, ChosenSchema
from recordmill.transforms.table.make_records import ALL_ROWS, MadeRows, RowEncoder, hash_input
from recordmill.transforms.table.table_options import TableOptions

Result = TypeVar("Result")


# Long list of arguments, here and below: what the options do not say are the names of splits, which may be a column's
# values, and the columns of texts, which may be those of --schema.
def read_records(
    file: RowsFile,
    facts: FactsBuilder,
    chosen: ChosenSchema,
    options: TableOptions,
    splits: tuple[str, ...],
    reading: RowsReading,
) -> Iterator[MadeRows]:
    """Yield the records of a file in batches. Rows with a fault are rejects of `facts`."""
    progress.set_step("reading rows")
    for made in map_batches(RowEncoder(chosen, options, splits), file, reading):
        numbers = np.bincount(made.split, minlength=len(splits)) + _count_dropped(made, chosen, splits, facts)
        numbers[0] += len(made.bad)
        for number, split in enumerate(splits):
            if numbers[number]:
                facts.add_rows(split, InputRows(file.path, "rows", int(numbers[number]), 0))
        if chosen.remaining is not None:
            is_left = are_remaining(hash_rows(made, options), made.split, splits, chosen.remaining)
            made = made.take(np.flatnonzero(is_left))
        for number, split in enumerate(splits):
            for column, counts in made.texts.items():
                totals = counts[made.split == number].sum(axis=0)
                facts.add_texts(split, column, TextCounts(*totals.tolist()))
            if made.classes is not None and not options.image_column:  # some images are not written
                facts.add_classes(split, Counter(made.classes[made.split == number].tolist()))
        for bad in made.bad:
            facts.reject(splits[0], bad.reject(file.path))
        yield made


def _count_dropped(made: MadeRows, chosen: ChosenSchema, splits: tuple[str, ...], facts: FactsBuilder) -> np.ndarray:
    """Count the classes of rows before the class map. Return the number of rows of dropped classes: int64 [splits]."""
    is_dropped = np.array([index == DROPPED for index in chosen.read_classes.values()], bool)
    dropped = made.read_classes @ is_dropped.astype(np.int64) if len(is_dropped) else np.zeros(len(splits), np.int64)
    for split, classes, number in zip(splits, made.read_classes.tolist(), dropped.tolist(), strict=True):
        facts.count(split, Metric.OF_OTHER_CLASSES, number)
        for name, images in zip(chosen.read_classes, classes, strict=True) if len(is_dropped) else ():
            facts.add_mapped(split, chosen.mapped_class(name, images))
    return dropped


def hash_rows(made: MadeRows, options: TableOptions) -> np.ndarray:
    """Return the hash of each row's key, or of its record, for limits: int64."""
    is_text = bool(options.row_key)
    return hash_texts(hash_input(identity, is_text) for identity in made.identities)


def map_batches(function: Callable[[RowBatch], Result], file: RowsFile, reading: RowsReading) -> Iterator[Result]:
    """Yield the results of a file's batches in order. Threads run the function, because Arrow releases the GIL."""
    cores = usable_cores()
    with ThreadPoolExecutor(cores) as pool:
        yield from look_ahead(function, read_rows(file, reading), pool, cores)


Units = tuple[int, bytes]
"""Index of a class, and int64 [N, 2]: position of a row, and 1; see `class_borders`."""
BUCKETS = 64
"""Number of buckets of names, in which rows are matched with their image files."""


def read_image_rows(
    file: RowsFile,
    facts: FactsBuilder,
    chosen: ChosenSchema,
    options: TableOptions,
    splits: tuple[str, ...],
    reading: RowsReading,
) -> Iterator[Keyed]:
    """Yield (bucket of names, packed Block of image rows) of a file, or (range, packed Block) of rows that have the
    bytes of their images."""
    column = str(options.image_column)
    number = 0
    for made in read_records(file, facts, chosen, options, splits, reading):
        if options.has_image_bytes:
            for rows in _cut_by_size(made):
                name = f"{state_folder(splits[int(made.split[rows[0]])])}/images-{file.number:05d}-{number:05d}"
                block = row_block(made, rows, file, chosen, column)
                block = _keep_images(block, made, rows, join_path(options.written_folder, name), options.dry_run)
                yield from pack_parts(block, ranges_of(hash_images(block.image_id, options.seed), RANGE_BITS))
                number += 1
        elif made.names:
            block = row_block(made, np.arange(len(made.names)), file, chosen, column)
            yield from pack_parts(block, assign_buckets(made.names, "path", BUCKETS))


def row_block(made: MadeRows, rows: np.ndarray, file: RowsFile, chosen: ChosenSchema, column: str) -> Block:
    """Return some rows of a batch as images.

    Args:
        rows: int64 [N]: Indices in the batch.
        column: --image-column, for messages.
    """
    labels = []
    class_names = [category.name for category in chosen.labels.categories]
    for row in rows.tolist():
        class_name = None if made.classes is None else class_names[made.classes[row]]
        line = int(made.lines[row])
        group = made.groups[row].decode() if made.groups else ""
        record = TableRow(made.records[row].as_py(), line, f"{file.path} row {line}: column {column}", group)
        labels.append(ImageLabels(class_name=class_name, row=record))
    return Block(
        image_id=np.array([name_id(made.identities[row].decode()) for row in rows.tolist()], np.int64),
        file_name=ragged_texts([made.names[row] for row in rows.tolist()]),
        image_size_px=np.zeros((len(labels), 2), np.int64),
        split=made.split[rows],
        labels=label_column(labels),
    )


def _cut_by_size(made: MadeRows) -> Iterator[np.ndarray]:
    """Yield rows of one split whose images are kept in one file: int64 [N]."""
    for split in np.unique(made.split):
        rows = np.flatnonzero(made.split == split)
        sizes = np.cumsum([len(made.files[row]) for row in rows.tolist()])
        yield from np.split(rows, np.flatnonzero(np.diff(sizes // KEPT_BYTES)) + 1)


def _keep_images(block: Block, made: MadeRows, rows: np.ndarray, path: str, is_dry_run: bool) -> Block:
    """Write the images of rows as the file `path`, and return the Block with their places. A dry run writes nothing."""
    files = [made.files[row] for row in rows.tolist()]
    return block.replace(
        file_folder=ragged_texts([path] * len(rows)),
        file_bytes=np.array(list(map(len, files)), np.int64),
        file_offset=None if is_dry_run else keep_files(path, files),
        file_version=ragged_texts([""] * len(rows)),
    )


def stratify_rows(
    files: PCollection[RowsFile],
    chosen: PCollection[ChosenSchema],
    options: TableOptions,
    splits: tuple[str, ...],
    reading: RowsReading,
    listed: PCollection[Keyed] | None = None,
) -> PCollection[ChosenSchema]:
    """Return one ChosenSchema with the borders of classes.

    Args:
        chosen: One ChosenSchema.
        listed: (bucket of names, packed Block) of image files. A row without a file does not count. None if rows do not
            name files.
    """
    place = beam.FlatMap(_place_rows, AsSingleton(chosen), options, splits, reading)
    spread = files | "SpreadToDivide" >> beam.Reshuffle()
    if listed is None:
        units = spread | "PlaceInClass" >> place.with_output_types(Units)
    else:
        named = spread | "PlaceInClass" >> place.with_output_types(Keyed)
        with collect_facts():  # drops these Facts: ReadImageRows matches the same rows again
            matched = (named, listed) | "MatchPlaced" >> MatchRows("path", None, 0, RANGE_BITS)
        units = matched | "UnitsOfFound" >> beam.FlatMap(_matched_units).with_output_types(Units)
    units = AsDict(units | "GroupByClass" >> beam.GroupByKey())
    return chosen | "DivideClasses" >> beam.Map(_with_borders, units, options.shares)


def _place_rows(
    file: RowsFile, chosen: ChosenSchema, options: TableOptions, splits: tuple[str, ...], reading: RowsReading
) -> Iterator[Any]:
    """Yield units of rows; or, if rows name files, (bucket of names, packed Block), with positions as ids."""
    progress.set_step("dividing classes")
    for made in map_batches(RowEncoder(chosen, options, splits), file, reading):
        positions = np.asarray(made.positions, np.int64)
        if not options.images:
            yield from _units(positions, made.strata)
        elif made.names:
            strata = ragged_texts(list(map(str, made.strata.tolist())))
            block = Block(image_id=positions, file_name=ragged_texts(made.names), class_name=strata)
            yield from pack_parts(block, assign_buckets(made.names, "path", BUCKETS))


def _matched_units(keyed: Keyed) -> Iterator[Units]:
    """Yield units of the rows whose files can be read."""
    block = unpack_block(keyed[1])
    block = block.take(block.state == FileState.FOUND)
    yield from _units(block.image_id, np.array(block.class_name.texts(), np.int64))


def _units(positions: np.ndarray, strata: np.ndarray) -> Iterator[Units]:
    for index in np.unique(strata).tolist():
        class_positions = positions[strata == index]
        yield index, np.stack([class_positions, np.ones_like(class_positions)], axis=1).tobytes()


def _with_borders(chosen: ChosenSchema, units: Mapping[int, Iterable[bytes]], shares: SplitShares) -> ChosenSchema:
    names = {ALL_ROWS: ""} | {index: category.name for index, category in enumerate(chosen.labels.categories)}
    arrays = {index: np.frombuffer(b"".join(parts), np.int64) for index, parts in units.items()}
    borders = {index: class_borders(names[index], array, shares) for index, array in arrays.items()}
    return chosen._replace(borders=borders)
