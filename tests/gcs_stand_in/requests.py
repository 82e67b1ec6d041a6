"""What is asked of the stand-in, and what goes wrong with it."""

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from enum import Enum
from fnmatch import fnmatchcase
from urllib.parse import parse_qsl, unquote, urlsplit

Headers = Mapping[str, str] | Message


class Kind(Enum):
    """What goes wrong."""

    STATUS = "the answer is `status`, with `message` if given and `headers`"
    RESET = "the connection is reset, before an answer"
    LOST = "the request is carried out and the connection reset before the answer"
    TRUNCATED = "the connection ends half way through the answer's body"
    CORRUPTED = "a byte of what is read or stored is wrong, and no checksum tells the server"
    PARTIAL = "the server keeps half of a chunk and says so"
    STALL = "nothing more comes for `seconds`, from half way through the answer's body"
    SLOW = "each 64 kB of the request's body take `seconds`"
    REPLACED = "just before, somebody writes `data` as the object's new generation"


@dataclass
class Call:
    """A request, as the log keeps it.

    Attributes:
        range: the Range header; of chunks, Content-Range.
        at_s: when it came, on the monotonic clock.
        in_flight: requests under way, with this one.
        status: of the answer; 0 while there is none.
    """

    method: str
    operation: str
    bucket: str
    name: str
    query: Mapping[str, str]
    range: str
    at_s: float
    in_flight: int = 0
    status: int = 0


@dataclass
class Fault:
    """Something that goes wrong with some requests: those that match all of `operation`, `name` and `when`.

    Attributes:
        operation, name: patterns as of file names; the name is the object's.
        first: of the matching requests, the number of the first that is hit; 1 is the first one.
        times: how many are hit from there on.
        probability: with which a request is hit; the same requests in each run, whatever the order threads make.
    """

    kind: Kind
    operation: str = "*"
    name: str = "*"
    when: Callable[[Call], bool] = lambda call: True
    first: int = 1
    times: float = 1
    probability: float = 1.0
    seed: int = 0
    status: int = 503
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    data: bytes = b"replaced"
    _matched: int = 0
    _seen: Counter = field(default_factory=Counter)

    def hits(self, call: Call) -> bool:
        if not (fnmatchcase(call.operation, self.operation) and fnmatchcase(call.name, self.name) and self.when(call)):
            return False
        request = (call.operation, call.name, call.range)
        self._seen[request] += 1
        if random.Random(f"{self.seed} {request} {self._seen[request]}").random() >= self.probability:
            return False
        self._matched += 1
        return self.first <= self._matched < self.first + self.times


_OBJECT = r"/b/(?P<bucket>[^/]+)/o/(?P<name>[^/]+)"
_TARGETS = [
    ("POST", r"/batch(/storage/v1)?", "batch"),
    ("GET", r"/storage/v1/b/(?P<bucket>[^/]+)", "bucket"),
    ("GET", r"/storage/v1/b/(?P<bucket>[^/]+)/o", "list"),
    ("GET", rf"(?P<media>/download)?/storage/v1{_OBJECT}", "stat"),
    ("DELETE", rf"/storage/v1{_OBJECT}", "delete"),
    ("POST", rf"/storage/v1{_OBJECT}/(?P<how>copyTo|rewriteTo)/b/(?P<to_bucket>[^/]+)/o/(?P<to_name>[^/]+)", "copy"),
    ("POST", r"(/resumable)?/upload/storage/v1/b/(?P<bucket>[^/]+)/o", "upload"),
    ("PUT", r"(/resumable)?/upload/storage/v1/b/(?P<bucket>[^/]+)/o", "chunk"),
    ("(GET|HEAD)", r"/(?P<bucket>[^/]+)/(?P<name>.+)", "read"),  # the XML API
]


def _target(method: str, path: str) -> tuple[str, dict[str, str]]:
    """The operation, and the names within a path."""
    for methods, pattern, operation in _TARGETS:
        if re.fullmatch(methods, method) and (match := re.fullmatch(pattern, path)):
            return operation, {name: unquote(value) for name, value in match.groupdict().items() if value}
    return "unknown", {}


def call_of(method: str, target: str, headers: Headers) -> Call:
    """What a request is."""
    url = urlsplit(target)
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    operation, groups = _target(method, url.path)
    if operation == "stat" and (groups.pop("media", "") or query.get("alt") == "media"):
        operation = "read"
    if operation == "upload" and query.get("uploadType") == "resumable":
        operation = "start"
    bucket, name = groups.pop("bucket", ""), groups.pop("name", query.get("name", ""))
    range_ = headers.get("Range") or headers.get("Content-Range") or ""
    return Call(method, operation, bucket, name, query | groups, range_, time.monotonic())
