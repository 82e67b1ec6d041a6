"""Texts become numbers by an encoder that was fitted before, many at once."""

import math
import re
from collections.abc import Sequence
from itertools import chain, pairwise, repeat
from typing import NamedTuple

import numpy as np

from recordmill.schemas.encoders import FIRST_TOKEN_ID, UNKNOWN_ID, TextEncoder, TextForm, TextSettings

AT_ONCE = 1024
"""Texts whose terms are held at once: enough that NumPy's calls cost nothing."""


class TermSplitter:
    """Splits texts as scikit-learn's vectorizers do with the same settings."""

    def __init__(self, settings: TextSettings):
        self._find_tokens = re.compile(settings.token_pattern).findall
        self._stop_words = frozenset(settings.stop_words)
        self._lower = settings.lower
        self._fewest, self._most = settings.ngrams

    def __call__(self, text: str) -> list[str]:
        """The terms of a text: single tokens in their order, then pairs, and so on."""
        tokens = self._find_tokens(text.lower() if self._lower else text)
        if self._stop_words:
            tokens = [token for token in tokens if token not in self._stop_words]
        if self._most == 1:
            return tokens
        return [
            term
            for length in range(self._fewest, self._most + 1)
            for term in map(" ".join, zip(*(tokens[start:] for start in range(length)), strict=False))
        ]


def never_tokens(settings: TextSettings) -> tuple[str, ...]:
    """Stop words that texts are never split into, so that nothing is left out for them: `don't` is `don`.

    >>> from recordmill.schemas.encoders import TextForm
    >>> never_tokens(TextSettings(TextForm.COUNTS, stop_words=("The", "a", "don't", "with")))
    ('The', 'a', "don't")
    """
    split = TermSplitter(TextSettings(settings.form, lower=settings.lower))
    return tuple(word for word in settings.stop_words if split(word) != [word])


class TextVectors(NamedTuple):
    """Texts as numbers: of text i those from `ends[i]` to `ends[i + 1]`.

    Attributes:
        indices: int64, of the terms that are in a text, ascending; or the ids of its tokens, in their order.
        values: float64, of these terms; empty for tokens.
        ends: int64 [texts + 1].
        counts: int64 [texts, 4], of each text its part of TextCounts.
    """

    indices: np.ndarray
    values: np.ndarray
    ends: np.ndarray
    counts: np.ndarray


class TextVectorizer:
    """Encodes texts, as scikit-learn's CountVectorizer and TfidfVectorizer do, or as token ids."""

    def __init__(self, encoder: TextEncoder):
        self._split = TermSplitter(encoder.settings)
        self._form = encoder.settings.form
        self._index = {term: index for index, term in enumerate(encoder.vocabulary)}
        self._idf = np.array(encoder.idf)

    def __call__(self, texts: Sequence[str]) -> TextVectors:
        parts = [self._vectors(texts[start : start + AT_ONCE]) for start in range(0, len(texts), AT_ONCE)]
        parts = parts or [self._vectors(())]
        index, value, _, counts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        lengths = np.concatenate([np.diff(part.ends) for part in parts])
        return TextVectors(index, value, np.concatenate([[0], np.cumsum(lengths)]), counts)

    def _vectors(self, texts: Sequence[str]) -> TextVectors:
        terms = list(map(self._split, texts))
        numbers = np.array(list(map(len, terms)), np.int64)
        found = np.fromiter(map(self._index.get, chain.from_iterable(terms), repeat(-1)), np.int64)
        owners = np.repeat(np.arange(len(texts)), numbers)
        unknown = np.bincount(owners[found < 0], minlength=len(texts))
        counts = np.stack([np.ones_like(numbers), numbers == unknown, numbers, unknown], axis=1)
        if self._form is TextForm.TOKENS:
            ids = np.where(found < 0, UNKNOWN_ID, found + FIRST_TOKEN_ID)
            return TextVectors(ids, np.zeros(0), np.concatenate([[0], np.cumsum(numbers)]), counts)
        size = max(1, len(self._index))
        pairs, times = np.unique((owners * size + found)[found >= 0], return_counts=True)
        ends = np.searchsorted(pairs, np.arange(len(texts) + 1) * size)
        index, value = pairs % size, times.astype(np.float64)
        if self._form is TextForm.TFIDF:
            value = _of_unit_length(value * self._idf[index], ends)
        return TextVectors(index, value, ends, counts)


def _of_unit_length(values: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Vectors that lie one after the other, each divided by its Euclidean length.

    >>> _of_unit_length(np.array([3.0, 4.0, 2.0]), np.array([0, 2, 2, 3])).tolist()
    [0.6, 0.8, 1.0]
    """
    squares = (values * values).tolist()
    # Exact sums are the same in any order, and so are records.
    lengths = [math.sqrt(math.fsum(squares[start:end])) for start, end in pairwise(ends.tolist())]
    return values / np.repeat(lengths, np.diff(ends))
