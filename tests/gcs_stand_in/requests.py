"""Requests to the stand-in, and the faults that tests inject."""

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from urllib.parse import parse_qsl, unquote, urlsplit


class Kind(Enum):
    """Faults."""

    NONE = "none"
    STATUS = "the answer is `status`, with `message` if given"
    RESET = "the connection is reset, before an answer"
    LOST = "the request is carried out and the connection reset before the answer"
    TRUNCATED = "the connection ends half way through the answer's body"
    CORRUPTED = "a byte of what is read or stored is wrong, and no checksum tells the server"
    PARTIAL = "the server keeps half of a chunk and says so"
    STALL = "nothing more comes for `seconds`, from half way through the answer's body"
    REPLACED = "just before, somebody writes `data` as the object's new generation"


@dataclass
class Call:
    """A request in the log.

    Attributes:
        range: the Range header; of chunks, Content-Range.
        status: of the answer; 0 while there is none.
    """

    operation: str
    bucket: str
    name: str
    query: Mapping[str, str]
    range: str
    status: int = 0


@dataclass
class Fault:
    """A fault of the requests that match all of `operation`, `name` and `when`.

    Attributes:
        operation, name: patterns as of file names; the name is the object's.
        first: the number of the first matching request that is hit, from 1.
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


_BUCKET = r"/storage/v1/b/(?P<bucket>[^/]+)"
_OBJECT = rf"{_BUCKET}/o/(?P<name>[^/]+)"
_TARGETS = [
    ("GET", _BUCKET, "bucket"),
    ("GET", rf"{_BUCKET}/o", "list"),
    ("GET", _OBJECT, "stat"),
    ("GET", rf"/download{_OBJECT}", "read"),
    ("DELETE", _OBJECT, "delete"),
    ("POST", rf"{_OBJECT}/rewriteTo/b/(?P<to_bucket>[^/]+)/o/(?P<to_name>[^/]+)", "copy"),
    ("POST", rf"(/resumable)?/upload{_BUCKET}/o", "upload"),
    ("PUT", rf"(/resumable)?/upload{_BUCKET}/o", "chunk"),
    ("DELETE", rf"(/resumable)?/upload{_BUCKET}/o", "cancel"),
]


def call_of(method: str, target: str, headers: Mapping[str, str]) -> Call:
    """Return the call that a request makes."""
    url = urlsplit(target)
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    range_ = headers.get("Range") or headers.get("Content-Range") or ""
    for known_method, pattern, operation in _TARGETS:
        if method == known_method and (match := re.fullmatch(pattern, url.path)):
            names = {"name": query.get("name", "")}
            names |= {name: unquote(value) for name, value in match.groupdict().items()}
            if operation == "upload" and query.get("uploadType") == "resumable":
                operation = "start"
            return Call(operation, names.pop("bucket"), names.pop("name"), query | names, range_)
    return Call("unknown", "", "", query, range_)
