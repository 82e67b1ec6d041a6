"""Facts of a job's steps, summed in one struct."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, product
from operator import add
from typing import Any, NamedTuple, TypeVar

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import PCollection
from isal import isal_zlib

from recordmill.schemas.dataset.manifest import InputRows, MappedClass
from recordmill.schemas.dataset.recipes import InputFile
from recordmill.schemas.inputs.encoders import TextCounts
from recordmill.schemas.rejects import NO_ID_TEXTS, IdTexts, Metric, Rejected
from recordmill.schemas.shards import SplitSize
from recordmill.schemas.statistics import (
    FINDING_EXAMPLES,
    GALLERY,
    Example,
    FieldCounts,
    Finding,
    Histogram,
    Statistics,
    different_images,
)
from recordmill.transforms.dataset.compare_names import NO_NAMES, Names, add_names
from recordmill.transforms.dataset.count_fields import add_field_counts
from recordmill.transforms.dataset.rejects import KindsBuilder, RejectKind, Rejects, add_rejects
from recordmill.transforms.runtime import progress

Key = TypeVar("Key")
Value = TypeVar("Value")


def add_statistics(one: Statistics, other: Statistics) -> Statistics:
    """Return the sum, which does not depend on the order."""
    return Statistics(
        one.images + other.images,
        {
            name: add_histograms(one.histograms.get(name, Histogram()), other.histograms.get(name, Histogram()))
            for name in sorted(one.histograms.keys() | other.histograms.keys())
        },
        _add_counts(one.centres, other.centres),
        _add_counts(one.formats, other.formats),
        _add_counts(one.images_of_class, other.images_of_class),
        _add_counts(one.images_of_segment, other.images_of_segment),
        {
            why: _choose_examples(GALLERY[why], one.examples.get(why, ()), other.examples.get(why, ()))
            for why in sorted(one.examples.keys() | other.examples.keys())
        },
        {
            name: Finding(
                mine.number + theirs.number, _choose_examples(FINDING_EXAMPLES, mine.examples, theirs.examples)
            )
            for name in sorted(one.findings.keys() | other.findings.keys())
            for mine, theirs in [(one.findings.get(name, Finding()), other.findings.get(name, Finding()))]
        },
        one.measured + other.measured,
        {
            name: add_field_counts(one.fields.get(name, FieldCounts()), other.fields.get(name, FieldCounts()))
            for name in sorted(one.fields.keys() | other.fields.keys())
        },
        None if one.pixels is None or other.pixels is None else _add_counts(one.pixels, other.pixels),
    )


def add_histograms(one: Histogram, other: Histogram) -> Histogram:
    """Return the sum, which does not depend on the order."""
    least = [histogram.least for histogram in (one, other) if histogram.least is not None]
    largest = [histogram.largest for histogram in (one, other) if histogram.largest is not None]
    return Histogram(
        one.total + other.total, min(least, default=None), max(largest, default=None), _add_counts(one.bins, other.bins)
    )


def _add_counts(one: Mapping, other: Mapping) -> dict:
    """Return the sum of counts, sorted by key."""
    return dict(sorted((Counter(one) + Counter(other)).items()))


def _choose_examples(number: int, *examples: Iterable[Example]) -> tuple[Example, ...]:
    return tuple(different_images(chain.from_iterable(examples), number))


class Facts(msgspec.Struct):
    """Facts of one step or several. Mutable, because others are merged into it. Its size does not grow with the
    number of images. Pickled, it is below 1 MB with 21,841 classes in three splits, and with 100,000 if most are
    rare. Each further class takes 1 to 3 bytes per number.

    Attributes:
        counts: By split and metric.
        inputs: Rows of inputs, by split, path and kind.
        rejects: By kind. Rejects of one step have their lines; sums of several steps have none, see `Findings`.
        unlisted: Names of files that no image row references.
        unmatched: Names of images whose file was not found.
        other_images: Names of images that the data set has, with other bytes, for `--add`.
        warnings: Split and text.
        classes: Number of objects, or of images, by split and class index.
        statistics: Statistics of records, by split.
        texts: Counts of encoded texts, by split and column.
        listings: Listed image folders, by path.
        plans: Planned sizes, by split.
        largest_group: Number of images and name of the largest group; 0 and empty without groups.
        previews: Values of each requested open field, as text, by its name in `--fields`; of a dry run.
        mapped: Classes that a class map changed or left, by split, name, new name and data set, of several.
        sets: `counts` and `inputs` of each of several data sets, by its name.
    """

    counts: dict[tuple[str, str], int] = {}
    inputs: dict[tuple[str, str, str], InputRows] = {}
    rejects: dict[RejectKind, Rejects] = {}
    unlisted: Names = NO_NAMES
    unmatched: Names = NO_NAMES
    other_images: Names = NO_NAMES
    warnings: set[tuple[str, str]] = set()
    classes: dict[tuple[str, int], int] = {}
    statistics: dict[str, Statistics] = {}
    texts: dict[tuple[str, str], TextCounts] = {}
    listings: dict[str, InputFile] = {}
    plans: dict[str, SplitSize] = {}
    largest_group: tuple[int, str] = 0, ""
    previews: dict[str, str] = {}
    mapped: dict[tuple[str, str, str, str], MappedClass] = {}
    sets: "dict[str, Facts]" = {}  # quoted as a whole: Python 3.10 leaves a quoted part a text

    def merge(self, other: "Facts") -> None:
        """Add other Facts, without the lines of their rejects."""
        _merge_values(self.counts, other.counts, add)
        for (split, _, _), rows in other.inputs.items():
            self.add_rows(split, rows)
        counted = {kind: msgspec.structs.replace(rejects, packed=b"") for kind, rejects in other.rejects.items()}
        _merge_values(self.rejects, counted, Rejects.plus)
        self.unlisted = add_names([self.unlisted, other.unlisted])
        self.unmatched = add_names([self.unmatched, other.unmatched])
        self.other_images = add_names([self.other_images, other.other_images])
        self.warnings |= other.warnings
        _merge_values(self.classes, other.classes, add)
        _merge_values(self.statistics, other.statistics, add_statistics)
        _merge_values(self.texts, other.texts, TextCounts.plus)
        self.listings |= other.listings
        self.plans |= other.plans
        self.largest_group = max(self.largest_group, other.largest_group)
        self.previews |= other.previews
        _merge_values(self.mapped, other.mapped, MappedClass.plus)
        _merge_values(self.sets, other.sets, lambda *parts: add_facts(parts))

    def with_set_name(self, name: str) -> "Facts":
        """Return the Facts of a step of one of several sets, with its name in texts and in names of images."""
        return msgspec.structs.replace(
            self,
            rejects={kind: rejects.with_set_name(name) for kind, rejects in self.rejects.items()},
            unlisted=self.unlisted.with_set_name(name),
            unmatched=self.unmatched.with_set_name(name),
            warnings={(split, f"{name}: {text}") for split, text in self.warnings},
            largest_group=(self.largest_group[0], self.largest_group[1] and f"{name}/{self.largest_group[1]}"),
            previews={f"{name}: {field}": text for field, text in self.previews.items()},
            mapped={(*key[:3], name): mapped for key, mapped in self.mapped.items()},
            sets={f"{name}/{inner}": facts for inner, facts in self.sets.items()}
            or {name: Facts(counts=self.counts, inputs=self.inputs)},
        )

    def __reduce__(self):
        """Pack counts of classes, because Beam pickles Facts between workers."""
        fields = msgspec.structs.asdict(self)
        classes: dict[str, dict[int, int]] = defaultdict(dict)
        for (split, index), number in self.classes.items():
            classes[split][index] = number
        fields["classes"] = {split: _pack_counts(counts) for split, counts in classes.items()}
        fields["statistics"] = {
            split: _convert_image_counts(statistics, _pack_counts) for split, statistics in self.statistics.items()
        }
        return _unpack_facts, (fields,)

    def add_rows(self, split: str, rows: InputRows) -> None:
        key = split, rows.path, rows.kind
        known = self.inputs.get(key, InputRows(rows.path, rows.kind, 0, 0))
        numbers = known.images + rows.images, known.annotations + rows.annotations
        unwritten = known.uncarried or rows.uncarried, known.leaves or rows.leaves
        self.inputs[key] = InputRows(rows.path, rows.kind, *numbers, *unwritten)


def _unpack_facts(fields: dict[str, Any]) -> Facts:
    classes = {split: _unpack_counts(packed) for split, packed in fields["classes"].items()}
    fields["classes"] = {
        (split, index): number for split, counts in classes.items() for index, number in counts.items()
    }
    fields["statistics"] = {
        split: _convert_image_counts(statistics, _unpack_counts) for split, statistics in fields["statistics"].items()
    }
    return Facts(**fields)


def _convert_image_counts(statistics: Statistics, convert: Callable[[Any], Any]) -> Statistics:
    class_images, segment_images = convert(statistics.images_of_class), convert(statistics.images_of_segment)
    return msgspec.structs.replace(statistics, images_of_class=class_images, images_of_segment=segment_images)


def _pack_counts(counts: Mapping[int, int]) -> bytes:
    """Compress counts by class index: 1 to 3 bytes per class, where pickle takes 9 to 14. Rows are sorted, indices are
    differences, and first come the lowest bytes of all numbers, then the second lowest, because most others are 0."""
    rows = np.array(sorted(counts.items()), "<i8").reshape(-1, 2)
    rows[:, 0] = np.diff(rows[:, 0], prepend=0)
    return isal_zlib.compress(rows.view(np.uint8).T.tobytes(), 1)


def _unpack_counts(packed: bytes) -> dict[int, int]:
    columns = np.frombuffer(isal_zlib.decompress(packed), np.uint8).reshape(_ROW_BYTES, -1)
    indices, numbers = np.ascontiguousarray(columns.T).view("<i8").T
    return dict(zip(np.cumsum(indices).tolist(), numbers.tolist(), strict=True))


_ROW_BYTES = 16


def _merge_values(sums: dict[Key, Value], values: Mapping[Key, Value], add_up: Callable[[Value, Value], Value]) -> None:
    for key, value in values.items():
        sums[key] = add_up(sums[key], value) if key in sums else value


class Findings(NamedTuple):
    """Facts of several steps.

    Attributes:
        facts: A PCollection of Facts, with at most one element.
        lists: A PCollection of (RejectKind, Rejects) with their lines, one element per kind.
    """

    facts: PCollection
    lists: PCollection


class FactsBuilder:
    """Builder of the Facts of one step.

    Args:
        texts: Texts of ids, for the details of rejects.
    """

    def __init__(self, texts: IdTexts = NO_ID_TEXTS) -> None:
        self.texts = texts
        self._facts = Facts()
        self._rejects = KindsBuilder()
        self._unlisted: list[str] = []
        self._unmatched: list[str] = []
        self._other_images: list[str] = []
        self.add_rows = self._facts.add_rows

    def count(self, split: str, metric: Metric, number: int = 1) -> None:
        if number:
            _merge_values(self._facts.counts, {(split, metric.value): number}, add)

    def warn(self, split: str, text: str) -> None:
        self._facts.warnings.add((split, text))

    def warn_all(self, splits: Iterable[str], texts: Iterable[str]) -> None:
        """Give each warning to each split."""
        self._facts.warnings |= set(product(splits, texts))

    def preview(self, texts: Mapping[str, str]) -> None:
        """Note the values of open fields, see Facts."""
        self._facts.previews |= texts

    def reject(self, split: str, reject: Rejected) -> None:
        progress.count_reject(reject)
        self._rejects.add(split, self.texts.with_ids(reject))

    def count_rejected_rows(self, path: str, kind: str) -> None:
        """Count all rejects so far as rows of an input."""
        for split, number in self._rejects.numbers_of_splits().items():
            self.add_rows(split, InputRows(path, kind, number, 0))

    def add_unlisted(self, *names: str) -> None:
        self._unlisted += names

    def add_unmatched(self, *names: str) -> None:
        self._unmatched += names

    def add_other_images(self, *names: str) -> None:
        self._other_images += names

    def add_texts(self, split: str, column: str, counts: TextCounts) -> None:
        _merge_values(self._facts.texts, {(split, column): counts}, TextCounts.plus)

    def add_classes(self, split: str, numbers: Mapping[int, int]) -> None:
        _merge_values(self._facts.classes, {(split, index): number for index, number in numbers.items()}, add)

    def add_mapped(self, split: str, mapped: MappedClass) -> None:
        _merge_values(self._facts.mapped, {(split, mapped.name, mapped.new_name, ""): mapped}, MappedClass.plus)

    def add_plan(self, split: str, size: SplitSize) -> None:
        self._facts.plans[split] = size

    def add_listing(self, folder: str, listing: InputFile) -> None:
        self._facts.listings[folder] = listing

    def add_group(self, images: int, name: str) -> None:
        """Note a group's number of images; the largest one stays."""
        self._facts.largest_group = max(self._facts.largest_group, (images, name))

    def build(self) -> Facts:
        names = {
            "unlisted": self._unlisted,
            "unmatched": self._unmatched,
            "other_images": self._other_images,
        }
        samples = {field: Names.sample(listed) for field, listed in names.items()}
        return msgspec.structs.replace(self._facts, rejects=self._rejects.build(), **samples)


class CombineFacts(beam.CombineFn):
    """Add up Facts."""

    def create_accumulator(self) -> Facts:
        return Facts()

    def add_input(self, sum_: Facts, facts: Facts) -> Facts:
        sum_.merge(facts)
        return sum_

    def merge_accumulators(self, sums: Iterable[Facts]) -> Facts:
        return add_facts(sums)

    def extract_output(self, sum_: Facts) -> Facts:
        return sum_


class AddFacts(beam.PTransform):
    """Convert PCollections of Facts to Findings."""

    def expand(self, parts):
        facts = tuple(parts) | "Parts" >> beam.Flatten()
        rejects = facts | "Rejects" >> beam.FlatMap(lambda facts: list(facts.rejects.items())).with_output_types(
            tuple[RejectKind, Rejects]
        )
        return Findings(
            facts | "AddUp" >> beam.CombineGlobally(CombineFacts()).without_defaults(),
            rejects | "AddLists" >> beam.CombinePerKey(add_rejects),
        )


def add_facts(parts: Iterable[Facts]) -> Facts:
    sum_ = Facts()
    for part in parts:
        sum_.merge(part)
    return sum_
