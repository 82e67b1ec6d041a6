"""Is a COCO file of the kind that its flag says? The rows of each kind have a field that the others have not."""

from recordmill.schemas.coco import AnnotationFile, AnnotationKind, AnnotationSource
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


def check_kind(
    source: AnnotationSource, file: AnnotationFile, has_list: bool, has_field: bool, fields: frozenset[str]
) -> None:
    """Refuse a file that gives its flag nothing to read, and another flag something.

    Args:
        has_list: whether it has the list of annotations, if an empty one.
        has_field: whether some row has what the kind is about.
        fields: names of fields of annotations that some row has data in.

    Raises:
        WrongFlagError: its annotations have nothing that the flag is about; or there is no list of them; or it is given
            as a file of images alone, and its annotations would be dropped.
    """
    path, kind = source.path, source.kind
    number = file.annotations
    if kind is AnnotationKind.IMAGE_INFO:
        if number:
            of_rows = _fitting(fields) or AnnotationKind.INSTANCES
            raise WrongFlagError(
                f"{path} has {number:,} annotations, which --image-info would drop; give it to {_flag(of_rows)}"
            )
        return
    # Keypoints that a category names are enough, as nobody need be in sight in a small file.
    is_named = kind is AnnotationKind.KEYPOINTS and any(category.keypoints for category in file.categories)
    if not has_list and file.images:
        raise WrongFlagError(
            f"{path} has images and no list of annotations, which {_flag(kind)} is for; give it to --image-info"
        )
    if number and not (has_field or is_named) and (fitting := _fitting(fields - {_FIELDS[kind]})):
        raise WrongFlagError(
            f"none of the {number:,} annotations of {path} has {_FIELDS[kind]}, which {_flag(kind)} is for; they have "
            f"{_FIELDS[fitting]}: give the file to {_flag(fitting)}"
        )


def fields_of(kind: AnnotationKind, rows: CocoRows) -> frozenset[str]:
    """Names of fields of annotations that some row has data in."""
    return frozenset(count_fields(rows.annotations)) if kind is AnnotationKind.IMAGE_INFO else rows.fields


def has_field(kind: AnnotationKind, rows: CocoRows) -> bool:
    """Whether some row has what the kind is about, if in a row that has another fault."""
    if kind is AnnotationKind.IMAGE_INFO:
        return False
    if kind is AnnotationKind.KEYPOINTS:
        return "keypoints" in rows.fields or any(has_numbers(row.keypoints) for row in rows.annotations)
    if kind is AnnotationKind.STUFF and rows.annotations:
        return any(has_data(row.segmentation) for row in rows.annotations)
    return bool(rows.annotations) or _FIELDS[kind] in rows.fields


def _fitting(fields: frozenset[str]) -> AnnotationKind | None:
    return next((kind for kind, field in _FIELDS.items() if field in fields), None)


def _flag(kind: AnnotationKind) -> str:
    masks = " with --panoptic-masks" if kind is AnnotationKind.PANOPTIC else ""
    return f"--{kind.value.replace('_', '-')}{masks}"
