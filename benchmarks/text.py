"""Fitting and encoding texts against scikit-learn's TfidfVectorizer.

    python benchmarks/text.py [--texts 20000] [--runs 5]

The texts are drawn, of 5 to 60 words out of 50,000 whose frequencies fall as those of a language do. `functions` is
what workers do with them, in one thread; `beam` is that as a pipeline on the local runner, its start included. Before
anything is timed, terms and values are compared. The ways alternate in one process; medians of the runs, in seconds
of its processor time, which other programs change little.
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton
from sklearn.feature_extraction.text import TfidfVectorizer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from recordmill.schemas.inputs.encoders import EncoderSource, TextEncoder, TextForm, TextSettings
from recordmill.transforms.encoders.fit_encoder import (
    FitEncoder,
    TermCounter,
    TextVectorizer,
    TextVectors,
    add_counts,
    make_encoder,
)

SETTINGS = TextSettings(TextForm.TFIDF, ngrams=(1, 2), features=20_000)
WORDS = 50_000


def draw_texts(number: int) -> list[str]:
    draw = random.Random(0)
    words = [f"word{rank}" for rank in range(WORDS)]
    summed = np.cumsum(1 / np.arange(1, WORDS + 1)).tolist()
    return [" ".join(draw.choices(words, cum_weights=summed, k=draw.randint(5, 60))) for _ in range(number)]


def scikit_learn(texts: list[str]) -> object:
    return TfidfVectorizer(ngram_range=SETTINGS.ngrams, max_features=SETTINGS.features).fit_transform(texts)


def fitted(texts: list[str], settings: TextSettings) -> TextEncoder:
    counter = TermCounter(settings)
    counter.add(texts)
    return make_encoder(
        add_counts([counter.counts()], len(texts), settings), len(texts), EncoderSource("captions", settings, "train")
    )


def functions(texts: list[str]) -> TextVectors:
    return TextVectorizer(fitted(texts, SETTINGS))(texts)


class _Encode(beam.DoFn):
    def process(self, texts: list[str], encoder: TextEncoder) -> Iterator[int]:
        yield len(TextVectorizer(encoder)(texts).indices)


def _batches(path: str) -> Iterator[list[str]]:
    texts = Path(path).read_text().split("\n")
    return (texts[start : start + 1000] for start in range(0, len(texts), 1000))


def in_beam(texts: list[str]) -> None:
    with TemporaryDirectory() as folder, beam.Pipeline("FnApiRunner") as p:
        file = Path(folder, "texts")
        file.write_text("\n".join(texts))
        read = p | beam.Create([str(file)]) | beam.FlatMap(_batches)
        encoder = read | FitEncoder(EncoderSource("captions", SETTINGS, "train"))
        read | beam.ParDo(_Encode(), AsSingleton(encoder))


def differences(texts: list[str]) -> int:
    """Texts whose values are not those of scikit-learn. Which of equally frequent terms it keeps is left to it, so all
    terms are kept here."""
    kept = TextSettings(TextForm.TFIDF, ngrams=SETTINGS.ngrams)
    theirs = TfidfVectorizer(ngram_range=kept.ngrams)
    expected = theirs.fit_transform(texts)
    encoder = fitted(texts, kept)
    vectors, different = (
        TextVectorizer(encoder)(texts),
        list(encoder.vocabulary) != theirs.get_feature_names_out().tolist(),
    )
    for row, (start, end) in enumerate(pairwise(vectors.ends)):
        index, values = vectors.indices[start:end], expected[row].toarray().ravel()
        is_same = np.array_equal(np.flatnonzero(values), index)
        different += not (is_same and np.allclose(values[index], vectors.values[start:end], rtol=1e-9))
    return different


WAYS: tuple[Callable[[list[str]], object], ...] = (scikit_learn, functions, in_beam)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    texts = draw_texts(arguments.texts)
    different = differences(texts[:500])
    print(f"{len(texts):,} texts; of the first 500, {different} differ from scikit-learn's")
    runs: dict[Callable[[list[str]], object], list[float]] = {way: [] for way in WAYS}
    for _ in range(arguments.runs):
        for way in WAYS:
            began = time.process_time()
            way(texts)
            runs[way].append(time.process_time() - began)
    baseline = statistics.median(runs[scikit_learn])
    for way, seconds in runs.items():
        median = statistics.median(seconds)
        print(f"{way.__name__:15} {len(texts) / median:9,.0f} texts/s   {baseline / median:5.2f} x")
    if different:
        sys.exit(1)


if __name__ == "__main__":
    main()
