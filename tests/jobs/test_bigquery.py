"""`recordmill table --bigquery` and `--query`, as a user runs them: against stand-ins of BigQuery and of buckets."""

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.launch.preflight import export_bigquery
from recordmill.launch.preflight.export_bigquery import export_rows
from recordmill.pipelines.options.table_options import TableOptions
from recordmill.schemas.errors import ConfigError, JobError
from recordmill.schemas.recipes import InputFile
from recordmill.transforms.storage.resolve import storage_for
from tests.bigquery_stand_in import BigQueryStandIn, Table, running
from tests.conftest import manifest_of, shard_bytes
from tests.gcs_stand_in import running as running_gcs

ROWS = pa.table({"id": [1, 2, 3, 4, 5], "kind": ["cat", "dog", None, "dog", "emu"], "size": [0.5, 1, 2, 3, 4]})
EXPORT = "gs://bucket/exports"


@pytest.fixture
def bigquery(monkeypatch) -> Iterator[BigQueryStandIn]:
    monkeypatch.setattr(export_bigquery, "_POLL_S", 0.001)
    with running_gcs() as gcs, running(gcs) as stand_in:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.url)
        monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", stand_in.url)
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "project")
        stand_in.tables["p.d.t"] = Table(ROWS)
        yield stand_in


def options(**more) -> TableOptions:
    return TableOptions(**{"bigquery": "p:d.t", "export": EXPORT, "output": "out"} | more)


def export(**more):
    return export_rows(options(**more), lambda text: None)


def test_rows_of_a_table_are_those_of_a_file(bigquery, tmp_path, recordmill):
    """And stay so where the command is given again; after the table has changed, it is another command."""
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    assert recordmill("table", "--rows", tmp_path / "rows.parquet", "--output", tmp_path / "file").code == 0
    flags = ["table", "--bigquery", "p:d.t", "--export", EXPORT, "--output", tmp_path / "out"]
    outcome = recordmill(*flags)
    assert outcome.code == 0, outcome
    assert "BigQuery exports the rows of --bigquery p:d.t into gs://bucket/exports/" in outcome.out
    assert shard_bytes(tmp_path / "out") == shard_bytes(tmp_path / "file")
    recipe = manifest_of(tmp_path / "out")["splits"]["train"]["recipe"]
    assert [(file["path"], file["crc32c"]) for file in recipe["inputs"]] == [("bigquery:p.d.t", "e1")]
    assert "holds the whole split already" in recordmill(*flags).out
    assert bigquery.exports() == ["p.d.t"]
    bigquery.tables["p.d.t"].version = 2
    changed = recordmill(*flags)
    assert changed.code == 2
    assert "bigquery:p.d.t" in changed.err


def test_rows_of_a_query(bigquery):
    """Its version is that of all tables that it reads."""
    bigquery.tables["p.d.u"] = Table(ROWS)
    bigquery.queries["SELECT id"] = (["p.d.u", "p.d.t"], ROWS.select(["id"]))
    asked = {"bigquery": None, "query": "SELECT id"}
    first = export(**asked)
    assert [(file.path, file.crc32c) for file in first.inputs] == [("bigquery:p.d.t", "e1"), ("bigquery:p.d.u", "e1")]
    found = [pq.read_table(pa.BufferReader(_object(bigquery, path))) for path in first.paths]
    assert pa.concat_tables(found).equals(ROWS.select(["id"]))
    assert export(**asked) == first
    bigquery.tables["p.d.u"].version = 2
    assert not set(export(**asked).paths) & set(first.paths)
    assert len(bigquery.exports()) == 2
    with pytest.raises(ConfigError, match="--query: BigQuery says: Syntax error: SELEKT"):
        export(**asked | {"query": "SELEKT"})


def _object(bigquery: BigQueryStandIn, path: str) -> bytes:
    return bigquery.gcs.objects()[path.removeprefix("gs://bucket/")]


def test_what_an_export_that_was_broken_off_has_left_is_not_taken_for_rows(bigquery):
    bigquery.fault = "quota"
    with pytest.raises(JobError, match="failed: quota"):
        export()
    (folder,) = {uri for job in bigquery.jobs for uri in job["configuration"]["extract"]["destinationUris"]}
    bigquery.gcs.put(folder.removeprefix("gs://bucket/").replace("*", "0"), b"half a file")
    bigquery.fault = ""
    found = export()
    assert len(found.paths) == 3
    assert not any(path.startswith(folder.removesuffix("rows-*.parquet")) for path in found.paths)


def test_a_table_that_changes_meanwhile_is_no_export(bigquery):
    table = bigquery.tables["p.d.t"]
    bigquery.exporting = lambda: setattr(table, "version", table.version + 1)
    with pytest.raises(JobError, match=r"bigquery:p[.]d[.]t was changed while BigQuery exported its rows"):
        export()
    bigquery.exporting = lambda: None
    assert export().inputs == (InputFile("rows", "bigquery:p.d.t", ROWS.nbytes, "e2"),)
    assert len(bigquery.exports()) == 2


def test_what_is_gone_is_not_left_out(bigquery):
    found = export()
    storage_for(EXPORT).delete(found.paths[0])
    with pytest.raises(ConfigError, match=r"of an earlier export is gone; delete gs://bucket/exports/\w+,"):
        export()
    bigquery.tables["p.d.t"].version = 2
    bigquery.exported = lambda: storage_for(EXPORT).delete(f"gs://bucket/{max(bigquery.gcs.objects())}")
    with pytest.raises(JobError, match=r"says that it wrote 3 files, and .* has 2"):
        export()


def test_what_there_is_not(bigquery, monkeypatch, tmp_path, recordmill):
    with pytest.raises(ConfigError, match=r"--bigquery p:d[.]x: BigQuery says: Not found: Table p[.]d[.]x"):
        export(bigquery="p:d.x")
    bigquery.tables["p.d.t"].kind = "VIEW"
    with pytest.raises(ConfigError, match=r"is a view.*--query 'SELECT \* FROM `p[.]d[.]t`'"):
        export()
    monkeypatch.delenv("BIGQUERY_EMULATOR_HOST")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    flags = ["table", "--bigquery", "p:d.t", "--export", EXPORT, "--output", tmp_path / "out"]
    refused = recordmill(*flags)
    assert refused.code == 2
    assert "there are no credentials for BigQuery" in refused.err
    assert refused.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"export": None}, "give a folder for it, --export gs://BUCKET/FOLDER"),
        ({"export": "/tmp/x"}, "give a folder for it, --export gs://BUCKET/FOLDER"),
        ({"rows": ("a.csv",)}, "--rows and --bigquery contradict each other"),
        ({"bigquery": None}, "--rows is missing"),
        ({"bigquery": None, "rows": ("a.csv",)}, "--export is of --bigquery and --query"),
        ({"bigquery": "d.t"}, "a table is PROJECT:DATASET.TABLE"),
    ],
)
def test_what_contradicts_itself(more, fault):
    with pytest.raises(ConfigError, match=fault):
        options(**more)


@pytest.mark.parametrize(
    ("given", "table"), [("p-1:d.t", "p-1.d.t"), ("p.d.t", "p.d.t"), ("example.com:p:d.t", "example.com:p.d.t")]
)
def test_names_of_tables(given, table):
    assert options(bigquery=given).bigquery_table == options(bigquery=table).bigquery_table == table


def test_what_is_asked_for_is_in_the_recipe():
    plain = options(bigquery=None, export=None, rows=("a.csv",)).record_options
    assert json.loads(json.dumps(options().record_options)) == plain | {"bigquery": "p:d.t"}
    assert options(bigquery=None, query="SELECT 1").record_options == plain | {"query": "SELECT 1"}
