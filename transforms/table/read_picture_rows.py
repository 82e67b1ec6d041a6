"""Rows of tables that name pictures become image rows, each with the record of its other columns."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.annotations import AnnotatedImage, ImageLabels, ImageRow, TableRow
from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.names import name_fault
from recordmill.schemas.rejects import Reason
from recordmill.schemas.splits import name_id
from recordmill.schemas.tables import RowsFile
from recordmill.transforms.blocks.image_tasks import label_column
from recordmill.transforms.blocks.pack_block import pack_parts
from recordmill.transforms.dataset.facts import FACTS, FactsBuilder, tagged
from recordmill.transforms.folder.read_labels import path_below, picture_name
from recordmill.transforms.join.match_blocks import name_buckets
from recordmill.transforms.runtime import progress
from recordmill.transforms.table.choose_schema import ChosenSchema
from recordmill.transforms.table.convert_columns import Fault
from recordmill.transforms.table.make_records import RecordMaker
from recordmill.transforms.table.read_rows import read_rows
from recordmill.transforms.table.row_batch import shown
from recordmill.transforms.table.spill_rows import RowsRecipe

BUCKETS = 64
"""Of names, in which rows meet their files."""
_ROWS_AT_ONCE = 1000


class ReadPictureRows(beam.PTransform):
    """Convert RowsFile to (bucket of names, packed Block of image rows) in the output `rows`.

    Facts are in the output `facts`.

    Args:
        chosen: a PCollection of one ChosenSchema.
        column: of the paths of pictures.
        folders: that these are below.
    """

    def __init__(self, chosen: PCollection, recipe: RowsRecipe, column: str, folders: tuple[str, ...]):
        super().__init__()
        self._chosen = chosen
        self._recipe = recipe
        self._where = PictureColumn(column, folders)

    def expand(self, files: PCollection[RowsFile]):
        read = beam.FlatMap(_read, AsSingleton(self._chosen), self._recipe, self._where)
        return (
            files
            | "SpreadFiles" >> beam.Reshuffle()
            | "Read" >> read.with_output_types(tuple[int, bytes]).with_outputs(FACTS, main="rows")
        )


class PictureColumn(NamedTuple):
    """The column of the paths of pictures, and the folders that these are below."""

    name: str
    folders: tuple[str, ...]


def _read(file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe, where: PictureColumn) -> Iterator[Any]:
    progress.set_step("reading rows")
    facts = FactsBuilder()
    found = picture_rows(file, chosen, recipe, where, facts)
    while rows := list(islice(found, _ROWS_AT_ONCE)):
        yield from _packed(rows, recipe.splits.names)
    yield tagged(facts)


def _packed(rows: list[AnnotatedImage], splits: tuple[str, ...]) -> Iterator[tuple[int, bytes]]:
    names = [row.image.file_name for row in rows]
    block = Block(
        image_id=np.array([row.image.id for row in rows], np.int64),
        file_name=ragged_texts(names),
        image_size_px=np.zeros((len(rows), 2), np.int64),
        split=np.array([splits.index(row.split) for row in rows], np.int64),
        labels=label_column([row.labels for row in rows]),
    )
    return pack_parts(block, name_buckets(names, "path", BUCKETS))


def picture_rows(
    file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe, where: PictureColumn, facts: FactsBuilder
) -> Iterator[AnnotatedImage]:
    """Yield the rows of a file, each with its split; those without a usable path are rejects."""
    make = RecordMaker(chosen.schema, chosen.labels, recipe.splits, recipe.seed, chosen.encoders, chosen.borders)
    class_names = [category.name for category in chosen.labels.categories]
    splits = recipe.splits.names
    for batch in read_rows(file, recipe.read, recipe.encoding):
        paths = batch.values(where.name)
        good = make.good_rows(batch, _path_faults(paths, where))
        identities = make.identities(batch, good)
        of_rows = make.split_names(batch, good, identities)
        for number, split in enumerate(splits):
            of_split = of_rows == number
            texts = {column: counted[of_split].sum(axis=0) for column, counted in good.texts.items()}
            facts.add_file_rows(split, file.path, int(of_split.sum()), texts)
        facts.add_file_rows(splits[0], file.path, len(good.bad), {})
        for bad in good.bad:
            facts.reject(splits[0], bad.reject(file.path))
        classes = [None] * len(identities) if good.classes is None else [class_names[c] for c in good.classes.tolist()]
        rows = zip(good.places.tolist(), good.records, of_rows.tolist(), identities, classes, strict=True)
        for place, record, number, identity, class_name in rows:
            line = int(batch.lines[place])
            name = picture_name(paths[place], where.folders)
            row = TableRow(record.as_py(), line, f"{file.path} row {line}: column {where.name}")
            labels = ImageLabels(class_name=class_name, row=row)
            yield AnnotatedImage(ImageRow(name_id(identity.decode()), name), splits[number], labels=labels)


def _path_faults(paths: list[Any], where: PictureColumn) -> Iterator[Fault]:
    """Rows whose path leads to no picture."""
    for place, path in enumerate(paths):
        if path is None or path == "":
            yield Fault(place, Reason.MISSING_VALUE, f"column {where.name} has no value")
        elif not isinstance(path, str):
            yield Fault(place, Reason.OTHER_TYPE, f"column {where.name}: {shown(path)} is no path of a picture")
        elif fault := name_fault(path_below(path.strip(), where.folders)):
            yield Fault(place, Reason.UNSAFE_FILE_NAME, f"column {where.name}: the path {shown(path)} {fault}")
