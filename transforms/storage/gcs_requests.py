"""The requests that reading makes by the million, objects and pages of listings, in few layers: what
google-cloud-storage and requests do for each took more than half of a request's processor time (docs/performance.md).
Connections, proxies, certificates and credentials are those of the client's session."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from recordmill.transforms.storage import gcs_client
from recordmill.transforms.storage.interface import too_large

if TYPE_CHECKING:
    from google.api_core.exceptions import GoogleAPICallError
    from google.cloud.storage import Client
    from urllib3 import HTTPConnectionPool

_REFRESHES = 2
"""How often credentials are fetched anew for a request that is refused for them, as google.auth's session does."""


class Answer(NamedTuple):
    """Attributes:
    data: as stored: nothing is unpacked.
    """

    headers: Mapping[str, str]
    data: bytes


class ListedObject(msgspec.Struct, frozen=True, gc=False):
    """An object of a page; `size` and `generation` where they were asked for."""

    name: str
    size: str = "0"
    generation: str = ""


class Page(msgspec.Struct, rename="camel"):
    """A page of a listing. `prefixes` are the sub-folders, where the query has a delimiter."""

    items: list[ListedObject] = []
    prefixes: list[str] = []
    next_page_token: str = ""


_PAGE = msgspec.json.Decoder(Page)


def get_object(
    path: str, bucket: str, name: str, version: str, range_: str = "", most_bytes: int | None = None
) -> Answer:
    """The bytes of an object's generation, or a range of them, `bytes=0-99`. They are not compared with their checksum.

    Raises:
        FileTooLargeError: there are more than `most_bytes`; they have not been read.
        GoogleAPICallError: what the server would not do; or urllib3's errors, of the connection.
    """
    generation = f"&generation={version}" if version else ""
    target = f"/download/storage/v1/b/{bucket}/o/{quote(name, safe='')}?alt=media{generation}"
    return _get(path, target, {"Range": range_} if range_ else {}, most_bytes)


def list_pages(path: str, bucket: str, query: Mapping[str, str | int]) -> Iterator[Page]:
    """The pages of a listing, some of which may be empty; each is asked for again after errors that may pass.

    Args:
        query: parameters of Cloud Storage's `objects.list`; what is empty is left out.
    """
    token: str | None = ""
    while token is not None:
        asked = {name: value for name, value in {**query, "pageToken": token}.items() if value}
        target = f"/storage/v1/b/{bucket}/o?{urlencode(asked)}"
        page = _PAGE.decode(gcs_client.retry(path)(_get)(path, target).data)
        yield page
        token = page.next_page_token or None


def _get(path: str, target: str, headers: Mapping[str, str] = {}, most_bytes: int | None = None) -> Answer:
    client = gcs_client.client_of_process()
    connections = _connections(client)
    for refreshed in range(_REFRESHES + 1):
        # What is stored with gzip encoding comes so only to who says so, and its checksum is of that.
        sent = {"Accept-Encoding": "gzip", "User-Agent": "recordmill", **headers}
        client._credentials.before_request(connections.authorize, "GET", connections.endpoint + target, sent)
        response = connections.request(target, sent)
        if response.status != 401 or refreshed == _REFRESHES:
            break
        response.drain_conn()
        client._credentials.refresh(connections.authorize)
    if response.status >= 300:
        raise _error(response.status, response.read())
    left = response.length_remaining  # None where the server does not say
    if most_bytes is None or (left is not None and left <= most_bytes):
        return Answer(response.headers, response.read())
    data = response.read(most_bytes + 1) if left is None else b""
    if left is not None or len(data) > most_bytes:
        response.close()
        raise too_large(path, None, most_bytes)
    return Answer(response.headers, data)


def _error(status: int, body: bytes) -> "GoogleAPICallError":
    """Of the same class as the client's own."""
    from google.api_core.exceptions import from_http_status

    words = body.decode(errors="replace")
    with suppress(msgspec.DecodeError, KeyError, TypeError):  # it is plain text where bytes were asked for
        words = msgspec.json.decode(body)["error"]["message"]
    return from_http_status(status, words)


class _Connections:
    """The pool of connections to the server of a client, taken out of its session."""

    def __init__(self, client: "Client"):
        import requests
        from urllib3 import Retry

        session = client._http
        self.endpoint = client.api_endpoint
        asked = requests.Request("GET", f"{self.endpoint}/").prepare()
        settings = session.merge_environment_settings(asked.url, {}, None, None, None)
        adapter = session.get_adapter(asked.url)
        self._pool: HTTPConnectionPool = adapter.get_connection_with_tls_context(
            asked, settings["verify"], proxies=settings["proxies"], cert=settings["cert"]
        )
        # A proxy is told the whole URL where nothing is encrypted.
        self._prefix = adapter.request_url(asked, settings["proxies"]).rstrip("/")
        self._retries = Retry(0, read=False)
        self.authorize = partial(session._auth_request, timeout=gcs_client.TIMEOUT_S)

    def request(self, target: str, headers: Mapping[str, str]) -> Any:
        from urllib3 import Timeout

        return self._pool.urlopen(
            "GET",
            self._prefix + target,
            headers=headers,
            retries=self._retries,
            redirect=False,
            assert_same_host=False,
            timeout=Timeout(*gcs_client.TIMEOUT_S),
            preload_content=False,
            decode_content=False,
        )


_connections = lru_cache(maxsize=16)(_Connections)
"""By client, of which each process has its own."""
