from fractions import Fraction

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.features import ColumnType
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.splits import RowSplits, SplitShares
from recordmill.schemas.inputs.tables import Column, RowsFile, RowsReading, TableSchema
from recordmill.transforms.folder.stratify import class_borders
from recordmill.transforms.table.choose_schema import ChosenSchema
from recordmill.transforms.table.make_records import RowsRecipe
from recordmill.transforms.table.read_records import StratifyRows

SHARES = SplitShares((("train", Fraction(7, 10)), ("val", Fraction(3, 10))))
COLUMNS = Column("kind", "kind", ColumnType.CLASS), Column("price", "price", ColumnType.INT64)
CHOSEN = ChosenSchema(TableSchema(COLUMNS), LabelMap((Category(0, "cat"), Category(1, "dog"), Category(2, "emu"))), ())


def test_borders_are_keys_of_good_rows_in_all_files(tmp_path):
    """Two keys are there twice, one price is bad, and no row is an emu."""
    rows = [(n % 40, ("cat", "dog")[n % 3 == 0], "x" if n == 7 else n) for n in range(42)]
    files = []
    for number in range(2):
        path = tmp_path / f"{number}.csv"
        path.write_text("id,kind,price\n" + "".join("{},{},{}\n".format(*row) for row in rows[number::2]))
        files.append(RowsFile(number, str(path), 1, ""))
    expected = {}
    for index, name in enumerate(("cat", "dog")):
        places = [SHARES.position(str(key)) for key, kind, price in rows if kind == name and price != "x"]
        expected[index] = class_borders(name, np.array([(place, 1) for place in places]), SHARES)
    recipe = RowsRecipe("", RowSplits(SHARES, SHARES.names, "id", stratified="kind"), 0, RowsReading())
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        stratify = StratifyRows(p | "Chosen" >> beam.Create([CHOSEN]), recipe)
        found = p | "Files" >> beam.Create(files) | stratify
        assert_that(found | beam.Map(lambda chosen: chosen.borders), equal_to([expected]))
