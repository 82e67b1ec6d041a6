"""A local command's Beam comes without clients of services; whoever wants one later has it."""

import subprocess
import sys

import pytest

from recordmill.launch.light_beam import is_local

IMPORT = """
import sys
from recordmill.launch.cli import command
sys.argv = ["recordmill", "--help"]
try:
    command()
except SystemExit:
    pass
import apache_beam
apache_beam.io.WriteToTFRecord("name")
clients = "apache_beam.io.gcp.bigquery", "apitools", "google.cloud.dataflow", "pyarrow", "pymongo", "pyparsing"
print(sorted(set(clients) & set(sys.modules)))
import apache_beam.io.gcp.gcsfilesystem
import google.cloud.dataflow
import pyarrow.parquet
from apache_beam.internal.http_client import get_new_http
get_new_http().close()
from apache_beam.transforms.external import yaml
print(yaml.safe_load("[1, 2]"))
"""


def test_clients_are_imported_when_they_are_wanted():
    ended = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
    assert ended.stderr == ""  # Beam has not warned
    assert ended.stdout.endswith("\n[]\n[1, 2]\n")


FIRST_USED = """
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from recordmill.launch.light_beam import import_light_beam
import_light_beam([])
import apache_beam, httplib2, yaml
print(type(yaml).__name__, type(httplib2).__name__)
together = Barrier(8)
def load(number):
    together.wait()
    return yaml.safe_load(str(number))
with ThreadPoolExecutor(8) as pool:
    print(list(pool.map(load, range(8))))
print(httplib2.__version__ != "", type(httplib2).__name__)
"""


def test_a_module_that_is_loaded_later_is_whole_to_all_threads_and_has_its_version():
    ended = subprocess.run([sys.executable, "-c", FIRST_USED], capture_output=True, text=True, check=True)
    assert ended.stdout == "_ModuleToLoad _ModuleToLoad\n[0, 1, 2, 3, 4, 5, 6, 7]\nTrue module\n"


@pytest.mark.parametrize(
    ("arguments", "local"),
    [
        (["coco", "--output", "/data"], True),
        (["coco", "--output", "gs://bucket/data"], False),
        (["coco", "--output=gs://bucket/data"], False),
        (["coco", "--output", "/data", "--", "--runner=FlinkRunner"], False),
    ],
)
def test_local_commands(arguments, local):
    assert is_local(arguments) is local
