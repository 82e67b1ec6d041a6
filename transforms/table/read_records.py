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
from recordmill.schemas.inputs.tables import RowsFile
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
from recordmill.transforms.storage.resolve import join_path
from recordmill.transforms.table.choose_schema import ChosenSchema
from recordmill.transforms.table.make_records import ALL_ROWS, MadeRows, RowEncoder, RowsRecipe

Made = TypeVar("Made")


def made_rows(file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe, facts: FactsBuilder) -> Iterator[MadeRows]:
    """Yield the records of a file, a batch of rows at a time; rows that do not fit are rejects of `facts`."""
    progress.set_step("reading rows")
    splits = recipe.splits.names
    for made in made_ahead(RowEncoder(chosen, recipe), file, recipe):
        numbers = np.bincount(made.split, minlength=len(splits))
        numbers[0] += len(made.bad)
        for number, split in enumerate(splits):
            if numbers[number]:
                facts.add_rows(split, InputRows(file.path, "rows", int(numbers[number]), 0))
            for column, counts in made.texts.items():
                of_split = counts[made.split == number].sum(axis=0)
                facts.add_texts(split, column, TextCounts(*of_split.tolist()))
            if made.classes is not None and not recipe.image_column:  # of images, some are not written
                facts.add_classes(split, Counter(made.classes[made.split == number].tolist()))
        for bad in made.bad:
            facts.reject(splits[0], bad.reject(file.path))
        yield made


def made_ahead(make: Callable[[RowBatch], Made], file: RowsFile, recipe: RowsRecipe) -> Iterator[Made]:
    """Yield the results of batches in their order; threads make them, as Arrow's work needs no interpreter."""
    cores = usable_cores()
    with ThreadPoolExecutor(cores) as pool:
        yield from look_ahead(make, read_rows(file, recipe.reading), pool, cores)


Units = tuple[int, bytes]
"""Index of a class, and int64 [N, 2]: position of a row, and 1; see `class_borders`."""
BUCKETS = 64
"""Buckets of names, in which rows meet their files."""


def read_image_rows(file: RowsFile, facts: FactsBuilder, chosen: ChosenSchema, recipe: RowsRecipe) -> Iterator[Keyed]:
    """Yield (bucket of names, packed Block of image rows) of a file, or (range, packed Block) of rows that have the
    bytes of their images."""
    number = 0
    for made in made_rows(file, chosen, recipe, facts):
        if recipe.holds_files:
            for places in _pieces(made):
                block = file_block(made, places, number, file, chosen, recipe)
                yield from pack_parts(block, ranges_of(hash_images(block.image_id, recipe.seed), RANGE_BITS))
                number += 1
        elif made.names:
            block = image_block(made, np.arange(len(made.names)), file, chosen, recipe)
            yield from pack_parts(block, assign_buckets(made.names, "path", BUCKETS))


def image_block(made: MadeRows, rows: np.ndarray, file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe) -> Block:
    """Return some rows of a batch as images."""
    labels = []
    class_names = [category.name for category in chosen.labels.categories]
    for row in rows.tolist():
        class_name = None if made.classes is None else class_names[made.classes[row]]
        line = int(made.lines[row])
        record = TableRow(made.records[row].as_py(), line, f"{file.path} row {line}: column {recipe.image_column}")
        labels.append(ImageLabels(class_name=class_name, row=record))
    return Block(
        image_id=np.array([name_id(made.identities[row].decode()) for row in rows.tolist()], np.int64),
        file_name=ragged_texts([made.names[row] for row in rows.tolist()]),
        image_size_px=np.zeros((len(labels), 2), np.int64),
        split=made.split[rows],
        labels=label_column(labels),
    )


def _pieces(made: MadeRows) -> Iterator[np.ndarray]:
    """Yield rows of one split whose images are kept in one file: int64."""
    for split in np.unique(made.split):
        rows = np.flatnonzero(made.split == split)
        sizes = np.cumsum([len(made.files[row]) for row in rows.tolist()])
        yield from np.split(rows, np.flatnonzero(np.diff(sizes // KEPT_BYTES)) + 1)


def file_block(
    made: MadeRows, rows: np.ndarray, number: int, file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe
) -> Block:
    """Return rows as images, whose images are in a file of the state folder of their split. A dry run writes none.

    Args:
        number: of the run of rows in their file.
    """
    block, files = image_block(made, rows, file, chosen, recipe), [made.files[row] for row in rows.tolist()]
    split = recipe.splits.names[int(made.split[rows[0]])]
    path = join_path(recipe.output, f"{state_folder(split)}/images-{file.number:05d}-{number:05d}")
    return block.replace(
        file_folder=ragged_texts([path] * len(rows)),
        file_bytes=np.array(list(map(len, files)), np.int64),
        file_offset=keep_files(path, files) if recipe.output else None,
        file_version=ragged_texts([""] * len(rows)),
    )


def stratify_rows(
    files: PCollection[RowsFile],
    chosen: PCollection[ChosenSchema],
    recipe: RowsRecipe,
    listed: PCollection[Keyed] | None = None,
) -> PCollection[ChosenSchema]:
    """Return one ChosenSchema with the borders of classes.

    Args:
        chosen: one ChosenSchema.
        listed: (bucket of names, packed Block) of image files, without which rows are not counted; None if rows name
            no files.
    """
    place, spread = beam.FlatMap(_placed, AsSingleton(chosen), recipe), files | "SpreadToDivide" >> beam.Reshuffle()
    if listed is None:
        units = spread | "PlaceInClass" >> place.with_output_types(Units)
    else:
        named = spread | "PlaceInClass" >> place.with_output_types(Keyed)
        with collect_facts():  # those of ReadImageRows, which matches the same rows again
            matched = (named, listed) | "MatchPlaced" >> MatchRows("path", None, 0, RANGE_BITS)
        units = matched | "UnitsOfFound" >> beam.FlatMap(_found).with_output_types(Units)
    units = AsDict(units | "GroupByClass" >> beam.GroupByKey())
    return chosen | "DivideClasses" >> beam.Map(_with_borders, units, recipe.splits.shares)


def _placed(file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe) -> Iterator[Any]:
    """Yield units of rows; or, if rows name files, (bucket of names, packed Block), with positions as ids."""
    progress.set_step("dividing classes")
    for made in made_ahead(RowEncoder(chosen, recipe), file, recipe):
        positions = np.asarray(made.positions, np.int64)
        if not recipe.images:
            yield from _units(positions, made.strata)
        elif made.names:
            strata = ragged_texts(list(map(str, made.strata.tolist())))
            block = Block(image_id=positions, file_name=ragged_texts(made.names), class_name=strata)
            yield from pack_parts(block, assign_buckets(made.names, "path", BUCKETS))


def _found(keyed: Keyed) -> Iterator[Units]:
    """Yield units of the rows whose files can be read."""
    block = unpack_block(keyed[1])
    block = block.take(block.state == FileState.FOUND)
    yield from _units(block.image_id, np.array(block.class_name.texts(), np.int64))


def _units(positions: np.ndarray, strata: np.ndarray) -> Iterator[Units]:
    for index in np.unique(strata).tolist():
        of_class = positions[strata == index]
        yield index, np.stack([of_class, np.ones_like(of_class)], axis=1).tobytes()


def _with_borders(chosen: ChosenSchema, units: Mapping[int, Iterable[bytes]], shares: SplitShares) -> ChosenSchema:
    names = {ALL_ROWS: ""} | {index: category.name for index, category in enumerate(chosen.labels.categories)}
    arrays = {index: np.frombuffer(b"".join(of_class), np.int64) for index, of_class in units.items()}
    return chosen._replace(borders={index: class_borders(names[index], of, shares) for index, of in arrays.items()})
