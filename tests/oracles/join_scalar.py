"""Image rows, annotations and files are joined one image at a time: a job before it was on Blocks."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from recordmill.schemas.dataset.manifest import InputRows
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.inputs.annotations import AnnotatedImage, Category
from recordmill.schemas.inputs.coco import FileAnnotations
from recordmill.schemas.inputs.images import MAX_FILE_BYTES, MAX_RECORD_BYTES, NO_FILE, NOT_A_FILE, ImageRef, ImageTask
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.splits import Division
from recordmill.schemas.names import name_fault, name_key
from recordmill.schemas.rejects import Count, Metric, Reason, Rejected
from recordmill.transforms.coco.join_images import Filters
from recordmill.transforms.coco.merge_annotations import complete_annotations, merge_parts
from recordmill.transforms.join.match_blocks import base_name, match_names
from tests.oracles.estimate_scalar import ScalarEstimate
from tests.oracles.task_order import task_order
from tests.transforms.dataset.kinds import SplitReject

Note = Rejected | Count | InputRows


class SplitNote(NamedTuple):
    split: str
    note: Count | InputRows


class JoinSide(msgspec.Struct, frozen=True, array_like=True):
    """One side of the join by file name: an image row that gives the name, or a file that has it.

    Attributes:
        notes: found while the image's annotations were joined.
    """

    image: AnnotatedImage | None = None
    file: ImageRef | None = None
    name: str = ""
    notes: tuple[Note, ...] = ()

    def with_image(self, **changed: Any) -> "JoinSide":
        assert self.image
        return msgspec.structs.replace(self, image=msgspec.structs.replace(self.image, **changed))


class LoneName(NamedTuple):
    """The name of a file that no image row references; or of an image whose file was not found."""

    name: str
    is_image: bool


Matched = ImageTask | SplitReject | SplitNote | LoneName


class Joined(NamedTuple):
    """Result of join_scalar; tasks are in order, names are sorted."""

    tasks: list[ImageTask]
    rejected: Counter[SplitReject]
    counted: dict[tuple[str, str], int]
    rows: dict[tuple[str, str, str], tuple[int, int]]
    unlisted: list[str]
    unmatched: list[str]


Files = Mapping[str, list[ImageRef]]
"""By the key of their names."""


def join_scalar(
    parts: Mapping[int, list[FileAnnotations]],
    files: Files,
    masks: Files | None,
    labels: LabelMap,
    division: Division,
    match: str,
    filters: Filters,
    estimate: ScalarEstimate,
    seed: int,
) -> Joined:
    """Join images.

    Args:
        parts: rows of each file, by image id.
        rows: of the result, only of splits that are not the first.
    """
    categories = {category.id: category for category in labels.categories}
    items: list[Any] = []
    sides: list[JoinSide] = [JoinSide(file=file, name=name) for name, found in files.items() for file in found]
    for image_id, of_image in parts.items():
        for item in join_parts(image_id, of_image, division, categories):
            if isinstance(item, JoinSide) and item.image:
                name = name_key(item.image.image.file_name)
                sides.append(with_mask(msgspec.structs.replace(item, name=name), masks))
            else:
                items.append(item)
    groups: dict[str, list[JoinSide]] = {}
    for side in sides:
        groups.setdefault(side.name if match == "path" else base_name(side.name), []).append(side)
    for name, group in groups.items():
        items += match_sides(name, group, division) if match == "path" else match_ends(group, match, division)
    return _collected(items, labels, filters, estimate, seed)


def _collected(items: list[Any], labels: LabelMap, filters: Filters, estimate: ScalarEstimate, seed: int) -> Joined:
    tasks, rejected, lone = [], Counter[SplitReject](), []
    counted: Counter[tuple[str, str]] = Counter()
    rows: dict[tuple[str, str, str], tuple[int, int]] = {}
    for item in items:
        if isinstance(item, SplitReject):
            rejected[item] += 1
        elif isinstance(item, LoneName):
            lone.append(item)
        elif isinstance(item, SplitNote) and isinstance(item.note, Count):
            counted[item.split, item.note.what.value] += item.note.number
        elif isinstance(item, SplitNote):
            key = item.split, item.note.path, item.note.kind
            images, annotations = rows.get(key, (0, 0))
            rows[key] = images + item.note.images, annotations + item.note.annotations
        else:
            for each in screen_annotations(item, labels, filters):
                limited = limit_record(each, estimate) if isinstance(each, ImageTask) else each
                if isinstance(limited, ImageTask):
                    tasks.append(limited)
                elif isinstance(limited, Rejected):
                    rejected[SplitReject(item.split, limited)] += 1
                else:
                    counted[item.split, limited.what.value] += limited.number
    tasks.sort(key=lambda task: task_order(seed, task))
    names = [sorted(each.name for each in lone if each.is_image is is_image) for is_image in (False, True)]
    return Joined(tasks, rejected, dict(counted), rows, *names)


def join_parts(
    image_id: int, parts: Iterable[FileAnnotations], division: Division, categories: Mapping[int, Category]
) -> Iterator[JoinSide | SplitReject | SplitNote]:
    """Yield all that annotation files say of one image id, as a JoinSide; see `merge_parts`. Of an id without a usable
    image yield the rejects: in the split that the image would go to by its name in the JSON, or in the first where no
    file has a row of it."""
    parts = [complete_annotations(part, categories) for part in parts]
    merged = list(merge_parts(image_id, parts))
    notes: list[Note] = [item for item in merged if not isinstance(item, AnnotatedImage)]
    notes += [InputRows(part.source, part.kind.value, len(part.rows), part.annotation_rows) for part in parts]
    images = [item for item in merged if isinstance(item, AnnotatedImage)]
    for image in images:
        yield JoinSide(image, notes=tuple(notes))
    if not images:
        name = min((row.file_name for part in parts for row in part.rows), default="")
        yield from of_split(notes, division.split_of(name_key(name)) if name else division.names[0], division)


def with_mask(side: JoinSide, masks: Files | None) -> JoinSide:
    """Return the image with the PNG of its panoptic annotation. Without one the annotation is rejected."""
    if masks is None or not side.image or not side.image.labels.panoptic:
        return side
    (panoptic,) = side.image.labels.panoptic
    file = next(iter(masks.get(name_key(panoptic.path), [])), None)
    fault = None
    if file is None:
        fault = Reason.MASK_MISSING, "no such file under --panoptic-masks"
    elif file.version == NO_FILE:
        fault = Reason.MASK_MISSING, NOT_A_FILE
    elif file.size_bytes > MAX_FILE_BYTES:
        fault = Reason.MASK_UNREADABLE, f"{file.size_bytes:,} bytes, where at most {MAX_FILE_BYTES:,} are read"
    else:
        changed = {"path": file.path, "size_bytes": file.size_bytes, "version": file.version}
        panoptic = msgspec.structs.replace(panoptic, **changed)
    labels = msgspec.structs.replace(side.image.labels, panoptic=() if fault else (panoptic,))
    if fault:
        detail = f"{panoptic.file_name!r}: {fault[1]}"
        reject = Rejected("annotation", None, fault[0], detail, side.image.image.id)
        side = msgspec.structs.replace(side, notes=(*side.notes, reject))
    return side.with_image(labels=labels)


def match_ends(sides: Iterable[JoinSide], match: str, division: Division | None = None) -> Iterator[Matched]:
    """Match rows and files of one `base_name`, as `match_sides` does. An image takes the name of its file.

    Raises:
        CollidingImagesError: see `match_sides` and `recordmill.transforms.join.match_blocks.match_names`.
    """
    images: dict[str, list[JoinSide]] = {}
    files: dict[str, list[JoinSide]] = {}
    for side in sides:
        (images if side.image else files).setdefault(side.name, []).append(side)
    pairs = match_names(images, files, match)
    for name in sorted(images):
        if name in pairs:
            rows = [msgspec.structs.replace(side.image.image, file_name=pairs[name]) for side in images[name]]
            renamed = [side.with_image(image=row) for side, row in zip(images[name], rows, strict=True)]
            yield from match_sides(pairs[name], [*renamed, *files[pairs[name]]], division)
        else:
            yield from match_sides(name, images[name], division, is_path=False)
    for name in sorted(files.keys() - pairs.values()):
        yield LoneName(name, False)


def match_sides(
    name: str, matches: Iterable[JoinSide], division: Division | None = None, is_path: bool = True
) -> Iterator[Matched]:
    """Yield the image rows of one file name and the files of that name, as tasks.

    Rejects rows without a file, and where a name is looked up unchanged (`is_path`), unsafe names; and rows whose name
    gives no group, where `division` divides by groups. Of rows with the same image id, rejects all where they differ,
    and all but one where they are equal.

    Raises:
        CollidingImagesError: rows name a file that two folders have.
    """
    images: list[AnnotatedImage] = []
    files: list[ImageRef] = []
    for match in matches:
        if match.image:
            if division:
                match = match.with_image(split=division.split_of(name))
                yield from of_split(match.notes, match.image.split, division)
            images.append(match.image)
        elif match.file and match.file not in files:
            files.append(match.file)
    if not images:
        yield LoneName(name, False)
    elif len(files) > 1:
        raise CollidingImagesError(name)
    by_id: dict[int, list[AnnotatedImage]] = {}
    for annotated in images:
        by_id.setdefault(annotated.image.id, []).append(annotated)
    for rows in by_id.values():
        fault = division.fault(name) if division else ""
        yield from _match_rows(rows, files[0] if files else None, is_path, fault)


def of_split(notes: Iterable[Note], split: str, division: Division) -> Iterator[SplitReject | SplitNote]:
    """Yield the notes of an image, now that its split is known; without rows for the first split."""
    for note in notes:
        if isinstance(note, Rejected):
            yield SplitReject(split, note)
        elif isinstance(note, Count) or split != division.names[0]:
            yield SplitNote(split, note)


def _match_rows(
    rows: list[AnnotatedImage], file: ImageRef | None, is_path: bool, group_fault: str
) -> Iterator[Matched]:
    """The rows of one image. Their order depends on the runner, so where they differ none is chosen."""

    def rejected(row: AnnotatedImage, reason: Reason, detail: str) -> SplitReject:
        return SplitReject(row.split, row.labels.rejected(row.image.id, reason, detail, row.annotation_rows))

    first = rows[0]
    name = first.image.file_name
    if any(row != first for row in rows[1:]):
        labels = ", ".join(sorted({f"{row.labels.class_name!r} in {row.split}" for row in rows}))
        detail = f"{len(rows)} rows of {name!r} say {labels}: none is taken"
        yield from (rejected(row, Reason.DUPLICATE_IMAGE_ID, detail) for row in rows)
        return
    for row in rows[1:]:
        yield rejected(row, Reason.DUPLICATE_IMAGE_ID, f"another row says the same of {name!r}")
    if is_path and (fault := name_fault(name)):
        yield LoneName(name, True)
        yield rejected(first, Reason.UNSAFE_FILE_NAME, f"the file name {name!r} {fault}")
    elif file is None:
        yield LoneName(name, True)
        hint = "; the parts of a path are to be separated by /" if is_path and "\\" in name else ""
        yield rejected(first, Reason.IMAGE_MISSING, f"no file {name!r} under --images{hint}")
    elif file.version == NO_FILE:
        yield rejected(first, Reason.IMAGE_INACCESSIBLE, f"{name!r}: {NOT_A_FILE}")
    elif file.size_bytes > MAX_FILE_BYTES:
        detail = f"{name!r}: {file.size_bytes:,} bytes, where at most {MAX_FILE_BYTES:,} are read"
        yield rejected(first, Reason.TOO_LARGE, detail)
    elif group_fault:
        yield rejected(first, Reason.NO_GROUP, f"{name!r} {group_fault}")
    else:
        image = first.image
        yield ImageTask(image.id, name, image.width, image.height, file, first.split, first.annotations, first.labels)


def screen_annotations(task: ImageTask, labels: LabelMap, filters: Filters) -> Iterator[ImageTask | Rejected | Count]:
    """Yield the task with the annotations that are wanted, if with none; and what falls away."""

    def unknown(annotation_id: int | None, category_ids: list[int]) -> Rejected:
        detail = f"no category has the id {', '.join(map(str, category_ids))}"
        return Rejected("annotation", annotation_id, Reason.UNKNOWN_CATEGORY, detail, task.image_id)

    names = {category.id: category.name for category in labels.categories}
    segments = {category.id for category in labels.segments}
    kept, regions, panoptic = [], [], []
    filtered: Counter[Metric] = Counter()
    for annotation in task.annotations:
        name = names.get(annotation.category_id)
        if name is None:
            yield unknown(annotation.id, [annotation.category_id])
        elif filters.categories and name not in filters.categories:
            filtered[Metric.FILTERED_CATEGORY] += 1
        elif annotation.is_crowd and not filters.crowd:
            filtered[Metric.FILTERED_CROWD] += 1
        elif filters.min_area_px2 and annotation.area_px2 < filters.min_area_px2:  # some tools write -1 for an area
            filtered[Metric.FILTERED_AREA] += 1
        else:
            kept.append(annotation)
    yield from (Count(metric, number) for metric, number in filtered.items())
    if filtered and not kept:
        yield Count(Metric.EMPTIED, 1)
    for region in task.labels.regions:
        if region.category_id in segments:
            regions.append(region)
        else:
            yield unknown(region.id, [region.category_id])
    for row in task.labels.panoptic:
        if not_there := sorted({segment.category_id for segment in row.segments} - segments):
            yield unknown(None, not_there)
        else:
            panoptic.append(row)
    of_image = msgspec.structs.replace(task.labels, regions=tuple(regions), panoptic=tuple(panoptic))
    yield msgspec.structs.replace(task, annotations=tuple(kept), labels=of_image)


def limit_record(task: ImageTask, estimate: ScalarEstimate) -> ImageTask | Rejected:
    """Return the task, or why no record of it can be read."""
    least = estimate.least_mask_bytes(task)
    if least <= MAX_RECORD_BYTES:
        return task
    detail = (
        f"{len(task.annotations):,} masks of {task.width}x{task.height} pixels take at least "
        f"{least:,} bytes as PNG; a record has at most {MAX_RECORD_BYTES:,}: --masks rle takes far less"
    )
    return task.rejected(Reason.RECORD_TOO_LARGE, detail)
