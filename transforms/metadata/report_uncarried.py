"""Fields of the input that no record carries, for people: a line for each kind of row, with what would carry them."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from recordmill.schemas.coco import AnnotationKind
from recordmill.schemas.features import Part
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.manifest import InputRows

_SHOWN = 8
_LISTS = {"annotations": "of annotations", "images": "of images", "categories": "of categories", "file": "of the file"}
_USUAL = {"file": ("info", "licenses"), "images": ("license", "coco_url", "flickr_url", "date_captured")}
"""What nearly every COCO file has, and nobody trains on: a short line is enough."""

_FLAGS = {
    "segmentation": ("--masks png", Part.MASK_PNG),
    "keypoints": ("--keypoints FILE", Part.KEYPOINTS),
    "num_keypoints": ("--keypoints FILE", Part.KEYPOINTS),
    "caption": ("--captions FILE", Part.CAPTIONS),
    "segments_info": ("--panoptic FILE", Part.PANOPTIC),
}
"""What carries a field of annotations, and the part of a record that it is then in."""

_OBJECTS = (AnnotationKind.INSTANCES.value, AnnotationKind.KEYPOINTS.value)


def uncarried_lines(inputs: Iterable[InputRows], layout: str) -> Iterator[str]:
    """Lines of text; none where records carry all that there is."""
    counts: dict[tuple[str, str], int] = {}
    cures: dict[tuple[str, str], str] = {}
    for rows in {(rows.path, rows.kind): rows for rows in inputs}.values():  # several splits may be of one input
        for list_, fields in rows.uncarried.items():
            for name, number in fields.items():
                counts[list_, name] = counts.get((list_, name), 0) + number
                cures[list_, name] = _cure(rows.kind, list_, name, layout)
    usual = [(list_, name) for list_, names in _USUAL.items() for name in names if (list_, name) in counts]
    for list_, where in _LISTS.items():
        names = sorted(
            (name for of_list, name in counts.keys() - usual if of_list == list_),
            key=lambda name: (not cures[list_, name], cures[list_, name], name),
        )
        texts = []
        for cure, alike in groupby(names[:_SHOWN], key=lambda name: cures[list_, name]):
            counted = ", ".join(f"{name} {counts[list_, name]:,}" for name in alike)
            texts.append(f"{counted} ({cure})" if cure else counted)
        if len(names) > _SHOWN:
            texts.append(f"and {len(names) - _SHOWN:,} more fields, which the manifest has")
        if texts:
            yield f"{where}: {', '.join(texts)}"
    if usual:
        yield f"of every COCO file: {', '.join(name for _, name in usual)}"


def _cure(kind: str, list_: str, name: str, layout: str) -> str:
    """The flags with which a field would be carried; empty where there are none."""
    if list_ == "annotations" and name in _FLAGS:
        flag, part = _FLAGS[name]
        return flag if part in LAYOUTS[layout].parts else f"--layout detection {flag}"
    if list_ == "annotations" and name in ("area", "bbox", "category_id") and kind not in _OBJECTS:
        return "--instances FILE"
    if name in ("iscrowd", "neg_category_ids", "not_exhaustive_category_ids"):
        return "--layout detection" if list_ == "images" or kind in _OBJECTS else "--instances FILE"
    return ""
