import pytest

from recordmill.schemas.encoders import TextEncoder, TextForm, TextSettings
from recordmill.transforms.text import fit_encoder as module
from recordmill.transforms.text.fit_encoder import encoder_warnings


@pytest.mark.parametrize(
    ("split", "stop_words", "told"),
    [
        ("train", (), []),
        ("train", ("on", "the"), []),
        ("val", (), ["the vocabulary of captions is of split val, not of train"]),
        ("train", ("don't", "on"), ["1 of the 2 stop words are no tokens (don't), so nothing is left out"]),
        ("train", tuple("abcdefg"), ["7 of the 7 stop words are no tokens (a, b, c, d, e …)"]),
    ],
)
def test_a_sentence_for_each(split, stop_words, told):
    encoder = TextEncoder(1, "captions", TextSettings(TextForm.COUNTS, stop_words=stop_words), split, 7, ("cat",))
    found = list(encoder_warnings(encoder))
    assert [text for text, start in zip(found, told, strict=True) if not text.startswith(start)] == []


def test_a_vocabulary_that_no_worker_holds_easily(monkeypatch):
    monkeypatch.setattr(module, "_MANY_TERMS", 1)
    encoder = TextEncoder(1, "captions", TextSettings(TextForm.COUNTS), "train", 7, ("cat", "dog"))
    (told,) = encoder_warnings(encoder)
    assert "has 2 terms, which every worker holds" in told
