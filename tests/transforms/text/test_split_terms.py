import pytest

from recordmill.schemas.encoders import TextForm, TextSettings
from recordmill.transforms.text.encode_texts import TermSplitter, never_tokens


def split(text: str, **settings) -> list[str]:
    return TermSplitter(TextSettings(TextForm.COUNTS, **settings))(text)


def test_words_of_two_letters_or_more_lower_case():
    assert split("A Dog, x2 on_the 7 mats!") == ["dog", "x2", "on_the", "mats"]


def test_case_is_kept_where_it_is_asked_for():
    assert split("Dog dog", lower=False) == ["Dog", "dog"]


def test_stop_words_are_left_out_before_neighbours_are_joined():
    assert split("dog on the mat", stop_words=("on", "the"), ngrams=(1, 2)) == ["dog", "mat", "dog mat"]


@pytest.mark.parametrize(
    ("ngrams", "terms"),
    [
        ((2, 2), ["aa bb", "bb cc"]),
        ((1, 3), ["aa", "bb", "cc", "aa bb", "bb cc", "aa bb cc"]),
        ((3, 9), ["aa bb cc"]),
        ((4, 5), []),
    ],
)
def test_runs_of_tokens(ngrams, terms):
    assert split("aa bb cc", ngrams=ngrams) == terms


def test_a_million_bytes_are_split():
    assert len(split("dog cat " * 125_000, ngrams=(1, 2))) == 499_999


def test_stop_words_that_no_text_has():
    settings = TextSettings(TextForm.COUNTS, lower=False, stop_words=("The", "don't", "on", "x"))
    assert never_tokens(settings) == ("don't", "x")
