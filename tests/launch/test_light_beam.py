"""A local command's Beam comes without clients of services; whoever wants one later has it."""

import subprocess
import sys

import pytest
from apache_beam.version import __version__ as beam_version

from recordmill.launch.light_beam import is_local

OLDER_BEAM = tuple(map(int, beam_version.split(".")[:2])) < (2, 74)

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
others = "absl", "beartype", "beartype.door", "cryptography", "dateutil.tz", "fastavro", "proto.message"
print(sorted({*clients, *others} & set(sys.modules)))
import absl.flags, apache_beam.io.avroio
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


NAMES = """
from recordmill.launch.light_beam import import_light_beam
import_light_beam([])
import apache_beam
from apache_beam.coders.avro_record import AvroRecord
from apache_beam.coders.coders import AvroGenericCoder
from apache_beam.transforms import util
print(type(apache_beam.__loader__).__name__, apache_beam.__spec__.loader is apache_beam.__loader__)
coder = AvroGenericCoder('{"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}')
print(coder.decode(coder.encode(AvroRecord({"n": 7}))).record)
print(util.Fernet(b"A" * 43 + b"=").encrypt(b"") > b"")
import fastavro
print(fastavro.__version__ > "")
"""


def test_names_that_beam_keeps_are_looked_into_when_they_are_used():
    ended = subprocess.run([sys.executable, "-c", NAMES], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("SourceFileLoader True\n{'n': 7}\nTrue\nTrue\n", "")


HINTS = """
import sys
from recordmill.launch.light_beam import import_light_beam
import_light_beam([])
import apache_beam
from apache_beam.typehints.typehints import Optional as Hint, is_consistent_with
print(is_consistent_with(apache_beam.DoFn, Hint[apache_beam.DoFn]), is_consistent_with(str, type(None)))
print("beartype" in sys.modules)
print(is_consistent_with(bool, int), is_consistent_with(int, bool), "beartype" in sys.modules)
print(is_consistent_with(int, "no hint"))
import beartype
print(beartype.__version__ > "")
"""


@pytest.mark.skipif(OLDER_BEAM, reason="this Beam does not ask beartype")
def test_types_are_told_apart_by_beartype_where_python_cannot():
    ended = subprocess.run([sys.executable, "-c", HINTS], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("True False\nFalse\nTrue False True\nFalse\nTrue\n", "")


NEWER = """
import sys
from recordmill.launch.light_beam import import_light_beam
from recordmill.launch.runners import known_beam
known_beam.NEWEST = 2, 69
import_light_beam([])
import apache_beam
print({"absl.flags", "beartype.door", "fastavro.read"} <= set(sys.modules))
"""


def test_a_beam_that_is_not_known_is_imported_whole():
    assert subprocess.run([sys.executable, "-c", NEWER], capture_output=True, text=True, check=True).stdout == "True\n"


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
