"""A text becomes its terms: tokens, and runs of neighbouring ones."""

import re

from recordmill.schemas.encoders import TextSettings

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
