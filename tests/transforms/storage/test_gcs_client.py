import os
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.storage import gcs_client
from recordmill.transforms.storage.gcs_storage import GcsStorage
from recordmill.transforms.storage.interface import Storage
from tests.gcs_stand_in import Fault, Kind, running
from tests.transforms.storage.conftest import path_of

STORAGE: Storage = GcsStorage()
ALWAYS = float("inf")
BYTES = bytes(range(256)) * 400


# Paths


@pytest.mark.parametrize("path", ["gs://", "gs:///a", "gs://Bucket/a", "gs://a b/c", "s3://bucket/a", "a/b"])
def test_invalid_paths_of_buckets(gcs, path):
    with pytest.raises(ConfigError, match="is not a Cloud Storage path"):
        STORAGE.read(path)


# One client


def test_threads_share_one_client_and_its_connections(gcs):
    paths = [path_of(str(number)) for number in range(32)]
    for number in range(32):
        gcs.put(str(number), b"%d" % number)
    gcs.connections = 0
    gcs.latency_s = 0.2
    with ThreadPoolExecutor(32) as pool:
        for _ in range(4):  # between which all connections are idle at once
            assert list(pool.map(STORAGE.read, paths)) == [b"%d" % number for number in range(32)]
    assert 16 < gcs.connections <= 32
    assert len(gcs.log) == 128


def test_each_server_has_client(gcs, monkeypatch):
    gcs.put("a", b"here")
    with running() as another:
        another.put("a", b"there")
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", another.url)
        assert STORAGE.read(path_of("a")) == b"there"
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.url)
        assert STORAGE.read(path_of("a")) == b"here"


def test_threads_make_one_client(gcs, monkeypatch):
    made = []
    make = gcs_client._connect

    def make_slowly(emulator: str):
        made.append(emulator)
        time.sleep(0.05)
        return make(emulator)

    monkeypatch.setattr(gcs_client, "_CONNECTIONS", {})
    monkeypatch.setattr(gcs_client, "_connect", make_slowly)
    threads = [threading.Thread(target=STORAGE.names, args=(path_of(""),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [gcs.url]
    assert {call.operation for call in gcs.log} == {"list"}  # no metadata of the bucket


def test_copied_process_has_client(gcs, monkeypatch):
    """A forked process opens another connection, because two processes on one connection mix their requests."""
    monkeypatch.setattr(gcs_client, "_CONNECTIONS", {})
    parents = gcs_client.connection()
    assert gcs_client.connection() is parents
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        assert gcs_client.connection() is not parents
    assert gcs_client.connection() is parents


# What is tried again


def test_server_that_says_nothing_is_asked_again(gcs, monkeypatch):
    monkeypatch.setattr(gcs_client, "TIMEOUT_S", (0.2, 0.2))
    gcs.put("a", BYTES)
    gcs.faults.append(Fault(Kind.STALL, seconds=30))
    began_s = time.monotonic()
    assert STORAGE.read(path_of("a")) == BYTES
    assert time.monotonic() - began_s < 20


def test_error_whose_words_are_cut_off_is_asked_for_again(gcs):
    gcs.faults.append(Fault(Kind.TRUNCATED, "read"))
    with pytest.raises(FileNotFoundError):
        STORAGE.read(path_of("gone"))
    assert len(gcs.log) == 2


def test_token_that_cannot_be_had_for_moment(gcs, monkeypatch):
    from google.auth.exceptions import RefreshError

    answers = iter([RefreshError("busy", retryable=True), RefreshError("account disabled")])

    def refuse(*arguments):
        raise next(answers)

    monkeypatch.setattr(gcs_client.connection()[0].credentials, "before_request", refuse)
    with pytest.raises(ConfigError, match=r"the credentials were rejected \(account disabled\)\. Run `gcloud auth"):
        STORAGE.read(path_of("a"))


def test_long_waiting_is_said_once_in_while(gcs, monkeypatch, caplog):
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(gcs_client, "_warned_at_s", float("-inf"))
    gcs.put("a", BYTES)
    for after_s, warnings in ((gcs_client.WARN_AFTER_S, 0), (0.0, 1), (0.0, 1)):
        monkeypatch.setattr(gcs_client, "WARN_AFTER_S", after_s)
        gcs.faults.append(Fault(Kind.STATUS, status=503, times=4))
        assert STORAGE.read(path_of("a")) == BYTES
        assert [record.levelname for record in caplog.records].count("WARNING") == warnings
    assert f"{path_of('a')}: no answer yet" in caplog.text


def test_waits_grow_between_tries_and_end(gcs, monkeypatch):
    monkeypatch.setattr(gcs_client, "FIRST_WAIT_S", 1.0)
    monkeypatch.setattr(gcs_client, "LONGEST_WAIT_S", 3.0)
    monkeypatch.setattr(random, "uniform", lambda _, most: most)
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    gcs.faults.append(Fault(Kind.STATUS, status=503, times=4))
    gcs.put("a", BYTES)
    assert STORAGE.read(path_of("a")) == BYTES
    assert waited == [1, 2, 3, 3]


# Errors in words that help


def test_a_server_that_is_not_there(monkeypatch):
    monkeypatch.setattr(gcs_client, "RETRY_S", 0.05)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{free.getsockname()[1]}")
        with pytest.raises(OSError, match=r"gave up .* Connection refused"):
            STORAGE.read(path_of("a"))


def test_no_permission_names_account_where_server_does_not(gcs, monkeypatch):
    gcs.faults.append(Fault(Kind.STATUS, status=403, message="Access denied."))
    account = "me@project.iam.gserviceaccount.com"
    monkeypatch.setattr(gcs_client.connection()[0].credentials, "service_account_email", account, raising=False)
    with pytest.raises(PermissionError, match=f"Access denied. \\(as {account}\\)"):
        STORAGE.read(path_of("a"))


def test_credentials_not_accepted(gcs):
    gcs.faults.append(Fault(Kind.STATUS, times=ALWAYS, status=401, message="Invalid Credentials"))
    with pytest.raises(ConfigError, match=r"the credentials were rejected \(.*\)\. Run `gcloud auth"):
        STORAGE.size(path_of("a"))


def test_error_of_another_kind_keeps_its_words(gcs):
    gcs.faults.append(Fault(Kind.STATUS, status=412, message="retention\npolicy"))
    with pytest.raises(OSError, match="InvalidResponse: retention policy") as caught:
        STORAGE.write(path_of("a"), b"")
    assert caught.value.filename == path_of("a")


# Credentials


@pytest.fixture
def metadata_server():
    """A port where connections are made and nothing is said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def no_credentials(monkeypatch, tmp_path, metadata_server):
    for name in ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "NO_GCE_CHECK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("GCE_METADATA_IP", f"127.0.0.1:{metadata_server.getsockname()[1]}")
    monkeypatch.setattr(gcs_client, "_found_none", (float("-inf"), ""))
    monkeypatch.setattr(gcs_client, "SEARCH_S", 0.3)


@pytest.mark.parametrize("answers", [False, True])
def test_search_for_credentials_ends_soon(no_credentials, metadata_server, answers):
    if not answers:
        metadata_server.close()
    began_s = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        errors = [pool.submit(STORAGE.read, path_of("a")).exception() for _ in range(4)]
    assert time.monotonic() - began_s < 9
    for error in errors:
        assert isinstance(error, ConfigError)
        for cure in ("gcloud auth application-default login", "GOOGLE_APPLICATION_CREDENTIALS", "service account"):
            assert cure in str(error)
        assert "\n" not in str(error)


def test_file_of_credentials_not_there(no_credentials, monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    with pytest.raises(ConfigError, match=r"/nowhere/key\.json was not found"):
        STORAGE.read(path_of("a"))
