"""Image files whose paths give their class become image rows."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.annotations import AnnotatedImage, ImageLabels, ImageRow
from recordmill.schemas.image_labels import PathLabels, is_image_name
from recordmill.schemas.images import JoinSide, UnreferencedFile
from recordmill.schemas.names import name_fault
from recordmill.schemas.rejects import Reason, Rejected, SplitReject
from recordmill.schemas.splits import Division, name_id
from recordmill.transforms.runtime import coders  # noqa: F401  for the coder of JoinSide
from recordmill.transforms.runtime.outputs import REJECTED, UNLISTED, route_outputs


class LabelPaths(beam.PTransform):
    """(name, JoinSide) of files become (name, JoinSide) of the files with their image rows, in the output `images`.
    SplitReject go to `rejected`, and files that are no images to `unlisted`, as UnreferencedFile."""

    def __init__(self, rule: PathLabels, division: Division | AsSingleton):
        super().__init__()
        self._rule = rule
        self._division = division

    def expand(self, files: PCollection[tuple[str, JoinSide]]):
        label = beam.FlatMap(_label, self._rule, self._division).with_output_types(tuple[str, JoinSide])
        return files | "Label" >> label.with_outputs(REJECTED, UNLISTED, main="images")


def _label(named: tuple[str, JoinSide], rule: PathLabels, division: Division) -> Iterator[Any]:
    name, match = named
    labelled = label_path(name, rule, division)
    if isinstance(labelled, AnnotatedImage):
        return iter([(name, JoinSide(labelled, match.file))])
    return route_outputs([labelled])


def label_path(name: str, rule: PathLabels, division: Division) -> AnnotatedImage | SplitReject | UnreferencedFile:
    """The row of the file called `name`, a `recordmill.schemas.names.name_key`."""
    if not is_image_name(name):
        return UnreferencedFile(name)
    split = division.split_of(name)
    fault, reason = name_fault(name), Reason.UNSAFE_FILE_NAME
    class_name = rule.class_of(name)
    if not fault and not class_name:
        reason = Reason.NO_CLASS
        fault = "is in no folder" if rule.separator is None else f"has no {rule.separator!r} after its class"
    if not fault:
        reason, fault = Reason.NO_GROUP, division.fault(name)
    if fault:
        return SplitReject(split, Rejected("image", name_id(name), reason, f"{name!r} {fault}"))
    return AnnotatedImage(ImageRow(name_id(name), name), split, labels=ImageLabels(class_name=class_name))
