"""What all annotation files say of one image id is merged."""

from collections.abc import Iterable, Iterator
from typing import Any

from recordmill.schemas.annotations import AnnotatedImage, ImageRow
from recordmill.schemas.coco import FileAnnotations
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.limits import MAX_PIXELS
from recordmill.schemas.names import name_key
from recordmill.schemas.rejects import Count, Metric, Reason, Rejected
from recordmill.transforms.coco.merge_annotations import merge_annotations


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
