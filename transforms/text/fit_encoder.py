"""Texts become an encoder: their terms are counted, and those that are to be kept numbered.

Terms are counted by all workers, each with a share of the distinct ones, and exactly: nothing is dropped on the way.
One worker then holds those that are kept, as every worker that encodes does. Ties are broken by the term itself, so
that the encoder is the same on every runner.
"""

import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from operator import attrgetter

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.schemas.encoders import FORMAT, EncoderInfo, TermCount, Terms, TextEncoder, TextForm, TextSettings
from recordmill.schemas.errors import VocabularyError
from recordmill.transforms.runtime import coders  # noqa: F401  for the coder of Terms
from recordmill.transforms.text.split_terms import TermSplitter

_HELD_TERMS = 200_000
"""Distinct terms that a worker counts before it passes the counts on."""
_SHARES = 512
"""Into how many the distinct terms are divided. Passing on terms one by one takes ten times as long."""


class FitEncoder(beam.PTransform):
    """Texts (str) become one TextEncoder.

    Args:
        column, split: what the texts are of.
        known: what the encoder has to be, where other splits are encoded by it already.
    """

    def __init__(self, settings: TextSettings, column: str, split: str, known: EncoderInfo | None = None):
        super().__init__()
        self._settings = settings
        self._column = column
        self._split = split
        self._known = known

    def expand(self, texts: PCollection[str]) -> PCollection[TextEncoder]:
        number = texts | "CountTexts" >> beam.combiners.Count.Globally()
        counted = (
            texts
            | "CountTerms" >> beam.ParDo(_CountTerms(self._settings)).with_output_types(tuple[int, Terms])
            | "GroupByShare" >> beam.GroupByKey()  # (share, [Terms])
        )
        terms = counted | "AddCounts" >> beam.Map(_added, AsSingleton(number), self._settings).with_output_types(Terms)
        chosen = terms | "ChooseTerms" >> beam.CombineGlobally(ChooseTerms(self._settings.features)).with_output_types(
            Terms
        )
        make = beam.Map(make_encoder, AsSingleton(number), self._settings, self._column, self._split, self._known)
        return chosen | "MakeEncoder" >> make.with_output_types(TextEncoder)


class TermCounter:
    """Counts the terms of several texts.

    Attributes:
        distinct: how many there are.
    """

    def __init__(self, settings: TextSettings):
        self._split = TermSplitter(settings)
        self._occurrences: Counter[str] = Counter()
        self._texts: Counter[str] = Counter()

    def add(self, text: str) -> None:
        terms = self._split(text)
        self._occurrences.update(terms)
        self._texts.update(set(terms))

    @property
    def distinct(self) -> int:
        return len(self._texts)

    def counts(self) -> Terms:
        counts = [TermCount(term, self._occurrences[term], texts) for term, texts in self._texts.items()]
        return Terms(counts, len(counts))


class _CountTerms(beam.DoFn):
    """Texts become (share, Terms), those of several texts at once: most texts have the same few words."""

    def __init__(self, settings: TextSettings):
        self._settings = settings

    def start_bundle(self):
        self._counter = TermCounter(self._settings)

    def process(self, text: str) -> Iterator[tuple[int, Terms]]:
        self._counter.add(text)
        if self._counter.distinct >= _HELD_TERMS:
            yield from self._shares()
            self.start_bundle()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for share in self._shares():
            yield WindowedValue(share, MIN_TIMESTAMP, (GlobalWindow(),))

    def _shares(self) -> Iterator[tuple[int, Terms]]:
        shares: dict[int, list[TermCount]] = defaultdict(list)
        for counted in self._counter.counts().kept:
            shares[zlib.crc32(counted.term.encode()) % _SHARES].append(counted)
        return ((share, Terms(counts, len(counts))) for share, counts in shares.items())


def _added(share: tuple[int, Iterable[Terms]], texts: int, settings: TextSettings) -> Terms:
    return add_counts(share[1], texts, settings)


def add_counts(counted: Iterable[Terms], texts: int, settings: TextSettings) -> Terms:
    """The sums of several counts of the same terms; those that may be kept.

    Args:
        texts: how many there are in all.
    """
    occurrences: Counter[str] = Counter()
    with_it: Counter[str] = Counter()
    for terms in counted:
        for count in terms.kept:
            occurrences[count.term] += count.occurrences
            with_it[count.term] += count.texts
    least = least_texts(settings.min_df, texts)
    kept = [TermCount(term, occurrences[term], number) for term, number in with_it.items() if number >= least]
    return Terms(most_frequent(kept, settings.features), len(with_it))


class ChooseTerms(beam.CombineFn):
    """Terms become one Terms, of no more than the `most` most frequent."""

    def __init__(self, most: int | None):
        self._most = most

    def create_accumulator(self):
        return Terms([], 0)

    def add_input(self, accumulator, terms):
        return self.merge_accumulators([accumulator, terms])

    def merge_accumulators(self, accumulators):
        kept: list[TermCount] = []
        distinct = 0
        for terms in accumulators:
            kept += terms.kept
            distinct += terms.distinct
            if self._most and len(kept) > 2 * self._most:
                kept = most_frequent(kept, self._most)
        return Terms(kept, distinct)

    def extract_output(self, accumulator):
        return Terms(most_frequent(accumulator.kept, self._most), accumulator.distinct)


def most_frequent(terms: list[TermCount], most: int | None) -> list[TermCount]:
    """So many of the terms, if there are more; those of one frequency in alphabetical order. All, where it is None."""
    return terms if most is None or len(terms) <= most else nsmallest(most, terms, key=_by_frequency)


def _by_frequency(term: TermCount) -> tuple[int, str]:
    return -term.occurrences, term.term


def least_texts(min_df: int | float, texts: int) -> float:
    """How many of so many texts a term has to be in; a float is a fraction of them.

    >>> least_texts(2, 50), least_texts(0.1, 50)
    (2, 5.0)
    """
    return min_df * texts if isinstance(min_df, float) else min_df


def make_encoder(
    chosen: Terms, texts: int, settings: TextSettings, column: str, split: str, known: EncoderInfo | None = None
) -> TextEncoder:
    """The encoder of the terms that were chosen.

    Args:
        texts: how many it was fitted on.
        known: see FitEncoder.

    Raises:
        VocabularyError: no term was chosen, or others than are known.
    """
    terms = sorted(chosen.kept, key=attrgetter("term"))
    if not terms:
        raise VocabularyError(_nothing_left(texts, chosen.distinct, settings, column, split))
    idf = (inverse_frequency(term.texts, texts) for term in terms) if settings.form is TextForm.TFIDF else ()
    encoder = TextEncoder(FORMAT, column, settings, split, texts, tuple(term.term for term in terms), tuple(idf))
    if known and encoder.info != known:
        raise VocabularyError(
            f"{column}: the {texts:,} texts of split {split} have another vocabulary, of {encoder.size:,} terms, than "
            f"that of {known.size:,} by which other splits of the folder are encoded: write all in one command, keep "
            "that one by --encoders, or give another --output"
        )
    return encoder


def inverse_frequency(with_it: int, texts: int) -> float:
    """How much a term weighs that so many texts have, of so many: scikit-learn's, smooth, as if one more text had all.

    >>> inverse_frequency(9, 9), inverse_frequency(0, 0)
    (1.0, 1.0)
    """
    return math.log((1 + texts) / (1 + with_it)) + 1


def _nothing_left(texts: int, distinct: int, settings: TextSettings, column: str, split: str) -> str:
    found = f"{column}: the {texts:,} texts of split {split}"
    if distinct:
        return (
            f"{found} have {distinct:,} different terms, of which none is in {least_texts(settings.min_df, texts):g} "
            "texts, so there is no vocabulary; give a smaller --min-df"
        )
    if texts and settings.stop_words:
        return f"{found} have nothing but stop words, so there is no vocabulary; give other --stop-words"
    return (
        f"{found} have no word of two letters or more, so there is no vocabulary; give texts, or another split by "
        "--fit-split"
    )
