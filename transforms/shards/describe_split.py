"""Counts of a split's images and annotations, and checks that they add up."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from recordmill.schemas.dataset.manifest import (
    AnnotationCounts,
    ImageCounts,
    MappedClass,
    Plan,
    RewrittenImages,
    SplitManifest,
    Unlisted,
    manifest_of,
)
from recordmill.schemas.dataset.recipes import Recipe
from recordmill.schemas.errors import EmptyDatasetError, LostImagesError, TooManyRejectsError
from recordmill.schemas.features import CLASS_OF_ROW, FeatureTable, Part, RecordOf
from recordmill.schemas.inputs.encoders import TextEncoder
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.rejects import FILTERS, REQUESTED_REASONS, REWRITTEN_FROM, Metric, RejectLine, RejectTally
from recordmill.schemas.shards import ShardInfo, SplitSize
from recordmill.schemas.statistics import ZERO_BIN, Histogram, Statistics
from recordmill.transforms.blocks.image_tasks import labels_of
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.dataset.facts import Facts, FactsBuilder, add_facts
from recordmill.transforms.dataset.rejects import RejectList, tally_rejects
from recordmill.transforms.runtime.beam_steps import library_versions
from recordmill.transforms.storage.resolve import storage_for


def describe_split(
    recipe: Recipe,
    facts: Facts,
    rejects: RejectList,
    class_counts: Sequence[int],
    statistics: bytes,
    shards: Iterable[ShardInfo] = (),
    fingerprints_sha256: str | msgspec.UnsetType = msgspec.UNSET,
    images_sha256: str | msgspec.UnsetType = msgspec.UNSET,
) -> SplitManifest:
    """Return the split's entry in the manifest.

    Args:
        facts: Facts of all splits.
        rejects, class_counts, statistics: Those of this split; statistics are the contents of its file.
        fingerprints_sha256, images_sha256: See SplitManifest.
    """
    split, rejected = recipe.split, rejects.tally
    inputs = tuple(
        sorted((rows for (name, _, _), rows in facts.inputs.items() if name == split), key=lambda rows: rows.path)
    )
    number = Counter({metric: facts.counts.get((split, metric.value), 0) for metric in Metric})
    number[Metric.OF_REJECTED_IMAGES] += rejected.annotations
    statistics_ = facts.statistics.get(split, Statistics())
    objects_an_image = statistics_.histograms.get("objects_an_image", Histogram())
    return SplitManifest(
        recipe=recipe,
        made_by=library_versions(recipe.layout, recipe.container),
        compression="GZIP" if recipe.options.get("gzip") else "",
        inputs=inputs,
        images=ImageCounts(
            **_metric_fields(ImageCounts, number),
            rows=sum(rows.images for rows in inputs) - number[Metric.ROWS_MERGED],
            written=number[Metric.IMAGES],
            without_record=number[Metric.IMAGES_WITHOUT_RECORD],
            rejected=rejected.reasons("image", "row"),
            rewritten=_count_rewritten(number),
            removed=number[Metric.IMAGES_REMOVED],
            without_objects=objects_an_image.bins.get(ZERO_BIN, 0),
        ),
        annotations=AnnotationCounts(
            **_metric_fields(AnnotationCounts, number),
            rows=sum(rows.annotations for rows in inputs),
            stuff=number[Metric.REGIONS],
            joined=number[Metric.ANNOTATIONS_MERGED],
            rejected=rejected.reasons("annotation"),
            filtered={metric.value: number[metric] for metric in FILTERS if number[metric]},
            removed=number[Metric.ANNOTATIONS_REMOVED],
        ),
        unlisted=Unlisted(facts.unlisted.number, facts.unlisted.first),
        record_bytes=number[Metric.RECORD_BYTES],
        rejects_sha256=rejects.sha256,
        first_rejects=rejects.first,
        shards=tuple(sorted(shards, key=lambda shard: shard.file)),
        class_counts=tuple(class_counts),
        warnings=tuple(sorted({text for name, text in facts.warnings if name == split} | _count_warnings(number))),
        texts={column: texts for (name, column), texts in sorted(facts.texts.items()) if name == split},
        findings={name: finding.number for name, finding in statistics_.findings.items()},
        statistics_sha256=sha256(statistics).hexdigest(),
        fingerprints_sha256=fingerprints_sha256,
        images_sha256=images_sha256,
        class_map=_changed_classes(mapped for (name, *_), mapped in facts.mapped.items() if name == split),
    )


def _changed_classes(mapped: Iterable[MappedClass]) -> tuple[MappedClass, ...] | msgspec.UnsetType:
    """Return the classes that were renamed, merged or dropped, in order of new names; UNSET without a class map."""
    by_name: dict[tuple[str, str], MappedClass] = {}  # several data sets may have a class
    for one in mapped:
        key = one.new_name, one.name
        by_name[key] = one.plus(by_name[key]) if key in by_name else one
    classes = [by_name[key] for key in sorted(by_name)]
    numbers = Counter(one.new_name for one in classes)
    changed = tuple(one for one in classes if one.name != one.new_name or numbers[one.new_name] > 1)
    return changed if classes else msgspec.UNSET


def _count_warnings(number: Mapping[Metric, int]) -> set[str]:
    """Return warnings that have a number of all ranges of images."""
    texts = {
        Metric.OTHER_FIELDS: "values of fields differ between files; those of the first file are stored",
        Metric.NARROW_TILES: "tiles, at edges of images, are less than a tenth of --tile wide or high. "
        "With another --tile or --tile-overlap, less is left",
    }
    return {f"{number[metric]:,} {text}" for metric, text in texts.items() if number[metric]}


def _metric_fields(counts: type[msgspec.Struct], number: Mapping[Metric, int]) -> dict[str, Any]:
    """Return the fields of the manifest that have the name of a Metric."""
    fields = set(counts.__struct_fields__)
    return {metric.value: number[metric] for metric in Metric if metric.value in fields}


def class_counts(split: str, labels: LabelMap, facts: Facts) -> list[int]:
    """Return the number of objects, or images, of each class index of a split."""
    return [facts.classes.get((split, index), 0) for index in range(len(labels.categories))]


def _count_rewritten(number: Mapping[Metric, int]) -> RewrittenImages | None:
    formats = {**REWRITTEN_FROM, "other": Metric.FROM_OTHER}
    by_format = {name: number[metric] for name, metric in formats.items() if number[metric]}
    if not by_format:
        return None
    return RewrittenImages(
        by_format,
        number[Metric.TURNED],
        number[Metric.SHRUNK],
        number[Metric.REWRITTEN_BYTES_READ],
        number[Metric.REWRITTEN_BYTES],
    )


def check_totals(split: SplitManifest, table: FeatureTable) -> None:
    """Check that every image and every annotation is accounted for.

    Raises:
        LostImagesError: The counts do not add up, which is a bug of Recordmill.
    """
    images, annotations = split.images, split.annotations
    faults = []
    if images.rows != images.accounted:
        faults.append(
            f"{images.rows} images came in, {images.written} were written, {images.without_record} give no record, "
            f"{f'{images.without_tile} no tile, ' if images.without_tile else ''}"
            f"{f'{images.present} are in the data set, ' if images.present else ''}"
            f"{f'{images.replaced} were replaced, ' if images.replaced else ''}"
            f"{images.of_other_classes} have other classes, {images.limited} are over a limit and {images.rejected} "
            "are rejected"
        )
    if annotations.rows != annotations.accounted:
        faults.append(
            f"{annotations.rows} annotations came in and {annotations.accounted} are accounted for: {annotations}"
        )
    has_image_class = any(source == "image.class_index" or source.startswith(CLASS_OF_ROW) for source in table.sources)
    classified = images.records if has_image_class else annotations.objects
    if sum(split.class_counts) != classified:
        faults.append(f"{classified} are in records and {sum(split.class_counts)} of them have a class")
    records = annotations.objects if table.record_of is RecordOf.ANNOTATION else images.records
    if split.examples != records:
        faults.append(f"{records} records were made and {split.examples} are in the shards")
    if faults:
        raise LostImagesError(
            f"{'; '.join(faults)}. No manifest is written. This is a fault of Recordmill: please report this line"
        )


class Rows(NamedTuple):
    """Numbers of a split's images and annotations, with rejects.

    Attributes:
        what: `image`, or `row` if rows of a table are counted.
    """

    images: int
    annotations: int
    what: str = "image"


def total_rows(rows: Mapping[str, Rows]) -> dict[str, int]:
    """Return the numbers of input images, or rows, and annotations of all splits, by the `what` of a Rejected."""
    unit = next(iter(rows.values())).what
    return {
        unit: sum(split_rows.images for split_rows in rows.values()),
        "annotation": sum(split_rows.annotations for split_rows in rows.values()),
    }


def is_over(rejected: int, total: int, max_rejects: float) -> bool:
    """Return True if over `max_rejects` of `total` are rejected."""
    return rejected > max_rejects * total + 1e-9  # 0.29 * 100 is less than 29


def check_rejects(
    rows: Mapping[str, Rows],
    rejected: RejectTally,
    max_rejects: float,
    inputs: Sequence[str],
    advice: str,
    may_accept: bool = True,
) -> None:
    """Check that every split of a job has images, and that not too many images or annotations of all are rejected.

    Args:
        rows: Rows of each split.
        inputs: Files that name the images, for a message.
        advice: Fix for too many rejects, for a message.
        may_accept: True if a larger --max-rejects is a fix.

    Raises:
        EmptyDatasetError: There is no image.
        TooManyRejectsError: More than `max_rejects` of the images or of the annotations are rejected.
    """
    totals = total_rows(rows)
    unit, images = next(iter(totals.items()))
    if not images:
        where = ", ".join(sorted(set(inputs))) or "the pipeline"
        raise EmptyDatasetError(f"{where}: no {unit}s, so there is nothing to write")
    for what, total in totals.items():
        reasons = rejected.reasons(what)
        num_expected = sum(reasons.pop(reason, 0) for reason in REQUESTED_REASONS)
        number, total = sum(reasons.values()), total - num_expected
        if not is_over(number, total, max_rejects):
            continue
        first = msgspec.json.decode(rejected.first[what], type=RejectLine)
        counted = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
        accept = ", or accept the rejects by a larger --max-rejects" if may_accept and number < total else ""
        raise TooManyRejectsError(
            f"{number} of {total} {what}s ({number / total:.1%}) are rejected, more than --max-rejects {max_rejects:g} "
            f"allows: {counted}. The first: {first.detail}. {advice}. "
            f"Fix the data and run again{accept}"
        )


def check_limited_rejects(
    splits: Mapping[str, SplitManifest], planned: Mapping[str, int], max_rejects: float, rejects_path: str
) -> None:
    """Check the images that `--limit` and `--max-per-class` leave. As a fraction of all images, their rejects are few.

    Args:
        planned: Number of images, or tiles, of each split to write, with those that turn out to be broken.

    Raises:
        TooManyRejectsError: More than `max_rejects` of these images are rejected.
    """
    if not any(split.images.limited for split in splits.values()):
        return
    total = sum(planned.values())
    rejected = total - sum(split.images.records + split.images.without_record for split in splits.values())
    what = "tiles" if any(split.images.tiles for split in splits.values()) else "images"
    if is_over(rejected, total, max_rejects):
        raise TooManyRejectsError(
            f"{rejected} of the {total} {what} within the limits ({rejected / total:.1%}) are rejected, more than "
            f"--max-rejects {max_rejects:g} allows. They are listed in {rejects_path}. The shards are kept. Fix the "
            "data and run again, or accept the rejects by a larger --max-rejects"
        )


def check_examples(splits: Mapping[str, SplitManifest], rejects: Mapping[str, RejectList], rejects_path: str) -> None:
    """Check that every split has an example.

    Args:
        rejects: Rejects of each split.

    Raises:
        EmptyDatasetError: No image of the split became an example.
    """
    for name, split in splits.items():
        images = split.images
        if split.examples:
            continue
        reason_text = "none has one of the requested classes" if images.of_other_classes else "all are rejected"
        reason_text = "none has an object" if images.without_record else reason_text
        if images.without_tile:
            reason_text = f"{images.without_tile:,} have no tile with an object (--keep-empty writes tiles without any)"
        rejected = sum(images.rejected.values())
        reason_text = (
            f"{rejected} are rejected, and the pipeline removed {images.removed}" if images.removed else reason_text
        )
        counted = ", ".join(f"{reason} {count}" for reason, count in images.rejected.items())
        first = next((f": {counted}. The first: {line.detail}" for line in rejects[name].first if rejected), "")
        raise EmptyDatasetError(
            f"of the {images.rows} {split.recipe.unit}s of split {name} {reason_text}{first}. See {rejects_path}. "
            "Nothing was written"
        )


def write_plan(checked: object, path: str, recipes: Sequence[Recipe], facts: list[Facts], **sides: Any) -> None:
    """Write the Plan from the Facts of the steps before writing, as JSON, to a local file.

    Args:
        checked: Result of a check that comes first.
        recipes: One per split.
        sides: Arguments of `describe_plan`.
    """
    storage_for(path).write(path, msgspec.json.encode(describe_plan(recipes, add_facts(facts), **sides)))


def describe_plan(
    recipes: Sequence[Recipe],
    facts: Facts,
    labels: LabelMap,
    table: FeatureTable,
    encoders: Iterable[TextEncoder] = (),
    first_shards: Mapping[str, int] = MappingProxyType({}),
) -> Plan:
    sizes = {recipe.split: facts.plans.get(recipe.split, SplitSize(0, 0, 0)) for recipe in recipes}
    facts.counts |= {(split, Metric.IMAGES.value): size.images for split, size in sizes.items()}
    splits = {}
    for recipe in recipes:
        split = recipe.split
        tally = tally_rejects((kind, rejects) for kind, rejects in facts.rejects.items() if kind[0] == split)
        counts = class_counts(split, labels, facts)
        planned = describe_split(recipe, facts, RejectList(tally, "", ()), counts, b"")
        splits[split] = _count_planned_tiles(planned) if Part.TILES in table.parts else planned
    infos = tuple(encoder.info for encoder in encoders)
    return Plan(manifest_of(recipes[0].name, labels, table, splits, infos), sizes, facts.previews, dict(first_shards))


def _count_planned_tiles(split: SplitManifest) -> SplitManifest:
    """Return the entry of a split whose planned records are tiles. Images that are not accounted for have tiles."""
    images = split.images
    written = images.rows - images.accounted + images.written
    return msgspec.structs.replace(split, images=msgspec.structs.replace(images, written=written, tiles=images.written))


def count_classes(keyed: tuple[int, bytes], facts: FactsBuilder, labels: LabelMap, splits: Sequence[str]) -> None:
    """Count the classes of (BlockKey, packed Block)."""
    block = unpack_block(keyed[1])
    index_by_id = labels.index_by_id()
    index_by_name = {category.name: index for index, category in enumerate(labels.categories)}
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    if block.num_objects:
        objects = zip(block.split[block.image_of_object].tolist(), block.category_id.tolist(), strict=True)
        for split, category in objects:
            counts[splits[split]][index_by_id[category]] += 1
    names = zip(block.split.tolist(), (labels.class_name for labels in labels_of(block)), strict=True)
    for split, name in names:
        if name is not None:
            counts[splits[split]][index_by_name[name]] += 1
    for name, numbers in counts.items():
        facts.add_classes(name, numbers)
