"""Read YAML with the literal texts of names: YAML 1.1 reads 02146 as 1126, 12:30 as 750, `no` as False."""

from collections import Counter
from collections.abc import Collection
from typing import Any

import yaml

from recordmill.schemas.inputs.yaml_loader import CheckedLoader

_TAG = "tag:yaml.org,2002:"
_TEXT, _NULL = f"{_TAG}str", f"{_TAG}null"
_NUMBERS = (f"{_TAG}int", f"{_TAG}float")


def load_yaml(data: bytes, names: Collection[str], plain: Collection[str] = (), nested: Collection[str] = ()) -> Any:
    """Return the value of YAML.

    Args:
        names: Keys of the top mapping below which every scalar is its literal text.
        plain: Keys below which only numbers are their literal texts. Null and booleans have their values.
        nested: Keys whose values are lists of mappings that are read as the top mapping is.

    Raises:
        yaml.YAMLError, ValueError, RecursionError: It is not YAML, or a mapping of names has a key twice.

    >>> load_yaml(b"names: [02146, no]\\nnc: 02\\nother: no", {"names"}, {"nc"})
    {'names': ['02146', 'no'], 'nc': '02', 'other': False}
    """
    loader = CheckedLoader(data)
    try:
        root = loader.get_single_node()
        waiting = [root]
        while waiting:
            mapping = waiting.pop()
            if not isinstance(mapping, yaml.MappingNode):
                continue
            loader.flatten_mapping(mapping)
            for key, node in mapping.value:
                name = key.value if isinstance(key, yaml.ScalarNode) else ""
                if name in names and node.tag != _NULL:
                    _keep_texts(node, is_name=True)
                elif name in plain:
                    _keep_texts(node, is_name=False)
                elif name in nested and mapping is root and isinstance(node, yaml.SequenceNode):
                    waiting += node.value
        return loader.construct_document(root) if root else None
    finally:
        loader.dispose()


def load_names(data: bytes) -> Any:
    """Return the value of YAML whose scalars are names: their literal texts. Null stays None.

    Raises:
        yaml.YAMLError, ValueError, RecursionError: It is not YAML, or a mapping has a key twice.

    >>> load_names(b"{no: 02, 1.0: null, b: ~, c: 'null', d: }")
    {'no': '02', '1.0': None, 'b': None, 'c': 'null', 'd': None}
    """
    loader = CheckedLoader(data)
    try:
        root = loader.get_single_node()
        if root:
            _keep_texts(root, is_name=True, keeps_null=True)
        return loader.construct_document(root) if root else None
    finally:
        loader.dispose()


def _keep_texts(node: yaml.Node, is_name: bool, keeps_null: bool = False) -> None:
    waiting, seen = [node], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            is_text = is_name and not (keeps_null and node.tag == _NULL)
            node.tag = _TEXT if is_text or node.tag in _NUMBERS else node.tag
        elif isinstance(node, yaml.MappingNode):
            keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
            if repeated := [key for key, number in keys.items() if number > 1]:
                raise ValueError(f"the key {repeated[0]!r} is given twice")
            waiting += [part for pair in node.value for part in pair]
        else:
            waiting += node.value
