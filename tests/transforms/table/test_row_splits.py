"""The splits that a column names."""

from pathlib import Path

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.tables import RowsFile
from recordmill.transforms.table.row_splits import named_splits


def named(tmp_path: Path, *files: list[str], column: str = "set") -> tuple[str, ...]:
    paths = [tmp_path / f"{number}.csv" for number in range(len(files))]
    for path, values in zip(paths, files, strict=True):
        path.write_text("".join(f"{value},1\n" for value in ["set", *values]))
    return named_splits([RowsFile(number, str(path), 1, "") for number, path in enumerate(paths)], column, "utf-8")


def test_they_are_those_of_all_files(tmp_path):
    assert named(tmp_path, ["val", "Train ", ""], ["test", "train"]) == ("test", "train", "val")


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ([list(map(str, range(200_000)))], "has more than 20 values, or a very long one; is it the column of splits"),
        ([list(map(str, range(15))), list(map(str, range(15, 30)))], "has more than 20 values"),
        ([["train", "x" * 2000]], "has more than 20 values, or a very long one"),
        ([["", ""]], "names no split in any row"),
        ([["train", "a b"]], "a split cannot be called 'a b'"),
    ],
)
def test_what_is_no_column_of_splits(tmp_path, files, fault):
    with pytest.raises(ConfigError, match=fault):
        named(tmp_path, *files)
    with pytest.raises(ConfigError, match=r"0[.]csv has no column 'x'"):
        named(tmp_path, *files, column="x")
