import apache_beam as beam
import numpy as np
import pytest
from apache_beam.pvalue import AsSingleton
from apache_beam.testing.util import assert_that

from recordmill.schemas.errors import EndedElsewhereError
from recordmill.schemas.features import ColumnType
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.tables import Column, RowsFile, TableSchema
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.rows import read_rows
from recordmill.transforms.table import spill_rows
from recordmill.transforms.table.choose_schema import ChosenSchema
from recordmill.transforms.table.spill_rows import RANGES, read_piece, spill_file, spill_path
from recordmill.transforms.table.table_options import TableOptions
from tests.beam_pipeline import Pipeline
from tests.transforms.dataset.kinds import applied
from tests.transforms.table.spills import VALUES, records, spills


def test_records_of_one_order_are_ordered_by_their_bytes():
    one = records([b"c", b"a", b"\xff", b"b", b"z"], [7, 7, 7, 7, 1 << 62])
    assert one.to_pydict() == {
        "order": [7, 7, 7, 7, 1 << 62],
        "line": [2, 4, 1, 3, 5],
        "record": [b"a", b"b", b"c", b"\xff", b"z"],
    }


def test_digest_is_of_records_and_orders(tmp_path):
    one, other, moved = spills(tmp_path, VALUES[:9], VALUES[:10], VALUES[:9])
    again = spills("", VALUES[:9])
    assert one.digest == moved.digest == again[0].digest != other.digest


def test_file_that_was_cut_is_no_end_of_records(tmp_path):
    (made,) = spills(tmp_path, VALUES)
    path = spill_path(str(tmp_path), made.split, made.name)
    with open(path, "r+b") as file:
        file.truncate(file.seek(0, 2) - 1)
    with pytest.raises(OSError, match="cut short"):
        read_piece(path, made.piece(0, RANGES))
    assert len(read_piece(path, made.piece(0, 1))) == int(np.frombuffer(made.rows_before, np.int64)[1])


def test_each_part_of_a_large_file_has_its_own_spill(tmp_path, monkeypatch):
    """The third batch does not replace the first two."""
    monkeypatch.setattr(spill_rows, "_SPILL_BYTES", 1)
    monkeypatch.setattr(read_rows, "_BATCH_ROWS", 4)
    path = tmp_path / "r.jsonl"
    path.write_text("".join(f'{{"n": {number}}}\n' for number in range(10)))
    options = TableOptions(data=(str(path),), output=str(tmp_path))
    schema = TableSchema((Column("n", "n", ColumnType.INT64),))
    file = RowsFile(str(path), path.stat().st_size, "")

    def check(spills):
        names = [spill.name for spill in spills]
        assert sorted(names) == ["rows-00000-00000", "rows-00000-00001", "rows-00000-00002"]
        pieces = [read_piece(spill_path(str(tmp_path), "train", of.name), of.piece(0, RANGES)) for of in spills]
        assert sorted(line for piece in pieces for line in piece["line"].to_pylist()) == list(range(1, 11))

    with Pipeline() as p:
        chosen = p | "Chosen" >> beam.Create([ChosenSchema(schema, LabelMap(()), ())])
        spill = WithFacts(spill_file, AsSingleton(chosen), options, ("train",), options.reading)
        spills, _ = applied(p | beam.Create([file]), spill)
        assert_that(spills, check)


def test_another_run_is_done_and_has_deleted_rows(tmp_path):
    """The files that this run wrote since are removed."""
    first, _ = spills(tmp_path, VALUES, VALUES[:1])
    state = tmp_path / ".recordmill-train"
    (state / "rows-00000-00000").unlink()
    with pytest.raises(EndedElsewhereError, match=rf"{state}/rows-00000-00000 is gone, with rows .* Run again"):
        read_piece(f"{state}/rows-00000-00000", first.piece(0, RANGES))
    assert not state.exists()
