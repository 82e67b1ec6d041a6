"""Options of texts as numbers: `coco`'s captions, `table`'s columns."""

import re
from collections.abc import Iterator
from typing import Literal

from recordmill.schemas.inputs.encoders import MOST_TOKENS, TextForm, TextSettings
from recordmill.schemas.inputs.option import TEXTS, Files, Folders, Options
from recordmill.schemas.inputs.splits import split_name_fault

TextChoice = Literal["raw", "counts", "tfidf", "tokens"]

FITTED = ("text_features", "min_df", "ngrams", "no_lower", "stop_words", "fit_split")  # saved encoders have their own
_FRACTION = re.compile(r"0?\.\d{1,18}|1\.0{1,18}|\d(\.\d{1,17})?[eE]-\d{1,2}")
_KEYS = {TextForm.COUNTS: ("index", "value"), TextForm.TFIDF: ("index", "value"), TextForm.TOKENS: ("tokens",)}


class TextOptions(Options):
    """Options of text encoders, see docs/text.md."""

    text_features: int | None = TEXTS.opt(
        "Maximum number of terms in a vocabulary. The most frequent terms are kept. Ties are broken by alphabetical "
        "order.",
        usual="all",
        ge=1,
        le=1 << 31,
    )
    min_df: str = TEXTS.opt(
        "Minimum number, or fraction, of texts that contain a term. `2` is a number of texts; `0.01` and `1.0` are "
        "fractions of them.",
        "1",
        "N|FRACTION",
    )
    ngrams: str = TEXTS.opt(
        f"Minimum and maximum number of tokens of a term. `1,2` adds pairs of neighbours. At most {MOST_TOKENS}.",
        "1,1",
        "MIN,MAX",
    )
    no_lower: bool = TEXTS.opt("Do not convert texts to lower case.", False)
    stop_words: Files = TEXTS.opt("File of tokens to ignore, one per line, UTF-8; repeatable.", (), "FILE", "none")
    fit_split: str | None = TEXTS.opt(
        "Split on whose texts the vocabulary is fitted.", metavar="NAME", usual="train, or the only split"
    )
    encoders: Folders = TEXTS.opt(
        "Folder of fitted encoders to apply instead of fitting; repeatable. The folder of a data set, or its "
        "`encoders/`.",
        (),
        "DIR",
    )
    text_names: str | None = TEXTS.opt(
        "Names of the features. `index=words_index,value=words_value`, or `tokens=…`. `{column}` is replaced by the "
        "name of the column.",
        metavar="index=NAME,value=NAME",
        usual="{column}/index, {column}/value, {column}/tokens",
    )

    def settings(self, form: TextForm, stop_words: tuple[str, ...]) -> TextSettings:
        """Return the settings for fitting an encoder; `stop_words` are the contents of the files."""
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
        """Return the features of `--text-names` by `index`, `value`, `tokens`.

        Raises:
            ValueError: The names do not fit `form`.
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

    def _text_faults(self, form: TextForm, asking: str) -> Iterator[str]:
        """Yield the errors of the text options, if the flag `asking` chooses `form`."""
        if form is TextForm.RAW:
            given = self.given(*FITTED, "encoders", "text_names")
            yield from (f"{flag} has no effect without {asking} counts, tfidf or tokens" for flag in given)
            return
        if not self.encoders and self.given("part"):
            yield (
                f"--part does not fit encoders, and {asking} {form.value} fits one to the texts of a split. Give saved "
                "ones by --encoders, or leave --part out"
            )
        if self.encoders and (own := self.given(*FITTED)):
            yield f"--encoders brings its own vocabulary and settings. Leave it out, or {', '.join(own)}"
        if not re.fullmatch("[1-9] *, *[1-9]", self.ngrams) or self._ngrams[0] > self._ngrams[1]:
            yield f"--ngrams {self.ngrams!r} must be two numbers from 1 to {MOST_TOKENS}, the smaller first: 1,2"
        elif form is TextForm.TOKENS and self._ngrams != (1, 1):
            yield f"--ngrams {self.ngrams}: tokens keep the order of the text, and pairs of them do not"
        is_fraction = _FRACTION.fullmatch(self.min_df) and 0 < float(self.min_df) <= 1
        if not (is_fraction or re.fullmatch("[1-9][0-9]{0,17}", self.min_df)):
            yield f"--min-df {self.min_df!r} must be a number of texts, 2, or a fraction of them between 0 and 1, 0.01"
        if self.fit_split is not None and (fault := split_name_fault(self.fit_split)):
            yield f"--fit-split {self.fit_split!r} {fault}"
