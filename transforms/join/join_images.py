"""Image rows, annotations and image files are joined: by image id across annotation files, then by name with the
files."""

import posixpath
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.schemas.annotations import AnnotatedImage, ImageRow
from recordmill.schemas.coco import FileAnnotations
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.images import USUAL_IMAGE_BYTES, ImageRef, JoinSide
from recordmill.schemas.limits import MAX_PIXELS
from recordmill.schemas.names import name_fault, name_key
from recordmill.schemas.rejects import Count, Metric, Reason, Rejected
from recordmill.transforms.join.match_files import MatchFiles
from recordmill.transforms.join.match_masks import MatchMasks
from recordmill.transforms.join.merge_annotations import merge_annotations
from recordmill.transforms.runtime import coders  # noqa: F401  registers the coders of the elements
from recordmill.transforms.runtime.outputs import COUNTED, REJECTED, count_rejects, of_split, route_outputs
from recordmill.transforms.storage.resolve import storage_for


class JoinedImages(NamedTuple):
    """What JoinImages gives.

    Attributes:
        tasks: ImageTask.
        rejected: (split, Rejected).
        counted: (split, Count).
        unlisted: UnreferencedFile.
        unmatched: UnmatchedImage.
    """

    tasks: PCollection
    rejected: PCollection
    counted: PCollection
    unlisted: PCollection
    unmatched: PCollection


class JoinImages(beam.PTransform):
    """(image id, FileAnnotations) become JoinedImages.

    Args:
        split: that every task will be of.
        files: (name, JoinSide) of the image files; None to list no folder and take each file to be in `folder`.
        masks: what ListMasks gives of the folders of panoptic PNGs; None to take each to be where the JSON has it.
        match: see `recordmill.transforms.join.match_files.MatchFiles`.
    """

    def __init__(
        self,
        split: str,
        files: PCollection | None,
        folder: str = "",
        masks: PCollection | None = None,
        match: str = "path",
    ):
        super().__init__()
        self._split = split
        self._files = files
        self._folder = folder
        self._masks = masks
        self._match = match

    def expand(self, parts: PCollection[tuple[int, FileAnnotations]]):
        merged = (
            parts
            | "GroupByImageId" >> beam.GroupByKey()  # (image id, [FileAnnotations])
            | "MergeParts"
            >> beam.FlatMap(_merge, self._split, self._folder)
            .with_output_types(tuple[str, JoinSide])
            .with_outputs(REJECTED, COUNTED, main="images")
        )
        images = merged.images
        rejected = [merged[REJECTED] | "RejectedBySplit" >> of_split(self._split)]
        if self._masks is not None:
            images, without_mask = (images, self._masks) | "MatchMasks" >> MatchMasks()
            rejected.append(without_mask)
        sides = (images,) if self._files is None else (images, self._files)
        matched = sides | "BothSides" >> beam.Flatten() | "MatchFiles" >> MatchFiles(self._match)
        return JoinedImages(
            matched.tasks,
            (*rejected, matched.rejected) | "Rejected" >> beam.Flatten(),
            merged[COUNTED] | "CountedBySplit" >> of_split(self._split),
            matched.unlisted,
            matched.unmatched,
        )


def _merge(group: tuple[int, Iterable[FileAnnotations]], split: str, folder: str) -> Iterator[Any]:
    return route_outputs(
        count_rejects(
            _named(item, folder) if isinstance(item, AnnotatedImage) else item for item in merge_parts(*group, split)
        )
    )


def _named(image: AnnotatedImage, folder: str) -> tuple[str, JoinSide]:
    name = image.image.file_name
    file = assumed_file(folder, name) if folder and not name_fault(name) else None
    return name_key(name), JoinSide(image, file)


def assumed_file(folder: str, file_name: str) -> ImageRef:
    """The file of that name, in a folder that has not been listed; whether it is there shows when it is read."""
    return ImageRef(storage_for(folder).join(folder, posixpath.normpath(file_name)), USUAL_IMAGE_BYTES)


def merge_parts(
    image_id: int, parts: Iterable[FileAnnotations], split: str
) -> Iterator[AnnotatedImage | Rejected | Count]:
    """What all annotation files say of one image id, as one AnnotatedImage of `split`.

    Rejects all rows of a file that gives the id to different file names, as its annotations may be of any of them; a
    second row that says the same; annotations of an id that no file has a row for; a second annotation of one id; and
    an image to which two rows give different sizes.

    Raises:
        CollidingImagesError: two files give the id to different file names, so it is unclear whose the annotations are.
    """
    parts = sorted(parts, key=lambda part: (part.source, part.kind))
    merged = merge_annotations(image_id, parts)
    if merged.joined:
        yield Count(Metric.ANNOTATIONS_MERGED, merged.joined)
    listing = [part for part in parts if part.rows]
    yield from merged.rejected
    if not listing:
        labels = merged.labels
        rows: list[Any] = [*merged.annotations, *labels.captions, *labels.regions, *labels.panoptic]
        for row in rows:
            detail = f"no image row has the id {image_id}"
            yield Rejected("annotation", getattr(row, "id", None), Reason.UNKNOWN_IMAGE, detail, image_id)
        return
    image, reason, detail = _agreed_row(listing)
    annotated = AnnotatedImage(image, split, merged.annotations, merged.labels)
    same = f"another row of its file says the same of {image.file_name!r}"
    again = Rejected("image", image_id, Reason.DUPLICATE_IMAGE_ID, detail if reason is _AMBIGUOUS else same)
    yield from [again] * sum(len(part.rows) - 1 for part in listing)
    if len(listing) > 1:
        yield Count(Metric.ROWS_MERGED, len(listing) - 1)
    yield Rejected("image", image_id, reason, detail, annotations=annotated.annotation_rows) if reason else annotated


_AMBIGUOUS = Reason.DUPLICATE_IMAGE_ID
_NAMES_SHOWN = 3


def _agreed_row(parts: list[FileAnnotations]) -> tuple[ImageRow, Reason | None, str]:
    """The row that all files agree on, or why the image is rejected."""
    for part in parts:
        names = {name_key(row.file_name): row.file_name for row in part.rows}
        if len(names) > 1:
            shown = ", ".join(map(repr, sorted(names.values())[:_NAMES_SHOWN])) + " …" * (len(names) > _NAMES_SHOWN)
            detail = (
                f"{part.source} gives this id to {len(names)} images, {shown}: none is taken, as the "
                f"{len(part.annotations) + part.labels.rows} annotations of the id may be of any"
            )
            return part.rows[0], _AMBIGUOUS, detail
    image = parts[0].rows[0]
    sizes: dict[tuple[int | None, int | None], str] = {}
    rows = [(row, part.source) for part in parts for row in part.rows]
    for row, source in rows:
        if name_key(row.file_name) != name_key(image.file_name):
            raise CollidingImagesError(
                f"image id {image.id} is {image.file_name!r} in {parts[0].source} and {row.file_name!r} in "
                f"{source}: the files number different images alike, joining them would mix up annotations; "
                "convert each with a --split of its own, or renumber one"
            )
        if row.width:
            image = image if image.width else row
            sizes.setdefault((row.width, row.height), source)
    if len(sizes) > 1:
        said = " but ".join(f"{width}x{height} in {source}" for (width, height), source in sizes.items())
        return image, Reason.SIZE_MISMATCH, f"{image.file_name!r} is {said}"
    if image.width and image.height and image.width * image.height > MAX_PIXELS:
        found = f"the JSON gives {image.width}x{image.height} pixels; at most {MAX_PIXELS:,} are decoded"
        return image, Reason.TOO_LARGE, f"{image.file_name!r}: {found}"
    return image, None, ""
