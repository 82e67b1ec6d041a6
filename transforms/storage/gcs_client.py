"""Connections to Google Cloud Storage (one pool per process), retries, and error messages with a cure."""

import errno
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.storage.interface import UnreadableFileError

if TYPE_CHECKING:
    from google.api_core.retry import Retry
    from google.auth.credentials import Credentials
    from google.auth.transport.urllib3 import AuthorizedHttp
    from google.cloud.storage import Client

    Connection = tuple[AuthorizedHttp, Client]

_LOGGER = logging.getLogger(__name__)

POOL_SIZE = 64
"""Number of pooled connections per process: the number of concurrent requests without new connections."""
TIMEOUT_S = (10, 60)
"""Timeouts to connect, and to receive the next bytes."""
RETRY_S = 300.0
"""Duration of retries of a request after transient errors."""
FIRST_WAIT_S = 1.0
"""Upper bound of the wait before the second try. It doubles with each try."""
LONGEST_WAIT_S = 32.0
TRIES = 5
"""Number of tries in `retry_at_once`, for errors that a repeat cures without a wait: damaged bytes, lost uploads."""
_TRANSIENT = {408, 429, 500, 502, 503, 504}
"""HTTP status codes of transient errors."""
WARN_AFTER_S = 5.0
"""Duration of failures before the first warning. WARN_EVERY_S is the interval of further warnings."""
WARN_EVERY_S = 60.0
SEARCH_S = 2.0
"""Timeout of the search for the machine's metadata server. An existing server answers in milliseconds."""
FOUND_NONE_S = 10.0
"""Duration for which a failed search for credentials is cached."""

_Result = TypeVar("_Result")


_PATH = re.compile(r"gs://([a-z0-9][-_.:a-z0-9]*)(?:/(.*))?", re.DOTALL)


def split_path(path: str) -> tuple[str, str]:
    """Split a path into bucket and object name. The name may be empty. `/` has no meaning in a name.

    Raises:
        ConfigError: The path is not gs://bucket or gs://bucket/name.
    """
    match = _PATH.fullmatch(path)
    if not match:
        raise ConfigError(f"{path!r} is not a Cloud Storage path (gs://bucket/file)")
    return match[1], match[2] or ""


def split_object(path: str) -> tuple[str, str]:
    """Split the path of an object into bucket and name.

    Raises:
        ConfigError: The path has no object name.
        FileNotFoundError: No object can have the name. A request for it would fail with a misleading error.
    """
    bucket, name = split_path(path)
    if not name:
        raise ConfigError(f"{path} is a bucket, not an object (gs://{bucket}/file)")
    encoded = name.encode(errors="surrogatepass")
    if len(encoded) > 1024 or name in (".", "..") or re.search("[\n\r\ud800-\udfff]", name):
        raise FileNotFoundError(errno.ENOENT, "the object name is invalid", path)
    return bucket, name


def retry_at_once(call: Callable[[], _Result], is_curable: Callable[[Exception], bool]) -> _Result:
    """Return the result of `call`. Repeat it without a wait while its errors are curable, up to TRIES calls."""
    for _ in range(TRIES - 1):
        try:
            return call()
        except Exception as error:  # any: `is_curable` decides
            if not is_curable(error):
                raise
            _LOGGER.info("Retrying after %s", error_text(error))
    return call()


def retry(path: str) -> "Retry":
    """Return a decorator that repeats a call after transient errors, with growing waits."""
    from google.api_core.retry import Retry

    first_failed_s: list[float] = []

    def report(error: Exception) -> None:
        _LOGGER.info("%s: retrying after %s", path, error_text(error))
        first_failed_s.append(time.monotonic())
        if time.monotonic() - first_failed_s[0] > WARN_AFTER_S:
            _warn_waiting(path, error_text(error))

    waits = {"initial": FIRST_WAIT_S, "maximum": LONGEST_WAIT_S, "multiplier": 2, "timeout": RETRY_S}
    return Retry(_is_transient, on_error=report, **waits)


def _is_transient(error: BaseException) -> bool:
    import requests
    import urllib3
    from google.auth.exceptions import GoogleAuthError, TransportError

    if isinstance(error, TransportError) and error.args:  # wraps the error of a token request
        return _is_transient(error.args[0])
    if isinstance(error, GoogleAuthError):
        return error.retryable
    lost = requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError
    return http_status(error) in _TRANSIENT or isinstance(error, (ConnectionError, urllib3.exceptions.HTTPError, *lost))


def _warn_waiting(path: str, words: str) -> None:
    """Log a warning per WARN_EVERY_S for all waiting requests."""
    global _warned_at_s
    with _LOCK:
        if time.monotonic() < _warned_at_s + WARN_EVERY_S:
            return
        _warned_at_s = time.monotonic()
    _LOGGER.warning("%s: no answer yet (%s); each request is retried for %g s", path, words, RETRY_S)


# Errors


class LostUploadError(OSError):
    """The server has lost or damaged the sent bytes."""


@contextmanager
def translate_errors(path: str, version: str = "") -> Iterator[None]:
    """Convert errors of the client to the errors of `Storage`, with a cure in the message."""
    try:
        yield
    except (ConfigError, UnreadableFileError, FileNotFoundError, LostUploadError):
        raise
    except Exception as error:  # any: errors of requests, urllib3, google.auth and the client
        raise _explanation(error, path, version) from error


def _explanation(error: Exception, path: str, version: str) -> Exception:
    from google.api_core.exceptions import RetryError
    from google.auth.exceptions import GoogleAuthError

    bucket = split_path(path)[0]
    words = error_text(error)
    status = http_status(error)
    if isinstance(error, RetryError):
        strerror = f"gave up after {RETRY_S:g} s of retries. The last error: {error_text(error.cause or error)}"
        return OSError(errno.EIO, strerror, path)
    if isinstance(error, GoogleAuthError) or status == 401:
        return ConfigError(f"{path}: the credentials were rejected ({words}). {CREDENTIALS_CURE}")
    if status == 403:
        return PermissionError(errno.EACCES, f"{words}{_account(words)}", path)
    if status == 404 and is_bucket_missing(error):
        return ConfigError(f"{path}: the bucket {bucket} does not exist. Check its name, or create it")
    if status == 404:
        gone = f"the object is gone or was replaced since it was listed as generation {version}"
        return FileNotFoundError(errno.ENOENT, gone if version else "no such object", path)
    if status == 400 and "requester pays" in words:
        return ConfigError(
            f"{path}: the bucket {bucket} is set to requester pays ({words}), which is not supported. "
            "Copy the data to a bucket of your own: gcloud storage cp --recursive --billing-project=PROJECT"
        )
    return OSError(errno.EIO, f"{type(error).__name__}: {words}", path)


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status of an error of Google's client; None for other errors."""
    return getattr(error, "code", None) or getattr(getattr(error, "response", None), "status_code", None)


def is_bucket_missing(error: Exception) -> bool:
    return "bucket does not exist" in error_text(error)


def error_text(error: Exception) -> str:
    """Return the server's message on one line; the text of the error if it is not the server's."""
    from google.api_core.exceptions import GoogleAPICallError
    from google.cloud.storage.exceptions import InvalidResponse

    words = str(error)
    if isinstance(error, GoogleAPICallError | InvalidResponse) and error.response is not None:
        words = error.response.text
        with suppress(ValueError, KeyError, TypeError):
            words = error.response.json()["error"]["message"]
    elif isinstance(error, GoogleAPICallError):
        words = error.message
    return " ".join(words.split())[:500] or type(error).__name__


def _account(words: str) -> str:
    """Return " (as ACCOUNT)" for the account of the credentials; "" if it is unknown or in `words`."""
    http, _ = connection()
    credentials = http.credentials
    account = getattr(credentials, "service_account_email", "") or getattr(credentials, "account", "")
    return f" (as {account})" if account not in words else ""


# The client


_LOCK = threading.Lock()
_CONNECTIONS: dict[tuple[int, str], "Connection"] = {}
"""Connections by process and emulator. Forked processes must not share connections."""
_warned_at_s = float("-inf")
_found_none = (float("-inf"), "")
"""Time (monotonic clock) and message of the last failed search for credentials."""
_NO_CREDENTIALS = "Your default credentials were not found"  # Google's text, which has no cause
CREDENTIALS_CURE = (
    "Run `gcloud auth application-default login`, set GOOGLE_APPLICATION_CREDENTIALS to the key file of a service "
    "account, or use a machine that has a service account"
)


def connection() -> "Connection":
    """Return the connections of this process: the client of all requests except uploads, and Google's, for uploads.

    The first has few layers: those of Google's client take more than half of a request's processor time
    (benchmarks/RESULTS.md). Both have the same credentials.
    """
    key = os.getpid(), os.environ.get("STORAGE_EMULATOR_HOST", "")
    if key not in _CONNECTIONS:
        with _LOCK:
            if key not in _CONNECTIONS:
                _CONNECTIONS[key] = _connect(key[1])
    return _CONNECTIONS[key]


def _connect(emulator: str) -> "Connection":
    # Avoid a further request for each bucket, which needs a permission that nothing else does.
    os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    from google.auth.credentials import AnonymousCredentials  # these imports take 0.3 s
    from google.auth.transport.urllib3 import AuthorizedHttp
    from google.cloud.storage import Client

    credentials = AnonymousCredentials() if emulator else find_credentials(Client.SCOPE)
    client = Client(project="none", credentials=credentials)  # only the creation of buckets needs a project
    return AuthorizedHttp(credentials, _pool(client.api_endpoint)), client


def _pool(url: str) -> Any:
    """Return a pool of connections. It takes certificates and proxy from the environment, like requests."""
    import certifi
    import urllib3
    from requests import Session
    from requests.adapters import HTTPAdapter
    from requests.utils import select_proxy

    settings = Session().merge_environment_settings(url, {}, None, None, None)
    certificates = settings["verify"] if isinstance(settings["verify"], str) else certifi.where()
    options: dict[str, Any] = {"maxsize": POOL_SIZE, "timeout": urllib3.Timeout(*TIMEOUT_S), "ca_certs": certificates}
    proxy = select_proxy(url, settings["proxies"])
    if not proxy:
        return urllib3.PoolManager(**options)
    return urllib3.ProxyManager(proxy, proxy_headers=HTTPAdapter().proxy_headers(proxy), **options)


def find_credentials(scopes: tuple[str, ...]) -> "Credentials":
    """Return credentials of the environment or of the metadata server.

    Raises:
        ConfigError: No credentials were found.
    """
    global _found_none
    import google.auth
    from google.auth.exceptions import GoogleAuthError
    from google.auth.transport.requests import Request

    at_s, message = _found_none
    if time.monotonic() < at_s + FOUND_NONE_S:
        raise ConfigError(message)
    end_s = time.monotonic() + SEARCH_S

    class BoundedRequest(Request):
        """Request with SEARCH_S for the metadata server. google.auth reads its timeouts only when it is imported."""

        def __call__(self, url, method="GET", body=None, headers=None, timeout=SEARCH_S, **options):
            if "metadata-flavor" in (headers or {}):
                timeout = min(timeout, end_s - time.monotonic())
                if timeout <= 0:
                    return SimpleNamespace(status=404, headers={}, data=b"")
            return super().__call__(url, method, body, headers, timeout, **options)

    try:
        return google.auth.default(scopes, BoundedRequest())[0]
    except GoogleAuthError as error:
        words = error_text(error)
        why = "" if words.startswith(_NO_CREDENTIALS) else f" ({words})"
        message = f"gs:// needs credentials of Google Cloud, and none were found{why}. {CREDENTIALS_CURE}"
        _found_none = time.monotonic(), message
        raise ConfigError(message) from error
