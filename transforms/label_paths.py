"""Image files whose paths tell their class become image rows."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from schemas.coco import AnnotatedImage, CocoImage, ImageLabels
from schemas.image_labels import PathLabels, is_image_name
from schemas.images import NameMatch, UnlistedFile
from schemas.names import name_fault
from schemas.rejects import Reason, Rejected, SplitReject
from schemas.splits import SplitShares, name_id
from transforms import coders  # noqa: F401  registers that of NameMatch
from transforms.outputs import REJECTED, UNLISTED, tag_by_type


class LabelPaths(beam.PTransform):
    """(name, NameMatch) of files become, in the output `images`, such of files and their image rows; SplitReject in
    `rejected`, and UnlistedFile, which are no images, in `unlisted`."""

    def __init__(self, rule: PathLabels, shares: SplitShares):
        super().__init__()
        self._rule = rule
        self._shares = shares

    def expand(self, files):
        label = beam.FlatMap(_label, self._rule, self._shares).with_output_types(tuple[str, NameMatch])
        return files | "Label" >> label.with_outputs(REJECTED, UNLISTED, main="images")


def _label(named: tuple[str, NameMatch], rule: PathLabels, shares: SplitShares) -> Iterator[Any]:
    name, match = named
    labelled = label_path(name, rule, shares)
    if isinstance(labelled, AnnotatedImage):
        return tag_by_type([(name, NameMatch(labelled, match.file))])
    return tag_by_type([labelled])


def label_path(name: str, rule: PathLabels, shares: SplitShares) -> AnnotatedImage | SplitReject | UnlistedFile:
    """The row of the file called `name`, a `schemas.names.name_key`."""
    if not is_image_name(name):
        return UnlistedFile(name)
    split = shares.split_of(name)
    fault, reason = name_fault(name), Reason.UNSAFE_FILE_NAME
    class_name = rule.class_of(name)
    if not fault and not class_name:
        reason = Reason.NO_CLASS
        fault = "is in no folder" if rule.separator is None else f"has no {rule.separator!r} after its class"
    if fault:
        return SplitReject(split, Rejected("image", name_id(name), reason, f"{name!r} {fault}"))
    return AnnotatedImage(CocoImage(name_id(name), name), split, labels=ImageLabels(class_name=class_name))
