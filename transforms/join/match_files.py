"""Image rows and image files are joined by name."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.schemas.annotations import AnnotatedImage
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.images import ImageRef, ImageTask, JoinSide, UnreferencedFile
from recordmill.schemas.rejects import Reason, Rejected, SplitReject
from recordmill.transforms.runtime import coders  # noqa: F401  registers the coders of the elements
from recordmill.transforms.runtime.outputs import REJECTED, UNLISTED, count_rejects, route_outputs


class MatchedFiles(NamedTuple):
    """What MatchFiles gives.

    Attributes:
        tasks: ImageTask.
        rejected: SplitReject.
        unlisted: UnreferencedFile.
    """

    tasks: PCollection
    rejected: PCollection
    unlisted: PCollection


class MatchFiles(beam.PTransform):
    """(name, JoinSide) of image rows and of image files become MatchedFiles.

    Not CoGroupByKey, which pickles: both sides are of one type.
    """

    def expand(self, both: PCollection[tuple[str, JoinSide]]):
        matched = (
            both
            | "GroupByName" >> beam.GroupByKey()  # (name, [JoinSide])
            | "Match"
            >> beam.FlatMap(_match).with_output_types(ImageTask).with_outputs(REJECTED, UNLISTED, main="tasks")
        )
        return MatchedFiles(matched.tasks, matched[REJECTED], matched[UNLISTED])


def _match(group: tuple[str, Iterable[JoinSide]]) -> Iterator[Any]:
    return route_outputs(count_rejects(match_files(*group)))


def match_files(name: str, matches: Iterable[JoinSide]) -> Iterator[ImageTask | SplitReject | UnreferencedFile]:
    """The image rows of one file name and the files of that name, as tasks.

    Rejects rows without a file. Of rows with the same image id, rejects all where they differ, and all but one where
    they are equal.

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
        yield from _match_rows(rows, files[0] if files else None)


def _match_rows(rows: list[AnnotatedImage], file: ImageRef | None) -> Iterator[ImageTask | SplitReject]:
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
    if file is None:
        hint = "; the parts of a path are to be separated by /" if "\\" in name else ""
        yield _rejected(first, Reason.IMAGE_MISSING, f"no file {name!r} under --images{hint}")
        return
    image = first.image
    yield ImageTask(image.id, name, image.width, image.height, file, first.split, first.annotations, first.labels)


def _rejected(row: AnnotatedImage, reason: Reason, detail: str) -> SplitReject:
    reject = Rejected("image", row.image.id, reason, detail, annotations=row.annotation_rows)
    return SplitReject(row.split, reject)
