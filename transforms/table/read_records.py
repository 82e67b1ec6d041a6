"""Read rows of a file as records, with their Facts."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsDict, AsSingleton, PCollection

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.dataset.dataset_files import state_folder
from recordmill.schemas.dataset.manifest import InputRows
from recordmill.schemas.inputs.annotations import ImageLabels, TableRow
from recordmill.schemas.inputs.encoders import TextCounts
from recordmill.schemas.inputs.splits import Division, name_id
from recordmill.schemas.inputs.tables import RowsFile
from recordmill.transforms.blocks.image_tasks import label_column
from recordmill.transforms.blocks.pack_block import Keyed, pack_parts, unpack_block
from recordmill.transforms.blocks.run_step import hash_images, ranges_of
from recordmill.transforms.dataset.facts import FACTS, FactsBuilder, tagged
from recordmill.transforms.folder.read_folder import RANGE_BITS
from recordmill.transforms.folder.stratify import DivideClasses, units_at
from recordmill.transforms.images.load_images import KEPT_BYTES, keep_files
from recordmill.transforms.join.match_blocks import FileState, MatchRows, name_buckets
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
        good = made.good
        numbers = np.bincount(made.split, minlength=len(splits))
        numbers[0] += len(good.bad)
        for number, split in enumerate(splits):
            if numbers[number]:
                facts.add_rows(split, InputRows(file.path, "rows", int(numbers[number]), 0))
            for column, counts in good.texts.items():
                of_split = counts[made.split == number].sum(axis=0)
                facts.add_texts(split, column, TextCounts(*of_split.tolist()))
            if good.classes is not None and not recipe.image_column:  # of pictures, some are not written
                facts.add_classes(split, Counter(good.classes[made.split == number].tolist()))
        for bad in good.bad:
            facts.reject(splits[0], bad.reject(file.path))
        yield made


def made_ahead(make: Callable[[RowBatch], Made], file: RowsFile, recipe: RowsRecipe) -> Iterator[Made]:
    """Yield the results of batches in their order; threads make them, as Arrow's work needs no interpreter."""
    cores = usable_cores()
    with ThreadPoolExecutor(cores) as pool:
        yield from look_ahead(make, read_rows(file, recipe.reading), pool, cores)


BUCKETS = 64
"""Buckets of names, in which rows meet their files."""


@dataclass(eq=False, repr=False)
class ReadPictureRows(beam.PTransform):
    """Convert RowsFile to (bucket of names, packed Block of image rows) in the output `rows`, or (range, packed Block)
    of those that have the bytes of their pictures; Facts are in the output FACTS.

    Args:
        chosen: a PCollection of one ChosenSchema.
    """

    chosen: PCollection
    recipe: RowsRecipe

    def expand(self, files: PCollection[RowsFile]):
        read = beam.FlatMap(_read, AsSingleton(self.chosen), self.recipe).with_output_types(tuple[int, bytes])
        return files | "SpreadFiles" >> beam.Reshuffle() | "Read" >> read.with_outputs(FACTS, main="rows")


def _read(file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe) -> Iterator[Any]:
    facts, number = FactsBuilder(), 0
    for made in made_rows(file, chosen, recipe, facts):
        if recipe.holds_files:
            for places in _pieces(made):
                block = file_block(made, places, number, file, chosen, recipe)
                yield from pack_parts(block, ranges_of(hash_images(block.image_id, recipe.seed), RANGE_BITS))
                number += 1
        elif made.names:
            block = picture_block(made, np.arange(len(made.names)), file, chosen, recipe)
            yield from pack_parts(block, name_buckets(made.names, "path", BUCKETS))
    yield tagged(facts)


def picture_block(made: MadeRows, rows: np.ndarray, file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe) -> Block:
    """Return some rows of a batch as images."""
    good, labels = made.good, []
    class_names = [category.name for category in chosen.labels.categories]
    for row in rows.tolist():
        class_name = None if good.classes is None else class_names[good.classes[row]]
        line = int(good.lines[row])
        record = TableRow(good.records[row].as_py(), line, f"{file.path} row {line}: column {recipe.image_column}")
        labels.append(ImageLabels(class_name=class_name, row=record))
    return Block(
        image_id=np.array([name_id(good.identities[row].decode()) for row in rows.tolist()], np.int64),
        file_name=ragged_texts([made.names[row] for row in rows.tolist()]),
        image_size_px=np.zeros((len(labels), 2), np.int64),
        split=made.split[rows],
        labels=label_column(labels),
    )


def _pieces(made: MadeRows) -> Iterator[np.ndarray]:
    """Yield rows of one split whose pictures are kept in one file: int64."""
    for split in np.unique(made.split):
        rows = np.flatnonzero(made.split == split)
        sizes = np.cumsum([len(made.files[row]) for row in rows.tolist()])
        yield from np.split(rows, np.flatnonzero(np.diff(sizes // KEPT_BYTES)) + 1)


def file_block(
    made: MadeRows, rows: np.ndarray, number: int, file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe
) -> Block:
    """Return rows as images, whose pictures are in a file of the state folder of their split. A dry run writes none.

    Args:
        number: of the run of rows in their file.
    """
    block, files = picture_block(made, rows, file, chosen, recipe), [made.files[row] for row in rows.tolist()]
    split = recipe.splits.names[int(made.split[rows[0]])]
    path = join_path(recipe.output, f"{state_folder(split)}/images-{file.number:05d}-{number:05d}")
    return block.having(
        file_folder=ragged_texts([path] * len(rows)),
        file_bytes=np.array(list(map(len, files)), np.int64),
        file_offset=keep_files(path, files) if recipe.output else None,
        file_version=ragged_texts([""] * len(rows)),
    )


@dataclass(eq=False, repr=False)
class StratifyRows(beam.PTransform):
    """Convert RowsFile and one ChosenSchema to a ChosenSchema with the borders of classes.

    Args:
        chosen: a PCollection of one ChosenSchema.
        listed: (bucket of names, packed Block) of image files, without which rows are not counted; None if rows name
            no files.
    """

    chosen: PCollection
    recipe: RowsRecipe
    listed: PCollection | None = None

    def expand(self, files: PCollection[RowsFile]) -> PCollection[ChosenSchema]:
        place = beam.FlatMap(_placed, AsSingleton(self.chosen), self.recipe)
        division = Division(self.recipe.splits.shares)
        spread = files | "SpreadFiles" >> beam.Reshuffle()
        if self.listed is None:
            units = spread | "PlaceInClass" >> place.with_output_types(tuple[str, bytes])
        else:
            named = spread | "PlaceInClass" >> place.with_output_types(Keyed)
            matched = (named, self.listed) | "MatchNames" >> MatchRows("path", None, 0, RANGE_BITS)
            units = matched.rows | "UnitsOfFound" >> beam.FlatMap(_found).with_output_types(tuple[str, bytes])
        borders = units | "DivideClasses" >> DivideClasses(division)
        return self.chosen | "Borders" >> beam.Map(_with_borders, AsDict(borders))


def _placed(file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe) -> Iterator[Any]:
    """Yield class and Units of rows; or, if rows name files, (bucket of names, packed Block), with positions as ids."""
    progress.set_step("dividing classes")
    names = {ALL_ROWS: ""} | {index: category.name for index, category in enumerate(chosen.labels.categories)}
    for placed in made_ahead(RowEncoder(chosen, recipe).placed_rows, file, recipe):
        if recipe.images and placed.names:
            block = Block(
                image_id=placed.positions,
                file_name=ragged_texts(placed.names),
                class_name=ragged_texts([names[index] for index in placed.classes.tolist()]),
            )
            yield from pack_parts(block, name_buckets(placed.names, "path", BUCKETS))
        elif not recipe.images:
            for index in np.unique(placed.classes).tolist():
                yield names[index], units_at(placed.positions[placed.classes == index])


def _found(keyed: Keyed) -> Iterator[tuple[str, bytes]]:
    """Yield class and Units of the rows whose files can be read."""
    block = unpack_block(keyed[1])
    block = block.take(block.state == FileState.FOUND)
    classes = np.array(block.class_name.texts(), object)
    for name in sorted(set(classes.tolist())):
        yield name, units_at(block.image_id[classes == name])


def _with_borders(chosen: ChosenSchema, borders: dict[str, tuple[int, ...]]) -> ChosenSchema:
    index = {"": ALL_ROWS} | {category.name: number for number, category in enumerate(chosen.labels.categories)}
    return chosen._replace(borders={index[name]: of_class for name, of_class in borders.items()})
