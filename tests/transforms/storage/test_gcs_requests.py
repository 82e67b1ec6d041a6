import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from google.auth.credentials import AnonymousCredentials

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.storage import gcs_client
from recordmill.transforms.storage.gcs_storage import GcsStorage
from recordmill.transforms.storage.interface import FileTooLargeError
from tests.gcs_stand_in import Fault, Kind
from tests.transforms.storage.conftest import path_of

GCS = GcsStorage()


class _Token(AnonymousCredentials):
    """A token that is refused until it is fetched anew."""

    def __init__(self):
        super().__init__()
        self.fetched = 0
        self.asked: list[tuple[str, str, str]] = []

    def before_request(self, request, method, url, headers):
        self.asked.append((method, url, headers["Accept-Encoding"]))
        headers["Authorization"] = f"Bearer {self.fetched}"

    def refresh(self, request):
        self.fetched += 1


@pytest.mark.parametrize(("refused", "is_had"), [(1, True), (2, True), (3, False)])
def test_credentials_refused_are_fetched_anew_twice_at_most(gcs, monkeypatch, refused, is_had):
    gcs.put("a", b"bytes")
    token = _Token()
    monkeypatch.setattr(gcs_client.connection().http, "credentials", token)
    gcs.faults.append(Fault(Kind.STATUS, "read", times=refused, status=401))
    if is_had:
        assert GCS.read(path_of("a")) == b"bytes"
    else:
        with pytest.raises(ConfigError, match="the credentials are of no use"):
            GCS.read(path_of("a"))
    assert token.fetched == min(refused, 2)
    # Without gzip the server would unpack what is stored so, and the checksum would not be of what comes.
    assert set(token.asked) == {("GET", f"{gcs.url}/download/storage/v1/b/bucket/o/a?alt=media", "gzip")}


def test_proxy_of_environment_is_asked(gcs, monkeypatch):
    gcs.put("a", b"bytes")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://storage.invalid")
    monkeypatch.setenv("HTTP_PROXY", gcs.url)
    assert GCS.read(path_of("a")) == b"bytes"
    assert [file.name for file in GCS.walk(path_of(""))] == ["a"]


@pytest.mark.parametrize(("most_bytes", "is_read"), [(4, False), (5, True), (None, True)])
def test_object_of_length_not_told_is_bounded_too(monkeypatch, most_bytes, is_read):
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"bytes")

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.server_address[1]}")
        if is_read:
            assert GCS.read(path_of("a"), most_bytes=most_bytes) == b"bytes"
        else:
            with pytest.raises(FileTooLargeError):
                GCS.read(path_of("a"), most_bytes=most_bytes)
        server.shutdown()
