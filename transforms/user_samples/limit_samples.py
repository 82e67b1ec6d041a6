"""Limit the number of Samples of each split, and of each class."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.block import are_among
from recordmill.schemas.inputs.limits import Limits
from recordmill.schemas.inputs.sample import Sample
from recordmill.schemas.names import name_key
from recordmill.transforms.runtime.beam_steps import pack
from recordmill.transforms.shape.limit_blocks import (
    ChooseImages,
    LimitUnits,
    Remaining,
    hash_texts,
    make_units,
)

_Named = tuple[str, str, tuple[str, ...]]
"""Split and name of a Sample, and the class of each object, the class of the image and its tags."""


class LimitSamples(beam.PTransform):
    """Convert Samples to those that remain after limits, see `recordmill.beam.LimitImages`. Facts have warnings."""

    def __init__(self, limits: Limits):
        super().__init__()
        self._limits = limits

    def expand(self, samples: PCollection[Sample]) -> PCollection[Sample]:
        units = (
            samples
            | "Names" >> beam.FlatMap(_name_sample).with_output_types(_Named)
            | "Batch" >> beam.BatchElements(min_batch_size=64, max_batch_size=4096)
            | "ListUnits" >> beam.FlatMap(_pack_units, self._limits).with_output_types(bytes)
        )
        remaining = units | "Choose" >> ChooseImages(self._limits)
        return samples | "Limit" >> beam.Filter(_is_remaining, AsSingleton(remaining)).with_output_types(Sample)


def _name_sample(sample: Sample) -> Iterator[_Named]:
    """Yield split, name and classes of a Sample. Values of other types do not count: WriteDataset rejects them."""
    if not _has_name(sample):
        return
    objects, tags = (value if isinstance(value, list | tuple) else () for value in (sample.objects, sample.tags))
    classes = (*(getattr(item, "category", None) for item in objects), *tags, sample.class_name)
    yield sample.split, name_key(sample.file_name), tuple(label for label in classes if isinstance(label, str))


def _has_name(sample: Sample) -> bool:
    return isinstance(sample, Sample) and isinstance(sample.file_name, str) and isinstance(sample.split, str)


def _pack_units(names: Iterable[_Named], limits: Limits) -> Iterator[bytes]:
    yield from map(pack, list_units(names, has_classes=limits.per_class is not None))


def list_units(names: Iterable[_Named], has_classes: bool) -> Iterator[LimitUnits]:
    """Yield the Samples of each split."""
    by_split: dict[str, list[tuple[str, tuple[str, ...]]]] = defaultdict(list)
    for split, name, classes in names:
        by_split[split].append((name, classes))
    for split, rows in by_split.items():
        pairs = None
        if has_classes:
            hashes = hash_texts(label for _, classes in rows for label in classes)
            images = np.repeat(np.arange(len(rows)), [len(classes) for _, classes in rows])
            pairs = np.stack([images, hashes], axis=1)
        yield make_units(split, hash_texts(name for name, _ in rows), None, pairs)


def _is_remaining(sample: Sample, remaining: Remaining) -> bool:
    if not _has_name(sample):
        return True
    hashes = np.frombuffer(remaining[sample.split], np.int64)
    return bool(are_among(hash_texts([name_key(sample.file_name)]), hashes)[0])
