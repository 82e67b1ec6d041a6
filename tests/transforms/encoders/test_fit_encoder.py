from itertools import pairwise

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.errors import VocabularyError
from recordmill.schemas.inputs.encoders import EncoderSource, Terms, TextEncoder, TextForm, TextSettings
from recordmill.transforms.encoders import fit_encoder
from recordmill.transforms.encoders.fit_encoder import (
    ChooseTerms,
    FitEncoder,
    TermSplitter,
    TextVectorizer,
    add_counts,
    ineffective_stop_words,
    make_encoder,
)
from tests.beam_pipeline import Pipeline

TEXTS = ["dog cat dog", "cat", "mat dog", "yak", ""]
COUNTS = TextSettings(TextForm.COUNTS)


def test_terms_are_sorted():
    source = EncoderSource("captions", TextSettings(TextForm.TFIDF, min_df=2), "train")
    expected = make_encoder(Terms(["dog", "cat"], [3, 2], [2, 2], 4), 5, source)
    with Pipeline() as p:
        fitted = p | beam.Create([TEXTS[:2], TEXTS[2:]]) | FitEncoder(source)
        assert_that(fitted, equal_to([expected]))
    assert (expected.vocabulary, expected.texts) == (("cat", "dog"), 5)


def test_counts_passed_on_early_add_up(monkeypatch):
    monkeypatch.setattr(fit_encoder, "_HELD_TERMS", 2)
    monkeypatch.setattr(fit_encoder, "AT_ONCE", 2)
    count = fit_encoder._CountTerms(COUNTS)
    count.start_bundle()
    passed = [counted for text in TEXTS for counted in count.process([text])]
    assert passed
    left = [each.value for each in count.finish_bundle()]
    shares = dict(passed).keys() | dict(left).keys()
    added = [
        add_counts([counts for of, counts in (*passed, *left) if of == share], len(TEXTS), COUNTS) for share in shares
    ]
    assert sorted(term for terms in added for term in zip(*terms.columns, strict=True)) == [
        ("cat", 2, 2),
        ("dog", 3, 2),
        ("mat", 1, 1),
        ("yak", 1, 1),
    ]
    assert sum(terms.distinct for terms in added) == 4


@pytest.mark.parametrize("most", [1, 3, 7, None])
def test_chosen_terms_are_independent_of_merges(most):
    """Runners may add terms one by one, or merge parts."""
    terms = [(f"t{number:02}", number % 5, 1) for number in range(30)]
    expected = sorted(terms, key=lambda term: (-term[1], term[0]))[:most]
    combine = ChooseTerms(most)
    for part in (1, 4, 30):

        def parts_of(part=part) -> list[Terms]:
            starts = range(0, 30, part)
            return [Terms(*map(list, zip(*terms[start : start + part], strict=True)), part) for start in starts]

        one_by_one = combine.create_accumulator()
        for each in parts_of():
            one_by_one = combine.add_input(one_by_one, each)
        parts = parts_of()
        merged = combine.merge_accumulators(reversed([combine.merge_accumulators(parts[:2]), *parts[2:]]))
        for accumulator in (one_by_one, merged):
            chosen = combine.extract_output(accumulator)
            assert sorted(zip(*chosen.columns, strict=True)) == sorted(expected)
            assert chosen.distinct == part * len(parts)


def test_no_more_than_twice_terms_are_held():
    combine = ChooseTerms(2)
    held = combine.create_accumulator()
    for number in range(9):
        held = combine.add_input(held, Terms([f"t{number}"], [number], [1], 1))
        assert len(held.terms) <= 4
    chosen = combine.extract_output(held)
    assert (sorted(chosen.terms), chosen.distinct) == (["t7", "t8"], 9)


def test_vocabulary_known_has_to_be_found_again():
    chosen = Terms(["dog", "cat"], [3, 2], [2, 2], 4)
    source = EncoderSource("captions", COUNTS, "train")
    source = source._replace(known=make_encoder(chosen, 5, source).info)
    assert make_encoder(chosen, 5, source).info == source.known
    for other, texts in ((Terms(["dog"], [3], [2], 4), 5), (chosen, 6)):
        with pytest.raises(VocabularyError, match=r"give a vocabulary of \d terms, but other .* another of 2 terms"):
            make_encoder(other, texts, source)


@pytest.mark.parametrize(
    ("texts", "distinct", "settings", "said"),
    [
        (5, 4, {"min_df": 9}, "the 5 texts of split train have 4 different terms, but none is in 9 texts"),
        (5, 4, {"min_df": 0.5}, "none is in 2.5 texts"),
        (5, 0, {"stop_words": ("dog",)}, "only stop words"),
        (5, 0, {}, "no words of two or more letters"),
        (0, 0, {"stop_words": ("dog",)}, "the 0 texts of split train have no word"),
    ],
)
def test_no_vocabulary_is_error_that_says_why(texts, distinct, settings, said):
    source = EncoderSource("captions", TextSettings(TextForm.COUNTS, **settings), "train")
    with pytest.raises(VocabularyError, match=said):
        make_encoder(Terms([], [], [], distinct), texts, source)


def test_a_million_bytes_are_split():
    assert len(TermSplitter(TextSettings(TextForm.COUNTS, ngrams=(1, 2)))("dog cat " * 125_000)) == 499_999


def test_stop_words_that_no_text_has():
    settings = TextSettings(TextForm.COUNTS, lower=False, stop_words=("The", "don't", "on", "x"))
    assert ineffective_stop_words(settings) == ("don't", "x")


VOCABULARY = ("cat", "dog", "dog cat", "mat")


def encoder(form: TextForm, idf: tuple[float, ...] = (), **settings) -> TextEncoder:
    return TextEncoder(1, "captions", TextSettings(form, **settings), "train", 3, VOCABULARY, idf)


def encoded(encoder: TextEncoder, *texts: str) -> list[tuple[list, list, list]]:
    """Index, value and counts of each text."""
    vectors = TextVectorizer(encoder)(texts)
    parts = [slice(start, end) for start, end in pairwise(vectors.ends)]
    assert vectors.ends[-1] == vectors.indices.size
    return [
        (vectors.indices[part].tolist(), vectors.values[part].tolist(), counts.tolist())
        for part, counts in zip(parts, vectors.counts, strict=True)
    ]


def test_counts_are_sorted_and_unknown_terms_counted():
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


@pytest.mark.parametrize("text", ["", "zebra", "\x00"])
@pytest.mark.parametrize("form", [TextForm.COUNTS, TextForm.TFIDF])
def test_text_without_known_term_is_empty_vector(form, text):
    idf = (1.0,) * 4 if form is TextForm.TFIDF else ()
    ((index, value, _),) = encoded(encoder(form, idf), text)
    assert (index, value) == ([], [])


@pytest.mark.parametrize("form", list(TextForm)[1:])
def test_texts_are_same_however_many_are_at_once(form, monkeypatch):
    idf = (1.0, 2.0, 9.0, 1.5) if form is TextForm.TFIDF else ()
    texts = ["mat dog", "", "cat cat yak", "dog", "zebra"]
    whole = encoded(encoder(form, idf), *texts)
    monkeypatch.setattr(fit_encoder, "AT_ONCE", 2)
    assert encoded(encoder(form, idf), *texts) == whole
    assert encoded(encoder(form, idf)) == []
