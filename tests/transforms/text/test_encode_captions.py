"""The captions of images become numbers in Beam, and what was met is counted."""

import apache_beam as beam
from apache_beam.testing.test_pipeline import TestPipeline as Pipeline
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.annotations import Caption, ImageLabels
from recordmill.schemas.encoders import EncoderSource, TextCounts, TextEncoder, TextForm, TextSettings
from recordmill.schemas.images import ImageRef, ImageTask
from recordmill.transforms.text.encode_captions import EncodeCaptions, add_text_counts, caption_text

COUNTS = TextSettings(TextForm.COUNTS)


def task(id_: int, split: str, *captions: str) -> ImageTask:
    labels = ImageLabels(tuple(Caption(number, text) for number, text in enumerate(captions)))
    return ImageTask(id_, f"{id_}.jpg", 4, 3, ImageRef("x", 1), split, (), labels)


TASKS = [
    task(1, "train", "dog cat", "dog"),
    task(2, "train", "cat"),
    task(3, "train"),
    task(4, "val", "cat yak yak"),
    task(5, "val", "yak"),
]


def check(source: EncoderSource) -> None:

    with Pipeline() as p:
        found = p | beam.Create(TASKS) | beam.Reshuffle() | EncodeCaptions(source)
        numbers = found.tasks | beam.Map(
            lambda each: (each.image_id, each.labels.caption_index, each.labels.caption_value)
        )
        counts = found.texts.counts | beam.CombinePerKey(add_text_counts)
        terms = found.texts.encoders | beam.Map(lambda encoder: (encoder.texts, encoder.vocabulary))
        assert_that(numbers, equal_to(NUMBERS), "numbers")
        assert_that(counts, equal_to(COUNTED), "counts")
        assert_that(terms, equal_to([(2, ("cat", "dog"))]), "terms")


NUMBERS = [(1, (0, 1), (1.0, 2.0)), (2, (0,), (1.0,)), (3, (), ()), (4, (0,), (1.0,)), (5, (), ())]
COUNTED = [
    (("train", "captions"), TextCounts(2, 0, 4, 0)),
    (("val", "captions"), TextCounts(2, 1, 4, 3)),
]


def test_what_is_learned_from_one_split_encodes_all():
    """An image without captions is no text."""
    check(EncoderSource("captions", COUNTS, "train"))


def test_a_saved_encoder_is_applied():
    saved = TextEncoder(1, "captions", COUNTS, "train", 2, ("cat", "dog"))
    check(EncoderSource("captions", COUNTS, saved=saved))


def test_the_captions_of_an_image_are_one_text():
    assert caption_text(TASKS[0]) == "dog cat\ndog"
