"""What is in a record: what was asked for, and what the input turns out to have."""

from collections.abc import Iterable

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.schemas.coco import AnnotationFile
from recordmill.schemas.features import FeatureTable, Part


class ChooseFeatures(beam.PTransform):
    """AnnotationFile become one FeatureTable: `asked`, with LVIS's lists where a file has them and `layout` room."""

    def __init__(self, asked: FeatureTable, layout: FeatureTable):
        super().__init__()
        self._asked = asked
        self._layout = layout

    def expand(self, files: PCollection[AnnotationFile]) -> PCollection[FeatureTable]:
        return (
            files
            | "CollectFiles" >> beam.combiners.ToList()
            | "Choose" >> beam.Map(choose_features, self._asked, self._layout)
        )


def choose_features(files: Iterable[AnnotationFile], asked: FeatureTable, layout: FeatureTable) -> FeatureTable:
    lvis = (Part.LVIS,) if any(file.lvis for file in files) else ()
    return layout.with_parts((*asked.parts, *lvis))
