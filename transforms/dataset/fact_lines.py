"""Lines about a data set, shared by the summary of a job, the plan, `show` and the page."""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, repeat
from typing import NamedTuple

import msgspec

from recordmill.schemas.containers import CONTAINERS, TFRECORD
from recordmill.schemas.dataset import tfds
from recordmill.schemas.dataset.dataset_files import MANIFEST, split_changes, split_rejects
from recordmill.schemas.dataset.manifest import InputRows, Manifest, MappedClass, Plan, RewrittenImages, SplitManifest
from recordmill.schemas.dataset.recipes import Recipe
from recordmill.schemas.features import Feature, Part, RecordOf
from recordmill.schemas.field_features import Axis
from recordmill.schemas.inputs.annotations import unnamed_keypoints
from recordmill.schemas.inputs.coco import STORED_OF_IMAGES, STORED_OF_OBJECTS, AnnotationKind
from recordmill.schemas.inputs.encoders import EncoderInfo, TextCounts, TextForm
from recordmill.schemas.inputs.fields import OBJECTS, fields_flag, shortest_name
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import FEATURES, LAYOUTS, TABLE, has_image, requested_fields
from recordmill.schemas.problems import COPIES, DUPLICATES, Duplicates, split_problems
from recordmill.schemas.shards import JobPart, ShardKey, SplitSize
from recordmill.schemas.sizes import first_texts, number_text, printable, quote_blanks, size_text
from recordmill.schemas.statistics import FINDINGS, STATISTICS, ClassDrift, SplitComparison
from recordmill.transforms.dataset.dataset_folder import replaced_bytes

_CLASSES_SHOWN = 5
_COLUMNS_SHOWN = 40
_MAPPED_SHOWN = 12
_PART_SHARDS_SHOWN = 8
_CORE_IMAGES_PER_SECOND = {"none": 2000, "header": 1500, "decode": 400}
"""Images per second, order of magnitude for images of 130 kB on one core, see benchmarks/RESULTS.md."""

Line = tuple[str, str]
"""Label and text. An empty label continues the label before."""


_PROBLEMS = "possible problems"
_WARNINGS = ("LEAKAGE", "CONFLICTING LABELS", "duplicates", _PROBLEMS, "warning")
"""Labels of lines that Python logs as warnings."""


def data_set_lines(
    folder: str,
    manifest: Manifest,
    names: Sequence[str],
    comparison: SplitComparison | None = None,
    has_warnings: bool = True,
) -> Iterator[str]:
    """Yield all lines about splits of a finished data set.

    Args:
        names: Names of the splits.
        comparison: Comparison of all splits in the folder.
        has_warnings: False to skip the lines of `problem_lines`, warnings, and the number of rejects.
    """
    splits = {name: manifest.splits[name] for name in names}
    job_splits = list(splits.values())

    def align(lines: Iterable[Line]) -> Iterator[str]:
        return _align_lines(line for line in lines if has_warnings or line[0] not in _WARNINGS)

    for name, split in splits.items():
        yield f"{manifest.name}-{name} is in {printable(folder)}"
        yield from align(split_lines(manifest, split, job_splits))
        yield from align(_first_shards(folder, split))
        yield from align(("replaced shards", printable(text)) for text in replaced_lines(folder, manifest, name))
        if split.runs and not tfds.is_readable(msgspec.structs.replace(manifest, splits={name: split})):
            yield from align(_tfds_lines(folder, manifest, split))
    yield from align(_shared_lines(manifest, job_splits))
    yield from align(_finding_lines(folder, manifest, names, comparison))
    warnings = sorted({text for split in job_splits for text in split.warnings})
    yield from align(("warning", printable(text)) for text in warnings)
    if not has_warnings:
        return
    if rejecting := {name: split for name, split in splits.items() if split.rejects}:
        files = ", ".join(os.path.join(folder, split_rejects(name)) for name in rejecting)
        number = sum(split.rejects for split in rejecting.values())
        listed = sum(split.listed_rejects for split in rejecting.values())
        how_many = "Rejects are listed" if listed == number else f"{listed:,} of {number:,} rejects are listed"
        yield f"{how_many} in {files}"


_OF_RECORDS = ("shards", "columns", _PROBLEMS)
"""Labels of lines about records and their files."""


def label_lines(manifest: Manifest, name: str) -> Iterator[str]:
    """Yield the lines of `data_set_lines` about what was read of a split, for labels that are written without
    records."""
    lines = split_lines(manifest, manifest.splits[name], list(manifest.splits.values()))
    return _align_lines(line for line in lines if line[0] not in _OF_RECORDS)


def replaced_lines(folder: str, manifest: Manifest, name: str) -> Iterator[str]:
    """Yield the sentence about the shards of a split that --add --sync has replaced, if their files are there."""
    split, prefix = manifest.splits[name], f"{manifest.name}-{name}"
    files, size = split.replaced_shards or (), replaced_bytes(folder, split)
    if not size:
        return
    start = prefix if files[0].startswith(prefix) else ""
    pattern = start + re.sub(r"\d.*", "*", files[0].removeprefix(start))
    have, stay = ("has a newer copy", "stays") if len(files) == 1 else ("have newer copies", "stay")
    yield (
        f"{number_text(len(files), 'file')} of {size_text(size)} {have}, and {stay} until the next run of "
        f"--add. Patterns such as {pattern} match both, so read the shards that {MANIFEST} lists. To delete the files "
        "now, run the last convert --add again with --prune"
    )


def _tfds_lines(folder: str, manifest: Manifest, split: SplitManifest) -> Iterator[Line]:
    """Yield a line about a split that TFDS cannot read only because it has grown, or will have."""
    if CONTAINERS[manifest.container].tfds_format and not split.compression and not split.recipe.shard_names.is_keras:
        copy = f"{folder.rstrip('/')}-replanned"
        yield (
            "TFDS",
            "cannot read a split that has grown: its file names have several numbers of shards. So "
            f"{tfds.DATASET_INFO} and {tfds.FEATURES} are removed. TFDS reads the copy that this writes: recordmill "
            f"repack {shlex.quote(folder)} {shlex.quote(copy)} --replan",
        )


def _first_shards(folder: str, split: SplitManifest) -> Iterator[Line]:
    for shard in split.shards[:1]:
        yield "first shard", printable(os.path.join(folder, shard.file))
    if split.runs and split.runs[-1].shards:
        yield "first new shard", printable(os.path.join(folder, split.shards[-split.runs[-1].shards].file))


def problem_lines(
    folder: str, manifest: Manifest, names: Sequence[str], comparison: SplitComparison | None = None
) -> Iterator[str]:
    """Yield the lines of `data_set_lines` about problems: unusual images, objects and shares, leakage, other copies."""
    for name in names:
        split = manifest.splits[name]
        texts = [text for label, text in split_lines(manifest, split, [split]) if label == _PROBLEMS]
        yield from (f"{name}: {text}" for text in texts)
    for label, text in _finding_lines(folder, manifest, names, comparison):
        yield text if label == _PROBLEMS else f"{label}: {text}"


def _finding_lines(
    folder: str, manifest: Manifest, names: Sequence[str], comparison: SplitComparison | None
) -> Iterator[Line]:
    yield from _compared_lines(manifest, comparison or SplitComparison())
    yield from _duplicate_lines(folder, manifest, names)


def plan_lines(plan: Plan, output: str) -> Iterator[str]:
    """Yield all lines about splits that a job would write into the folder `output`."""
    manifest = plan.manifest
    job_splits = list(manifest.splits.values())
    yield f"The plan for {printable(output)}; nothing is written"
    for name, split in manifest.splits.items():
        yield f"{manifest.name}-{name}"
        first = plan.first_shards.get(name, 0)
        yield from _align_lines(split_lines(manifest, split, job_splits, plan.sizes[name], first))
        if first and plan.sizes[name].shards:
            yield from _align_lines(_tfds_lines(output, manifest, split))
    yield from _align_lines(_shared_lines(manifest, job_splits))
    previews = [printable(f"{name}: {text}") for name, text in sorted(plan.fields.items())]
    yield from _align_lines(zip(chain(["field values"], repeat("")), previews, strict=False))


def part_shard_lines(part: JobPart, shards: Mapping[str, int]) -> Iterator[str]:
    """Yield the lines about the shards that a part of a job writes.

    Args:
        shards: Number of shards of each split.

    >>> list(part_shard_lines(JobPart(5, 6), {"train": 12, "val": 2}))
    ['  part 5/6            2 of 12 shards of train: 5, 11', '                      none of 2 shards of val']
    """
    texts = []
    for split, number in shards.items():
        ours = first_texts(map(str, range(part.index, number, part.count)), _PART_SHARDS_SHOWN)
        how_many = f"{part.num_shards(number):,}" if ours else "none"
        texts.append(f"{how_many} of {number_text(number, 'shard')} of {split}" + (f": {ours}" if ours else ""))
    yield from _align_lines(zip(chain([f"part {part}"], repeat("")), texts, strict=False))


def _align_lines(lines: Iterable[Line]) -> Iterator[str]:
    return (f"  {label:<18}  {text}" for label, text in lines)


def split_lines(
    manifest: Manifest,
    split: SplitManifest,
    job_splits: Sequence[SplitManifest],
    planned: SplitSize | None = None,
    first_shard: int = 0,
) -> Iterator[Line]:
    """Yield the lines about one split.

    Args:
        of_job: All splits of the job, with this one.
        planned: Planned size of a split that is not written yet.
        first_shard: Index of its first shard.
    """
    images, annotations = split.images, split.annotations
    further = {
        "without an object": images.without_record,
        "without a tile": images.without_tile,
        "of classes not requested": images.of_other_classes,
        "over --limit": images.over_limit,
        "over --max-per-class": images.over_class_limit,
        "removed by the pipeline": images.removed,
    }
    omitted = images.rejected | {what: number for what, number in further.items() if number}
    is_table = manifest.table.record_of is RecordOf.ROW
    rows = images.rows - images.present - images.replaced  # the others are of earlier runs
    yield "rows" if is_table else "images", f"{images.written:,} of {rows:,}{_format_reasons(omitted)}"
    yield from _added_lines(split, planned is not None)
    if images.tiles:
        yield "tiles", _format_tiles(split)
    if planned and len(job_splits) > 1 and (wanted := _requested_share(split)):
        share = images.written / max(1, sum(job_split.images.written for job_split in job_splits))
        yield "share", f"{share:.1%} of all images; {wanted} by --split"
    if images.groups or images.ungrouped:
        yield "groups", _format_groups(split, job_splits)
    if images.rewritten:
        yield "rewritten", _format_rewritten(images.rewritten)
    omitted = annotations.rejected | annotations.filtered
    if annotations.of_rejected_images:
        omitted["image rejected"] = annotations.of_rejected_images
    if annotations.of_limited_images:
        omitted["image over a limit"] = annotations.of_limited_images
    if annotations.removed:
        omitted["removed by the pipeline"] = annotations.removed
    if annotations.in_no_tile:
        omitted["in no tile"] = annotations.in_no_tile
    if annotations.rows or not (is_table or "image.class_index" in manifest.table.sources):
        rows = annotations.rows - annotations.of_present_images - annotations.replaced
        yield "annotations", f"{rows - sum(omitted.values()):,} of {rows:,}{_format_reasons(omitted)}"
    kinds = {
        "objects": annotations.objects,
        "captions": annotations.captions,
        "stuff": annotations.stuff,
        "panoptic": annotations.panoptic,
        "semantic masks": annotations.semantic_masks,
        "depth maps": annotations.depth_maps,
        "keypoint rows joined with their instance": annotations.joined,
    }
    if any(number for kind, number in kinds.items() if kind != "objects"):
        yield "", ", ".join(f"{kind} {number:,}" for kind, number in kinds.items() if number)
    if annotations.tile_copies:
        yield "", f"{annotations.tile_copies:,} more, because a tile has an annotation that another tile has"
    if lacking := _format_missing_objects(split):
        yield "no objects", lacking
    if annotations.objects and {Part.MASK_PNG, Part.MASK_RLE} & set(manifest.parts):
        rest = "; the others have no segmentation" if annotations.masks < annotations.objects else ""
        yield "masks", f"{annotations.masks:,} of {annotations.objects:,} objects{rest}"
    if annotations.boxes_clipped:
        yield "boxes", f"{annotations.boxes_clipped:,} clipped at their image's edge"
    if annotations.keypoints_outside:
        yield (
            "keypoints",
            f"{annotations.keypoints_outside:,} visible ones (v = 2) are outside their image; they are kept",
        )
    requested = tuple(column.source for column in requested_fields(manifest.table))
    if fields := [feature for feature in manifest.features if feature.source.startswith(requested)]:
        yield "fields", _format_columns(fields)
    elif manifest.features:
        yield "columns", _format_columns(manifest.features)
    has_pixels_alone = manifest.segments or Part.DEPTH in manifest.table.parts
    if manifest.categories or not (is_table or has_pixels_alone):
        yield "classes", _format_classes([category.name for category in manifest.categories], split.class_counts)
        if isinstance(maximum := split.recipe.options.get("max_per_class"), int):
            yield "", _format_class_limit(manifest, split, maximum)
    if manifest.segments:
        yield "segment classes", _format_classes([category.name for category in manifest.segments])
    for encoder in manifest.encoders:
        yield "texts", _format_texts(encoder, split.texts.get(encoder.column))
    yield from zip(chain(["class map"], repeat("")), _format_class_map(split), strict=False)
    if split.findings:
        findings = ", ".join(f"{FINDINGS[name]} {number:,}" for name, number in split.findings.items())
        yield _PROBLEMS, f"{findings}; {_listed_problems(manifest, split.recipe.split)}"
    yield from _shard_lines(split) if planned is None else _planned_lines(manifest, split, planned, first_shard)


def _added_lines(split: SplitManifest, is_plan: bool) -> Iterator[Line]:
    """Yield the lines about the last run of `--add`, or about one that is planned."""
    if not split.runs and not (is_plan and split.images.present):
        return
    last = None if is_plan else split.runs[-1]
    run, shards = (last.images, last.shards) if last else (split.images, 0)
    number = len(split.runs)
    whose = f" by the last of {number:,} runs of --add" if number > 1 and not is_plan else ""
    where = f" in {number_text(shards, 'shard')}" if shards else ""
    written = number_text(run.written, "image") if run.written else "nothing"
    texts = [f"{written}{where}{whose}"]
    if last and last.replaced:
        texts.append(f"{last.replaced:,} of them in place of earlier records")
    if run.present:
        present = f"{run.present:,}" if run.written else number_text(run.present, "image")
        verb = ("is" if run.present == 1 else "are") if is_plan else "was" if run.present == 1 else "were"
        texts.append(f"{present} {verb} present")
    yield "added", ", ".join(texts)
    listed = "" if is_plan or split.changes_sha256 is msgspec.UNSET else f" ({split_changes(split.recipe.split)})"
    if run.changed:
        have = "has" if run.changed == 1 else "have"
        yield (
            "changed",
            (
                f"{run.changed:,} of the present {have} other labels, masks or fields than in the records{listed}. "
                "Their records stay. Run again with --add --sync to write them"
            ),
        )
    if run.gone:
        was, records = ("was", "Its record stays") if run.gone == 1 else ("were", "Their records stay")
        yield "gone", f"{number_text(run.gone, 'image')} of the data set {was} not in DATA{listed}. {records}"


def _format_class_limit(manifest: Manifest, split: SplitManifest, maximum: int) -> str:
    """Return the number of classes that have fewer objects than `--max-per-class`, and the smallest of them."""
    names = (category.name for category in manifest.categories)
    counts = {name: number for name, number in zip(names, split.class_counts, strict=False) if number}
    small = [name for name, number in counts.items() if number < maximum]
    what = "objects" if split.annotations.objects or split.annotations.rows else f"{split.recipe.unit}s"
    flag = "--max-per-class"
    if split.images.tiles:
        what, flag = "objects in tiles" if what == "objects" else "tiles", f"{flag} counts those of whole images"
    text = f"{len(small):,} of {len(counts):,} classes have fewer than {maximum:,} {what} ({flag})"
    if small:
        smallest = min(small, key=lambda name: counts[name])
        text += f", and {smallest} has the fewest, {counts[smallest]:,}"
    return printable(text)


def _requested_share(split: SplitManifest) -> str:
    """Return the share of a split in `--split`; empty if something else assigns the images, or a limit cuts the share.

    The recipe has `train=0.8,val=0.2`.
    """
    if split.images.limited:
        return ""
    shares = dict(pair.split("=") for pair in str(split.recipe.options.get("split", "")).split(",") if "=" in pair)
    share = shares.get(split.recipe.split)
    return f"{float(share):.1%}" if share else ""


def _format_tiles(split: SplitManifest) -> str:
    """Return the number of tiles as text, and the quality of those that are encoded as JPEG."""
    images = split.images
    quality = split.recipe.options.get("jpeg_quality", 95)
    parts = [f"{images.tiles:,} of {number_text(images.written, 'image')}"]
    if images.jpeg_tiles:
        parts.append(f"{images.jpeg_tiles:,} encoded as JPEG of quality {quality}")
    if images.empty_tiles:
        parts.append(f"{images.empty_tiles:,} without objects skipped")
    return "; ".join(parts)


_FILTERS = {"category": "--categories", "crowd": "--no-crowd", "area": "--min-area", "class_map": "--class-map"}


def _format_missing_objects(split: SplitManifest) -> str:
    """Return the number of images without objects as text, if an input has objects."""
    images = split.images
    reasons = []
    is_captioned = bool(split.annotations.captions and not split.annotations.objects)
    kinds = {rows.kind for rows in split.inputs} - _WITHOUT_OBJECTS
    if images.without_objects and (kinds & {*_OBJECTS} or (kinds and not is_captioned)):
        reasons.append(f"{images.without_objects:,} of the written {images.unit}s")
    if images.emptied:
        flags = ", ".join(flag for name, flag in _FILTERS.items() if name in split.annotations.filtered)
        reasons.append(f"{number_text(images.emptied, 'image')} had only objects that {flags} skipped")
    return "; ".join(reasons)


def _format_class_map(split: SplitManifest) -> Iterator[str]:
    """Yield the new classes of a split with their members, and the dropped ones, with numbers of labels."""
    groups = [
        (new_name, list(members)) for new_name, members in groupby(split.class_map or (), lambda one: one.new_name)
    ]
    for new_name, members in sorted(groups[:_MAPPED_SHOWN], key=lambda group: not group[0]):
        labels = [printable(one.name) for one in members]
        if not split.annotations.semantic_masks:  # whose pixels are read later
            numbers = (_format_labels(one, split.recipe.unit) for one in members)
            labels = [f"{label} ({number})" for label, number in zip(labels, numbers, strict=True)]
        yield f"{printable(new_name) if new_name else 'dropped'}: {first_texts(labels, _CLASSES_SHOWN)}"
    if len(groups) > _MAPPED_SHOWN:
        yield f"and {len(groups) - _MAPPED_SHOWN:,} more, see {MANIFEST}"


def _format_labels(mapped: MappedClass, unit: str) -> str:
    numbers = ((mapped.objects, "object"), (mapped.segments, "segment"), (mapped.images, unit))
    return ", ".join(number_text(number, noun) for number, noun in numbers if number) or "no label"


def _listed_problems(manifest: Manifest, split: str) -> str:
    """Return the file with the problems of a split. A split with damaged fingerprints has no list."""
    if (listed := (manifest.problems or {}).get(split)) is None:
        return f"examples of each are in {STATISTICS}"
    excess = f", except {listed.left_out:,}" if listed.left_out else ""
    return f"listed in {split_problems(split)}{excess}"


def _shard_lines(split: SplitManifest) -> Iterator[Line]:
    if sizes := sorted(shard.bytes for shard in split.shards):
        spread = " to ".join(dict.fromkeys(map(size_text, (sizes[0], sizes[-1]))))
        yield "shards", f"{len(sizes):,} of {spread}, {size_text(split.bytes)} in total"


def _planned_lines(manifest: Manifest, split: SplitManifest, planned: SplitSize, first_shard: int) -> Iterator[Line]:
    options = split.recipe.options
    is_chosen = options.get("writer") == "beam" and not options.get("num_shards")
    number = "as the runner chooses" if is_chosen else f"{planned.shards:,}"
    shard_size = "" if is_chosen or not planned.shards else f" of about {size_text(planned.bytes // planned.shards)}"
    form = "before compression" if CONTAINERS[manifest.container].can_gzip else "as tf.Examples"
    yield "shards", f"{number}{shard_size}, {size_text(planned.bytes)} in total, {form}"
    shard_names, end = split.recipe.shard_names, first_shard + planned.shards
    if (manifest.container != TFRECORD or first_shard) and planned.shards and not shard_names.is_keras:
        names = (
            shard_names.file(ShardKey(split.recipe.split, index, end), 0, bool(split.compression))
            for index in dict.fromkeys((first_shard, end - 1))
        )
        yield "files", f"{manifest.container}: {printable(' to '.join(names))}"
    if has_image(manifest.table):
        check = str(options.get("check", "decode"))
        seconds = planned.images / _CORE_IMAGES_PER_SECOND[check]
        lasts = f"{seconds / 3600:.1f} hours" if seconds > 3600 else number_text(max(1, round(seconds)), "second")
        yield "cost", f"about {lasts} of one core (--check {check})"


def _format_groups(split: SplitManifest, job_splits: Sequence[SplitManifest]) -> str:
    """Return the number of groups of a split and its share of the images."""
    images, recipe = split.images, split.recipe
    paths = dict.fromkeys(file.path for file in recipe.inputs if file.kind == "groups")
    pattern = recipe.options.get("group_from")
    by = f"--group-from {shlex.quote(str(pattern))}" if pattern else "ReadDataset"
    by = f"--groups {' '.join(map(shlex.quote, paths))}" if paths else by
    alone = f"; {images.ungrouped:,} images have no group" if images.ungrouped else ""
    share = images.written / max(1, sum(job_split.images.written for job_split in job_splits))
    divided_by = recipe.options.get("split", "" if len(job_splits) < 2 else "the splits of each data set")
    share_text = f"; {share:.1%} of all images, by {divided_by}" if divided_by and not images.limited else ""
    return printable(f"{images.groups:,}, by {by}{alone}{share_text}")


def _set_texts(recipe: Recipe) -> Iterator[str]:
    """Yield the sets of a run."""
    sets = recipe.options.get("sets")
    yield from map(_format_set, sets if isinstance(sets, list) else ())
    if added := recipe.options.get("add_as"):
        yield f"{added} (added)"


def _shared_lines(manifest: Manifest, job_splits: Sequence[SplitManifest]) -> Iterator[Line]:
    """Yield the lines that all splits of a job share."""
    if sets := dict.fromkeys(text for split in job_splits for recipe in split.recipes for text in _set_texts(recipe)):
        yield "data sets", printable(", ".join(sets))
    inputs = [rows for split in job_splits for rows in split.inputs]
    uncarried = uncarried_lines(inputs, manifest.layout, manifest.container)
    yield from zip(chain(["fields not written"], repeat("")), map(printable, uncarried), strict=False)
    if manifest.labels.has_pixel_ids and not manifest.categories:
        yield (
            "num_labels",
            f"{manifest.num_classes:,}: values of pixels (up to {manifest.num_classes - 1:,}); 255 is unknown",
        )
    elif number := manifest.num_classes:
        stored, last = _stored_labels(manifest), len(manifest.categories) - 1
        read = "" if stored == "class indices" else f"; recordmill.open() returns class indices 0 to {last:,}"
        yield "num_labels", f"{number:,}: records store {stored} (up to {number - 1:,}){read}"
    if names := LabelMap(manifest.categories).duplicate_names():
        yield "", f"several category ids share a name: {', '.join(map(printable, names))}"
    for category in manifest.categories:
        number = len(category.keypoints)
        if number and category.keypoints == unnamed_keypoints(number):
            first_last = f"{category.keypoints[0]} to {category.keypoints[-1]}"
            yield (
                "keypoints",
                f"{number} for {printable(category.name)}, as in most rows: {first_last} (the file has no names)",
            )
    if Part.CATEGORY_ID in manifest.parts:
        yield (
            "labels",
            f"class index + 1 (1 to {len(manifest.label_by_id):,}), because a category id is below 1, and label 0 is "
            "the background in training code; image/object/category_id has the ids of the data",
        )
    for unlisted in [split.unlisted for split in job_splits if split.unlisted.files][:1]:
        more = " …" if unlisted.files > len(unlisted.first) else ""
        shown = ", ".join(map(printable, unlisted.first)) + more
        are_labelled = all(rows.kind == "images" for rows in inputs)
        are_of_table = any(rows.kind == "rows" for rows in inputs)  # rejects and dropped classes have a row
        row = "converted row" if are_of_table else "row"
        what = "not images" if are_labelled else f"no {row} names them"
        yield "files", f"{unlisted.files:,} not converted: {what} ({shown})"


def _format_set(text: str) -> str:
    """Return the name, format and splits of a data set, see `recordmill.pipelines.sets_options.NamedSet.recorded`."""
    recorded = msgspec.json.decode(text)
    return f"{recorded['name']} ({recorded['format']}: {', '.join(recorded['splits'])})"


def _stored_labels(manifest: Manifest) -> str:
    if manifest.num_classes == len(manifest.categories):
        return "class indices"
    return "class indices + 1" if Part.CATEGORY_ID in manifest.parts else "category ids"


class ClassGap(NamedTuple):
    """A class that some splits lack.

    Attributes:
        number: Number of its objects, images or rows in the other splits.
    """

    name: str
    absent_from: tuple[str, ...]
    number: int


def class_gaps(manifest: Manifest) -> list[ClassGap]:
    """Return the classes that a split has and another lacks, the most frequent first."""
    counts = {name: split.class_counts for name, split in manifest.splits.items()}
    gaps = []
    for category, numbers in zip(manifest.categories, zip(*counts.values(), strict=False), strict=False):
        absent_from = tuple(name for name, number in zip(counts, numbers, strict=True) if not number)
        if absent_from and any(numbers):
            gaps.append(ClassGap(category.name, absent_from, sum(numbers)))
    return sorted(gaps, key=lambda gap: -gap.number)


def partial_drifts(comparison: SplitComparison) -> list[ClassDrift]:
    """Return the drifts of classes that are on both sides. The others are gaps."""
    return [drift for drift in comparison.drifting if drift.share and drift.elsewhere]


def count_conflicts(manifest: Manifest) -> tuple[int, int] | None:
    """Return the number of exact copies with different labels, and the number of different images among them; None if
    there are none."""
    if not manifest.duplicates or not manifest.duplicates.conflicts:
        return None
    conflicting = sum(counts.conflicting or 0 for counts in manifest.duplicates.splits.values())
    return conflicting, manifest.duplicates.conflicts


def _compared_lines(manifest: Manifest, comparison: SplitComparison) -> Iterator[Line]:
    """Yield differences between the classes of the splits."""
    absent = [f"{gap.name} ({gap.number:,}, but none in {', '.join(gap.absent_from)})" for gap in class_gaps(manifest)]
    are_tiles = any(split.images.tiles for split in manifest.splits.values())
    unit, chance = ("tiles", "chance (if tiles of an image were independent)") if are_tiles else ("images", "chance")
    drifting = [
        f"{category.name} ({category.share:.1%} of the {unit} of {category.split}, {category.elsewhere:.1%} elsewhere)"
        for category in partial_drifts(comparison)
    ]
    for what, classes in (
        ("classes absent from a split", absent),
        (f"class shares that differ between splits by more than {chance}", drifting),
    ):
        if classes:
            more = " …" if len(classes) > _CLASSES_SHOWN else ""
            yield (
                _PROBLEMS,
                printable(f"{what} {len(classes):,}: {', '.join(classes[:_CLASSES_SHOWN])}{more}"),
            )


def _duplicate_lines(folder: str, manifest: Manifest, names: Sequence[str]) -> Iterator[Line]:
    """Yield lines about duplicates of new splits, leakage first."""
    duplicates = manifest.duplicates
    if duplicates is msgspec.UNSET:
        return
    file = os.path.join(folder, DUPLICATES)
    by_split = {name: duplicates.splits[name] for name in names if name in duplicates.splits}
    if any(counts.leaked for counts in by_split.values()):
        leaked = ", ".join(
            f"{counts.leaked:,} of {name}" for name, counts in duplicates.splits.items() if counts.leaked
        )
        yield (
            "LEAKAGE",
            f"{number_text(duplicates.leaks, 'image')} in several splits, exactly or nearly ({leaked}): a model would "
            f"be tested on images that it was trained on. {_leakage_cure(folder, manifest, duplicates)}",
        )
    conflicts = count_conflicts(manifest)
    if conflicts and any(counts.conflicting for counts in by_split.values()):
        yield "CONFLICTING LABELS", _format_conflicts(folder, manifest, duplicates, *conflicts)
    for name, counts in by_split.items():
        if counts.exact or counts.near:
            differ = f" ({counts.labels_differ:,} with different labels)" if counts.labels_differ else ""
            text = f"{name}: {counts.exact:,} exact, {counts.near:,} near{differ}; see {file}"
            yield "duplicates", text
    if missing := ", ".join(name for name in manifest.splits if name not in duplicates.splits):
        yield (
            "duplicates",
            f"{missing} was not compared: its fingerprints are missing or damaged. Convert again with --overwrite",
        )
    for name, number in list(duplicates.copied_classes.items())[:_CLASSES_SHOWN]:
        copies = f"{number:,} images of the class {name} are also in other classes: does its folder have theirs?"
        yield _PROBLEMS, printable(copies)
    if (more := len(duplicates.copied_classes) - _CLASSES_SHOWN) > 0:
        yield _PROBLEMS, f"{more:,} more such classes are in copied_classes of manifest.json"


def _leakage_cure(folder: str, manifest: Manifest, duplicates: Duplicates) -> str:
    """Return the flags that end leakage: groups of images if --split divides all of them, else a list of copies."""
    shares = {entry.recipe.options.get("split") for entry in manifest.splits.values()}
    if manifest.layout not in (TABLE.layout, FEATURES.layout) and len(shares) == 1 and "=" in str(*shares):
        file = shlex.quote(os.path.join(folder, DUPLICATES))
        return f"Convert again with --groups {file} and another --output, which keeps each of them in one split"
    files = _exclude_flags(folder, (name for name, counts in duplicates.splits.items() if counts.leaked))
    return f"Convert again with {files} --exclude-kinds leakage and another --output, which leaves copies out"


def _format_conflicts(folder: str, manifest: Manifest, duplicates: Duplicates, conflicting: int, distinct: int) -> str:
    """Return the line about exact copies with different labels, and the flags that leave out all copies but one."""
    splits = [name for name, counts in duplicates.splits.items() if counts.conflicting]
    parts = ", ".join(f"{duplicates.splits[name].conflicting:,} of {name}" for name in splits)
    problems = [entry.numbers for name, entry in (manifest.problems or {}).items() if name in splits]
    kinds = ",".join(kind for kind in COPIES if any(numbers.get(kind) for numbers in problems))
    return (
        f"{conflicting:,} images are exact copies with different labels, of {number_text(distinct, 'distinct image')} "
        f"({parts}): a model learns contradictory labels. {os.path.join(folder, DUPLICATES)} lists them. Correct the "
        f"labels, or convert again with {_exclude_flags(folder, splits)} --exclude-kinds {kinds} and another --output, "
        "which leaves out all copies but one"
    )


def _exclude_flags(folder: str, splits: Iterable[str]) -> str:
    return " ".join(f"--exclude {shlex.quote(os.path.join(folder, split_problems(name)))}" for name in splits)


def _format_texts(encoder: EncoderInfo, counts: TextCounts | None) -> str:
    """Return the line about encoded texts, and unknown terms."""
    fitted = f"fitted on {encoder.texts:,} texts of {encoder.split}"
    what = "token ids" if encoder.form is TextForm.TOKENS else "terms"
    line = f"{printable(encoder.column)} as {encoder.form.value} of {encoder.size:,} {what}, {fitted}"
    if counts is None:
        return line
    without = f"; {counts.without:,} have no known term" if counts.without else ""
    return f"{line}; of {counts.texts:,} texts with {counts.terms:,} terms, {counts.unknown:,} are unknown{without}"


def _format_rewritten(images: RewrittenImages) -> str:
    formats = ", ".join(f"{name} {number:,}" for name, number in images.by_format.items())
    kinds = {"turned upright": images.turned, "made smaller": images.shrunk}
    more = "".join(f"; {number:,} {kind}" for kind, number in kinds.items() if number)
    return f"{formats}{more}: {size_text(images.bytes_read)} became {size_text(images.bytes_written)}"


def _format_classes(names: Sequence[str], counts: Sequence[int] | None = None) -> str:
    """Return the number of classes, and the first classes, with their counts if known.

    >>> _format_classes(["cat", "dog"], [3, 0])
    '2: cat 3, dog 0; 1 without any'
    """
    shown = list(map(printable, names))
    if counts is not None:
        shown = [f"{name} {count:,}" for name, count in zip(shown, counts, strict=False)]
    empty = sum(count == 0 for count in counts or ())
    lacking = f"; {empty:,} without any" if empty else ""
    return f"{len(names):,}{': ' if names else ''}{first_texts(shown, _CLASSES_SHOWN)}{lacking}"


def _format_columns(features: Sequence[Feature]) -> str:
    """Return the line about columns and their features."""
    names = quote_blanks(feature.name for feature in features)
    columns = (
        f"{printable(name)} {feature.kind.value}{' list' if feature.is_list else ''}"
        for name, feature in zip(names[:_COLUMNS_SHOWN], features, strict=False)
    )
    return f"{len(features):,}: {', '.join(columns)}{' …' if len(features) > _COLUMNS_SHOWN else ''}"


def _format_reasons(counts: Mapping[str, int]) -> str:
    shown = ", ".join(f"{printable(reason)} {number:,}" for reason, number in counts.items())
    return f" ({shown})" if shown else ""


_SHOWN = 8
_LISTS = ("annotations", "images", "categories", "file")
_USUAL = {"file": ("info", "licenses"), "images": ("license", "coco_url", "flickr_url", "date_captured")}
"""Fields of nearly every COCO file, which are not for training. They share one short line."""

_FLAGS = {
    "segmentation": ("--masks png", Part.MASK_PNG),
    "keypoints": ("--keypoints FILE", Part.KEYPOINTS),
    "num_keypoints": ("--keypoints FILE", Part.KEYPOINTS),
    "caption": ("--captions FILE", Part.CAPTIONS),
    "segments_info": ("--panoptic FILE", Part.PANOPTIC),
}
"""Flag that stores a field of annotations, and the part of a record with it."""

_OBJECTS = (AnnotationKind.INSTANCES.value, AnnotationKind.KEYPOINTS.value)
_WITHOUT_OBJECTS = {kind.value for kind in AnnotationKind} | {"masks", Part.SEMANTIC.value, Part.DEPTH.value}
_WITHOUT_OBJECTS -= {*_OBJECTS}
"""Kinds of inputs that have no objects."""
_ADD_OBJECTS = "--instances FILE"


def uncarried_lines(inputs: Iterable[InputRows], layout: str, container: str = TFRECORD) -> Iterator[str]:
    """Yield lines about fields that no record stores."""
    counts: dict[tuple[str, str], int] = {}
    cures: dict[tuple[str, str], str] = {}
    paths: dict[tuple[str, str], tuple[str, ...]] = {}  # of open fields
    files = {(rows.path, rows.kind): rows for rows in inputs}  # several splits may have the same input
    has_objects = any(kind in _OBJECTS for _, kind in files)
    for rows in files.values():
        for list_, fields in rows.uncarried.items():
            for name, number in fields.items():
                counts[list_, name] = counts.get((list_, name), 0) + number
                cure = _storing_flags(rows.kind, list_, name, layout, container)
                cures[list_, name] = "" if has_objects and cure == _ADD_OBJECTS else cure
                if _is_open(rows.kind, list_, name):
                    leaves = rows.leaves.get(list_, {}).get(name, (name,))
                    if usable_paths := tuple(
                        path for path in leaves if path and path.isprintable() and not path.endswith(OBJECTS)
                    ):
                        paths[list_, name] = usable_paths
    usual = [(list_, name) for list_, names in _USUAL.items() for name in names if (list_, name) in counts]
    for list_ in _LISTS:
        names = sorted(
            (name for field_list, name in counts.keys() - usual if field_list == list_),
            key=lambda name: (not cures[list_, name], cures[list_, name], (list_, name) not in paths, name),
        )
        texts = []
        for (cure, is_open), group in groupby(
            names[:_SHOWN], key=lambda name: (cures[list_, name], (list_, name) in paths)
        ):
            fields_of_group = list(group)
            counted = ", ".join(f"{name} {counts[list_, name]:,}" for name in fields_of_group)
            if is_open:
                cure = _fields_flag(list_, [path for name in fields_of_group for path in paths[list_, name]])
            texts.append(f"{counted} (add {cure})" if cure else counted)
        if len(names) > _SHOWN:
            texts.append(f"and {len(names) - _SHOWN:,} more fields, listed in the manifest")
        if texts:
            yield f"{list_}: {', '.join(texts)}"
    if usual:
        open_ = [path for field in usual for path in paths.get(field, ())]
        cure = f" (add {_fields_flag('images', open_)})" if open_ else ""
        yield f"COCO files: {', '.join(name for _, name in usual)}{cure}"


def _is_open(kind: str, list_: str, name: str) -> bool:
    """Return True for a field that `--fields` stores."""
    if list_ == "images":
        return kind in _OBJECTS and name not in STORED_OF_IMAGES
    return list_ == "annotations" and kind in _OBJECTS and name not in STORED_OF_OBJECTS


def _fields_flag(list_: str, paths: Iterable[str]) -> str:
    axis: Axis = "image" if list_ == "images" else "object"
    choices = [shortest_name(axis, path) for path in dict.fromkeys(paths)]
    return fields_flag(choices, _SHOWN)


def _storing_flags(kind: str, list_: str, name: str, layout: str, container: str) -> str:
    """Return the flags that would store a field, if any."""
    if list_ == "annotations" and name in _FLAGS:
        flag, part = _FLAGS[name]
        if part is Part.MASK_PNG and not CONTAINERS[container].has_png_masks:
            flag, part = "--masks rle", Part.MASK_RLE
        return flag if part in LAYOUTS[layout].parts else f"--layout detection {flag}"
    if list_ == "annotations" and name in ("area", "bbox", "category_id") and kind not in _OBJECTS:
        return _ADD_OBJECTS
    if name in ("iscrowd", "neg_category_ids", "not_exhaustive_category_ids"):
        return "--layout detection" if list_ == "images" or kind in _OBJECTS else _ADD_OBJECTS
    return ""
