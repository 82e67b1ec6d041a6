from pathlib import Path

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.tables import RowsFile, RowsReading
from recordmill.transforms.table.make_records import list_splits


def named(tmp_path: Path, *files: list[str], column: str = "set") -> tuple[str, ...]:
    paths = [tmp_path / f"{number}.csv" for number in range(len(files))]
    for path, values in zip(paths, files, strict=True):
        path.write_text("".join(f"{value},1\n" for value in ["set", *values]))
    return list_splits([RowsFile(str(path), 1, "", number) for number, path in enumerate(paths)], column, RowsReading())


def test_they_are_those_of_all_files(tmp_path):
    assert named(tmp_path, ["val", "Train ", ""], ["test", "train"]) == ("test", "train", "val")


def test_batch_of_rows_without_column_is_no_file_without_it(tmp_path, monkeypatch):
    monkeypatch.setattr("recordmill.transforms.rows.read_rows._BATCH_ROWS", 1)
    rows, empty = tmp_path / "0.jsonl", tmp_path / "1.jsonl"
    rows.write_text('{"a": 1}\n{"set": "train"}\n')
    empty.touch()
    files = [RowsFile(str(path), 1, "", number) for number, path in enumerate((rows, empty))]
    assert list_splits(files, "set", RowsReading()) == ("train",)
    rows.write_text('{"a": 1}\n')
    with pytest.raises(ConfigError, match=r"0[.]jsonl has no column 'set'"):
        list_splits(files, "set", RowsReading())


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ([list(map(str, range(200_000)))], "has more than 20 values, or a very long one; is it the column of splits"),
        ([list(map(str, range(15))), list(map(str, range(15, 30)))], "has more than 20 values"),
        ([["train", "x" * 2000]], "has more than 20 values, or a very long one"),
        ([["", ""]], "has no value in any row"),
        ([["train", "a b"]], "a split cannot have the name 'a b'"),
    ],
)
def test_not_a_column_of_splits(tmp_path, files, fault):
    with pytest.raises(ConfigError, match=fault):
        named(tmp_path, *files)
    with pytest.raises(ConfigError, match=r"0[.]csv has no column 'x'"):
        named(tmp_path, *files, column="x")
