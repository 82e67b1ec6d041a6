"""Image rows, annotations and image files are joined: by image id across annotation files, then by name with the
files."""

import posixpath
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.annotations import AnnotatedImage, Category, ImageRow
from recordmill.schemas.coco import BlockRows, FileAnnotations
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.images import USUAL_IMAGE_BYTES, ImageNotes, ImageRef, JoinSide
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.limits import MAX_PIXELS
from recordmill.schemas.manifest import InputRows, SplitRows
from recordmill.schemas.names import name_fault, name_key
from recordmill.schemas.rejects import Count, Metric, Reason, Rejected, SplitCount, SplitReject
from recordmill.schemas.splits import Division
from recordmill.transforms.coco.complete_annotations import Categories, complete_annotations
from recordmill.transforms.coco.merge_blocks import merge_blocks
from recordmill.transforms.join.match_files import MatchFiles, of_split
from recordmill.transforms.join.match_masks import MatchMasks
from recordmill.transforms.join.merge_annotations import merge_annotations
from recordmill.transforms.runtime import coders  # noqa: F401  registers the coders of the elements
from recordmill.transforms.runtime.outputs import COUNTED, REJECTED, ROWS, route_outputs
from recordmill.transforms.storage.resolve import storage_for


class JoinedImages(NamedTuple):
    """What JoinImages gives.

    Attributes:
        tasks: ImageTask.
        rejected: SplitReject, of several steps.
        counted: SplitCount.
        rows: SplitRows, of those splits that are not the first; the others are the first's.
        unlisted: UnreferencedFile.
        unmatched: UnmatchedImage.
    """

    tasks: PCollection
    rejected: tuple[PCollection, ...]
    counted: PCollection
    rows: PCollection
    unlisted: PCollection
    unmatched: PCollection


class JoinImages(beam.PTransform):
    """(range of image ids, BlockRows) become JoinedImages.

    Args:
        labels: one LabelMap, of all categories of the input.
        division: into splits.
        files: (name, JoinSide) of the image files; None to list no folder and take each file to be in `folder`.
        masks: what ListMasks gives of the folders of panoptic PNGs; None to take each to be where the JSON has it.
        match: see `recordmill.transforms.join.match_files.MatchFiles`.
    """

    def __init__(
        self,
        labels: PCollection,
        division: Division | AsSingleton,
        files: PCollection | None,
        folder: str = "",
        masks: PCollection | None = None,
        match: str = "path",
    ):
        super().__init__()
        self._labels = labels
        self._division = division
        self._files = files
        self._folder = folder
        self._masks = masks
        self._match = match

    def expand(self, parts: PCollection[tuple[int, BlockRows]]):
        categories = self._labels | "CategoriesById" >> beam.Map(categories_by_id)
        merged = (
            parts
            | "GroupByIdRange" >> beam.GroupByKey()  # (range of image ids, [BlockRows])
            | "MergeParts"
            >> beam.FlatMap(_merge, AsSingleton(categories), self._division, self._folder)
            .with_output_types(tuple[str, JoinSide])
            .with_outputs(REJECTED, COUNTED, ROWS, main="images")
        )
        images = merged.images
        if self._masks is not None:
            images = (images, self._masks) | "MatchMasks" >> MatchMasks()
        sides = (images,) if self._files is None else (images, self._files)
        matched = sides | "BothSides" >> beam.Flatten() | "MatchFiles" >> MatchFiles(self._match, self._division)
        return JoinedImages(
            matched.tasks,
            (merged[REJECTED], matched.rejected),
            (merged[COUNTED], matched.counted) | "Counted" >> beam.Flatten(),
            (merged[ROWS], matched.rows) | "Rows" >> beam.Flatten(),
            matched.unlisted,
            matched.unmatched,
        )


def categories_by_id(labels: LabelMap) -> dict[int, Category]:
    return {category.id: category for category in labels.categories}


def _merge(
    group: tuple[int, Iterable[BlockRows]], categories: Categories, division: Division, folder: str
) -> Iterator[Any]:
    return route_outputs(
        (name_key(item.row.image.file_name), _with_file(item, folder)) if isinstance(item, JoinSide) else item
        for image_id, parts in merge_blocks(group[1])
        for item in join_parts(image_id, parts, division, categories)
    )


def _with_file(side: JoinSide, folder: str) -> JoinSide:
    name = side.row.image.file_name
    return msgspec.structs.replace(side, file=assumed_file(folder, name)) if folder and not name_fault(name) else side


def assumed_file(folder: str, file_name: str) -> ImageRef:
    """The file of that name, in a folder that has not been listed; whether it is there shows when it is read."""
    return ImageRef(storage_for(folder).join(folder, posixpath.normpath(file_name)), USUAL_IMAGE_BYTES)


def join_parts(
    image_id: int, parts: Iterable[FileAnnotations], division: Division, categories: Categories
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


def merge_parts(image_id: int, parts: Iterable[FileAnnotations]) -> Iterator[AnnotatedImage | Rejected | Count]:
    """What all annotation files say of one image id, as one AnnotatedImage, of no split yet.

    Rejects all rows of a file that gives the id to different file names, as its annotations may be of any of them; a
    second row that says the same; annotations of an id that no file has a row for; a second annotation of one id; and
    an image to which two rows give different sizes.

    Raises:
        CollidingImagesError: two files give the id to different file names, so it is unclear whose the annotations are.
    """
    parts = sorted(parts, key=_by_source)
    merged = merge_annotations(image_id, parts)
    if merged.joined:
        yield Count(Metric.ANNOTATIONS_MERGED, merged.joined)
    listing = [part for part in parts if part.rows]
    yield from merged.rejected
    for part in parts:
        yield from part.rejected
    if not listing:
        labels = merged.labels
        rows: list[Any] = [*merged.annotations, *labels.captions, *labels.regions, *labels.panoptic]
        for row in rows:
            detail = f"no image row has the id {image_id}"
            yield Rejected("annotation", getattr(row, "id", None), Reason.UNKNOWN_IMAGE, detail, image_id)
        return
    image, reason, detail = _agreed_row(listing)
    annotated = AnnotatedImage(image, "", merged.annotations, merged.labels)
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
        if len(part.rows) > 1 and len(names := {name_key(row.file_name): row.file_name for row in part.rows}) > 1:
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
        if row.file_name != image.file_name and name_key(row.file_name) != name_key(image.file_name):
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
