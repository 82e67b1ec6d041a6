"""Facts of single images as the columns that are counted, and both ways to count them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from recordmill.schemas.block import Ragged, ragged_bytes, starts_of
from recordmill.schemas.problems import Fingerprints
from recordmill.schemas.statistics import Statistics
from recordmill.transforms.blocks.image_facts import NO_CLASS, FactColumns, RecordPlaces, SortedObjects, sort_objects
from recordmill.transforms.insight.count_images import ImageCounter
from recordmill.transforms.insight.fingerprint_images import ImageFingerprints
from tests.oracles.image_facts import ImageFacts, RecordPlace


def fact_columns(images: Sequence[ImageFacts]) -> FactColumns:
    columns: dict[str, Any] = {
        "name": ragged_bytes([facts.name.encode() for facts in images]),
        "size_px": np.array([(facts.width, facts.height) for facts in images], np.int64).reshape(-1, 2),
        "format": [facts.format for facts in images],
        "num_bytes": np.array([facts.bytes for facts in images], np.int64),
        "sha256": [facts.sha256 for facts in images],
        "is_continuation": np.array([facts.is_continuation for facts in images], bool),
        "measures": [facts.measures for facts in images],
        "image_class": np.array([NO_CLASS if f.image_class is None else f.image_class for f in images], np.int64),
    }
    if any(facts.boxes is not None for facts in images):
        edges = [np.array(facts.boxes, np.float32).reshape(4, -1).T for facts in images]
        columns["yxyx_frac"] = np.concatenate(edges)
        columns["first_object_of_image"] = starts_of(np.array(list(map(len, edges)), np.int64))
        columns["class_index"] = np.array([index for facts in images for index in facts.classes], np.int64)
    if any(facts.mask_bounds for facts in images):
        bounds = [facts.mask_bounds or [None] * len(facts.classes) for facts in images]
        rows = [(np.nan,) * 4 if each is None else each for of_image in bounds for each in of_image]
        columns["mask_bounds_px"] = np.array(rows, np.float64).reshape(-1, 4)
    if any(facts.captions is not None for facts in images):
        columns["num_captions"] = np.array([facts.captions for facts in images], np.int64)
    if any(facts.segments for facts in images):
        lengths = np.array([len(facts.segments) for facts in images], np.int64)
        values = np.array([index for facts in images for index in facts.segments], np.int64)
        columns["segments"] = Ragged(values, starts_of(lengths))
    return FactColumns(**columns)


def sorted_objects(facts: FactColumns) -> SortedObjects | None:
    return None if facts.first_object_of_image is None else sort_objects(facts)


def record_places(places: Sequence[RecordPlace]) -> RecordPlaces:
    return RecordPlaces(*np.array(places, np.int64).reshape(-1, 3).T)


def usual_places(images: Sequence[ImageFacts]) -> list[RecordPlace]:
    return [RecordPlace(number, 100 * number, 100) for number in range(len(images))]


def counted(*images: ImageFacts, shard: str = "s", places: Sequence[RecordPlace] = ()) -> Statistics:
    facts, counter = fact_columns(images), ImageCounter()
    counter.add(facts, record_places(places or usual_places(images)), sorted_objects(facts))
    return counter.statistics(shard)


def fingerprinted(*images: ImageFacts, places: Sequence[RecordPlace] = ()) -> Fingerprints:
    facts, found = fact_columns(images), ImageFingerprints()
    found.add(facts, record_places(places or usual_places(images)), sorted_objects(facts))
    return found.of_shard("s")
