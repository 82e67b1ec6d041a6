"""Encoders that are not likely to be meant: words left out of nothing, a vocabulary of too many terms."""

from collections.abc import Iterator

from recordmill.schemas.encoders import TextEncoder
from recordmill.transforms.text.split_terms import never_tokens

_MANY_TERMS = 1_000_000
_SHOWN = 5
_FITTED_ON = "train"


def encoder_warnings(encoder: TextEncoder) -> Iterator[str]:
    """What is odd about an encoder, a sentence each with its numbers and a cure."""
    column, settings = encoder.column, encoder.settings
    if encoder.split != _FITTED_ON:
        yield (
            f"the vocabulary of {column} is of split {encoder.split}, not of {_FITTED_ON}: a model that is tested on "
            f"{encoder.split} knows all its words; write {_FITTED_ON} first, or give --encoders"
        )
    if words := never_tokens(settings):
        shown = ", ".join(words[:_SHOWN]) + (" …" if len(words) > _SHOWN else "")
        yield (
            f"{len(words):,} of the {len(settings.stop_words):,} stop words are no tokens ({shown}), so nothing is "
            "left out for them: tokens have two letters or more, no apostrophe or hyphen, and no capitals unless "
            "--no-lower; write them as texts are split, don for don't"
        )
    if len(encoder.vocabulary) > _MANY_TERMS:
        yield (
            f"the vocabulary of {column} has {len(encoder.vocabulary):,} terms, which every worker holds, and a model "
            "has a weight for; give --text-features or --min-df"
        )
