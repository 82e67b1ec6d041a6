"""Texts for sizes, numbers and names."""

from collections import Counter
from collections.abc import Iterable


def number_text(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> number_text(1, "fault"), number_text(1_000, "fault")
    ('1 fault', '1,000 faults')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def first_texts(texts: Iterable[str], most: int, between: str = ", ") -> str:
    """Return the first texts, and the number of further texts.

    >>> first_texts(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    texts = list(texts)
    return between.join(texts[:most]) + (f" and {len(texts) - most:,} more" if len(texts) > most else "")


def quote_blanks(names: Iterable[str]) -> list[str]:
    """Return names for a message. Those that have blanks at their ends or in a row, or that differ in blanks alone, are
    quoted.

    >>> quote_blanks(["image", "label", " label", "two words"])
    ['image', "'label'", "' label'", 'two words']
    """
    names = list(names)
    numbers = Counter("".join(name.split()) for name in names)
    return [
        name if name == " ".join(name.split()) and numbers["".join(name.split())] == 1 else repr(name) for name in names
    ]


def size_text(count: float) -> str:
    """Return a number of bytes as text: kB, MB, …

    >>> size_text(1_234_567)
    '1.2 MB'
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if round(count, 1) < 1000:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def shorten(text: str, most: int) -> str:
    """Return a text of at most this many characters. An ellipsis marks a longer one.

    >>> shorten("abc", 3), shorten("abcd", 3)
    ('abc', 'ab…')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def printable(text: str) -> str:
    r"""Return `text` with escaped control characters, which could drive terminals.

    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
