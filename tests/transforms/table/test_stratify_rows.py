from fractions import Fraction

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.features import ColumnType
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import MAX_FILE_BYTES
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.splits import SplitShares
from recordmill.schemas.inputs.tables import Column, RowsFile, RowsReading, TableSchema
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.folder.stratify import class_borders
from recordmill.transforms.join.list_images import files_by_name
from recordmill.transforms.table.choose_schema import ChosenSchema
from recordmill.transforms.table.make_records import ALL_ROWS
from recordmill.transforms.table.read_records import BUCKETS, stratify_rows
from recordmill.transforms.table.table_options import TableOptions
from tests.beam_pipeline import Pipeline

SHARES = SplitShares((("train", Fraction(7, 10)), ("val", Fraction(3, 10))))
COLUMNS = Column("kind", "kind", ColumnType.CLASS), Column("price", "price", ColumnType.INT64)
CHOSEN = ChosenSchema(TableSchema(COLUMNS), LabelMap((Category(0, "cat"), Category(1, "dog"), Category(2, "emu"))), ())


def job_of(files: list[RowsFile], **more) -> tuple[TableOptions, tuple[str, ...], RowsReading]:
    paths = tuple(file.path for file in files)
    options = TableOptions(data=paths, output="out", split=SHARES.shares, label="kind", **more)
    return options, SHARES.names, options.reading


def test_borders_are_keys_of_good_rows_in_all_files(tmp_path):
    """Two keys are there twice, one price is bad, and no row is an emu."""
    rows = [(n % 40, ("cat", "dog")[n % 3 == 0], "x" if n == 7 else n) for n in range(42)]
    files = []
    for number in range(2):
        path = tmp_path / f"{number}.csv"
        path.write_text("id,kind,price\n" + "".join("{},{},{}\n".format(*row) for row in rows[number::2]))
        files.append(RowsFile(str(path), 1, "", number))
    expected = {}
    for index, name in enumerate(("cat", "dog")):
        places = [SHARES.position(str(key)) for key, kind, price in rows if kind == name and price != "x"]
        expected[index] = class_borders(name, np.array([(place, 1) for place in places]), SHARES)
    job = job_of(files, key="id", stratify=True)
    with Pipeline() as p:
        chosen = p | "Chosen" >> beam.Create([CHOSEN])
        found = stratify_rows(p | "Files" >> beam.Create(files), chosen, *job)
        assert_that(found | beam.Map(lambda chosen: chosen.borders), equal_to([expected]))


@pytest.mark.parametrize("is_ranked", [False, True])
def test_rows_that_are_known_to_be_rejected_do_not_count(tmp_path, is_ranked):
    """Some images are missing or too large, some are named twice, and some rows have bad values."""
    names = [f"{n}.jpg" for n in range(300)]
    rows = [(name, ("cat", "dog")[n % 3 == 0], "x" if n % 11 == 7 else n) for n, name in enumerate(names)] * 2
    path = tmp_path / "t.csv"
    path.write_text("path,kind,price\n" + "".join("{},{},{}\n".format(*row) for row in rows))
    files = [
        (name, ImageFile(f"pics/{name}", MAX_FILE_BYTES + (n % 7 == 1))) for n, name in enumerate(names) if n % 7 > 0
    ]
    written = [(name, kind) for n, (name, kind, price) in enumerate(rows) if n % 300 % 7 > 1 and price != "x"]
    table = [RowsFile(str(path), 1, "")]
    divided = {"split_by": "rank"} if is_ranked else {"stratify": True}
    job = job_of(table, image_column="path", images=("pics",), **divided)

    def check(found: list[dict[int, tuple[int, ...]]]) -> None:
        (borders,) = found
        assert borders.keys() == ({ALL_ROWS} if is_ranked else {0, 1})
        for index, of_class in borders.items():
            positions = [SHARES.position(name) for name, kind in written if index in (ALL_ROWS, kind == "dog")]
            in_train = sum(SHARES.split_at(position, of_class) == "train" for position in positions)
            assert abs(in_train - 0.7 * len(positions)) <= 2, "an image has two rows"

    with Pipeline() as p:
        listed = p | "Listed" >> beam.Create(list(files_by_name(files, FactsBuilder(), "path", BUCKETS)))
        chosen = p | "Chosen" >> beam.Create([CHOSEN])
        found = stratify_rows(p | "Files" >> beam.Create(table), chosen, *job, listed)
        assert_that(found | beam.Map(lambda chosen: chosen.borders), check)
