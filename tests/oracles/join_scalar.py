"""Image rows, annotations and files are joined one image at a time: a job before it was on Blocks."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from recordmill.schemas.dataset.manifest import InputRows
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.inputs.annotations import AnnotatedImage, Annotation, Category, PanopticAnnotation
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


class ImageNotes(msgspec.Struct, frozen=True, array_like=True):
    """What was found while an image's annotations were joined."""

    rejected: tuple[Rejected, ...] = ()
    counted: tuple[Count, ...] = ()
    rows: tuple[InputRows, ...] = ()


class SplitCount(NamedTuple):
    split: str
    counted: Count


class SplitRows(NamedTuple):
    split: str
    rows: InputRows


class JoinSide(msgspec.Struct, frozen=True, array_like=True):
    """One side of the join by file name: an image row that gives the name, or a file that has it; or both."""

    image: AnnotatedImage | None = None
    file: ImageRef | None = None
    name: str = ""
    notes: ImageNotes = ImageNotes()

    @property
    def row(self) -> AnnotatedImage:
        assert self.image
        return self.image


class LoneName(NamedTuple):
    """The name of a file that no image row references; or of an image whose file was not found."""

    name: str
    is_image: bool


class Joined(NamedTuple):
    """What join_scalar gives; tasks are in order, names are sorted."""

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
    """What becomes of images.

    Args:
        parts: what each file says of an image, by image id.
        rows: of the result, only of splits that are not the first.
    """
    categories = {category.id: category for category in labels.categories}
    items: list[Any] = []
    sides: list[JoinSide] = [JoinSide(file=file, name=name) for name, found in files.items() for file in found]
    for image_id, of_image in parts.items():
        for item in join_parts(image_id, of_image, division, categories):
            if isinstance(item, JoinSide):
                sides += with_mask(msgspec.structs.replace(item, name=name_key(item.row.image.file_name)), masks)
            else:
                items.append(item)
    groups: dict[str, list[JoinSide]] = {}
    for side in sides:
        groups.setdefault(side.name if match == "path" else base_name(side.name), []).append(side)
    for name, group in groups.items():
        items += match_sides(name, group, division) if match == "path" else match_ends(group, match, division)
    return _collected(items, known_categories(labels), filters, estimate, seed)


def with_mask(side: JoinSide, masks: Files | None) -> Iterator[JoinSide]:
    if masks is None or not side.row.labels.panoptic:
        return iter([side])
    (panoptic,) = side.row.labels.panoptic
    return match_masks([side, *(JoinSide(file=file) for file in masks.get(name_key(panoptic.path), []))])


def _collected(
    items: list[Any], known: "KnownCategories", filters: Filters, estimate: ScalarEstimate, seed: int
) -> Joined:
    found = Joined([], Counter(), {}, {}, [], [])
    counted: Counter[tuple[str, str]] = Counter()
    rows: dict[tuple[str, str, str], list[int]] = {}
    for item in items:
        if isinstance(item, SplitReject):
            found.rejected[item] += 1
        elif isinstance(item, SplitCount):
            counted[item.split, item.counted.what.value] += item.counted.number
        elif isinstance(item, SplitRows):
            numbers = rows.setdefault((item.split, item.rows.path, item.rows.kind), [0, 0])
            numbers[0] += item.rows.images
            numbers[1] += item.rows.annotations
        elif isinstance(item, LoneName):
            (found.unmatched if item.is_image else found.unlisted).append(item.name)
        else:
            for each in screen_annotations(item, known, filters):
                limited = limit_record(each, estimate) if isinstance(each, ImageTask) else each
                if isinstance(limited, ImageTask):
                    found.tasks.append(limited)
                elif isinstance(limited, Rejected):
                    found.rejected[SplitReject(item.split, limited)] += 1
                else:
                    counted[item.split, limited.what.value] += limited.number
    return found._replace(
        tasks=sorted(found.tasks, key=lambda task: task_order(seed, task)),
        counted=dict(counted),
        rows={key: (images, annotations) for key, (images, annotations) in rows.items()},
        unlisted=sorted(found.unlisted),
        unmatched=sorted(found.unmatched),
    )


def join_parts(
    image_id: int, parts: Iterable[FileAnnotations], division: Division, categories: Mapping[int, Category]
) -> Iterator[JoinSide | SplitReject | SplitCount | SplitRows]:
    """What all annotation files say of one image id, as a JoinSide; see `merge_parts`. Of an id without a usable image,
    what is rejected: in the split that the image would go to by its name in the JSON, or in the first where no file has
    a row of it."""
    parts = [complete_annotations(part, categories) for part in parts]
    merged = list(merge_parts(image_id, parts))
    notes = ImageNotes(
        tuple(item for item in merged if isinstance(item, Rejected)),
        tuple(item for item in merged if isinstance(item, Count)),
        _rows(parts) if len(division.names) > 1 else (),
    )
    images = [item for item in merged if isinstance(item, AnnotatedImage)]
    for image in images:
        yield JoinSide(image, notes=notes)
    if not images:
        name = min((row.file_name for part in parts for row in part.rows), default="")
        yield from of_split(notes, division.split_of(name_key(name)) if name else division.names[0], division)


def _rows(parts: Iterable[FileAnnotations]) -> tuple[InputRows, ...]:
    return tuple(
        InputRows(part.source, part.kind.value, len(part.rows), part.annotation_rows)
        for part in sorted(parts, key=_by_source)
    )


def _by_source(part: FileAnnotations) -> tuple[str, str]:
    return part.source, part.kind


def match_masks(sides: Iterable[JoinSide]) -> Iterator[JoinSide]:
    """The image rows whose panoptic annotation names one PNG, and the files of that name.

    Without a file the annotation is rejected, in the image's notes, and the image stays.

    Raises:
        CollidingImagesError: two files have the name.
    """
    sides = list(sides)
    files = [side.file for side in sides if not side.image and side.file]
    if len(files) > 1 and len(sides) > len(files):
        paths = " and ".join(sorted(file.path for file in files))
        raise CollidingImagesError(f"the panoptic PNG of one name is both {paths}; rename one")
    for side in sides:
        if side.image:
            (panoptic,) = side.image.labels.panoptic
            found = files[0] if files else None
            fault = _mask_fault(found)
            matched = () if fault or not found else (_with_file(panoptic, found),)
            labels = msgspec.structs.replace(side.image.labels, panoptic=matched)
            image = msgspec.structs.replace(side.image, labels=labels)
            yield msgspec.structs.replace(side, image=image, notes=_with_fault(side, panoptic, fault))


def _mask_fault(file: ImageRef | None) -> tuple[Reason, str] | None:
    if file is None:
        return Reason.MASK_MISSING, "no such file under --panoptic-masks"
    if file.version == NO_FILE:
        return Reason.MASK_MISSING, NOT_A_FILE
    if file.size_bytes > MAX_FILE_BYTES:
        return Reason.MASK_UNREADABLE, f"{file.size_bytes:,} bytes, where at most {MAX_FILE_BYTES:,} are read"
    return None


def _with_fault(side: JoinSide, panoptic: PanopticAnnotation, fault: tuple[Reason, str] | None) -> ImageNotes:
    if not fault:
        return side.notes
    reason, detail = fault
    reject = Rejected("annotation", None, reason, f"{panoptic.file_name!r}: {detail}", side.row.image.id)
    return msgspec.structs.replace(side.notes, rejected=(*side.notes.rejected, reject))


def _with_file(panoptic: PanopticAnnotation, file: ImageRef) -> PanopticAnnotation:
    return PanopticAnnotation(file.path, panoptic.file_name, panoptic.segments, file.size_bytes, file.version)


Matched = ImageTask | SplitReject | SplitCount | SplitRows | LoneName


def match_ends(sides: Iterable[JoinSide], match: str, division: Division | None = None) -> Iterator[Matched]:
    """As `match_sides`, of rows and files of one `base_name`. An image takes the name of the file that it is found in.

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
            renamed = [_renamed(side, pairs[name]) for side in images[name]]
            yield from match_sides(pairs[name], [*renamed, *files[pairs[name]]], division)
        else:
            yield from match_sides(name, images[name], division, is_path=False)
    for name in sorted(files.keys() - pairs.values()):
        yield LoneName(name, False)


def _renamed(side: JoinSide, name: str) -> JoinSide:
    row = msgspec.structs.replace(side.row.image, file_name=name)
    return msgspec.structs.replace(side, image=msgspec.structs.replace(side.row, image=row))


def match_sides(
    name: str, matches: Iterable[JoinSide], division: Division | None = None, is_path: bool = True
) -> Iterator[Matched]:
    """The image rows of one file name and the files of that name, as tasks.

    Rejects rows without a file, and where a name is looked up as it is (`is_path`), those that must not be; and rows
    whose name gives no group, where `division` divides by groups. Of rows with the same image id, rejects all where
    they differ, and all but one where they are equal; but each row of a table becomes a task.

    Raises:
        CollidingImagesError: rows name a file that two folders have.
    """
    matches = [_of_division(match, name, division) if division else match for match in matches]
    for match in matches:
        if match.image and division:
            yield from of_split(match.notes, match.image.split, division)
    images = [match.image for match in matches if match.image]
    files = list(dict.fromkeys(match.file for match in matches if match.file))
    if not images:
        yield LoneName(name, False)
    elif len(files) > 1:
        raise CollidingImagesError(_collision(name, sorted(file.path for file in files)))
    by_id: dict[int, list[AnnotatedImage]] = {}
    for annotated in images:
        if not annotated.labels.row:
            by_id.setdefault(annotated.image.id, []).append(annotated)
    for rows in (*by_id.values(), *([annotated] for annotated in images if annotated.labels.row)):
        fault = division.fault(name) if division else ""
        yield from _match_rows(rows, files[0] if files else None, is_path, fault)


def _collision(name: str, paths: list[str]) -> str:
    if len(set(map(name_key, paths))) == 1:
        forms = " and ".join(map(ascii, paths))
        return f"{name!r} is there in {len(paths)} forms of Unicode, {forms}; rename one, or delete it"
    return f"{name!r} is both {' and '.join(paths)}; give --images only the folder that is meant, or rename one"


def _of_division(side: JoinSide, name: str, division: Division) -> JoinSide:
    if side.image is None:
        return side
    return msgspec.structs.replace(side, image=msgspec.structs.replace(side.image, split=division.split_of(name)))


def of_split(notes: ImageNotes, split: str, division: Division) -> Iterator[SplitReject | SplitCount | SplitRows]:
    """What was found of an image, now that its split is known; without rows for the first split, whose are all that
    are no other's."""
    yield from (SplitReject(split, reject) for reject in notes.rejected)
    yield from (SplitCount(split, counted) for counted in notes.counted)
    if split != division.names[0]:
        for rows in notes.rows:
            yield SplitRows(split, rows)


def _match_rows(
    rows: list[AnnotatedImage], file: ImageRef | None, is_path: bool, group_fault: str
) -> Iterator[Matched]:
    """The rows of one image. Their order depends on the runner, so where they differ none is chosen."""
    first = rows[0]
    name = first.image.file_name
    if any(row != first for row in rows[1:]):
        labels = ", ".join(sorted({f"{row.labels.class_name!r} in {row.split}" for row in rows}))
        for row in rows:
            yield _rejected(row, Reason.DUPLICATE_IMAGE_ID, f"{len(rows)} rows of {name!r} say {labels}: none is taken")
        return
    for row in rows[1:]:
        yield _rejected(row, Reason.DUPLICATE_IMAGE_ID, f"another row says the same of {name!r}")
    if is_path and (fault := name_fault(name)):
        yield LoneName(name, True)
        yield _rejected(first, Reason.UNSAFE_FILE_NAME, f"the file name {name!r} {fault}")
        return
    if file is None:
        yield LoneName(name, True)
        hint = "; the parts of a path are to be separated by /" if is_path and "\\" in name else ""
        yield _rejected(first, Reason.IMAGE_MISSING, f"no file {name!r} under --images{hint}")
        return
    if file.version == NO_FILE:
        yield _rejected(first, Reason.IMAGE_INACCESSIBLE, f"{name!r}: {NOT_A_FILE}")
        return
    if file.size_bytes > MAX_FILE_BYTES:
        detail = f"{name!r}: {file.size_bytes:,} bytes, where at most {MAX_FILE_BYTES:,} are read"
        yield _rejected(first, Reason.TOO_LARGE, detail)
        return
    if group_fault:
        yield _rejected(first, Reason.NO_GROUP, f"{name!r} {group_fault}")
        return
    image = first.image
    yield ImageTask(image.id, name, image.width, image.height, file, first.split, first.annotations, first.labels)


def _rejected(row: AnnotatedImage, reason: Reason, detail: str) -> SplitReject:
    return SplitReject(row.split, row.labels.rejected(row.image.id, reason, detail, row.annotation_rows))


class KnownCategories(msgspec.Struct, frozen=True):
    """Names of the classes of objects by id, and the ids of segments."""

    names: dict[int, str]
    segments: frozenset[int] = frozenset()


def known_categories(labels: LabelMap) -> KnownCategories:
    return KnownCategories(
        {category.id: category.name for category in labels.categories},
        frozenset(category.id for category in labels.segments),
    )


def screen_annotations(
    task: ImageTask, known: KnownCategories, filters: Filters
) -> Iterator[ImageTask | Rejected | Count]:
    """The task with the annotations that are wanted; the task itself always stays, if without any."""
    if (
        filters == Filters()
        and task.labels.rows == len(task.labels.captions)
        and known.names.keys() >= {annotation.category_id for annotation in task.annotations}
    ):  # the usual case, spared a call for each annotation
        yield task
        return
    kept = []
    filtered: Counter[Metric] = Counter()
    for annotation in task.annotations:
        name = known.names.get(annotation.category_id)
        if name is None:
            yield _unknown(task, annotation.id, [annotation.category_id])
        elif metric := unwanted(filters, annotation, name):
            filtered[metric] += 1
        else:
            kept.append(annotation)
    for metric, number in filtered.items():
        yield Count(metric, number)
    if filtered and not kept:
        yield Count(Metric.EMPTIED, 1)
    regions, panoptic = [], []
    for region in task.labels.regions:
        if region.category_id in known.segments:
            regions.append(region)
        else:
            yield _unknown(task, region.id, [region.category_id])
    for row in task.labels.panoptic:
        if unknown := sorted({segment.category_id for segment in row.segments} - known.segments):
            yield _unknown(task, None, unknown)
        else:
            panoptic.append(row)
    if len(kept) + len(regions) + len(panoptic) + len(task.labels.captions) < task.annotation_rows:
        labels = msgspec.structs.replace(task.labels, regions=tuple(regions), panoptic=tuple(panoptic))
        task = msgspec.structs.replace(task, annotations=tuple(kept), labels=labels)
    yield task


def _unknown(task: ImageTask, annotation_id: int | None, category_ids: list[int]) -> Rejected:
    detail = f"no category has the id {', '.join(map(str, category_ids))}"
    return Rejected("annotation", annotation_id, Reason.UNKNOWN_CATEGORY, detail, task.image_id)


def unwanted(filters: Filters, annotation: Annotation, name: str) -> Metric | None:
    """What an annotation of the category `name` falls to, or None."""
    if filters.categories and name not in filters.categories:
        return Metric.FILTERED_CATEGORY
    if annotation.is_crowd and not filters.crowd:
        return Metric.FILTERED_CROWD
    if filters.min_area_px2 and annotation.area_px2 < filters.min_area_px2:  # some tools write -1 for an area
        return Metric.FILTERED_AREA
    return None


def limit_record(task: ImageTask, estimate: ScalarEstimate) -> ImageTask | Rejected:
    """The task, or why no record of it can be read: a mask as PNG has a thousandth of its image's pixels in bytes, even
    where it is empty. What else there is of masks shows only when they are drawn."""
    least = estimate.least_mask_bytes(task)
    if least <= MAX_RECORD_BYTES:
        return task
    detail = (
        f"{len(task.annotations):,} masks of {task.width}x{task.height} pixels take at least "
        f"{least:,} bytes as PNG; a record has at most {MAX_RECORD_BYTES:,}: --masks rle takes far less"
    )
    return task.rejected(Reason.RECORD_TOO_LARGE, detail)
