import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.inputs.annotations import Caption, ImageLabels
from recordmill.schemas.inputs.encoders import EncoderSource, TextCounts, TextEncoder, TextForm, TextSettings
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageTask
from recordmill.transforms.blocks.image_tasks import image_tasks
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.dataset.facts import add_facts
from recordmill.transforms.encoders import fit_encoder as module
from recordmill.transforms.encoders.encode_captions import EncodeCaptions, caption_text
from recordmill.transforms.encoders.fit_encoder import encoder_warnings
from tests.beam_pipeline import Pipeline
from tests.transforms.blocks.of_tasks import block_of_tasks
from tests.transforms.dataset.kinds import applied

COUNTS = TextSettings(TextForm.COUNTS)


def task(id_: int, split: str, *captions: str) -> ImageTask:
    labels = ImageLabels(tuple(Caption(number, text) for number, text in enumerate(captions)))
    return ImageTask(id_, f"{id_}.jpg", 4, 3, ImageFile("x", 1), split, (), labels)


TASKS = [
    task(1, "train", "dog cat", "dog"),
    task(2, "train", "cat"),
    task(3, "train"),
    task(4, "val", "cat yak yak"),
    task(5, "val", "yak"),
]


SAVED = TextEncoder(1, "captions", COUNTS, "train", 2, ("cat", "dog"))


@pytest.mark.parametrize(
    "source", [EncoderSource("captions", COUNTS, "train"), EncoderSource("captions", COUNTS, saved=SAVED)]
)
def test_encode_captions(source):
    """An image without captions has no text."""
    with Pipeline() as p:
        blocks = [(key, pack_block(block_of_tasks(tasks, SPLITS))) for key, tasks in ((4, TASKS[:4]), (7, TASKS[4:]))]
        (encoded, encoder), facts = applied(p | beam.Create(blocks) | beam.Reshuffle(), EncodeCaptions(source, SPLITS))
        numbers = encoded | beam.FlatMapTuple(
            lambda key, packed: [
                (key, task.image_id, task.labels.caption_index, task.labels.caption_value)
                for task in image_tasks(unpack_block(packed), SPLITS)
            ]
        )
        counts = facts | beam.combiners.ToList() | beam.FlatMap(lambda parts: add_facts(parts).texts.items())
        terms = encoder | beam.Map(lambda encoder: (encoder.texts, encoder.vocabulary))
        assert_that(numbers, equal_to(NUMBERS), "numbers")
        assert_that(counts, equal_to(COUNTED), "counts")
        assert_that(terms, equal_to([(2, ("cat", "dog"))]), "terms")


NUMBERS = [(4, 1, (0, 1), (1.0, 2.0)), (4, 2, (0,), (1.0,)), (4, 3, (), ()), (4, 4, (0,), (1.0,)), (7, 5, (), ())]
SPLITS = ("train", "val")
COUNTED = [(("train", "captions"), TextCounts(2, 0, 4, 0)), (("val", "captions"), TextCounts(2, 1, 4, 3))]


def test_caption_text():
    assert caption_text(TASKS[0].labels) == "dog cat\ndog"


@pytest.mark.parametrize(
    ("split", "stop_words", "told"),
    [
        ("train", (), []),
        ("train", ("on", "the"), []),
        ("val", (), ["the vocabulary of captions is from split val, not from train"]),
        ("train", ("don't", "on"), ["1 of the 2 stop words are not tokens (don't), so they have no effect"]),
        ("train", tuple("abcdefg"), ["7 of the 7 stop words are not tokens (a, b, c, d, e …)"]),
    ],
)
def test_a_sentence_for_each(split, stop_words, told):
    encoder = TextEncoder(1, "captions", TextSettings(TextForm.COUNTS, stop_words=stop_words), split, 7, ("cat",))
    found = list(encoder_warnings(encoder))
    assert [text for text, start in zip(found, told, strict=True) if not text.startswith(start)] == []


def test_vocabulary_that_no_worker_holds_easily(monkeypatch):
    monkeypatch.setattr(module, "_MANY_TERMS", 1)
    encoder = TextEncoder(1, "captions", TextSettings(TextForm.COUNTS), "train", 7, ("cat", "dog"))
    (told,) = encoder_warnings(encoder)
    assert "has 2 terms, which every worker holds" in told
