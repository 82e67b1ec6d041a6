"""Possible problems of images and annotations, found as their records are written."""

from collections.abc import Iterator

import numpy as np

from recordmill.schemas.problems import Problem
from recordmill.transforms.blocks.image_facts import FactColumns, SortedObjects
from recordmill.transforms.insight.count_images import IMAGE_SCORES, BoxColumns, odd_images
from recordmill.transforms.insight.list_problems import SCORE_DIGITS


def find_problems(facts: FactColumns, objects: SortedObjects | None) -> Iterator[Problem]:
    """Yield what FINDINGS names of some images and their boxes, whose objects are sorted: None without objects."""
    for kind, ranks in odd_images(facts).items():
        names = facts.name.take(np.array(list(ranks), np.int64)).texts()
        for name, rank in zip(names, ranks.values(), strict=True):
            yield Problem(kind, round(IMAGE_SCORES[kind](rank), SCORE_DIGITS), name)
    if objects is not None and facts.object_id is not None:
        boxes = BoxColumns(facts, objects)
        for kind, rows, scores in boxes.suspicious():
            columns = facts.name.take(boxes.image[rows]).texts(), facts.object_id[rows].tolist(), scores.tolist()
            for name, id_, score in zip(*columns, strict=True):
                yield Problem(kind, round(score, SCORE_DIGITS), name, id_)
