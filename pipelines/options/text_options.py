"""How texts become numbers, whatever they are of."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from recordmill.pipelines.options.option import TEXTS, Kind, Options, flag, option
from recordmill.schemas.encoders import MOST_TOKENS, TextForm, TextSettings
from recordmill.schemas.splits import split_name_fault

TEXT_FORMS = tuple(form.value for form in TextForm)
_FITTED = ("text_features", "min_df", "ngrams", "no_lower", "stop_words", "fit_split")
"""Options of which saved encoders have their own."""
_FRACTION = re.compile(r"0?\.\d{1,18}|1\.0{1,18}|\d(\.\d{1,17})?[eE]-\d{1,2}")
_KEYS = {TextForm.COUNTS: ("index", "value"), TextForm.TFIDF: ("index", "value"), TextForm.TOKENS: ("tokens",)}


@dataclass(frozen=True, kw_only=True)
class TextOptions(Options):
    """How texts become numbers. Names are those of the flags; see docs/text.md."""

    text_features: int | None = option(
        Kind.INTEGER, TEXTS, None, metavar="N", least=1, largest=1 << 31, usual="all"
    ).says(
        "the most terms of a vocabulary",
        "the most terms of a vocabulary: the most frequent, and of those of one frequency the first by the alphabet",
    )
    min_df: str = option(
        Kind.TEXT,
        TEXTS,
        "1",
        metavar="N|FRACTION",
        pattern="([1-9][0-9]{0,17}|0?[.][0-9]{1,18}|1[.]0{1,18}|[0-9]([.][0-9]{1,17})?[eE]-[0-9]{1,2})",
    ).says(
        "leave out terms of fewer texts; 2 is a number of texts, 0.01 a fraction of them",
        "leave out terms that fewer texts have: a whole number is one of texts, `0.01` or `1.0` a fraction of them",
    )
    ngrams: str = option(Kind.TEXT, TEXTS, "1,1", metavar="MIN,MAX", pattern="[1-9] *, *[1-9]").says(
        "fewest and most tokens of a term; 1,2 adds pairs of neighbours",
        f"fewest and most tokens of a term, up to {MOST_TOKENS}: `1,2` are words and pairs of neighbours",
    )
    no_lower: bool = option(Kind.SWITCH, TEXTS, False).says("do not lower-case texts first")
    stop_words: tuple[str, ...] = option(Kind.PATHS, TEXTS, (), metavar="FILE").says(
        "words to leave out, one a line; repeatable",
        "tokens to leave out, one a line, UTF-8; repeatable. None are left out without it",
    )
    fit_split: str | None = option(
        Kind.TEXT, TEXTS, None, usual="train, or the only one", pattern="[A-Za-z0-9][A-Za-z0-9_]{0,79}"
    ).says("split whose texts make the vocabulary", "the split whose texts make the vocabulary")
    encoders: tuple[str, ...] = option(Kind.PATHS, TEXTS, (), metavar="DIR").says(
        "folder of saved encoders, which are applied and not fitted; repeatable",
        "folder of a data set, or its `encoders/`: these are applied as they are, and none is fitted; repeatable",
    )
    text_names: str | None = option(
        Kind.TEXT,
        TEXTS,
        None,
        metavar="index=NAME,value=NAME",
        usual="{column}/index, {column}/value, {column}/tokens",
        pattern="(index|value|tokens) *= *[^,=]+( *, *(index|value|tokens) *= *[^,=]+)?",
    ).says(
        "names of the features",
        "names of the features, `index=words_index,value=words_value`, or `tokens=…`; `{column}` stands for what the "
        "texts are of",
    )

    def settings(self, form: TextForm, stop_words: tuple[str, ...]) -> TextSettings:
        """What an encoder is to be fitted with; `stop_words` are what the files have."""
        fewest, most = self._ngrams
        return TextSettings(
            form,
            (fewest, most),
            not self.no_lower,
            tuple(sorted(set(stop_words))),
            float(self.min_df) if _FRACTION.fullmatch(self.min_df) else int(self.min_df),
            self.text_features,
        )

    def text_feature_names(self, form: TextForm, column: str) -> dict[str, str]:
        """Names that are asked for, by what they stand in for: `index`, `value` or `tokens`.

        Raises:
            ValueError: there are none of the kind; the message says why.
        """
        if self.text_names is None:
            return {}
        pairs = [part.partition("=") for part in self.text_names.split(",")]
        names = {key.strip(): name.strip().replace("{column}", column) for key, _, name in pairs}
        has_all = all(names.values()) and not any("=" in name for name in names.values())
        if set(names) - set(_KEYS[form]) or len(names) < len(pairs) or not has_all:
            keys = ",".join(f"{key}=NAME" for key in _KEYS[form])
            raise ValueError(f"{self.text_names!r} is not {keys}, the features of texts as {form.value}")
        if len(set(names.values())) < len(names):
            raise ValueError(f"{self.text_names!r} gives two features one name")
        return names

    @property
    def _ngrams(self) -> tuple[int, int]:
        fewest, most = map(int, self.ngrams.split(","))
        return fewest, most

    def text_record_options(self) -> dict[str, Any]:
        """Those options that decide what is in the shards, besides the files that they name."""
        return {
            "fit_split": self.fit_split,
            "lower": not self.no_lower,
            "min_df": self.min_df,
            "ngrams": self.ngrams,
            "text_features": self.text_features,
            "text_names": self.text_names,
        }

    def _text_faults(self, forms: set[TextForm], asking: str) -> Iterator[str]:
        """What is wrong with these options where texts become `forms`, for which the flag `asking` asks."""
        given = [each for each in (*_FITTED, "encoders", "text_names") if getattr(self, each) != _DEFAULTS[each]]
        if not forms - {TextForm.RAW}:
            for each in given:
                yield f"{flag(each)} would do nothing without {asking} counts, tfidf or tokens"
            return
        if self.encoders and (own := [flag(each) for each in given if each in _FITTED]):
            yield f"--encoders has vocabulary and settings of its own: leave it out, or {', '.join(own)}"
        if not re.fullmatch("[1-9] *, *[1-9]", self.ngrams) or self._ngrams[0] > self._ngrams[1]:
            yield f"--ngrams {self.ngrams!r} must be two numbers from 1 to {MOST_TOKENS}, the smaller first: 1,2"
        elif TextForm.TOKENS in forms and self._ngrams != (1, 1):
            yield f"--ngrams {self.ngrams}: tokens are in the order of the text, which pairs of them have not"
        is_fraction = _FRACTION.fullmatch(self.min_df) and 0 < float(self.min_df) <= 1
        if not (is_fraction or re.fullmatch("[1-9][0-9]{0,17}", self.min_df)):
            yield f"--min-df {self.min_df!r} must be a number of texts, 2, or a fraction of them between 0 and 1, 0.01"
        if self.fit_split is not None and (fault := split_name_fault(self.fit_split)):
            yield f"--fit-split {self.fit_split!r} {fault}"


_DEFAULTS = {name: known.default for name, known in TextOptions.__dataclass_fields__.items()}
