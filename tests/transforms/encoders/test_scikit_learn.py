from collections import Counter
from itertools import pairwise

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from recordmill.schemas.inputs.encoders import EncoderSource, TextEncoder, TextForm, TextSettings
from recordmill.transforms.encoders.fit_encoder import (
    FitEncoder,
    TermCounter,
    TermSplitter,
    TextVectorizer,
    add_counts,
    make_encoder,
)
from tests.beam_pipeline import Pipeline
from tests.transforms.encoders.drawn_texts import ODD, captions

TEXTS = [*captions(300), *ODD]
SETTINGS = (
    {},
    {"ngrams": (1, 2)},
    {"ngrams": (2, 3)},
    {"lower": False},
    {"stop_words": ("on", "the", "with")},
    {"stop_words": ("on", "the", "with"), "ngrams": (1, 3)},
    {"min_df": 5},
    {"min_df": 0.02},
    {"min_df": 1.0 / len(TEXTS)},
    {"min_df": 2, "ngrams": (1, 2), "lower": False},
)


def fitted(texts: list[str], settings: TextSettings) -> TextEncoder:
    """Encoder fitted as in a job, without Beam."""
    counter = TermCounter(settings)
    counter.add(texts)
    counts = add_counts([counter.counts()], len(texts), settings)
    return make_encoder(counts, len(texts), EncoderSource("captions", settings, "train"))


def vectorizer(settings: TextSettings):
    kind = TfidfVectorizer if settings.form is TextForm.TFIDF else CountVectorizer
    return kind(
        ngram_range=settings.ngrams,
        lowercase=settings.lower,
        stop_words=list(settings.stop_words) or None,
        min_df=settings.min_df,
        max_features=settings.features,
    )


def matrix(encoder: TextEncoder, texts: list[str]) -> np.ndarray:
    vectors, dense = TextVectorizer(encoder)(texts), np.zeros((len(texts), encoder.size))
    for row, (start, end) in enumerate(pairwise(vectors.ends)):
        index = vectors.indices[start:end].tolist()
        assert index == sorted(set(index))
        dense[row, index] = vectors.values[start:end]
    return dense


@pytest.mark.parametrize("form", [TextForm.COUNTS, TextForm.TFIDF])
@pytest.mark.parametrize("changed", SETTINGS, ids=str)
def test_columns_and_values_are_scikit_learn(form, changed):
    settings = TextSettings(form, **changed)
    encoder, theirs = fitted(TEXTS, settings), vectorizer(settings)
    expected = theirs.fit_transform(TEXTS).toarray()
    assert list(encoder.vocabulary) == theirs.get_feature_names_out().tolist()
    if form is TextForm.TFIDF:
        np.testing.assert_allclose(encoder.idf, theirs.idf_, rtol=1e-12)
    np.testing.assert_allclose(matrix(encoder, TEXTS), expected, rtol=1e-12, atol=0)
    new = captions(60, seed=1)
    np.testing.assert_allclose(matrix(encoder, new), theirs.transform(new).toarray(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("ngrams", [(1, 1), (1, 2)])
@pytest.mark.parametrize("number", [1, 5, 40, 10_000])
def test_the_most_frequent_are_kept(number, ngrams):
    """scikit-learn keeps any terms of equal frequency, because its sort is not stable; we keep the first."""
    settings = TextSettings(TextForm.COUNTS, ngrams=ngrams, features=number)
    ours, theirs = fitted(TEXTS, settings), vectorizer(settings).fit(TEXTS)
    occurrences = Counter(term for text in TEXTS for term in TermSplitter(settings)(text))
    names = theirs.get_feature_names_out().tolist()
    assert sorted(occurrences[term] for term in ours.vocabulary) == sorted(occurrences[term] for term in names)
    rarest = min(occurrences[term] for term in names)
    above = {term for term in occurrences if occurrences[term] > rarest}
    assert above <= set(ours.vocabulary)
    assert above <= set(names)
    tied = sorted(term for term, times in occurrences.items() if times == rarest)
    assert [term for term in ours.vocabulary if term not in above] == tied[: len(names) - len(above)]


def test_beam_fits_the_same():
    settings = TextSettings(TextForm.TFIDF, ngrams=(1, 2), min_df=2, features=60)
    with Pipeline() as p:
        texts = p | beam.Create([[text] for text in TEXTS]) | beam.Reshuffle()
        encoder = texts | FitEncoder(EncoderSource("captions", settings, "train"))
        assert_that(encoder, equal_to([fitted(TEXTS, settings)]))
