"""Rows of BigQuery become Parquet files in a bucket, before the job begins: by BigQuery's own export, which Beam's
ReadFromBigQuery uses, too. See docs/decisions/0022-bigquery-exports-first.md.

An export is kept and serves again while its tables are as they were: its folder is called by their versions.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import msgspec

from recordmill.pipelines.options.table_options import TableOptions
from recordmill.schemas.errors import ConfigError, JobError
from recordmill.schemas.recipes import InputFile
from recordmill.transforms.storage.gcs_client import CREDENTIALS_CURE, find_credentials, words_of
from recordmill.transforms.storage.resolve import storage_for

if TYPE_CHECKING:
    from google.cloud.bigquery import Client, Table

_POLL_S = 2.0
_DONE = "export.json"
_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)


class Export(NamedTuple):
    """Rows of BigQuery, in files.

    Attributes:
        paths: of the files.
        inputs: the tables that the rows are of, with their versions.
    """

    paths: tuple[str, ...]
    inputs: tuple[InputFile, ...]


def export_rows(options: TableOptions, say: Callable[[str], Any]) -> Export:
    """The rows that the options ask BigQuery for.

    Args:
        say: is told of an export that begins, which may take minutes.

    Raises:
        ConfigError: there are no credentials, no such table, or no right to it; the query is none.
        JobError: the export fails, or a table changes meanwhile.
    """
    what = f"--bigquery {options.bigquery}" if options.bigquery else "--query"
    with _translated(what):
        client = _client(options.bigquery_table)
        tables = _tables(client, options)
        inputs = tuple(map(_input, tables))
        key = msgspec.json.encode((options.bigquery, options.query, inputs))
        storage = storage_for(options.export or "")
        folder = storage.join(options.export or "", sha256(key).hexdigest()[:16])
        done = storage.join(folder, _DONE)
        if storage.size(done) is None:
            say(f"BigQuery exports the rows of {what} into {folder}")
            paths = _export(client, options, tables, folder)
            changed = [
                old for old, new in zip(inputs, map(_input, _tables(client, options)), strict=True) if old != new
            ]
            if changed:
                raise JobError(f"{changed[0].path} was changed while BigQuery exported its rows; run again")
            storage.write(done, msgspec.json.encode(paths))
        paths = msgspec.json.decode(storage.read(done), type=tuple[str, ...])
    if gone := [path for path in paths if storage.size(path) is None]:
        raise ConfigError(f"{gone[0]} of an earlier export is gone; delete {folder}, so that BigQuery exports again")
    return Export(paths, inputs)


def _tables(client: "Client", options: TableOptions) -> list["Table"]:
    """The tables that rows come from, in the order of their names."""
    from google.cloud.bigquery import QueryJobConfig

    if options.bigquery:
        table = client.get_table(options.bigquery_table)
        if table.table_type != "TABLE":
            raise ConfigError(
                f"--bigquery {options.bigquery} is a {table.table_type.lower()}, which is exported by a query only: "
                f"--query 'SELECT * FROM `{options.bigquery_table}`'"
            )
        return [table]
    plan = client.query(options.query or "", QueryJobConfig(dry_run=True, use_query_cache=False))
    return [client.get_table(table) for table in sorted(plan.referenced_tables, key=str)]


def _input(table: "Table") -> InputFile:
    return InputFile("rows", f"bigquery:{table.reference}", table.num_bytes or 0, table.etag or "")


def _export(client: "Client", options: TableOptions, tables: list["Table"], folder: str) -> tuple[str, ...]:
    """Paths of the files that BigQuery writes: into a folder of their own, as an export that was broken off may have
    left some, or be at work still."""
    from google.cloud.bigquery import ExtractJobConfig

    source: Any = tables[0] if options.bigquery else _finished(client.query(options.query or "")).destination
    storage = storage_for(folder)
    own = storage.join(folder, uuid4().hex)
    config = ExtractJobConfig(destination_format="PARQUET", compression="SNAPPY")
    place = tables[0].location if tables else None
    job = _finished(
        client.extract_table(source, storage.join(own, "rows-*.parquet"), job_config=config, location=place)
    )
    paths = tuple(sorted(storage.join(own, name) for name in storage.names(own)))
    written = sum(job.destination_uri_file_counts)
    if len(paths) != written:
        raise JobError(f"BigQuery says that it wrote {written:,} files, and {own} has {len(paths):,}; run again")
    return paths


def _finished(job: Any) -> Any:
    while job.state != "DONE":
        time.sleep(_POLL_S)
        job.reload()
    if job.error_result:
        raise JobError(f"BigQuery's job {job.job_id} failed: {job.error_result.get('message', job.error_result)}")
    return job


def _client(table: str) -> "Client":
    """Jobs run in the project of the credentials or the environment, or else in that of the table."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud.bigquery import Client

    if os.environ.get("BIGQUERY_EMULATOR_HOST"):
        return Client(os.environ.get("GOOGLE_CLOUD_PROJECT", "none"), AnonymousCredentials())
    credentials, project = find_credentials(_SCOPES, "BigQuery")
    project = os.environ.get("GOOGLE_CLOUD_PROJECT") or project or ".".join(table.split(".")[:-2])
    if not project:
        raise ConfigError("--query: in which project? Set GOOGLE_CLOUD_PROJECT, which pays for it")
    return Client(project, credentials)


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Errors of the client in words that help."""
    from google.api_core.exceptions import ClientError, GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError

    try:
        yield
    except ClientError as error:  # 400: a query that is none; 403, 404
        raise ConfigError(f"{what}: BigQuery says: {words_of(error)}") from error
    except GoogleAPICallError as error:
        raise JobError(f"{what}: BigQuery says: {words_of(error)}; run again") from error
    except GoogleAuthError as error:
        raise ConfigError(f"{what}: the credentials are of no use ({words_of(error)}); {CREDENTIALS_CURE}") from error
