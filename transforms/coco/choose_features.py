"""What is in a record: what was asked for, and what the input turns out to have."""

from collections.abc import Iterable

from recordmill.schemas.coco import AnnotationFile
from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.labels import LabelMap


def choose_features(
    files: Iterable[AnnotationFile], labels: LabelMap, asked: FeatureTable, layout: FeatureTable
) -> FeatureTable:
    """`asked`, with LVIS's lists where a file has them, and category ids where labels are others."""
    lvis = (Part.LVIS,) if any(file.lvis for file in files) else ()
    category_id = (Part.CATEGORY_ID,) if labels.is_shifted else ()
    return layout.with_parts((*asked.parts, *lvis, *category_id))
