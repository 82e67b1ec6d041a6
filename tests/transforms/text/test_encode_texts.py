from itertools import pairwise

import pytest

from recordmill.schemas.encoders import TextEncoder, TextForm, TextSettings
from recordmill.transforms.text import encode_texts
from recordmill.transforms.text.encode_texts import TextVectorizer

VOCABULARY = ("cat", "dog", "dog cat", "mat")


def encoder(form: TextForm, idf: tuple[float, ...] = (), **settings) -> TextEncoder:
    return TextEncoder(1, "captions", TextSettings(form, **settings), "train", 3, VOCABULARY, idf)


def encoded(encoder: TextEncoder, *texts: str) -> list[tuple[list, list, list]]:
    """Of each text index, value and counts."""
    vectors = TextVectorizer(encoder)(texts)
    parts = [slice(start, end) for start, end in pairwise(vectors.ends)]
    assert vectors.ends[-1] == vectors.indices.size
    return [
        (vectors.indices[part].tolist(), vectors.values[part].tolist(), counts.tolist())
        for part, counts in zip(parts, vectors.counts, strict=True)
    ]


def test_counts_are_sorted_by_index_and_what_is_unknown_is_counted():
    assert encoded(encoder(TextForm.COUNTS), "mat dog zebra dog yak", "cat", "yak") == [
        ([1, 3], [2.0, 1.0], [1, 0, 5, 2]),
        ([0], [1.0], [1, 0, 1, 0]),
        ([], [], [1, 1, 1, 1]),
    ]


def test_tokens_keep_their_order_and_unknown_ones_their_place():
    """0 is for padding, 1 for unknown tokens, as in keras.layers.TextVectorization."""
    assert encoded(encoder(TextForm.TOKENS), "mat zebra dog dog", "", "cat") == [
        ([5, 1, 3, 3], [], [1, 0, 4, 1]),
        ([], [], [1, 1, 0, 0]),
        ([2], [], [1, 0, 1, 0]),
    ]
    assert encoder(TextForm.TOKENS).size == 6


def test_weights_are_of_length_1():
    ((index, value, _),) = encoded(encoder(TextForm.TFIDF, (1.0, 2.0, 9.0, 1.5)), "dog dog mat")
    assert index == [1, 3]
    assert value == pytest.approx((4 / 18.25**0.5, 1.5 / 18.25**0.5))


@pytest.mark.parametrize("text", ["", "zebra", "\x00"])
@pytest.mark.parametrize("form", [TextForm.COUNTS, TextForm.TFIDF])
def test_a_text_without_a_known_term_is_an_empty_vector(form, text):
    idf = (1.0,) * 4 if form is TextForm.TFIDF else ()
    ((index, value, _),) = encoded(encoder(form, idf), text)
    assert (index, value) == ([], [])


@pytest.mark.parametrize("form", list(TextForm)[1:])
def test_texts_are_the_same_however_many_are_at_once(form, monkeypatch):
    idf = (1.0, 2.0, 9.0, 1.5) if form is TextForm.TFIDF else ()
    texts = ["mat dog", "", "cat cat yak", "dog", "zebra"]
    whole = encoded(encoder(form, idf), *texts)
    monkeypatch.setattr(encode_texts, "AT_ONCE", 2)
    assert encoded(encoder(form, idf), *texts) == whole
    assert encoded(encoder(form, idf)) == []
