"""The captions of each image become numbers, by an encoder that is fitted on those of one split, or saved."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.schemas.encoders import EncoderSource, TextCounts, TextEncoder
from recordmill.schemas.images import ImageTask
from recordmill.transforms.runtime import coders  # noqa: F401  for the coder of ImageTask
from recordmill.transforms.text.encode_texts import TextVectorizer
from recordmill.transforms.text.fit_encoder import FitEncoder

_COUNTS = "counts"


class EncodedTexts(NamedTuple):
    """What steps that encode texts give besides.

    Attributes:
        encoders: TextEncoder.
        counts: ((split, column), TextCounts).
    """

    encoders: PCollection
    counts: PCollection


class EncodedCaptions(NamedTuple):
    """ImageTask whose captions are encoded, and what else is known of that."""

    tasks: PCollection
    texts: EncodedTexts


class EncodeCaptions(beam.PTransform):
    """ImageTask become EncodedCaptions. The captions of an image are one text."""

    def __init__(self, source: EncoderSource):
        super().__init__()
        self._source = source

    def expand(self, tasks: PCollection[ImageTask]):
        encoder = self._encoder(tasks)
        encode = beam.ParDo(_EncodeCaptions(self._source.column), AsSingleton(encoder)).with_output_types(ImageTask)
        encoded = tasks | "Encode" >> encode.with_outputs(_COUNTS, main="tasks")
        return EncodedCaptions(encoded.tasks, EncodedTexts(encoder, encoded[_COUNTS]))

    def _encoder(self, tasks: PCollection[ImageTask]) -> PCollection[TextEncoder]:
        source = self._source
        if source.saved:
            return tasks.pipeline | "SavedEncoder" >> beam.Create([source.saved])
        texts = tasks | "TextsToFit" >> beam.FlatMap(_texts_of, source.fit_split).with_output_types(list[str])
        return texts | "FitEncoder" >> FitEncoder(source.settings, source.column, source.fit_split, source.known)


def _texts_of(task: ImageTask, split: str) -> Iterator[list[str]]:
    if task.split == split and task.labels.captions:
        yield [caption_text(task)]


def caption_text(task: ImageTask) -> str:
    """All captions of an image as one text, a line each, in the order of their ids."""
    return "\n".join(caption.caption for caption in task.labels.captions)


class _EncodeCaptions(beam.DoFn):
    """Holds the vectorizer of one encoder, and counts what it meets."""

    _vectorizer_of: tuple[TextEncoder, TextVectorizer] | None = None

    def __init__(self, column: str):
        self._column = column

    def start_bundle(self):
        self._counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])

    def process(self, task: ImageTask, encoder: TextEncoder) -> Iterator[ImageTask]:
        if not task.labels.captions:
            yield task
            return
        vectors = self._vectorizer(encoder)([caption_text(task)])
        counts = self._counts[task.split]
        counts[:] = map(int.__add__, counts, vectors.counts[0].tolist())
        index, value = tuple(vectors.indices.tolist()), tuple(vectors.values.tolist())
        labels = msgspec.structs.replace(task.labels, caption_index=index, caption_value=value)
        yield msgspec.structs.replace(task, labels=labels)

    def _vectorizer(self, encoder: TextEncoder) -> TextVectorizer:
        """That of the encoder, made once for as long as Beam hands in the same."""
        if self._vectorizer_of is None or self._vectorizer_of[0] is not encoder:
            self._vectorizer_of = encoder, TextVectorizer(encoder)
        return self._vectorizer_of[1]

    def finish_bundle(self) -> Iterator[Any]:
        for split, counts in self._counts.items():
            counted = (split, self._column), TextCounts(*counts)
            yield TaggedOutput(_COUNTS, WindowedValue(counted, MIN_TIMESTAMP, (GlobalWindow(),)))


def add_text_counts(counts: Iterable[TextCounts]) -> TextCounts:
    """TextCounts become their sum."""
    return TextCounts(*map(sum, zip((0, 0, 0, 0), *map(msgspec.structs.astuple, counts), strict=True)))
