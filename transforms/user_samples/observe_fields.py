"""Observe the open fields of all Samples, which decide how the fields are stored."""

from collections.abc import Iterable
from typing import Any

import apache_beam as beam

from recordmill.schemas.field_features import AXES, Axis
from recordmill.schemas.inputs.fields import FieldSelection, columns_of_rows
from recordmill.schemas.inputs.sample import Sample
from recordmill.transforms.join.field_values import FieldPicker, observe_fields

Rows = dict[Axis, list[dict[str, Any]]]
Paths = dict[Axis, set[str]]
_ROWS = 4096
"""Rows that are observed at once."""


def pick_sample_fields(
    sample: Sample, selections: tuple[FieldSelection, FieldSelection]
) -> tuple[Sample, tuple[Rows, Paths]]:
    """Return a Sample with the requested fields by path; and these of the image, of each object, and all paths."""
    picker = FieldPicker(selections)
    picked = picker.pick(sample)
    return picked, (picker.rows, picker.paths)


class ObserveFields(beam.CombineFn):
    """Sum of the fields of Samples: ObservedLabels as tuples."""

    def create_accumulator(self) -> Any:
        return {axis: [] for axis in AXES}, {axis: set() for axis in AXES}, []

    def add_input(self, accumulator: Any, fields: tuple[Rows, Paths]) -> Any:
        rows, paths, _ = accumulator
        for axis in AXES:
            rows[axis] += fields[0][axis]
            paths[axis] |= fields[1][axis]
        return self._shrink(accumulator)

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        merged = self.create_accumulator()
        for rows, paths, labels in accumulators:
            merged = self.add_input(merged, (rows, paths))
            merged[2].extend(labels)
        return merged

    def extract_output(self, accumulator: Any) -> list[tuple[str, str, int, int]]:
        rows, paths, labels = accumulator
        rest = [label for axis in AXES for label in _observe(axis, rows[axis], paths[axis])]
        return [*labels, *rest]

    def _shrink(self, accumulator: Any) -> Any:
        """Return an accumulator whose rows are observed if they are many."""
        rows, _, labels = accumulator
        for axis in AXES:
            if len(rows[axis]) > _ROWS:
                labels += _observe(axis, rows[axis], ())
                rows[axis] = []
        return accumulator


def _observe(axis: Axis, rows: list[dict[str, Any]], paths: Iterable[str]) -> Iterable[tuple[str, str, int, int]]:
    labels = observe_fields(axis, columns_of_rows(rows), len(rows), paths)
    return [(label.kind, label.name, label.category_id, label.keypoints) for label in labels]
