"""The files of rows that paths and wild cards stand for."""

import os
from zipfile import ZipFile

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.rows.find_rows import find_rows, rows_files
from tests.gcs_stand_in import BUCKET

NAMES = ("rows-0.csv", "rows-1.csv.gz", "other.csv", "rows-x/deep.csv")


@pytest.mark.parametrize("place", ["local", "bucket"])
def test_wild_cards_stand_for_files_of_one_folder(tmp_path, gcs, place):
    for name in NAMES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"a\n")
        gcs.put(f"in/{name}", b"a\n")
    folder = str(tmp_path) if place == "local" else f"gs://{BUCKET}/in"
    assert find_rows(f"{folder}/rows-*") == (f"{folder}/rows-0.csv", f"{folder}/rows-1.csv.gz")
    assert find_rows(f"{folder}/rows-?.csv", f"{folder}/other.csv") == (f"{folder}/other.csv", f"{folder}/rows-0.csv")
    assert find_rows(f"{folder}/gone.csv") == (f"{folder}/gone.csv",), "what is not there is told with other faults"
    with pytest.raises(ConfigError, match="no file matches"):
        find_rows(f"{folder}/*.tsv")


def test_name_with_wild_cards_in_it_is_itself(tmp_path):
    for name in ("a[1].csv", "a1.csv"):
        (tmp_path / name).write_bytes(b"a\n")
    assert find_rows(f"{tmp_path}/a[1].csv") == (f"{tmp_path}/a[1].csv",)


@pytest.mark.parametrize("place", ["local", "bucket"])
def test_brackets_beside_wild_cards_are_characters(tmp_path, gcs, place):
    names = ["a[1]-0.csv", "a[1]-x.csv", "a1-0.csv", "b[2]/c[3].csv", "b[2]/c3.csv"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
        gcs.put(f"in/{name}", b"")
    folder = str(tmp_path) if place == "local" else f"gs://{BUCKET}/in"
    assert find_rows(f"{folder}/a[1]-*.csv") == (f"{folder}/a[1]-0.csv", f"{folder}/a[1]-x.csv")
    assert find_rows(f"{folder}/b[2]/c[3]*") == (f"{folder}/b[2]/c[3].csv",)
    assert find_rows(f"{folder}/a[0-9]-*.csv") == (f"{folder}/a1-0.csv",), "a class, as no file has this name"
    if place == "local":
        assert find_rows(f"{folder}/?[2]/c[3]*") == (f"{folder}/b[2]/c[3].csv",)


def test_folder_with_wild_cards_in_its_name_is_itself(tmp_path):
    for name in ("a[1]*/x.csv", "a1/y.csv"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    assert find_rows(f"{tmp_path}/a[1]*/*.csv") == (f"{tmp_path}/a[1]*/x.csv",)
    assert find_rows(f"{tmp_path}/a?/*.csv") == (f"{tmp_path}/a1/y.csv",)


def test_wild_cards_of_folders_in_bucket(gcs):
    with pytest.raises(ConfigError, match="only the file's name may have"):
        find_rows(f"gs://{BUCKET}/*/deep.csv")


@pytest.mark.parametrize(
    ("folders", "columns"),
    [
        (["year=2026/month=01", "year=-3/month=12"], [{"year": 2026, "month": 1}, {"year": -3, "month": 12}]),
        (["kind=1", "kind=01a"], [{"kind": "1"}, {"kind": "01a"}]),
        (["kind=__HIVE_DEFAULT_PARTITION__", "kind=2"], [{"kind": None}, {"kind": 2}]),
        (["hot%20dog=a%3Db=c", "k=%ff"], [{"hot dog": "a=b=c"}, {"k": "%ff"}]),
        (["n=9223372036854775808", "n=1"], [{"n": "9223372036854775808"}, {"n": "1"}]),
        (["k=1.5/k=2", "=1", "plain"], [{"k": "1.5"}, {}, {}]),
    ],
)
def test_columns_in_names_of_folders(tmp_path, folders, columns):
    paths = [f"{tmp_path}/{number}/{folder}/a=b.csv" for number, folder in enumerate(folders)]
    for path in paths:
        os.makedirs(os.path.dirname(path))
        open(path, "wb").close()
    assert [dict(file.partitions) for file in rows_files(paths)] == columns


@pytest.mark.parametrize("name", ["set.zip", "other.zip"])
def test_rows_of_an_archive_are_those_of_its_folder(tmp_path, name):
    with ZipFile(tmp_path / name, "w") as file:
        for member in "set/train/a.csv", "set/b.jsonl", "set/notes.txt", "__MACOSX/set/._b.jsonl":
            file.writestr(member, "")
    path = f"{tmp_path}/{name}/set"
    assert find_rows(path) == (f"{path}/b.jsonl", f"{path}/train/a.csv")
