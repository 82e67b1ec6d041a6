"""Texts become numbers by an encoder that was fitted before."""

import math
from collections import Counter

from recordmill.schemas.encoders import FIRST_TOKEN_ID, UNKNOWN_ID, EncodedText, TextEncoder, TextForm
from recordmill.transforms.text.split_terms import TermSplitter


class TextVectorizer:
    """Encodes texts, as scikit-learn's CountVectorizer and TfidfVectorizer do, or as token ids."""

    def __init__(self, encoder: TextEncoder):
        self._split = TermSplitter(encoder.settings)
        self._form = encoder.settings.form
        self._index = {term: index for index, term in enumerate(encoder.vocabulary)}
        self._idf = encoder.idf

    def __call__(self, text: str) -> EncodedText:
        terms = self._split(text)
        found = list(map(self._index.get, terms))
        if self._form is TextForm.TOKENS:
            ids = tuple(UNKNOWN_ID if index is None else index + FIRST_TOKEN_ID for index in found)
            return EncodedText(ids, (), len(terms), found.count(None))
        counts = Counter(each for each in found if each is not None)
        index = sorted(counts)
        values = [float(counts[each]) for each in index]
        if self._form is TextForm.TFIDF:
            values = _unit_length([value * self._idf[each] for each, value in zip(index, values, strict=True)])
        return EncodedText(tuple(index), tuple(values), len(terms), found.count(None))


def _unit_length(values: list[float]) -> list[float]:
    """The vector divided by its Euclidean length; one without values stays.

    >>> _unit_length([3.0, 4.0]), _unit_length([])
    ([0.6, 0.8], [])
    """
    length = math.sqrt(math.fsum(value * value for value in values))
    return [value / length for value in values]
