"""Image rows and image files are joined by name."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
from apache_beam.pvalue import PCollection

from recordmill.schemas.annotations import AnnotatedImage
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.images import ImageRef, ImageTask, JoinSide, UnmatchedImage, UnreferencedFile
from recordmill.schemas.limits import MAX_FILE_BYTES
from recordmill.schemas.names import name_fault
from recordmill.schemas.rejects import Reason, Rejected, SplitReject
from recordmill.transforms.join.match_names import base_name, match_names
from recordmill.transforms.runtime import coders  # noqa: F401  registers the coders of the elements
from recordmill.transforms.runtime.outputs import REJECTED, UNLISTED, UNMATCHED, count_rejects, route_outputs


class MatchedFiles(NamedTuple):
    """What MatchFiles gives.

    Attributes:
        tasks: ImageTask.
        rejected: SplitReject.
        unlisted: UnreferencedFile.
        unmatched: UnmatchedImage.
    """

    tasks: PCollection
    rejected: PCollection
    unlisted: PCollection
    unmatched: PCollection


class MatchFiles(beam.PTransform):
    """(name, JoinSide) of image rows and of image files become MatchedFiles.

    Not CoGroupByKey, which pickles: both sides are of one type.

    Args:
        match: one of `recordmill.schemas.names.MATCHES`.
    """

    def __init__(self, match: str = "path"):
        super().__init__()
        self._match = match

    def expand(self, both: PCollection[tuple[str, JoinSide]]):
        if self._match != "path":
            both = both | "ByBaseName" >> beam.Map(_by_base_name).with_output_types(tuple[str, JoinSide])
        matched = (
            both
            | "GroupByName" >> beam.GroupByKey()  # (name, [JoinSide])
            | "Match"
            >> beam.FlatMap(_match, self._match)
            .with_output_types(ImageTask)
            .with_outputs(REJECTED, UNLISTED, UNMATCHED, main="tasks")
        )
        return MatchedFiles(matched.tasks, matched[REJECTED], matched[UNLISTED], matched[UNMATCHED])


def _by_base_name(named: tuple[str, JoinSide]) -> tuple[str, JoinSide]:
    name, side = named
    return base_name(name), msgspec.structs.replace(side, name=name)


def _match(group: tuple[str, Iterable[JoinSide]], match: str) -> Iterator[Any]:
    name, sides = group
    return route_outputs(count_rejects(match_files(name, sides) if match == "path" else match_ends(sides, match)))


Matched = ImageTask | SplitReject | UnreferencedFile | UnmatchedImage


def match_ends(sides: Iterable[JoinSide], match: str) -> Iterator[Matched]:
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
            yield from match_files(pairs[name], [*renamed, *files[pairs[name]]])
        else:
            yield from match_files(name, images[name], is_path=False)
    for name in sorted(files.keys() - pairs.values()):
        yield UnreferencedFile(name)


def _renamed(side: JoinSide, name: str) -> JoinSide:
    row = msgspec.structs.replace(side.row.image, file_name=name)
    return msgspec.structs.replace(side, image=msgspec.structs.replace(side.row, image=row))


def match_files(name: str, matches: Iterable[JoinSide], is_path: bool = True) -> Iterator[Matched]:
    """The image rows of one file name and the files of that name, as tasks.

    Rejects rows without a file, and where a name is looked up as it is (`is_path`), those that must not be. Of rows
    with the same image id, rejects all where they differ, and all but one where they are equal.

    Raises:
        CollidingImagesError: rows name a file that two folders have.
    """
    matches = list(matches)
    images = [match.image for match in matches if match.image]
    files = list(dict.fromkeys(match.file for match in matches if match.file))
    if not images:
        yield UnreferencedFile(name)
    elif len(files) > 1:
        paths = " and ".join(sorted(file.path for file in files))
        raise CollidingImagesError(
            f"{name!r} is both {paths}; give --images only the folder that is meant, or rename one"
        )
    by_id: dict[int, list[AnnotatedImage]] = {}
    for annotated in images:
        by_id.setdefault(annotated.image.id, []).append(annotated)
    for rows in by_id.values():
        yield from _match_rows(rows, files[0] if files else None, is_path)


def _match_rows(rows: list[AnnotatedImage], file: ImageRef | None, is_path: bool) -> Iterator[Matched]:
    """The rows of one image. Their order depends on the runner, so where they differ none is chosen."""
    first = rows[0]
    name = first.image.file_name
    agreed = all(row == first for row in rows)
    if not agreed:
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
    if file.size_bytes > MAX_FILE_BYTES:
        detail = f"{name!r}: {file.size_bytes:,} bytes, where at most {MAX_FILE_BYTES:,} are read"
        yield _rejected(first, Reason.TOO_LARGE, detail)
        return
    image = first.image
    yield ImageTask(image.id, name, image.width, image.height, file, first.split, first.annotations, first.labels)


def _rejected(row: AnnotatedImage, reason: Reason, detail: str) -> SplitReject:
    reject = Rejected("image", row.image.id, reason, detail, annotations=row.annotation_rows)
    return SplitReject(row.split, reject)
