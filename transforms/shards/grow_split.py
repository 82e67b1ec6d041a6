"""Add the entry of a run of `convert --add` to the entry of its split."""

from collections.abc import Iterable, Mapping
from itertools import filterfalse, zip_longest
from typing import Any

import msgspec

from recordmill.schemas.dataset.manifest import Addition, InputRows, MappedClass, SplitManifest
from recordmill.schemas.rejects import RejectTally
from recordmill.transforms.shape.adopt_data_set import NEW_CLASSES


def grow_split(base: SplitManifest, run: SplitManifest, replaced: int = 0) -> SplitManifest:
    """Return the entry of a split with that of a run that added to it.

    Args:
        base: Entry of the split before.
        run: Entry of the run, with the lists of both: rejects, statistics, fingerprints, images. Its shards without
            records are left out, and so are lists that the split does not have. Unlisted files are those of this run:
            it may have added those of earlier runs.
        replaced: Number of images that the run wrote again, which `base` no longer has.
    """
    shards = tuple(shard for shard in run.shards if shard.examples)
    addition = Addition(run.recipe, run.made_by, run.images, run.annotations, len(shards), replaced)
    return msgspec.structs.replace(
        run,
        recipe=base.recipe,
        made_by=base.made_by,
        inputs=_add_inputs((*base.inputs, *run.inputs)),
        images=_add(base.images, run.images),
        annotations=_add(base.annotations, run.annotations),
        record_bytes=base.record_bytes + run.record_bytes,
        shards=base.shards + shards,
        class_counts=tuple(map(sum, zip_longest(base.class_counts, run.class_counts, fillvalue=0))),
        warnings=tuple(sorted({*filterfalse(_is_of_one_run, base.warnings), *run.warnings})),
        texts=_add(base.texts, run.texts),
        findings=_add(base.findings, run.findings),
        class_map=_add_class_maps(base.class_map, run.class_map),
        additions=(*base.runs, addition),
    )


def _is_of_one_run(warning: str) -> bool:
    """Return True for a warning that would be wrong after a later run."""
    return warning.startswith(NEW_CLASSES)


def without_rejects(entry: SplitManifest, rejects: RejectTally) -> SplitManifest:
    """Return the entry of a split without rejects that a run of --add has again, and counts."""
    images, annotations = rejects.reasons("image", "row"), rejects.reasons("annotation")
    return msgspec.structs.replace(
        entry,
        images=msgspec.structs.replace(
            entry.images,
            rows=entry.images.rows - sum(images.values()),
            rejected=_less(entry.images.rejected, images),
        ),
        annotations=msgspec.structs.replace(
            entry.annotations,
            rows=entry.annotations.rows - sum(annotations.values()) - rejects.annotations,
            rejected=_less(entry.annotations.rejected, annotations),
            of_rejected_images=entry.annotations.of_rejected_images - rejects.annotations,
        ),
    )


def _less(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {key: number - other.get(key, 0) for key, number in one.items() if number != other.get(key)}


def _add(one: Any, other: Any) -> Any:
    """Return the sum of two numbers, of the values of two dicts by key, or of the fields of two structs. None is 0."""
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, dict):
        return {key: _add(one.get(key), other.get(key)) for key in sorted(one.keys() | other.keys())}
    if isinstance(one, msgspec.Struct):
        return type(one)(*map(_add, msgspec.structs.astuple(one), msgspec.structs.astuple(other)))
    return one + other


def _add_inputs(rows: Iterable[InputRows]) -> tuple[InputRows, ...]:
    """Return the rows of each input. A file that several runs read has the rows of all of them."""
    inputs: dict[tuple[str, str], InputRows] = {}
    for row in rows:
        key = row.path, row.kind
        known = inputs.get(key, InputRows(*key, 0, 0))
        numbers = known.images + row.images, known.annotations + row.annotations
        inputs[key] = InputRows(*key, *numbers, known.uncarried or row.uncarried, known.leaves or row.leaves)
    return tuple(inputs[key] for key in sorted(inputs))


_ClassMap = tuple[MappedClass, ...] | msgspec.UnsetType


def _add_class_maps(base: _ClassMap, run: _ClassMap) -> _ClassMap:
    """Return the classes of both, in order of new names; UNSET if no run had a class map."""
    by_name: dict[tuple[str, str], MappedClass] = {}
    for mapped in (*(base or ()), *(run or ())):
        key = mapped.new_name, mapped.name
        by_name[key] = mapped.plus(by_name[key]) if key in by_name else mapped
    is_mapped = base is not msgspec.UNSET or run is not msgspec.UNSET
    return tuple(by_name[key] for key in sorted(by_name)) if is_mapped else msgspec.UNSET
