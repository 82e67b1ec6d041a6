"""Encode the captions of each image as numbers. The encoder is saved, or fitted on the captions of one split."""

from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.inputs.annotations import ImageLabels
from recordmill.schemas.inputs.encoders import EncoderSource, TextCounts, TextEncoder
from recordmill.transforms.blocks.image_tasks import label_column, labels_of
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.encoders.fit_encoder import FitEncoder, TextVectorizer


class EncodeCaptions(beam.PTransform):
    """Convert (BlockKey, packed Block) to the same with encoded captions, and one TextEncoder. The captions of an image
    are one text. Facts have counts of texts."""

    def __init__(self, source: EncoderSource, splits: Sequence[str]):
        super().__init__()
        self._source, self._splits = source, splits

    def expand(self, blocks: PCollection[tuple[int, bytes]]):  # Beam accepts no type hints of several outputs
        encoder = self._encoder(blocks)
        encode = _EncodeCaptions(self._source.column, self._splits)
        return blocks | "Encode" >> WithFacts(encode, AsSingleton(encoder), types=tuple[int, bytes]), encoder

    def _encoder(self, blocks: PCollection[tuple[int, bytes]]) -> PCollection[TextEncoder]:
        source = self._source
        if source.saved:
            return blocks.pipeline | "SavedEncoder" >> beam.Create([source.saved])
        split = self._splits.index(source.fit_split) if source.fit_split in self._splits else -1
        texts = blocks | "TextsToFit" >> beam.FlatMap(_caption_texts, split).with_output_types(list[str])
        return texts | "FitEncoder" >> FitEncoder(source)


def _caption_texts(keyed: tuple[int, bytes], split: int) -> Iterator[list[str]]:
    block = unpack_block(keyed[1])
    labels = labels_of(block.take(block.split == split))
    if texts := [caption_text(image_labels) for image_labels in labels if image_labels.captions]:
        yield texts


def caption_text(labels: ImageLabels) -> str:
    """Return all captions of an image as one text, one caption per line, in the order of their ids."""
    return "\n".join(caption.caption for caption in labels.captions)


class _EncodeCaptions(beam.DoFn):
    """Encode captions with a cached vectorizer; count texts and terms."""

    _vectorizer_of: tuple[TextEncoder, TextVectorizer] | None = None

    def __init__(self, column: str, splits: Sequence[str]):
        self._column = column
        self._splits = splits

    def process(self, keyed: tuple[int, bytes], facts: FactsBuilder, encoder: TextEncoder) -> Iterator[Any]:
        key, packed = keyed
        block = unpack_block(packed)
        encode, encoded = self._vectorizer(encoder), []
        for labels, split in zip(labels_of(block), block.split.tolist(), strict=True):
            if labels.captions:
                vectors = encode([caption_text(labels)])
                facts.add_texts(self._splits[split], self._column, TextCounts(*vectors.counts[0].tolist()))
                index, value = tuple(vectors.indices.tolist()), tuple(vectors.values.tolist())
                labels = msgspec.structs.replace(labels, caption_index=index, caption_value=value)
            encoded.append(labels)
        yield key, pack_block(block.replace(labels=label_column(encoded)))

    def _vectorizer(self, encoder: TextEncoder) -> TextVectorizer:
        """Return the encoder's vectorizer, cached by identity of the encoder."""
        if self._vectorizer_of is None or self._vectorizer_of[0] is not encoder:
            self._vectorizer_of = encoder, TextVectorizer(encoder)
        return self._vectorizer_of[1]
