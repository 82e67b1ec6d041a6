"""Requests to Cloud Storage's JSON API, all but uploads: https://cloud.google.com/storage/docs/json_api/v1."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from recordmill.transforms.storage import gcs_client
from recordmill.transforms.storage.gcs_client import connection, retry, split_object, split_path, translate_errors
from recordmill.transforms.storage.interface import too_large

if TYPE_CHECKING:
    from google.api_core.exceptions import GoogleAPICallError


class Answer(NamedTuple):
    """Attributes:
    data: as stored: nothing is unpacked.
    """

    headers: Mapping[str, str]
    data: bytes


class Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Metadata of an object; fields that were not requested have their defaults."""

    name: str
    size: int = 0
    generation: str = ""
    crc32c: str = ""
    content_encoding: str = ""
    event_based_hold: bool = False
    retention_expiration_time: datetime | None = None


class Page(msgspec.Struct, rename="camel"):
    """A page of a listing. `prefixes` are the sub-folders, where the query has a delimiter."""

    items: list[Metadata] = []
    prefixes: list[str] = []
    next_page_token: str = ""


class BucketPlace(msgspec.Struct, rename="camel"):
    """Location of a bucket."""

    location: str = ""
    location_type: str = ""
    custom_placement_config: dict[str, list[str]] = {}


class _Rewritten(msgspec.Struct, rename="camel"):
    rewrite_token: str = ""


def read_object(path: str, version: str, range_: str = "", most_bytes: int | None = None) -> Answer:
    """Read an object's generation, or a range of it, `bytes=0-99`, by one request without tries. The bytes are not
    compared with their checksum.

    Raises:
        FileTooLargeError: there are more than `most_bytes`; they have not been read.
        GoogleAPICallError: what the server would not do; or urllib3's errors, of the connection.
    """
    query = f"?alt=media{f'&generation={version}' if version else ''}"
    return _ask(path, "GET", f"/download{_target(path)}{query}", {"Range": range_} if range_ else {}, most_bytes)


def read_metadata(path: str) -> Metadata:
    with translate_errors(path):
        return msgspec.json.decode(retry(path)(_ask)(path, "GET", _target(path)).data, type=Metadata, strict=False)


def delete_object(path: str, version: str = "") -> None:
    """Delete an object; with `version`, only that generation. An object that is gone is no error."""
    query = f"?ifGenerationMatch={version}" if version else ""
    target = f"{_target(path)}{query}"
    with suppress(FileNotFoundError), translate_errors(path):
        retry(path)(_ask)(path, "DELETE", target)


def copy_object(path: str, copy: str) -> None:
    """Have the server copy an object."""
    target, token = f"{_target(path)}/rewriteTo{_target(copy).removeprefix(_API)}", ""
    with translate_errors(path):
        while True:  # of a large object, or to another place, a request copies a part
            query = f"?rewriteToken={quote(token, safe='')}" if token else ""
            token = msgspec.json.decode(
                retry(path)(_ask)(path, "POST", target + query).data, type=_Rewritten
            ).rewrite_token
            if not token:
                return


def read_place(path: str) -> BucketPlace:
    """Ask where the bucket of `path` is."""
    with translate_errors(path):
        answer = retry(path)(_ask)(path, "GET", f"{_API}/b/{split_path(path)[0]}")
        return msgspec.json.decode(answer.data, type=BucketPlace)


def list_pages(path: str, bucket: str, query: Mapping[str, str | int]) -> Iterator[Page]:
    """The pages of a listing, some of which may be empty; each is asked for again after errors that may pass.

    Args:
        query: parameters of Cloud Storage's `objects.list`; what is empty is left out.
    """
    token: str | None = ""
    while token is not None:
        asked = {name: value for name, value in {**query, "pageToken": token}.items() if value}
        page = _PAGE.decode(retry(path)(_ask)(path, "GET", f"{_API}/b/{bucket}/o?{urlencode(asked)}").data)
        yield page
        token = page.next_page_token or None


_API = "/storage/v1"
_PAGE = msgspec.json.Decoder(Page, strict=False)  # numbers of 64 bits are strings in the API's JSON


def _target(path: str) -> str:
    bucket, name = split_object(path)
    return f"{_API}/b/{bucket}/o/{quote(name, safe='')}"


def _ask(path: str, method: str, target: str, headers: Mapping[str, str] = {}, most_bytes: int | None = None) -> Answer:
    from urllib3 import Timeout

    http, client = connection()
    response = http.urlopen(
        method,
        client.api_endpoint + target,
        # What is stored with gzip encoding comes so only to who says so, and its checksum is of that.
        headers={"Accept-Encoding": "gzip", "User-Agent": "recordmill", **headers},
        retries=False,
        redirect=False,
        timeout=Timeout(*gcs_client.TIMEOUT_S),
        preload_content=False,
        decode_content=False,
    )
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
    """Return an error of the client's class."""
    from google.api_core.exceptions import from_http_status

    words = body.decode(errors="replace")
    with suppress(msgspec.DecodeError, KeyError, TypeError):  # it is plain text where bytes were asked for
        words = msgspec.json.decode(body)["error"]["message"]
    return from_http_status(status, words)
