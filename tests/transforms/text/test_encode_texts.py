"""Texts become numbers; that they are scikit-learn's is tested in test_scikit_learn.py."""

import pytest

from recordmill.schemas.encoders import EncodedText, TextEncoder, TextForm, TextSettings
from recordmill.transforms.text.encode_texts import TextVectorizer

VOCABULARY = ("cat", "dog", "dog cat", "mat")


def encoder(form: TextForm, idf: tuple[float, ...] = (), **settings) -> TextEncoder:
    return TextEncoder(1, "captions", TextSettings(form, **settings), "train", 3, VOCABULARY, idf)


def test_counts_are_sorted_by_index_and_what_is_unknown_is_counted():
    encode = TextVectorizer(encoder(TextForm.COUNTS))
    assert encode("mat dog zebra dog yak") == EncodedText((1, 3), (2.0, 1.0), terms=5, unknown=2)


def test_tokens_keep_their_order_and_unknown_ones_their_place():
    """0 is for padding, 1 for unknown tokens, as in keras.layers.TextVectorization."""
    encode = TextVectorizer(encoder(TextForm.TOKENS))
    assert encode("mat zebra dog dog") == EncodedText((5, 1, 3, 3), (), terms=4, unknown=1)
    assert encoder(TextForm.TOKENS).size == 6


def test_weights_are_of_length_1():
    encode = TextVectorizer(encoder(TextForm.TFIDF, (1.0, 2.0, 9.0, 1.5)))
    assert encode("dog dog mat").index == (1, 3)
    assert encode("dog dog mat").value == pytest.approx((4 / 18.25**0.5, 1.5 / 18.25**0.5))


@pytest.mark.parametrize("text", ["", "zebra", "\x00"])
@pytest.mark.parametrize("form", [TextForm.COUNTS, TextForm.TFIDF])
def test_a_text_without_a_known_term_is_an_empty_vector(form, text):
    idf = (1.0,) * 4 if form is TextForm.TFIDF else ()
    encoded = TextVectorizer(encoder(form, idf))(text)
    assert (encoded.index, encoded.value) == ((), ())
