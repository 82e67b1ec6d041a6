"""What Python's json writes is read in a time that grows as the file does."""

import contextlib
import time

import pytest

from recordmill.schemas.coco import AnnotationKind
from recordmill.schemas.errors import AnnotationFileError
from recordmill.transforms.coco.decode_coco import decode_coco
from recordmill.transforms.coco.odd_json import quote_nan


def seconds(data: bytes) -> float:
    began = time.process_time()
    with contextlib.suppress(AnnotationFileError):
        decode_coco("a.json", data, AnnotationKind.CAPTIONS)
    return time.process_time() - began


def nan_captions(count: int) -> bytes:
    rows = ",".join(f'{{"id": {id_}, "image_id": 1, "caption": NaN}}' for id_ in range(count))
    return f'{{"images": [], "annotations": [{rows}]}}'.encode()


def unended_text(count: int) -> bytes:
    return b'{"images": [], "x": NaN, "y": "' + b'\\"a' * count


@pytest.mark.parametrize("made", [nan_captions, unended_text])
def test_ten_times_the_data_takes_about_ten_times_as_long(made):
    small = min(seconds(made(3_000)) for _ in range(3))
    assert min(seconds(made(30_000)) for _ in range(2)) < 30 * small + 0.05


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
