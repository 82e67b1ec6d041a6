import pytest

from recordmill.transforms.coco.json_faults import quote_nan


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        (b'{"NaN": NaN, "x": -Infinity}', b'{"NaN": "NaN", "x": "-Infinity"}'),
        (b'["a\\"NaN\\\\", NaN, "\\\\"]', b'["a\\"NaN\\\\", "NaN", "\\\\"]'),
        (b'["NaN', b'["NaN'),
    ],
)
def test_words_within_texts_are_left_alone(text, quoted):
    assert quote_nan(text) == quoted
