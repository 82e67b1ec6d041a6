"""Text encoders: how texts become numbers, kept in encoders/ beside the shards as plain JSON, one file a column.

What a file says is scikit-learn's: the same texts and settings give the terms of `CountVectorizer.vocabulary_`, in the
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
"""The folder of these files, within that of the data set."""
CLASSES = f"{ENCODERS}/classes.json"
"""The names of classes by their indices, so that the folder has all that turns inputs into numbers."""
FORMAT = 1
TOKEN_PATTERN = r"(?u)\b\w\w+\b"
"""scikit-learn's: runs of two or more letters, digits and underscores."""
_MOST_IDF = 1e6
"""Maximum idf. That of any number of texts is below 50; squares of such weights have a sum."""
MOST_TOKENS = 9
"""Maximum number of tokens of a term."""
FIRST_TOKEN_ID = 2
UNKNOWN_ID = 1
"""Id of an unknown token. 0 is never written, because batches are padded with it. `keras.layers.TextVectorization` has
the same ids."""


class TextForm(str, Enum):
    """Encoding of a text."""

    RAW = "raw"  # itself
    COUNTS = "counts"  # how often each term is in it
    TFIDF = "tfidf"  # these, weighted by how rare a term is, and of length 1
    TOKENS = "tokens"  # the ids of its tokens, in their order


class TextSettings(msgspec.Struct, frozen=True):
    """How texts are split into terms, and which terms there are."""

    form: TextForm  # what a text becomes, any but RAW
    ngrams: tuple[int, int] = (1, 1)  # fewest and most tokens of a term; 1 and 1 for TOKENS
    lower: bool = True  # whether texts are lower-cased first
    stop_words: tuple[str, ...] = ()  # tokens that are left out, sorted
    min_df: int | float = 1  # a term is kept that is in so many texts; as a float, in such a fraction of them
    # the most terms; of more the most frequent are kept, those of one frequency in alphabetical order. None keeps all.
    features: int | None = None
    token_pattern: str = TOKEN_PATTERN


class TextEncoder(msgspec.Struct, frozen=True):
    """The content of a file of encoders/: settings, and what was fitted on the texts of a split."""

    format: int
    column: str  # `captions` or a table's column
    settings: TextSettings
    split: str
    texts: int
    vocabulary: tuple[str, ...]  # the terms, in the order of their indices, which is that of their code points
    idf: tuple[float, ...] = ()  # ln((1 + texts) / (1 + texts that have the term)) + 1; empty unless the form is TFIDF

    @property
    def size(self) -> int:
        """One more than the largest index, or token id."""
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
    fit_split: str = ""  # the split that it is fitted on, with `settings`; empty where a saved one is applied
    saved: TextEncoder | None = None  # that one, of the file `path`
    path: str = ""
    known: EncoderInfo | None = None  # what a fitted one has to be, where other splits of the folder are encoded by it


class TextCounts(msgspec.Struct, frozen=True):
    """Numbers of encoded texts of a column, in a split."""

    texts: int = 0  # how many there were
    without: int = 0  # how many of them have no term of the vocabulary, so that their vector is empty
    terms: int = 0  # how many terms they have, each as often as it occurs
    unknown: int = 0  # how many of these are not in the vocabulary

    def plus(self, other: "TextCounts") -> "TextCounts":
        return TextCounts(*map(int.__add__, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))


class Terms(msgspec.Struct, array_like=True):
    """Terms that may be kept, of `distinct` that there are. Not frozen: they are added up."""

    terms: list[str]
    occurrences: list[int]  # how often each occurs
    texts: list[int]  # in how many texts
    distinct: int

    @property
    def columns(self) -> tuple[list[str], list[int], list[int]]:
        return self.terms, self.occurrences, self.texts


def encoder_file(column: str) -> str:
    """Return the path of an encoder below the data set's folder.

    >>> encoder_file("captions"), encoder_file("a/b c")
    ('encoders/captions.json', 'encoders/a%2Fb%20c.json')
    """
    return f"{ENCODERS}/{quote(column, safe='')}.json"


def classes_file(names: Iterable[str]) -> bytes:
    """The bytes of CLASSES."""
    return msgspec.json.format(msgspec.json.encode({"format": FORMAT, "classes": list(names)}), indent=1) + b"\n"


class _Classes(msgspec.Struct):
    """The content of CLASSES."""

    format: int
    classes: tuple[str, ...]


def decode_classes(data: bytes, path: str) -> tuple[str, ...]:
    """The names of classes in `data`.

    Raises:
        ConfigError: it is not what `classes_file` gives; `path` is named.
    """
    try:
        found = msgspec.json.decode(data, type=_Classes)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} has no classes of Recordmill ({error}); give the folder that has them") from error
    if found.format != FORMAT or len(set(found.classes)) < len(found.classes) or "" in found.classes:
        raise ConfigError(f"{path} is of format {found.format}, or has a class twice or without a name; was it edited?")
    return found.classes


def encode_encoder(encoder: TextEncoder) -> bytes:
    """The bytes of an encoder's file, the same for equal encoders."""
    return msgspec.json.format(msgspec.json.encode(encoder), indent=1) + b"\n"


def decode_encoder(data: bytes, path: str) -> TextEncoder:
    """The encoder in a file, whoever has written it.

    Raises:
        ConfigError: it is none, or one that would encode texts wrongly; `path` is named.
    """
    try:
        encoder = msgspec.json.decode(data, type=TextEncoder)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is no encoder of Recordmill ({error}); give the folder that has its files"
        ) from error
    if fault := _fault(encoder):
        raise ConfigError(f"{path}: {fault}; was it edited? Write it again with the data set that it is of")
    return encoder


def _fault(encoder: TextEncoder) -> str:
    """Return the error of an encoder; empty without."""
    terms, idf, settings = encoder.vocabulary, encoder.idf, encoder.settings
    if encoder.format != FORMAT:
        return f"it is of format {encoder.format}, and this program reads {FORMAT}"
    if settings.form is TextForm.RAW or settings.token_pattern != TOKEN_PATTERN:
        return f"its form {settings.form.value} or token_pattern {settings.token_pattern!r} is not one that is written"
    if not 1 <= settings.ngrams[0] <= settings.ngrams[1] <= MOST_TOKENS:
        return f"ngrams are {settings.ngrams[0]} to {settings.ngrams[1]} tokens"
    if not terms:
        return "its vocabulary is empty"
    for index, (term, following) in enumerate(pairwise(terms)):
        if term >= following:
            what = "twice" if term == following else f"before {following[:80]!r}, but they have to be sorted"
            return f"its vocabulary has {term[:80]!r} (index {index}) {what}"
    if len(idf) != (len(terms) if settings.form is TextForm.TFIDF else 0):
        return f"it has {len(idf):,} idf for {len(terms):,} terms of the form {settings.form.value}"
    if odd := next((value for value in idf if not 0 < value < _MOST_IDF), None):
        return f"an idf is {odd}, which is no weight"
    return ""
