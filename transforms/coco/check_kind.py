"""Is a COCO file of the kind that its flag says? The rows of each kind have a field that the others have not."""

from recordmill.schemas.coco import AnnotationKind, AnnotationSource
from recordmill.schemas.errors import WrongFlagError
from recordmill.transforms.coco.decode_coco import CocoRows
from recordmill.transforms.coco.file_fields import count_fields, has_data, has_numbers

_FIELDS = {
    AnnotationKind.PANOPTIC: "segments_info",
    AnnotationKind.CAPTIONS: "caption",
    AnnotationKind.KEYPOINTS: "keypoints",
    AnnotationKind.INSTANCES: "bbox",
    AnnotationKind.STUFF: "segmentation",
}
"""What rows of a kind cannot be without. A row may have several of these; it is best read as of the first."""


def check_kind(source: AnnotationSource, rows: CocoRows) -> None:
    """Refuse a file that gives its flag nothing to read, and another flag something.

    Raises:
        WrongFlagError: its annotations have nothing that the flag is about; or there is no list of them; or it is given
            as a file of images alone, and its annotations would be dropped.
    """
    path, kind = source.path, source.kind
    number = len(rows.annotations) + sum(reject.what == "annotation" for reject in rows.rejected)
    if kind is AnnotationKind.IMAGE_INFO:
        if number:
            of_rows = _fitting(frozenset(count_fields(rows.annotations))) or AnnotationKind.INSTANCES
            raise WrongFlagError(
                f"{path} has {number:,} annotations, which --image-info would drop; give it to {_flag(of_rows)}"
            )
    elif not rows.has_annotations and rows.images:
        raise WrongFlagError(
            f"{path} has images and no list of annotations, which {_flag(kind)} is for; give it to --image-info"
        )
    elif number and not _has_field(kind, rows) and (fitting := _fitting(rows.fields - {_FIELDS[kind]})):
        raise WrongFlagError(
            f"none of the {number:,} annotations of {path} has {_FIELDS[kind]}, which {_flag(kind)} is for; they have "
            f"{_FIELDS[fitting]}: give the file to {_flag(fitting)}"
        )


def _has_field(kind: AnnotationKind, rows: CocoRows) -> bool:
    """Whether some row has what the kind is about, if in a row that has another fault. Keypoints that a category names
    are enough, as nobody need be in sight in a small file."""
    if kind is AnnotationKind.KEYPOINTS:
        named = any(category.keypoints for category in rows.categories)
        return named or "keypoints" in rows.fields or any(has_numbers(row.keypoints) for row in rows.annotations)
    if kind is AnnotationKind.STUFF and rows.annotations:
        return any(has_data(row.segmentation) for row in rows.annotations)
    return bool(rows.annotations) or _FIELDS[kind] in rows.fields


def _fitting(fields: frozenset[str]) -> AnnotationKind | None:
    return next((kind for kind, field in _FIELDS.items() if field in fields), None)


def _flag(kind: AnnotationKind) -> str:
    masks = " with --panoptic-masks" if kind is AnnotationKind.PANOPTIC else ""
    return f"--{kind.value.replace('_', '-')}{masks}"
