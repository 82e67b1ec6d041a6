"""Loader of YAML whose errors name the line of a value that cannot be read."""

from typing import Any

import yaml

from recordmill.schemas.sizes import shorten

_SHOWN = 40


class CheckedLoader(yaml.SafeLoader):
    """SafeLoader that refuses a value that does not fit its tag, and a text with NUL or half of a surrogate pair."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, TypeError, OverflowError) as error:
            raise _fault(node, f"is not a valid {node.tag.rpartition(':')[2]}") from error
        if isinstance(value, str) and any(char == "\0" or "\ud800" <= char <= "\udfff" for char in value):
            raise _fault(node, "has a NUL, or half of a surrogate pair")
        return value


def _fault(node: yaml.Node, what: str) -> yaml.constructor.ConstructorError:
    # Only scalars are shown: a list with aliases of aliases may have gigabytes of text.
    shown = shorten(repr(node.value), _SHOWN) if isinstance(node, yaml.ScalarNode) else "a list or mapping"
    return yaml.constructor.ConstructorError(problem=f"{shown} {what}", problem_mark=node.start_mark)


def describe_yaml_error(file: str, error: Exception) -> str:
    """Return the error of a YAML file as a sentence, with its line if that is known."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"{file} is not valid YAML: {' '.join(str(error).split())}"
    return f"{file}, line {mark.line + 1}: not valid YAML: {' '.join(str(getattr(error, 'problem', error)).split())}"
