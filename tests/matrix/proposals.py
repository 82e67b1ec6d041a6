"""Commands and flags that messages propose: in the text of a message, and in the sources."""

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from recordmill.pipelines.choose_format import convert_fields

ROOT = Path(__file__).parents[2]
_ROOMS = ("schemas", "transforms", "pipelines", "launch", "recordmill")
_VERBS = "convert|verify|extract|repack|seal|show|report|index|sample"
_WORD = r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"()])+"
_COMMAND = re.compile(rf"\brecordmill (?:{_VERBS}) ")
_AFTER = ("writes", "reads", "reports", "lists", "has", "with", "without", "tells", "the")
"""Words that follow a command in a sentence."""
_FLAG = re.compile(rf"(?<![\w/.'-])(--[a-z][a-z-]*)(?:[ =]({_WORD}))?")
_DATA = re.compile(rf"\b(?:[Uu]se|or) ((?:(?!or |use |-){_WORD} )+)as DATA\b")
_HOLE = "{}"
"""Stands for an expression in the template of an f-string."""


@cache
def _options() -> dict[str, tuple[bool, frozenset[str]]]:
    """Return of each flag of `convert` whether it takes a value, and the choices of the value."""
    return {
        field.flag: (field.type is not bool, frozenset(map(str, field.choices or ()))) for field in convert_fields()
    }


def _strip(word: str) -> str:
    """Return a word without the punctuation of the sentence."""
    return word if word[-1:] in "'\"" else word.rstrip(".,;:")


def proposals(text: str) -> list[list[str]]:
    """Return the commands and flags in a message, as words: `recordmill convert …`, or a flag and its value, or DATA
    and paths.

    >>> proposals("add --fields 'a b',c, or use --stratify. Run recordmill convert 'a b' -o OUT (x), use x as DATA.")
    [['recordmill', 'convert', 'a b', '-o', 'OUT'], ['DATA', 'x'], ['--fields', 'a b,c'], ['--stratify']]
    """
    found: list[list[str]] = []
    rest, start = "", 0
    for command in _COMMAND.finditer(text):
        words, length = _command_words(text[command.start() :])
        found.append(words)
        rest, start = rest + text[start : command.start()], command.start() + length
    rest += text[start:]
    found += [["DATA", *shlex.split(match[1])] for match in _DATA.finditer(rest)]
    for match in _FLAG.finditer(rest):
        takes_value = _options().get(match[1], (True, ()))[0]
        value = shlex.split(_strip(match[2])) if match[2] and takes_value else []
        found.append([match[1], *value])
    return found


def _command_words(text: str) -> tuple[list[str], int]:
    """Return the words of a command at the beginning of a text, and its length. It ends at punctuation, or at a word
    that is neither DATA nor a flag nor the value of one."""
    words, flag, end = list[str](), "", 0
    for match in re.finditer(rf" ?({_WORD})", text):
        word = _strip(match[1])
        is_value = bool(flag) and _options().get(flag, (True, ()))[0]
        is_data = not any(one.startswith("-") for one in words) and word not in _AFTER
        if match.start() != end or not word or not (word.startswith("-") or is_value or is_data):
            break
        words += shlex.split(word)
        flag, end = word if word.startswith("-") else "", match.start(1) + len(word)
        if word != match[1]:
            break
    return words, end


class Message(NamedTuple):
    """A text in the sources that proposes a command or a flag with a value. Expressions are `{}`."""

    module: str
    line: int
    text: str


def messages() -> list[Message]:
    """Return the texts in the sources that propose a command, or a flag with a value."""
    return [message for message in texts() if _proposes(message.text)]


def texts() -> Iterator[Message]:
    """Yield all texts in the sources. Expressions are `{}`."""
    for room in _ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            module = str(path.relative_to(ROOT))
            for line, text in _texts(ast.parse(path.read_text())):
                yield Message(module, line, text)


def _texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the lines and texts of all strings but docstrings, and of commands joined from words."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    parts |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(map(_template, node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.lineno, node.value
        elif isinstance(node, ast.List) and node.elts and _template(node.elts[0]) == "recordmill":
            yield node.lineno, " ".join(map(_template, node.elts))


def _template(node: ast.expr) -> str:
    """Return the text of a constant, or of a call of `use_images` or `fields_flag`, which return flags with values."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    call = node.value if isinstance(node, ast.FormattedValue) else node
    function = call.func if isinstance(call, ast.Call) else None
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return {"use_images": f"--images {_HOLE}", "fields_flag": f"--fields {_HOLE}"}.get(name, _HOLE)


_NO_VALUES = ("with", "if", "to", "and", "or", "for", "in", "out", "the", "first", "is", "contradict")
"""Words that follow a flag without a value."""
_ADD = re.compile(r"\b(?:[Aa]dd|[Uu]se|[Gg]ive|[Ss]et|[Pp]ass|[Tt]ry|[Cc]hoose)(?: either)? $")
_CURE = re.compile(r"(?:\b(?:again|or|with|by|to)|[:.;,{}]) ?$")


def _proposes(text: str) -> bool:
    if re.search(rf"\brecordmill (?:{_VERBS}) ['\"]?(?:{re.escape(_HOLE)}|%s|--(?!help))", text):
        return True
    for match in re.finditer(r"(--[a-z][a-z-]*)[ =](\{\}|[A-Z]{3,}|%s|[a-z0-9,-]*[a-z0-9])", text):
        takes_value, choices = _options().get(match[1], (True, frozenset()))
        before, value = text[: match.start()], match[2]
        is_word = value.islower() and value not in choices
        if not takes_value or value in _NO_VALUES:
            continue
        if _ADD.search(before) or (not is_word and _CURE.search(before)) or (not before and value in choices):
            return True
    return False


if __name__ == "__main__":
    for message in messages():
        print(f"{message.module}:{message.line}: {message.text}")
