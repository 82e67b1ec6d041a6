"""Image rows, annotations and image files are joined: by image id across annotation files, then by name with the
files."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import PCollection

from schemas.coco import AnnotatedImage, CocoImage, ImagePart
from schemas.errors import CollidingImagesError
from schemas.images import ImageTask, NameMatch, UnlistedFile
from schemas.names import name_fault, name_key
from schemas.rejects import Counted, Reason, Rejected, Tally
from transforms import coders  # noqa: F401  registers the coders of the elements
from transforms.merge_annotations import merge_annotations
from transforms.outputs import COUNTED, REJECTED, UNLISTED, tag_by_type


class JoinedImages(NamedTuple):
    """What JoinImages gives.

    Attributes:
        tasks: ImageTask.
        rejected: Rejected.
        counted: Counted.
        unlisted: UnlistedFile.
    """

    tasks: PCollection
    rejected: PCollection
    counted: PCollection
    unlisted: PCollection


class JoinImages(beam.PTransform):
    """(image id, ImagePart) become JoinedImages.

    Args:
        files: (name, NameMatch) of the image files.
        split: that every task will be of.
    """

    def __init__(self, files: PCollection, split: str):
        super().__init__()
        self._files = files
        self._split = split

    def expand(self, parts):
        merged = (
            parts
            | "GroupByImageId" >> beam.GroupByKey()  # (image id, [ImagePart])
            | "MergeParts"
            >> beam.FlatMap(_merge)
            .with_output_types(tuple[str, NameMatch])
            .with_outputs(REJECTED, COUNTED, main="images")
        )
        matched = (
            # Not CoGroupByKey, which pickles: both sides are of one type.
            (merged.images, self._files)
            | "BothSides" >> beam.Flatten()
            | "GroupByName" >> beam.GroupByKey()  # (name, [NameMatch])
            | "MatchFiles"
            >> beam.FlatMap(_match, self._split)
            .with_output_types(ImageTask)
            .with_outputs(REJECTED, UNLISTED, main="tasks")
        )
        rejected = (merged[REJECTED], matched[REJECTED]) | "Rejected" >> beam.Flatten()
        return JoinedImages(matched.tasks, rejected, merged[COUNTED], matched[UNLISTED])


def _merge(group: tuple[int, Iterable[ImagePart]]) -> Iterator[Any]:
    return tag_by_type(
        (name_key(item.image.file_name), NameMatch(image=item)) if isinstance(item, AnnotatedImage) else item
        for item in merge_parts(*group)
    )


def _match(group: tuple[str, Iterable[NameMatch]], split: str) -> Iterator[Any]:
    return tag_by_type(match_files(*group, split))


def merge_parts(image_id: int, parts: Iterable[ImagePart]) -> Iterator[AnnotatedImage | Rejected | Counted]:
    """What all annotation files say of one image id, as one AnnotatedImage.

    Rejects a second row with the id in one file, annotations of an id that no file has a row for, a second annotation
    of one id, an image to which two files give different sizes, and one whose file name must not be looked up.

    Raises:
        CollidingImagesError: two files give the id to different file names; their annotations cannot be told apart.
    """
    parts = sorted(parts, key=lambda part: part.source)
    merged = merge_annotations(image_id, parts)
    if merged.joined:
        yield Counted(Tally.ANNOTATIONS_MERGED, merged.joined)
    listing = [part for part in parts if part.rows]
    yield from merged.rejected
    if not listing:
        labels = merged.labels
        rows: list[Any] = [*merged.annotations, *labels.captions, *labels.regions, *labels.panoptic]
        for row in rows:
            detail = f"no image row has the id {image_id}"
            yield Rejected("annotation", getattr(row, "id", None), Reason.UNKNOWN_IMAGE, detail, image_id)
        return
    for part in listing:
        for row in part.rows[1:]:
            detail = f"{part.source} has another row with this id: {row.file_name!r}, after {part.rows[0].file_name!r}"
            yield Rejected("image", image_id, Reason.DUPLICATE_IMAGE_ID, detail)
    if len(listing) > 1:
        yield Counted(Tally.ROWS_MERGED, len(listing) - 1)
    image, reason, detail = _agreed_row(listing)
    annotated = AnnotatedImage(image, merged.annotations, merged.labels)
    yield Rejected("image", image_id, reason, detail, annotations=annotated.annotation_rows) if reason else annotated


def _agreed_row(parts: list[ImagePart]) -> tuple[CocoImage, Reason | None, str]:
    """The row that all files agree on, or why the image is rejected."""
    image = parts[0].rows[0]
    sizes = {(image.width, image.height): parts[0].source} if image.width else {}
    for part in parts[1:]:
        row = part.rows[0]
        if name_key(row.file_name) != name_key(image.file_name):
            raise CollidingImagesError(
                f"image id {image.id} is {image.file_name!r} in {parts[0].source} and {row.file_name!r} in "
                f"{part.source}: the files number different images alike, joining them would mix up annotations; "
                "convert each with a --split of its own, or renumber one"
            )
        if row.width:
            image = image if image.width else row
            sizes.setdefault((row.width, row.height), part.source)
    if len(sizes) > 1:
        said = " but ".join(f"{width}x{height} in {source}" for (width, height), source in sizes.items())
        return image, Reason.SIZE_MISMATCH, f"{image.file_name!r} is {said}"
    if fault := name_fault(image.file_name):
        return image, Reason.UNSAFE_FILE_NAME, f"the file name {image.file_name!r} {fault}"
    return image, None, ""


def match_files(name: str, matches: Iterable[NameMatch], split: str) -> Iterator[ImageTask | Rejected | UnlistedFile]:
    """The image rows of one file name and the files of that name, as tasks.

    Raises:
        CollidingImagesError: rows name a file that two folders have.
    """
    matches = list(matches)
    images = [match.image for match in matches if match.image]
    files = [match.file for match in matches if match.file]
    if not images:
        yield UnlistedFile(name)
    elif len(files) > 1:
        paths = " and ".join(sorted(file.path for file in files))
        raise CollidingImagesError(
            f"{name!r} is both {paths}; give --images only the folder that is meant, or rename one"
        )
    for annotated in images:
        row = annotated.image
        if files:
            yield ImageTask(
                row.id,
                row.file_name,
                row.width,
                row.height,
                files[0],
                split,
                annotated.annotations,
                annotated.labels,
            )
        else:
            detail = f"no file {row.file_name!r} under --images"
            yield Rejected("image", row.id, Reason.IMAGE_MISSING, detail, annotations=annotated.annotation_rows)
