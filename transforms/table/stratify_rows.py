"""Splits by class, of rows: see `recordmill.transforms.folder.stratify`."""

from collections.abc import Iterator

import apache_beam as beam
from apache_beam.pvalue import AsDict, AsSingleton, PCollection

from recordmill.schemas.splits import Division
from recordmill.schemas.tables import RowsFile
from recordmill.transforms.folder.stratify import DivideClasses
from recordmill.transforms.runtime import progress
from recordmill.transforms.table.choose_schema import ChosenSchema
from recordmill.transforms.table.make_records import RowEncoder, RowsRecipe
from recordmill.transforms.table.read_records import made_ahead


class StratifyRows(beam.PTransform):
    """Convert RowsFile and one ChosenSchema to a ChosenSchema with the borders of classes.

    Args:
        chosen: a PCollection of one ChosenSchema.
    """

    def __init__(self, chosen: PCollection, recipe: RowsRecipe):
        super().__init__()
        self._chosen = chosen
        self._recipe = recipe

    def expand(self, files: PCollection[RowsFile]) -> PCollection[ChosenSchema]:
        place = beam.FlatMap(_placed, AsSingleton(self._chosen), self._recipe).with_output_types(tuple[str, bytes])
        division = Division(self._recipe.splits.shares)
        units = files | "SpreadFiles" >> beam.Reshuffle() | "PlaceInClass" >> place
        borders = units | "DivideClasses" >> DivideClasses(division)
        return self._chosen | "Borders" >> beam.Map(_with_borders, AsDict(borders))


def _placed(file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe) -> Iterator[tuple[str, bytes]]:
    progress.set_step("dividing classes")
    # A row counts even if its picture cannot be read, which is not known yet.
    make = RowEncoder(chosen, recipe._replace(image_column=""))
    for units in made_ahead(make.class_units, file, recipe):
        for index, of_class in units.items():
            yield chosen.labels.categories[index].name, of_class.tobytes()


def _with_borders(chosen: ChosenSchema, borders: dict[str, tuple[int, ...]]) -> ChosenSchema:
    index = {category.name: number for number, category in enumerate(chosen.labels.categories)}
    return chosen._replace(borders={index[name]: of_class for name, of_class in borders.items()})
