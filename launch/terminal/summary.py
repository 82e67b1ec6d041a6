"""The summary that a conversion prints when it is done, or of what it would do."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat

import msgspec
from rich.console import Console

from recordmill.launch.terminal.error_stream import error_stream, printable
from recordmill.schemas.annotations import unnamed_keypoints
from recordmill.schemas.dataset_files import split_rejects
from recordmill.schemas.duplicates import DUPLICATES
from recordmill.schemas.encoders import EncoderInfo, TextCounts, TextForm
from recordmill.schemas.features import Feature, Part, RecordOf
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.manifest import InputRows, Manifest, RewrittenPictures, SplitManifest
from recordmill.schemas.options import ConvertOptions, PictureOptions
from recordmill.schemas.plan_report import PlanReport
from recordmill.schemas.sizes import number_text, size_text
from recordmill.schemas.statistics import FINDINGS
from recordmill.schemas.statistics_file import STATISTICS, SplitComparison
from recordmill.transforms.metadata.report_uncarried import uncarried_lines

_CLASSES_SHOWN = 5
_COLUMNS_SHOWN = 40
_CORE_IMAGES_PER_SECOND = {"none": 2000, "header": 1500, "decode": 400}
"""Order of magnitude for images of 130 kB on one core, see docs/performance.md."""


_WIDE = 1000
"""Columns that no table needs: a terminal that is too narrow wraps lines, and no number is cut."""


def terminal() -> Console:
    """Standard output as it is: names in a data set are no markup."""
    return Console(soft_wrap=True, markup=False, highlight=False, emoji=False, width=_WIDE)


def terminal_of_errors() -> Console:
    """Likewise standard error."""
    return Console(soft_wrap=True, markup=False, highlight=False, emoji=False, file=error_stream())


def print_splits(
    console: Console, folder: str, manifest: Manifest, names: Sequence[str], comparison: SplitComparison | None = None
) -> None:
    """What is in splits that have just been written; `comparison` is of all that the folder has."""
    splits = {name: manifest.splits[name] for name in names}
    for name, split in splits.items():
        console.print(f"{manifest.name}-{name} is in {folder}")
        _print_lines(console, _split_lines(folder, manifest, split, list(splits.values())))
    _print_lines(console, _shared_lines(manifest, next(iter(splits.values()))))
    _print_lines(console, _compared_lines(comparison or SplitComparison()))
    _print_lines(console, _duplicate_lines(folder, manifest, names))
    warnings = sorted({text for split in splits.values() for text in split.warnings})
    _print_lines(console, (("warning", printable(text)) for text in warnings))
    if rejecting := {name: split for name, split in splits.items() if split.rejects}:
        files = ", ".join(os.path.join(folder, split_rejects(name)) for name in rejecting)
        number = sum(split.rejects for split in rejecting.values())
        listed = sum(split.listed_rejects for split in rejecting.values())
        how_many = "Every reject is" if listed == number else f"{listed:,} of {number:,} rejects are listed"
        console.print(f"{how_many} in {files}")


def _print_lines(console: Console, lines: Iterable[tuple[str, str]]) -> None:
    for label, text in lines:
        console.print(f"  {label:<12} {text}")


def _split_lines(
    folder: str, manifest: Manifest, split: SplitManifest, of_job: Sequence[SplitManifest]
) -> Iterator[tuple[str, str]]:
    images, annotations = split.images, split.annotations
    further = {"without an object": images.without_record, "of classes not asked for": images.of_other_classes}
    left_out = images.rejected | {what: number for what, number in further.items() if number}
    is_table = manifest.table.record_of is RecordOf.ROW
    yield "rows" if is_table else "images", f"{images.written:,} of {images.rows:,}{_reasons(left_out)}"
    if images.groups or images.ungrouped:
        yield "groups", _groups(split, of_job)
    if images.rewritten:
        yield "rewritten", _rewritten(images.rewritten)
    left_out = annotations.rejected | annotations.filtered
    if annotations.of_rejected_images:
        left_out["of rejected images"] = annotations.of_rejected_images
    if annotations.rows or not (is_table or "image.class_index" in manifest.table.sources):
        yield "annotations", f"{annotations.in_records:,} of {annotations.rows:,}{_reasons(left_out)}"
    kinds = {
        "objects": annotations.objects,
        "captions": annotations.captions,
        "stuff": annotations.stuff,
        "panoptic": annotations.panoptic,
        "keypoint rows joined with their instance": annotations.joined,
    }
    if set(kinds.values()) != {annotations.objects, 0}:
        yield "", ", ".join(f"{kind} {number:,}" for kind, number in kinds.items() if number)
    if {Part.MASK_PNG, Part.MASK_RLE} & set(manifest.parts):
        others = "; the others have no segmentation" if annotations.masks < annotations.objects else ""
        yield "masks", f"{annotations.masks:,} of {annotations.objects:,} objects{others}"
    if annotations.boxes_clipped:
        yield "boxes", f"{annotations.boxes_clipped:,} clipped at their image's edge"
    if manifest.features:
        yield "columns", _columns(manifest.features)
    if manifest.categories or not is_table:
        yield "classes", _classes([category.name for category in manifest.categories], split.class_counts)
    for encoder in manifest.encoders:
        yield "texts", _texts(encoder, split.texts.get(encoder.column))
    if split.findings:
        found = ", ".join(f"{FINDINGS[name]} {number:,}" for name, number in split.findings.items())
        yield "perhaps bad", f"{found}; examples of each are in {STATISTICS}"
    sizes = sorted(shard.bytes for shard in split.shards)
    spread = size_text(sizes[0]) if len(sizes) == 1 else f"{size_text(sizes[0])} to {size_text(sizes[-1])}"
    yield "shards", f"{len(sizes):,} of {spread}, {size_text(split.bytes)} in all"
    yield "first shard", os.path.join(folder, split.shards[0].file)


def print_times(console: Console, seconds: Mapping[str, float]) -> None:
    """How long a job took, and each of its steps."""
    if not seconds:
        return
    steps = ", ".join(f"{step} {lasted:,.1f} s" for step, lasted in seconds.items())
    parts = f": {steps}" if len(seconds) > 1 else ""
    console.print(f"That took {sum(seconds.values()):,.1f} s{parts}")


def _groups(split: SplitManifest, of_job: Sequence[SplitManifest]) -> str:
    """How many groups a split has, by what, and what part of the job's images that makes."""
    images, recipe = split.images, split.recipe
    path = next((file.path for file in recipe.inputs if file.kind == "groups"), None)
    by = f"--group-from {recipe.options['group_from']}" if path is None else f"--groups {path}"
    alone = f"; {images.ungrouped:,} images are in none" if images.ungrouped else ""
    share = images.written / max(1, sum(each.images.written for each in of_job))
    return printable(f"{images.groups:,}, by {by}{alone}; {share:.1%} of all images, by {recipe.options['split']}")


def _shared_lines(manifest: Manifest, split: SplitManifest) -> Iterator[tuple[str, str]]:
    """The lines that are the same for all splits of a job; `split` is any of them."""
    yield from _uncarried(split.inputs, manifest.layout)
    if manifest.num_classes:
        yield "num_classes", _num_classes(manifest.num_classes)
    if names := LabelMap(manifest.categories).duplicate_names():
        yield "", f"several category ids share a name: {', '.join(map(printable, names))}"
    for category in manifest.categories:
        number = len(category.keypoints)
        if number and category.keypoints == unnamed_keypoints(number):
            first_last = f"{category.keypoints[0]} to {category.keypoints[-1]}"
            yield (
                "keypoints",
                f"{number} of {printable(category.name)}, as most rows have: {first_last}, as none is named",
            )
    if Part.CATEGORY_ID in manifest.parts:
        yield "labels", shifted_labels(len(manifest.label_by_id))
    unlisted = split.unlisted
    if unlisted.files:
        more = " …" if unlisted.files > len(unlisted.first) else ""
        shown = ", ".join(map(printable, unlisted.first)) + more
        yield "files", f"{unlisted.files:,} in --images that nothing refers to, and that are left out ({shown})"


def _compared_lines(comparison: SplitComparison) -> Iterator[tuple[str, str]]:
    """What is odd about the classes of a folder's splits."""
    alone = [f"{each.name} ({each.split}, images {each.images:,})" for each in comparison.one_split_only]
    drifting = [
        f"{each.name} ({each.share:.1%} of the images of {each.split}, {each.elsewhere:.1%} elsewhere)"
        for each in comparison.drifting
    ]
    for what, found in (
        ("classes that are in one split only", alone),
        ("class shares that differ between splits by more than chance", drifting),
    ):
        if found:
            more = " …" if len(found) > _CLASSES_SHOWN else ""
            yield "perhaps bad", printable(f"{what} {len(found):,}: {', '.join(found[:_CLASSES_SHOWN])}{more}")


def _duplicate_lines(folder: str, manifest: Manifest, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Labels and texts, of splits that have just been written: first what is in several splits."""
    found = manifest.duplicates
    if found is msgspec.UNSET:
        return
    file = os.path.join(folder, DUPLICATES)
    of = {name: found.splits[name] for name in names if name in found.splits}
    if any(each.leaked for each in of.values()):
        leaked = ", ".join(f"{each.leaked:,} of {name}" for name, each in found.splits.items() if each.leaked)
        yield (
            "LEAKAGE",
            f"{number_text(found.leaks, 'picture')} in several splits, exactly or nearly ({leaked}): a model is "
            f"measured by what it was trained on. --groups {file} keeps each in one split, in the next run, into "
            "another --output",
        )
    for name, each in of.items():
        if each.exact or each.near:
            differ = f"; with other labels there: {each.labels_differ:,}" if each.labels_differ else ""
            text = f"{each.exact:,} images of {name} are there again exactly, {each.near:,} nearly{differ}; see {file}"
            yield "duplicates", text
    if missing := ", ".join(name for name in manifest.splits if name not in found.splits):
        yield (
            "duplicates",
            f"{missing} was not compared: its fingerprints are missing or damaged; convert again with --overwrite",
        )
    for name, number in list(found.copied_classes.items())[:_CLASSES_SHOWN]:
        copies = f"{number:,} pictures of the class {name} are of other classes, too: does its folder hold theirs?"
        yield "duplicates", printable(copies)
    if (more := len(found.copied_classes) - _CLASSES_SHOWN) > 0:
        yield "duplicates", f"and so it is with {more:,} classes more, which manifest.json has in copied_classes"


def _texts(encoder: EncoderInfo, counts: TextCounts | None) -> str:
    """What texts were encoded by, and what of them its vocabulary has not."""
    fitted = f"fitted on {encoder.texts:,} texts of {encoder.split}"
    what = "token ids" if encoder.form is TextForm.TOKENS else "terms"
    line = f"{printable(encoder.column)} as {encoder.form.value} of {encoder.size:,} {what}, {fitted}"
    if counts is None:
        return line
    without = f"; {counts.without:,} have none that is known" if counts.without else ""
    return f"{line}; of {counts.texts:,} texts with {counts.terms:,} terms, {counts.unknown:,} are unknown{without}"


def _uncarried(inputs: Iterable[InputRows], layout: str) -> Iterator[tuple[str, str]]:
    for label, line in zip(chain(["not carried"], repeat("")), uncarried_lines(inputs, layout), strict=False):
        yield label, printable(line)


def shifted_labels(labels: int) -> str:
    """That labels are not the category ids, where `labels` have been given."""
    return (
        f"class index + 1 (1 to {labels:,}), as a category id is below 1 and 0 means background to who reads labels; "
        "the JSON's ids are in image/object/category_id"
    )


def _rewritten(pictures: RewrittenPictures) -> str:
    formats = ", ".join(f"{name} {number:,}" for name, number in pictures.by_format.items())
    kinds = {"turned upright": pictures.turned, "made smaller": pictures.shrunk}
    more = "".join(f"; {number:,} {kind}" for kind, number in kinds.items() if number)
    return f"{formats}{more}: {size_text(pictures.bytes_read)} became {size_text(pictures.bytes_written)}"


def print_plan(console: Console, plan: PlanReport, options: ConvertOptions, splits: Sequence[str]) -> None:
    """What a dry run found."""
    names = ", ".join(f"{options.name}-{split}" for split in splits)
    console.print(f"{names} would be written to {options.output}; nothing was")
    _print_lines(console, _plan_lines(plan, options, splits))


def _plan_lines(plan: PlanReport, options: ConvertOptions, splits: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield "rows" if plan.features else "images", f"{plan.images:,}{_reasons(plan.rejected['image'])}"
    if len(splits) > 1:
        yield "", ", ".join(f"{split} {plan.images_by_split.get(split, 0):,}" for split in splits)
    if plan.groups_by_split:
        yield "groups", ", ".join(f"{split} {plan.groups_by_split.get(split, 0):,}" for split in splits)
    if plan.rejected["annotation"]:
        yield "annotations", f"some are left out{_reasons(plan.rejected['annotation'])}"
    for encoder in plan.encoders:
        yield "texts", _texts(encoder, None)
    yield from _uncarried(plan.inputs, options.layout)
    if plan.features:
        yield "columns", _columns(plan.features)
    for split in splits if plan.classes or not plan.features else ():
        counts = plan.class_counts.get(split, [0] * len(plan.classes))
        yield "classes", f"{f'{split} ' if len(splits) > 1 else ''}{_classes(plan.classes, counts)}"
    if plan.num_classes:
        yield "num_classes", _num_classes(plan.num_classes)
    if plan.shifted_labels:
        yield "labels", shifted_labels(plan.shifted_labels)
    each = f" of about {size_text(plan.bytes // plan.shards)}" if plan.shards else ""
    yield (
        "shards",
        "as the runner chooses" if options.writer == "beam" and not options.num_shards else f"{plan.shards:,}{each}",
    )
    what = "to read, and to write before compression"
    if isinstance(options, PictureOptions) and (size := options.pictures.raw_size):
        what = f"to write before compression, {3 * size[0] * size[1]:,} bytes of pixels a picture"
    yield "bytes", f"{size_text(plan.bytes)} {what}"
    if isinstance(options, PictureOptions) and options.holds_pictures:
        seconds = plan.images / _CORE_IMAGES_PER_SECOND[options.check]
        whole = number_text(max(1, round(seconds)), "second")
        lasts = f"{seconds / 3600:.1f} hours" if seconds > 3600 else whole
        yield "cost", f"about {lasts} of one core (--check {options.check})"


def _classes(names: Sequence[str], counts: Sequence[int]) -> str:
    """How many there are, and of the first how many objects or images each has.

    >>> _classes(["cat", "dog"], [3, 0])
    '2: cat 3, dog 0; 1 without any'
    """
    shown = ", ".join(
        f"{printable(name)} {count:,}" for name, count in list(zip(names, counts, strict=True))[:_CLASSES_SHOWN]
    )
    more = f" and {len(names) - _CLASSES_SHOWN:,} more" if len(names) > _CLASSES_SHOWN else ""
    empty = sum(count == 0 for count in counts)
    lacking = f"; {empty:,} without any" if empty else ""
    return f"{len(names):,}{': ' if names else ''}{shown}{more}{lacking}"


def _columns(features: Sequence[Feature]) -> str:
    """What columns become."""
    each = (f"{printable(f.name)} {f.kind.value}{' list' if f.is_list else ''}" for f in features[:_COLUMNS_SHOWN])
    shown = ", ".join(each)
    return f"{len(features):,}: {shown}{' …' if len(features) > _COLUMNS_SHOWN else ''}"


def _num_classes(number: int) -> str:
    return f"{number:,}, which is the largest label, {number - 1:,}, + 1"


def _reasons(counts: dict[str, int]) -> str:
    return f" ({', '.join(f'{reason} {count:,}' for reason, count in counts.items())})" if counts else ""
