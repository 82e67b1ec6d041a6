"""What is in a record: what was asked for, and what the input turns out to have."""

from collections.abc import Iterable

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.coco import AnnotationFile
from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.labels import LabelMap


class ChooseFeatures(beam.PTransform):
    """AnnotationFile become one FeatureTable: `asked`, and what the input needs besides, as far as `layout` has room.
    `labels` is a PCollection of one LabelMap."""

    def __init__(self, labels: PCollection, asked: FeatureTable, layout: FeatureTable):
        super().__init__()
        self._labels = labels
        self._asked = asked
        self._layout = layout

    def expand(self, files: PCollection[AnnotationFile]) -> PCollection[FeatureTable]:
        return (
            files
            | "CollectFiles" >> beam.combiners.ToList()
            | "Choose" >> beam.Map(choose_features, AsSingleton(self._labels), self._asked, self._layout)
        )


def choose_features(
    files: Iterable[AnnotationFile], labels: LabelMap, asked: FeatureTable, layout: FeatureTable
) -> FeatureTable:
    """`asked`, with LVIS's lists where a file has them, and category ids where labels are others."""
    lvis = (Part.LVIS,) if any(file.lvis for file in files) else ()
    category_id = (Part.CATEGORY_ID,) if labels.is_shifted else ()
    return layout.with_parts((*asked.parts, *lvis, *category_id))
