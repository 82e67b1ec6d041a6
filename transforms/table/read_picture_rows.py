"""Rows of tables that name pictures become image rows, each with the record of its other columns."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.annotations import AnnotatedImage, ImageLabels, ImageRow, TableRow
from recordmill.schemas.images import JoinSide
from recordmill.schemas.names import name_fault
from recordmill.schemas.rejects import Reason, SplitReject
from recordmill.schemas.splits import name_id
from recordmill.schemas.tables import RowsFile
from recordmill.transforms.folder.read_labels import path_below, picture_name
from recordmill.transforms.runtime import coders, progress  # noqa: F401  coders: for the coder of JoinSide
from recordmill.transforms.runtime.outputs import REJECTED, route_outputs
from recordmill.transforms.table.choose_schema import ChosenSchema
from recordmill.transforms.table.convert_columns import Fault
from recordmill.transforms.table.make_records import RecordMaker
from recordmill.transforms.table.read_rows import read_rows
from recordmill.transforms.table.row_batch import shown
from recordmill.transforms.table.spill_rows import OF_FILE, FileCounts, OfFile, RowsRecipe


class ReadPictureRows(beam.PTransform):
    """RowsFile become (name, JoinSide) of image rows in the output `images`; further outputs are `rejected`
    (SplitReject) and `of_file` (OfFile).

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
            | "Read" >> read.with_output_types(tuple[str, JoinSide]).with_outputs(REJECTED, OF_FILE, main="images")
        )


class PictureColumn(NamedTuple):
    """The column of the paths of pictures, and the folders that these are below."""

    name: str
    folders: tuple[str, ...]


def _read(file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe, where: PictureColumn) -> Iterator[Any]:
    progress.set_step("reading rows")
    for item in picture_rows(file, chosen, recipe, where):
        if isinstance(item, OfFile):
            yield TaggedOutput(OF_FILE, item)
        elif isinstance(item, AnnotatedImage):
            yield item.image.file_name, JoinSide(item)
        else:
            yield from route_outputs([item])


def picture_rows(
    file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe, where: PictureColumn
) -> Iterator[AnnotatedImage | SplitReject | OfFile]:
    """The rows of a file, each with its split; those without a usable path are rejects; and an OfFile a split."""
    make = RecordMaker(chosen.schema, chosen.labels, recipe.splits, recipe.seed, chosen.encoders, chosen.borders)
    class_names = [category.name for category in chosen.labels.categories]
    splits = recipe.splits.names
    counts = FileCounts(splits)
    for batch in read_rows(file, recipe.read, recipe.encoding):
        paths = batch.values(where.name)
        good = make.good_rows(batch, _path_faults(paths, where))
        identities = make.identities(batch, good)
        of_rows = make.split_names(batch, good, identities)
        for number, split in enumerate(splits):
            of_split = of_rows == number
            texts = {column: counted[of_split].sum(axis=0) for column, counted in good.texts.items()}
            counts.add(split, int(of_split.sum()), {}, texts)
        counts.add(splits[0], len(good.bad), {}, {})
        for bad in good.bad:
            yield SplitReject(splits[0], bad.reject(file.path))
        classes = [None] * len(identities) if good.classes is None else [class_names[c] for c in good.classes.tolist()]
        rows = zip(good.places.tolist(), good.records, of_rows.tolist(), identities, classes, strict=True)
        for place, record, number, identity, class_name in rows:
            line = int(batch.lines[place])
            name = picture_name(paths[place], where.folders)
            row = TableRow(record.as_py(), line, f"{file.path} row {line}: column {where.name}")
            labels = ImageLabels(class_name=class_name, row=row)
            yield AnnotatedImage(ImageRow(name_id(identity.decode()), name), splits[number], labels=labels)
    yield from counts.of(file.path)


def _path_faults(paths: list[Any], where: PictureColumn) -> Iterator[Fault]:
    """Rows whose path leads to no picture."""
    for place, path in enumerate(paths):
        if path is None or path == "":
            yield Fault(place, Reason.MISSING_VALUE, f"column {where.name} has no value")
        elif not isinstance(path, str):
            yield Fault(place, Reason.OTHER_TYPE, f"column {where.name}: {shown(path)} is no path of a picture")
        elif fault := name_fault(path_below(path.strip(), where.folders)):
            yield Fault(place, Reason.UNSAFE_FILE_NAME, f"column {where.name}: the path {shown(path)} {fault}")
