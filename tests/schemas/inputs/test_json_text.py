"""Keys that JSON objects have twice."""

import pytest

from recordmill.schemas.inputs.json_text import repeated_key


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (b'{"a": 1, "a": 2}', "a"),
        (b'{"a": 1, "a": "x\\u003ay"}', "a"),  # as many colons as in the value, where it is not escaped
        (b'{"a": 1, "a": "x\\u003Ay"}', "a"),
        (b'{"a": "x:y", "a": 2}', "a"),
        (b'{"a" : 1, "b": {"c": "1:2", "c" : 3}}', "c"),
        (b'[{"a": 1}, {"a": NaN, "a": 1}]', "a"),
        (b'{"a": "\\ud800", "a": 1}', "a"),
        (b'{"a": "' + b":" * (1 << 20) + b'", "b": 1, "b": 2}', "b"),
        (b'{"a": "x\\u003ay", "b": "::", "c": {"a": 1e999}}', None),
        (b'{"a": "\\\\u003a"}', None),
        (b'{"a": ', None),
    ],
)
def test_a_repeated_key_is_found_beside_colons_in_texts(text, key):
    assert repeated_key(text) == key
