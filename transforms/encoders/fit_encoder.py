"""Fit an encoder on texts: count their terms, choose the terms of the vocabulary, and number them."""

import math
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from heapq import nsmallest
from itertools import chain, pairwise, repeat
from typing import NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.coders import registry
from apache_beam.pvalue import AsSingleton, PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.schemas.errors import VocabularyError
from recordmill.schemas.inputs.encoders import (
    FIRST_TOKEN_ID,
    FORMAT,
    UNKNOWN_ID,
    EncoderSource,
    Terms,
    TextEncoder,
    TextForm,
    TextSettings,
)
from recordmill.transforms.runtime.beam_steps import StructCoder

AT_ONCE = 1024
"""Number of texts per batch: large enough to hide the overhead of NumPy's calls."""

registry.register_coder(Terms, StructCoder)


class TermSplitter:
    """Splitter of texts into terms, equal to scikit-learn's vectorizers with the same settings."""

    def __init__(self, settings: TextSettings):
        self._find_tokens = re.compile(settings.token_pattern).findall
        self._stop_words = frozenset(settings.stop_words)
        self._lower = settings.lower
        self._fewest, self._most = settings.ngrams

    def __call__(self, text: str) -> list[str]:
        """Return the terms of a text: single tokens in their order, then pairs, and so on."""
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


def ineffective_stop_words(settings: TextSettings) -> tuple[str, ...]:
    """Return stop words without effect, because splitting never returns them: `don't` is split into `don`.

    >>> from recordmill.schemas.inputs.encoders import TextForm
    >>> ineffective_stop_words(TextSettings(TextForm.COUNTS, stop_words=("The", "a", "don't", "with")))
    ('The', 'a', "don't")
    """
    split = TermSplitter(TextSettings(settings.form, lower=settings.lower))
    return tuple(word for word in settings.stop_words if split(word) != [word])


class TextVectors(NamedTuple):
    """Texts as numbers. Text i has the numbers from `ends[i]` to `ends[i + 1]`.

    Attributes:
        indices: int64, indices of the terms in each text, ascending; or its token ids, in the order of the text.
        values: float64, values of these terms; empty for tokens.
        ends: int64 [texts + 1].
        counts: int64 [texts, 4], each text's contribution to TextCounts.
    """

    indices: np.ndarray
    values: np.ndarray
    ends: np.ndarray
    counts: np.ndarray


class TextVectorizer:
    """Encoder of texts, equal to scikit-learn's CountVectorizer and TfidfVectorizer, or as token ids."""

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
        term_index = np.fromiter(map(self._index.get, chain.from_iterable(terms), repeat(-1)), np.int64)
        owners = np.repeat(np.arange(len(texts)), numbers)
        unknown = np.bincount(owners[term_index < 0], minlength=len(texts))
        counts = np.stack([np.ones_like(numbers), numbers == unknown, numbers, unknown], axis=1)
        if self._form is TextForm.TOKENS:
            ids = np.where(term_index < 0, UNKNOWN_ID, term_index + FIRST_TOKEN_ID)
            return TextVectors(ids, np.zeros(0), np.concatenate([[0], np.cumsum(numbers)]), counts)
        size = max(1, len(self._index))
        pairs, times = np.unique((owners * size + term_index)[term_index >= 0], return_counts=True)
        ends = np.searchsorted(pairs, np.arange(len(texts) + 1) * size)
        index, value = pairs % size, times.astype(np.float64)
        if self._form is TextForm.TFIDF:
            value = _normalise_vectors(value * self._idf[index], ends)
        return TextVectors(index, value, ends, counts)


def _normalise_vectors(values: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Divide each of several concatenated vectors by its Euclidean length.

    >>> _normalise_vectors(np.array([3.0, 4.0, 2.0]), np.array([0, 2, 2, 3])).tolist()
    [0.6, 0.8, 1.0]
    """
    squares = (values * values).tolist()
    # fsum is exact, so records do not depend on the order of the sum.
    lengths = [math.sqrt(math.fsum(squares[start:end])) for start, end in pairwise(ends.tolist())]
    return values / np.repeat(lengths, np.diff(ends))


_HELD_TERMS = 200_000
"""Number of distinct terms at which a worker emits its counts."""
_SHARES = 512
"""Number of shares of the distinct terms. Emitting single terms takes ten times as long."""
_MANY_TERMS = 1_000_000
_SHOWN = 5
_FITTED_ON = "train"


class FitEncoder(beam.PTransform):
    """Convert lists of texts to one TextEncoder."""

    def __init__(self, source: EncoderSource):
        super().__init__()
        self._source = source

    def expand(self, texts: PCollection[Sequence[str]]) -> PCollection[TextEncoder]:
        settings = self._source.settings
        number = texts | "NumberOfTexts" >> beam.Map(len) | "CountTexts" >> beam.CombineGlobally(sum)
        counted = (
            texts
            | "CountTerms" >> beam.ParDo(_CountTerms(settings)).with_output_types(tuple[int, Terms])
            | "GroupByShare" >> beam.GroupByKey()  # (share, [Terms])
        )
        terms = counted | "AddCounts" >> beam.Map(_add_share, AsSingleton(number), settings).with_output_types(Terms)
        choose = beam.CombineGlobally(ChooseTerms(settings.features)).with_output_types(Terms)
        make = beam.Map(make_encoder, AsSingleton(number), self._source).with_output_types(TextEncoder)
        return terms | "ChooseTerms" >> choose | "MakeEncoder" >> make


class TermCounter:
    """Counter of the terms of several texts.

    Attributes:
        distinct: Number of distinct terms, without the texts that wait to fill a batch.
    """

    def __init__(self, settings: TextSettings):
        self._split = TermSplitter(settings)
        self._numbers: defaultdict[str, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__
        self._occurrences = np.zeros(0, np.int64)
        self._texts = np.zeros(0, np.int64)
        self._waiting: list[str] = []

    def add(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._waiting.append(text)
            if len(self._waiting) == AT_ONCE:
                self._count()

    def _count(self) -> None:
        terms = list(map(self._split, self._waiting))
        term_numbers = np.fromiter(map(self._numbers.__getitem__, chain.from_iterable(terms)), np.int64)
        owners = np.repeat(np.arange(len(terms)), list(map(len, terms)))
        number = self.distinct
        # With return_counts, NumPy sorts, which is faster here.
        pairs, _ = np.unique(owners * number + term_numbers, return_counts=True)
        in_texts = pairs % max(1, number)
        self._occurrences = _add_in_place(self._occurrences, np.bincount(term_numbers, minlength=number))
        self._texts = _add_in_place(self._texts, np.bincount(in_texts, minlength=number))
        self._waiting = []

    @property
    def distinct(self) -> int:
        return len(self._numbers)

    def counts(self) -> Terms:
        self._count()
        return Terms(list(self._numbers), self._occurrences.tolist(), self._texts.tolist(), self.distinct)


def _add_in_place(sums: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Add `sums` to the first of `numbers`, in place."""
    numbers[: sums.size] += sums
    return numbers


class _CountTerms(beam.DoFn):
    """Convert texts to (share, Terms). Texts are counted together, because most have the same few words."""

    def __init__(self, settings: TextSettings):
        self._settings = settings

    def start_bundle(self):
        self._counter = TermCounter(self._settings)

    def process(self, texts: Sequence[str]) -> Iterator[tuple[int, Terms]]:
        self._counter.add(texts)
        if self._counter.distinct >= _HELD_TERMS:
            yield from self._shares()
            self.start_bundle()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        return map(GlobalWindows.windowed_value, self._shares())

    def _shares(self) -> Iterator[tuple[int, Terms]]:
        counted = self._counter.counts()
        share = np.array([zlib.crc32(term.encode()) % _SHARES for term in counted.terms], np.int64)
        order = np.argsort(share, kind="stable")
        ordered, borders = take_terms(counted, order, 0), np.flatnonzero(np.diff(share[order], prepend=-1, append=-1))
        for start, end in pairwise(borders.tolist()):
            part = slice(start, end)
            counts = Terms(ordered.terms[part], ordered.occurrences[part], ordered.texts[part], end - start)
            yield int(share[order[start]]), counts


def _add_share(share: tuple[int, Iterable[Terms]], texts: int, settings: TextSettings) -> Terms:
    return add_counts(share[1], texts, settings)


def take_terms(terms: Terms, places: np.ndarray, distinct: int) -> Terms:
    """Return the terms at some positions."""
    chosen, occurrences, texts = (np.array(column, object)[places].tolist() for column in terms.columns)
    return Terms(chosen, occurrences, texts, distinct)


def add_counts(counted: Iterable[Terms], texts: int, settings: TextSettings) -> Terms:
    """Return the sums of counts, for terms that settings allow.

    Args:
        texts: Total number of texts.
    """
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    sums = np.zeros((2, 0), np.int64)
    for terms in counted:
        places = np.fromiter(map(numbers.__getitem__, terms.terms), np.int64)
        sums = np.pad(sums, ((0, 0), (0, len(numbers) - sums.shape[1])))
        sums[:, places] += np.array([terms.occurrences, terms.texts], np.int64)  # terms are unique here
    every = Terms(list(numbers), sums[0].tolist(), sums[1].tolist(), len(numbers))
    allowed = np.flatnonzero(sums[1] >= least_texts(settings.min_df, texts))
    return most_frequent(
        every if allowed.size == len(numbers) else take_terms(every, allowed, len(numbers)), settings.features
    )


class ChooseTerms(beam.CombineFn):
    """Merge Terms, and keep the `most` most frequent terms."""

    def __init__(self, most: int | None):
        self._most = most

    def create_accumulator(self):
        return Terms([], [], [], 0)

    def add_input(self, accumulator, terms):
        for column, more in zip(accumulator.columns, terms.columns, strict=True):
            column += more
        accumulator.distinct += terms.distinct
        is_many = self._most and len(accumulator.terms) > 2 * self._most
        return most_frequent(accumulator, self._most) if is_many else accumulator

    def merge_accumulators(self, accumulators):
        return reduce(self.add_input, accumulators, self.create_accumulator())

    def extract_output(self, accumulator):
        return most_frequent(accumulator, self._most)


def most_frequent(terms: Terms, most: int | None) -> Terms:
    """Return the `most` most frequent terms, with ties in alphabetical order; all terms if `most` is None."""
    number = len(terms.terms)
    if most is None or number <= most:
        return terms
    times = np.array(terms.occurrences)
    rarest = np.partition(times, number - most)[number - most]
    above = np.flatnonzero(times > rarest)
    ties = nsmallest(most - above.size, np.flatnonzero(times == rarest).tolist(), key=terms.terms.__getitem__)
    return take_terms(terms, np.concatenate([above, np.array(ties, np.int64)]), terms.distinct)


def least_texts(min_df: int | float, texts: int) -> float:
    """Return the minimum number of texts with a term. A float is a fraction of all `texts`.

    >>> least_texts(2, 50), least_texts(0.1, 50)
    (2, 5.0)
    """
    return min_df * texts if isinstance(min_df, float) else min_df


def make_encoder(chosen: Terms, texts: int, source: EncoderSource) -> TextEncoder:
    """Return the encoder of the terms, fitted on `texts` texts.

    Raises:
        VocabularyError: No term was chosen, or the terms differ from the folder's encoder.
    """
    column, settings, split, known = source.column, source.settings, source.fit_split, source.known
    terms = sorted(zip(chosen.terms, chosen.texts, strict=True))
    if not terms:
        raise VocabularyError(_explain_no_terms(texts, chosen.distinct, source))
    idf = (inverse_frequency(with_it, texts) for _, with_it in terms) if settings.form is TextForm.TFIDF else ()
    encoder = TextEncoder(FORMAT, column, settings, split, texts, tuple(term for term, _ in terms), tuple(idf))
    if known and encoder.info != known:
        raise VocabularyError(
            f"{column}: the {texts:,} texts of split {split} give a vocabulary of {encoder.size:,} terms, but other "
            f"splits of the folder were encoded with another of {known.size:,} terms. Write all splits in one command, "
            "keep that vocabulary with --encoders, or choose another --output"
        )
    return encoder


def inverse_frequency(with_it: int, texts: int) -> float:
    """Return scikit-learn's smooth idf of a term in `with_it` of `texts` texts, as if one more text had all terms.

    >>> inverse_frequency(9, 9), inverse_frequency(0, 0)
    (1.0, 1.0)
    """
    return math.log((1 + texts) / (1 + with_it)) + 1


def _explain_no_terms(texts: int, distinct: int, source: EncoderSource) -> str:
    settings = source.settings
    subject = f"{source.column}: the {texts:,} texts of split {source.fit_split}"
    if distinct:
        return (
            f"{subject} have {distinct:,} different terms, but none is in {least_texts(settings.min_df, texts):g} "
            "texts, so the vocabulary is empty. Use a smaller --min-df"
        )
    if texts and settings.stop_words:
        return f"{subject} have only stop words, so the vocabulary is empty. Use other --stop-words"
    return (
        f"{subject} have no words of two or more letters, so the vocabulary is empty. Check the texts, or choose "
        "another split with --fit-split"
    )


def encoder_warnings(encoder: TextEncoder) -> Iterator[str]:
    """Yield warnings about an encoder."""
    column, settings = encoder.column, encoder.settings
    if encoder.split != _FITTED_ON:
        yield (
            f"the vocabulary of {column} is from split {encoder.split}, not from {_FITTED_ON}: a model that is tested "
            f"on {encoder.split} knows all its words. Write {_FITTED_ON} first, or use --encoders"
        )
    if words := ineffective_stop_words(settings):
        shown = ", ".join(words[:_SHOWN]) + (" …" if len(words) > _SHOWN else "")
        yield (
            f"{len(words):,} of the {len(settings.stop_words):,} stop words are not tokens ({shown}), so they have "
            "no effect: tokens have two or more letters, no apostrophe or hyphen, and no capitals unless --no-lower. "
            "Write them as texts are split, don for don't"
        )
    if len(encoder.vocabulary) > _MANY_TERMS:
        yield (
            f"the vocabulary of {column} has {len(encoder.vocabulary):,} terms, which every worker holds in "
            "memory, and a model has a weight for each; limit it with --text-features or --min-df"
        )
