"""Image rows and image files are joined by name."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.annotations import AnnotatedImage
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.images import (
    NO_FILE,
    NOT_A_FILE,
    ImageNotes,
    ImageRef,
    ImageTask,
    JoinSide,
    UnmatchedImage,
    UnreferencedFile,
)
from recordmill.schemas.limits import MAX_FILE_BYTES
from recordmill.schemas.manifest import SplitRows
from recordmill.schemas.names import name_fault, name_key
from recordmill.schemas.rejects import Reason, SplitCount, SplitReject
from recordmill.schemas.splits import Division
from recordmill.transforms.join.match_names import base_name, match_names
from recordmill.transforms.runtime import coders  # noqa: F401  registers the coders of the elements
from recordmill.transforms.runtime.outputs import (
    COUNTED,
    REJECTED,
    ROWS,
    UNLISTED,
    UNMATCHED,
    in_split,
    route_outputs,
)


class MatchedFiles(NamedTuple):
    """What MatchFiles gives.

    Attributes:
        tasks: ImageTask.
        rejected: SplitReject.
        counted: SplitCount.
        rows: SplitRows.
        unlisted: UnreferencedFile.
        unmatched: UnmatchedImage.
    """

    tasks: PCollection
    rejected: PCollection
    counted: PCollection
    rows: PCollection
    unlisted: PCollection
    unmatched: PCollection


class MatchFiles(beam.PTransform):
    """(name, JoinSide) of image rows and of image files become MatchedFiles.

    Not CoGroupByKey, which pickles: both sides are of one type.

    Args:
        match: one of `recordmill.schemas.names.MATCHES`.
        division: gives images their splits, by the name that they have in records; None where they have them.
    """

    def __init__(self, match: str = "path", division: Division | AsSingleton | None = None):
        super().__init__()
        self._match = match
        self._division = division

    def expand(self, both: PCollection[tuple[str, JoinSide]]):
        if self._match != "path":
            both = both | "ByBaseName" >> beam.Map(_by_base_name).with_output_types(tuple[str, JoinSide])
        matched = (
            both
            | "GroupByName" >> beam.GroupByKey()  # (name, [JoinSide])
            | "Match"
            >> beam.FlatMap(_match, self._match, self._division)
            .with_output_types(ImageTask)
            .with_outputs(REJECTED, COUNTED, ROWS, UNLISTED, UNMATCHED, main="tasks")
        )
        tags = REJECTED, COUNTED, ROWS, UNLISTED, UNMATCHED
        return MatchedFiles(matched.tasks, *(matched[tag] for tag in tags))


def _by_base_name(named: tuple[str, JoinSide]) -> tuple[str, JoinSide]:
    name, side = named
    return base_name(name), msgspec.structs.replace(side, name=name)


def _match(group: tuple[str, Iterable[JoinSide]], match: str, division: Division | None) -> Iterator[Any]:
    name, sides = group
    matched = match_files(name, sides, division) if match == "path" else match_ends(sides, match, division)
    return route_outputs(matched)


Matched = ImageTask | SplitReject | SplitCount | SplitRows | UnreferencedFile | UnmatchedImage


def match_ends(sides: Iterable[JoinSide], match: str, division: Division | None = None) -> Iterator[Matched]:
    """As `match_files`, of rows and files of one `base_name`. An image takes the name of the file that it is found in.

    Raises:
        CollidingImagesError: see `match_files` and `recordmill.transforms.join.match_names.match_names`.
    """
    images: dict[str, list[JoinSide]] = {}
    files: dict[str, list[JoinSide]] = {}
    for side in sides:
        (images if side.image else files).setdefault(side.name, []).append(side)
    pairs = match_names(images, files, match)
    for name in sorted(images):
        if name in pairs:
            renamed = [_renamed(side, pairs[name]) for side in images[name]]
            yield from match_files(pairs[name], [*renamed, *files[pairs[name]]], division)
        else:
            yield from match_files(name, images[name], division, is_path=False)
    for name in sorted(files.keys() - pairs.values()):
        yield UnreferencedFile(name)


def _renamed(side: JoinSide, name: str) -> JoinSide:
    row = msgspec.structs.replace(side.row.image, file_name=name)
    return msgspec.structs.replace(side, image=msgspec.structs.replace(side.row, image=row))


def match_files(
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
        yield UnreferencedFile(name)
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
    yield from in_split(split, (*notes.rejected, *notes.counted))
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
        yield UnmatchedImage(name)
        yield _rejected(first, Reason.UNSAFE_FILE_NAME, f"the file name {name!r} {fault}")
        return
    if file is None:
        yield UnmatchedImage(name)
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
