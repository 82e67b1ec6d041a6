"""Text encoders: they convert texts to numbers. encoders/ next to the shards has them as JSON, one file per column.

Files have scikit-learn's results: the same texts and settings give the terms of `CountVectorizer.vocabulary_`, in the
same order, and the `idf_` of TfidfVectorizer.
"""

from collections.abc import Iterable
from enum import Enum
from hashlib import sha256
from itertools import pairwise
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from recordmill.schemas.errors import ConfigError

ENCODERS = "encoders"
"""Folder of the encoders' files, inside the folder of the data set."""
CLASSES = f"{ENCODERS}/classes.json"
"""File of the class names by index, so that the folder has everything that converts inputs to numbers."""
FORMAT = 1
TOKEN_PATTERN = r"(?u)\b\w\w+\b"
"""scikit-learn's pattern: runs of two or more letters, digits and underscores."""
_MOST_IDF = 1e6
"""Maximum idf. Real idfs are below 50. The sum of the squares of weights up to this maximum is finite."""
MOST_TOKENS = 9
"""Maximum number of tokens of a term."""
FIRST_TOKEN_ID = 2
UNKNOWN_ID = 1
"""Id of an unknown token. 0 is never written, because it pads batches. `keras.layers.TextVectorization` uses the same
ids."""


class TextForm(str, Enum):
    """Encoding of a text."""

    RAW = "raw"  # the text
    COUNTS = "counts"  # number of occurrences of each term
    TFIDF = "tfidf"  # counts, weighted by the rarity of terms, and normalised to length 1
    TOKENS = "tokens"  # ids of the tokens, in the order of the text


class TextSettings(msgspec.Struct, frozen=True):
    """Rules for splitting texts into terms, and for choosing the terms of a vocabulary."""

    form: TextForm  # encoding of the texts; not RAW
    ngrams: tuple[int, int] = (1, 1)  # fewest and most tokens of a term; 1 and 1 for TOKENS
    lower: bool = True  # True to lower-case texts first
    stop_words: tuple[str, ...] = ()  # skipped tokens, sorted
    min_df: int | float = 1  # minimum number of texts that contain a term; a float is a fraction of the texts
    # maximum number of terms; the most frequent ones are kept, ties in alphabetical order. None keeps all terms.
    features: int | None = None
    token_pattern: str = TOKEN_PATTERN


class TextEncoder(msgspec.Struct, frozen=True):
    """Contents of a file of encoders/: settings, and the result of fitting on the texts of a split."""

    format: int
    column: str  # `captions` or a table's column
    settings: TextSettings
    split: str
    texts: int
    vocabulary: tuple[str, ...]  # terms by index, sorted by code points
    idf: tuple[float, ...] = ()  # ln((1 + texts) / (1 + texts with the term)) + 1; empty unless the form is TFIDF

    @property
    def size(self) -> int:
        """Largest index or token id, + 1."""
        return len(self.vocabulary) + (FIRST_TOKEN_ID if self.settings.form is TextForm.TOKENS else 0)

    @property
    def info(self) -> "EncoderInfo":
        digest = sha256(encode_encoder(self)).hexdigest()
        return EncoderInfo(self.column, self.settings.form, self.size, self.split, self.texts, digest)


class EncoderInfo(msgspec.Struct, frozen=True):
    """Entry of an encoder in the manifest; `sha256` is the hex digest of its file."""

    column: str
    form: TextForm
    size: int
    split: str
    texts: int
    sha256: str

    @property
    def file(self) -> str:
        return encoder_file(self.column)


class EncoderSource(NamedTuple):
    """Source of a column's encoder."""

    column: str
    settings: TextSettings
    fit_split: str = ""  # split that the encoder is fitted on; empty to apply a saved one
    saved: TextEncoder | None = None  # the saved encoder, from the file `path`
    path: str = ""
    known: EncoderInfo | None = None  # required result of fitting, if other splits of the folder use the encoder


class TextCounts(msgspec.Struct, frozen=True):
    """Counts of a column's encoded texts in a split."""

    texts: int = 0  # number of texts
    without: int = 0  # texts without a term of the vocabulary: their vector is empty
    terms: int = 0  # terms in the texts, with repetitions
    unknown: int = 0  # terms that are not in the vocabulary, with repetitions

    def plus(self, other: "TextCounts") -> "TextCounts":
        return TextCounts(*map(int.__add__, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))


class Terms(msgspec.Struct, array_like=True):
    """Candidate terms, out of `distinct` terms in total. Not frozen: accumulators are merged in place."""

    terms: list[str]
    occurrences: list[int]  # number of occurrences of each
    texts: list[int]  # number of texts with each
    distinct: int

    @property
    def columns(self) -> tuple[list[str], list[int], list[int]]:
        return self.terms, self.occurrences, self.texts


def encoder_file(column: str) -> str:
    """Return an encoder's path below the data set's folder.

    >>> encoder_file("captions"), encoder_file("a/b c")
    ('encoders/captions.json', 'encoders/a%2Fb%20c.json')
    """
    return f"{ENCODERS}/{quote(column, safe='')}.json"


def classes_file(names: Iterable[str]) -> bytes:
    """Return the bytes of the file CLASSES."""
    return msgspec.json.format(msgspec.json.encode({"format": FORMAT, "classes": list(names)}), indent=1) + b"\n"


class _Classes(msgspec.Struct):
    """Contents of the file CLASSES."""

    format: int
    classes: tuple[str, ...]


def decode_classes(data: bytes, path: str) -> tuple[str, ...]:
    """Return the names of classes in `data`.

    Raises:
        ConfigError: `data` is not a result of `classes_file`. The error names `path`.
    """
    try:
        contents = msgspec.json.decode(data, type=_Classes)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} is not a file of classes of Recordmill ({error}). Give the folder that has one"
        ) from error
    if contents.format != FORMAT or len(set(contents.classes)) < len(contents.classes) or "" in contents.classes:
        raise ConfigError(
            f"{path} has the format {contents.format}, or a class twice or without a name; was it edited?"
        )
    return contents.classes


def encode_encoder(encoder: TextEncoder) -> bytes:
    """Return the bytes of an encoder's file, always the same."""
    return msgspec.json.format(msgspec.json.encode(encoder), indent=1) + b"\n"


def decode_encoder(data: bytes, path: str) -> TextEncoder:
    """Return the encoder in a file, perhaps another program's.

    Raises:
        ConfigError: `data` is not an encoder, or it would encode texts wrongly. The error names `path`.
    """
    try:
        encoder = msgspec.json.decode(data, type=TextEncoder)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not an encoder of Recordmill ({error}). Give the folder that has its files"
        ) from error
    if fault := _encoder_fault(encoder):
        raise ConfigError(f"{path}: {fault}; was it edited? Write its data set again")
    return encoder


def _encoder_fault(encoder: TextEncoder) -> str:
    """Return an encoder's error; empty if it is valid."""
    terms, idf, settings = encoder.vocabulary, encoder.idf, encoder.settings
    if encoder.format != FORMAT:
        return f"its format is {encoder.format}, and this version reads {FORMAT}"
    if settings.form is TextForm.RAW or settings.token_pattern != TOKEN_PATTERN:
        return f"its form {settings.form.value} or token_pattern {settings.token_pattern!r} is not supported"
    if not 1 <= settings.ngrams[0] <= settings.ngrams[1] <= MOST_TOKENS:
        return f"ngrams are {settings.ngrams[0]} to {settings.ngrams[1]} tokens"
    if not terms:
        return "its vocabulary is empty"
    for index, (term, following) in enumerate(pairwise(terms)):
        if term >= following:
            what = "twice" if term == following else f"before {following[:80]!r}, but terms must be sorted"
            return f"its vocabulary has {term[:80]!r} (index {index}) {what}"
    if len(idf) != (len(terms) if settings.form is TextForm.TFIDF else 0):
        return f"it has {len(idf):,} idf for {len(terms):,} terms of the form {settings.form.value}"
    if odd := next((value for value in idf if not 0 < value < _MOST_IDF), None):
        return f"an idf is {odd}, which is not a weight"
    return ""
