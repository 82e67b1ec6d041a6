"""Mutations of files: of their bytes, of their texts, and of what JSON, XML, tables and YAML are made of."""

import json
import random
import re
from collections.abc import Callable
from typing import Any

NUMBERS = [
    *("0", "-1", "1", "2", "0.5", "-0.0", "12.5", "9.0", "007", "1e5", "1e308", "-1e308", "1e400", "1e-320"),
    *("NaN", "nan", "Infinity", "inf", "-inf", "true", "false", "null", "", " ", "1_0", "0x10", "1,5", "1 2", "١٢"),
    *("1000000000", "2147483648", "4294967296", "9999999999", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775809", "18446744073709551616", "1" + "0" * 29, "9" * 400, "9" * 5000),
]
TEXTS = [
    *("", " ", "0", "false", "no", "yes", "1", "NaN", "..", "../x", "/etc/passwd", "C:\\x", "http://a/b.jpg", "a\nb"),
    *(
        "\0",
        "\ud800",
        "\udce9",
        "é",
        "e\u0301",
        "椅子",
        "\ufeff",
        "\u202e",
        "\x1b[2J",
        "a" * 5000,
        "{}",
        "[]",
        "%s",
        "{0}",
    ),
    *("__proto__", "1.jpg", "b/1.jpg", "cat", "!!float x", "&a", "*a", "'", '"', ",", ";", "\t", "=1+1", "﷐e9"),
]
JSON_VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2.5,
    1e308,
    10**25,
    10**400,
    "",
    "x",
    [],
    {},
    [[]],
    {"a": 1},
    [None],
]
ENCODINGS = ["gb2312", "utf-7", "utf-16", "utf-32", "foo", "unicode", "idna", "hex", "iso-8859-1", "cp1251", "big5"]
YAML_LINES = [
    *('x: !!float ""', 'x: !!bool "x"', "x: !!timestamp x", "x: !!int x", "x: !!binary x", "nc: 30000000", "nc: -1"),
    *("kpt_shape: [20000000, 3]", "kpt_shape: [1, 4]", 'path: "\\0"', 'names: ["\\ud800"]', "names: {0: a, x: b}"),
    *("names: [1, yes, null, 2.50, 12:30]", "train: [1, {a: b}]", "x: &a [*a]", "? [a]\n: b", "<<: x", "x: 1" * 9),
    *("names: {.inf: a}", "names: {0: [a]}", "x: !!python/name:os.system x", "x: !!set {a}", "x: 9" + "9" * 5000),
]
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_STRING = re.compile(rb'"[^"\n]{0,200}"|\'[^\'\n]{0,200}\'|>[^<>\n]{1,200}<')
_TAG = re.compile(rb"<[^<>]{1,300}>")
_SEED_BYTES = bytes([0, 1, 9, 10, 13, 32, 34, 44, 47, 58, 60, 62, 92, 0x7F, 0x80, 0xC3, 0xE9, 0xED, 0xFE, 0xFF])

Mutation = Callable[[random.Random, bytes], bytes]


def _span(rng: random.Random, data: bytes) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + int(2 ** rng.uniform(0, 8)))


def flip(rng: random.Random, data: bytes) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


def put_byte(rng: random.Random, data: bytes) -> bytes:
    place = rng.randrange(len(data) + 1)
    return data[:place] + bytes([rng.choice(_SEED_BYTES)]) + data[place + rng.randrange(2) :]


def put_integer(rng: random.Random, data: bytes) -> bytes:
    """Replace bytes with an integer of 2, 4 or 8 bytes, as binary formats have sizes and offsets."""
    size, place = rng.choice((2, 4, 8)), rng.randrange(len(data))
    number = rng.choice(
        (0, 1, (1 << 8 * size) - 1, 1 << 8 * size - 1, (1 << 8 * size - 1) - 1, len(data), 1 << 4 * size)
    )
    packed = (number % (1 << 8 * size)).to_bytes(size, rng.choice(("little", "big")))
    return data[:place] + packed + data[place + size :]


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def delete(rng: random.Random, data: bytes) -> bytes:
    start, end = _span(rng, data)
    return data[:start] + data[end:]


def repeat(rng: random.Random, data: bytes) -> bytes:
    start, end = _span(rng, data)
    return data[:end] + data[start:end] * rng.choice((1, 1, 2, 50)) + data[end:]


def swap(rng: random.Random, data: bytes) -> bytes:
    (a, b), (c, d) = sorted((_span(rng, data), _span(rng, data)))
    return data if b > c else data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def _replace_match(rng: random.Random, data: bytes, pattern: re.Pattern[bytes], new: Callable[[bytes], bytes]) -> bytes:
    matches = list(pattern.finditer(data))
    if not matches:
        return flip(rng, data)
    match = rng.choice(matches)
    return data[: match.start()] + new(match[0]) + data[match.end() :]


def change_number(rng: random.Random, data: bytes) -> bytes:
    text = rng.choice(NUMBERS).encode()
    return _replace_match(rng, data, _NUMBER, lambda _: b'"%b"' % text if rng.random() < 0.2 else text)


def change_text(rng: random.Random, data: bytes) -> bytes:
    text = rng.choice(TEXTS)
    plain = json.dumps(text)[1:-1].encode() if rng.random() < 0.5 else text.encode(errors="surrogatepass")
    return _replace_match(rng, data, _STRING, lambda old: old[:1] + plain + old[-1:])


def change_line(rng: random.Random, data: bytes) -> bytes:
    """Delete, repeat, move, cut or empty a line."""
    lines = data.splitlines(keepends=True)
    place = rng.randrange(len(lines))
    line = lines.pop(place)
    new = ([], [line, line], [line.strip()], [b"\n"], [line[: len(line) // 2] + b"\n"])
    lines[place:place] = rng.choice(new)
    if rng.random() < 0.2:
        lines.insert(rng.randrange(len(lines) + 1), line)
    return b"".join(lines)


def change_json(rng: random.Random, data: bytes) -> bytes:
    """Change a value of JSON, or of a line of JSON Lines; a key may be there twice afterwards."""
    lines = data.splitlines() or [b""]
    for text, place in [(data, -1), *((lines[number], number) for number in rng.sample(range(len(lines)), len(lines)))]:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue
        new = json.dumps(_changed(rng, value), ensure_ascii=rng.random() < 0.5).encode(errors="surrogatepass")
        new = re.sub(rb'"(\w+)(?:\xc2\xa0|\\u00a0)"', rb'"\1"', new)
        return new if place < 0 else b"\n".join(_with(lines, place, new))
    return flip(rng, data)


def _with(lines: list[bytes], place: int, new: bytes) -> list[bytes]:
    return [*lines[:place], new, *lines[place + 1 :]]


def _changed(rng: random.Random, value: Any) -> Any:
    if isinstance(value, list | dict) and value and rng.random() < 0.85:
        key = rng.choice(range(len(value)) if isinstance(value, list) else list(value))
        copy: Any = value.copy()
        what = rng.random()
        if what < 0.1:
            del copy[key]
        elif what < 0.2 and isinstance(copy, dict):
            copy[f"{key}\u00a0"] = rng.choice([copy[key], *JSON_VALUES])  # `change_json` makes the keys equal
        elif what < 0.2:
            copy.insert(key, copy[key])
        elif what < 0.25 and isinstance(copy, dict):
            copy[rng.choice(TEXTS)] = copy.pop(key)
        else:
            copy[key] = _changed(rng, copy[key])
        return copy
    if isinstance(value, int | float) and rng.random() < 0.4:
        return rng.choice([f"{value}", f"{value}.0", [value], bool(value), -value, value * 3 * 10**20])
    return rng.choice([*JSON_VALUES, rng.choice(TEXTS), [value], {"a": value}, str(value)])


def change_xml(rng: random.Random, data: bytes) -> bytes:
    if rng.random() < 0.3:
        head = f'<?xml version="1.0" encoding="{rng.choice(ENCODINGS)}"?>'.encode()
        return head + re.sub(rb"<\?xml[^>]*>", b"", data)
    if rng.random() < 0.1:
        return re.sub(rb"<\?xml[^>]*>", b'<!DOCTYPE a [<!ENTITY a "aaaa">]>', data, count=1)
    tags = [match[0] for match in _TAG.finditer(data)] or [b"<a>"]
    return _replace_match(rng, data, _TAG, lambda tag: rng.choice([b"", tag * 2, rng.choice(tags), tag[:-1], b"&a;"]))


def change_table(rng: random.Random, data: bytes) -> bytes:
    """Change, add or remove a cell."""
    lines = data.splitlines()
    place = rng.randrange(len(lines))
    cells = lines[place].split(b",")
    cell = rng.choice([*NUMBERS, *TEXTS]).encode(errors="surrogatepass")
    what, column = rng.random(), rng.randrange(len(cells))
    if what < 0.2:
        del cells[column]
    elif what < 0.4:
        cells.insert(column, cell)
    else:
        cells[column] = rng.choice([cell, b"caf\xe9", b'"' + cell, b'"' + cell + b'"', b'""'])
    return b"\n".join(_with(lines, place, b",".join(cells)))


def change_yaml(rng: random.Random, data: bytes) -> bytes:
    lines = data.splitlines()
    line = rng.choice(YAML_LINES).encode()
    key = line.partition(b":")[0]
    kept = [other for other in lines if other.partition(b":")[0] != key]
    return b"\n".join([*kept, line])


_BYTES: tuple[Mutation, ...] = (flip, put_byte, put_integer, cut, delete, repeat, swap)
_TEXT: tuple[Mutation, ...] = (
    change_number,
    change_number,
    change_text,
    change_line,
    put_byte,
    cut,
    delete,
    repeat,
    swap,
)
_BY_SUFFIX: dict[str, tuple[Mutation, ...]] = {
    "json": (*_TEXT, *[change_json] * 8),
    "jsonl": (*_TEXT, *[change_json] * 8),
    "xml": (*_TEXT, *[change_xml] * 4),
    "csv": (*_TEXT, *[change_table] * 5),
    "tsv": _TEXT,
    "yaml": (*_TEXT, *[change_yaml] * 5),
    "txt": (*_TEXT, change_number),
}


def mutate(rng: random.Random, name: str, data: bytes) -> bytes:
    """Return a file after one to four mutations that suit its suffix."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        if data:
            data = rng.choice(_BY_SUFFIX.get(name.rpartition(".")[2], _BYTES))(rng, data)
    return data[: 4 << 20]
