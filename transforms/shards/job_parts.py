"""Parts of a job that share only the output. Each plans everything, and writes some of the shards. Its file in a state
folder has what `recordmill seal` needs to write the manifest."""

import hashlib
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import TaggedOutput

from recordmill.schemas.dataset.dataset_files import part_file, state_folder
from recordmill.schemas.dataset.recipes import Recipe
from recordmill.schemas.errors import ConfigError, JobError
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.encoders import TextEncoder
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.mix_bits import mix_bits
from recordmill.schemas.shards import JobPart, ShardKey
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.dataset.rejects import RejectKind, Rejects
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.beam_steps import library_versions, unpacker
from recordmill.transforms.shards.write_metadata import JobReport, check_notes, committed_by_another
from recordmill.transforms.storage.resolve import join_path, storage_for

FORMAT = 1
"""Format number of the files of parts. It increases when their structure changes."""


class JobPlan(msgspec.Struct, frozen=True):
    """Everything that the parts of a job have in common.

    Attributes:
        recipes: One per split, with listings.
        made_by: See SplitManifest.
        max_rejects, duplicates: See JobLimits.
        images: Sum of hashes of all images with their shards, see `sum_image_hashes`.
        facts: Facts of the steps before the shards, without the lines of rejects.
        lists: Lists of the rejects of these steps.
    """

    recipes: tuple[Recipe, ...]
    made_by: dict[str, str]
    max_rejects: float
    duplicates: str
    images: int
    labels: LabelMap
    table: FeatureTable
    encoders: tuple[TextEncoder, ...]
    facts: Facts
    lists: tuple[tuple[RejectKind, Rejects], ...]

    @property
    def digest(self) -> str:
        """Hex digest. Equal plans have equal digests on every machine."""
        return hashlib.sha256(msgspec.msgpack.encode(_ordered(self))).hexdigest()

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(recipe.split for recipe in self.recipes)

    def keys(self) -> Iterator[ShardKey]:
        """Yield the keys of all shards."""
        for split in self.splits:
            shards = self.facts.plans[split].shards if split in self.facts.plans else 0
            yield from (ShardKey(split, index, shards) for index in range(shards))

    def differences(self, other: "JobPlan") -> str:
        """Return what another plan has otherwise."""
        pairs = zip(self.recipes, other.recipes, strict=False)
        texts = [one.changes(two).replace("; ", ", ") for one, two in pairs if one != two][:1]
        names = sorted({*self.made_by, *other.made_by})
        versions = {name: (self.made_by.get(name), other.made_by.get(name)) for name in names}
        texts += [f"version of {name}: {one}, now {two}" for name, (one, two) in versions.items() if one != two]
        for option in ("max_rejects", "duplicates"):
            one, two = getattr(self, option), getattr(other, option)
            texts += [f"--{option.replace('_', '-')}: {one}, now {two}"] if one != two else []
        if not texts:
            is_same_output = (self.labels, self.table, self.encoders) == (other.labels, other.table, other.encoders)
            texts = ["names, sizes or labels of images" if is_same_output else "classes or features"]
        return ", ".join(texts)


def _ordered(value: Any) -> Any:
    """Return structs, dicts and sets as lists, whose order does not depend on the process. msgspec orders no dict whose
    keys are tuples."""
    if isinstance(value, msgspec.Struct):
        return [_ordered(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, dict):
        return sorted(([_ordered(key), _ordered(item)] for key, item in value.items()), key=msgspec.msgpack.encode)
    if isinstance(value, set | frozenset):
        return sorted(map(_ordered, value), key=msgspec.msgpack.encode)
    if isinstance(value, list | tuple):
        return [_ordered(item) for item in value]
    return None if value is msgspec.UNSET else value


class FinishedPart(msgspec.Struct, frozen=True):
    """Contents of the file of a part.

    Attributes:
        digest: Digest of the plan.
        facts: Facts of the part's shards, without the lines of rejects.
        lists: Lists of the rejects of these shards.
        notes: Notes of the shards, see WrittenShard.
    """

    format: int
    part: JobPart
    digest: str
    plan: JobPlan
    facts: Facts
    lists: tuple[tuple[RejectKind, Rejects], ...]
    notes: tuple[tuple[ShardKey, str], ...]


class KeepPart(beam.PTransform):
    """Keep the (ShardKey, packed Block) of a part. Return them, and a PCollection of one sum of hashes of all images
    with their shards."""

    def __init__(self, part: JobPart):
        super().__init__()
        self._part = part

    def expand(self, placed):  # Beam accepts no type hints of several outputs, and warns of them
        keep = beam.FlatMap(_keep_part, self._part).with_output_types(tuple[ShardKey, bytes])
        outputs = placed | "Keep" >> keep.with_outputs(_HASHES, main="kept")
        return outputs.kept, outputs[_HASHES] | "AddHashes" >> beam.CombineGlobally(_add_hashes)


_HASHES = "hashes"
_MASK = (1 << 63) - 1  # Beam's integers are signed, 64 bits


def _keep_part(placed: tuple[ShardKey, bytes], part: JobPart) -> Iterator[Any]:
    key, packed = placed
    images, hashes = sum_image_hashes(key, packed)
    yield TaggedOutput(_HASHES, hashes)
    if part.has(key):
        yield placed
    else:
        progress.count_planned(-images, 0)


def _add_hashes(hashes: Iterable[int]) -> int:
    return sum(hashes) & _MASK


def sum_image_hashes(key: ShardKey, packed: bytes) -> tuple[int, int]:
    """Return the number of images in a packed Block, and the sum of hashes of their ids, sizes and numbers of objects
    together with their shard. The sum does not depend on the Blocks of the images."""
    if not packed:
        return 0, 0
    block = unpack_block(packed)
    columns = block.image_id, block.file_bytes, block.objects_per_image
    shard = int.from_bytes(hashlib.sha256(f"{key.split}/{key.index}/{key.count}".encode()).digest()[:8], "big")
    hashes = np.full(len(block), shard, np.uint64)
    for column in columns:
        if column is not None:
            hashes = mix_bits(hashes + column.astype(np.uint64))
    continued = 0 if block.is_continuation is None else int(block.is_continuation.sum())
    return len(block) - continued, int(hashes.sum(dtype=np.uint64)) & _MASK


def plan_part(facts: Facts, part: JobPart) -> None:
    """Remove the shards of other parts from the planned ones in the progress."""
    for size in facts.plans.values():
        progress.count_planned(0, part.num_shards(size.shards) - size.shards)


def write_part(
    report: JobReport,
    part: JobPart,
    images: int,
    labels: LabelMap,
    table: FeatureTable,
    encoders: Iterable[TextEncoder] = (),
) -> JobPart:
    """Write the file of a part, unless `recordmill seal` has committed the splits already.

    Args:
        images: Sum of hashes of all images, see JobPlan.

    Raises:
        JobError: A run with another recipe has started, or the state of the run was deleted.
    """
    recipes, limits = report.recipes, report.limits
    plan = JobPlan(
        recipes,
        dict(library_versions(recipes[0].of_layout(table.layout).layout, recipes[0].container)),
        limits.max_rejects,
        limits.duplicates,
        images,
        labels,
        table,
        tuple(sorted(encoders, key=attrgetter("column"))),
        report.step_facts,
        tuple(sorted(report.step_lists)),
    )
    lists, notes = tuple(sorted(report.shard_lists)), tuple(sorted(report.notes))
    finished = FinishedPart(FORMAT, part, plan.digest, plan, report.shard_facts, lists, notes)
    output = limits.output
    if not check_notes(output, recipes):
        if committed_by_another([recipe.of_layout(table.layout) for recipe in recipes], limits):
            return part
        raise JobError(f"{output}: the state of this run was deleted before part {part} ended. Run the part again")
    storage_for(output).write(part_path(output, plan.splits, part), msgspec.msgpack.encode(finished))
    return part


def part_path(output: str, splits: Iterable[str], part: JobPart) -> str:
    """Return the path of the file of a part of a job that writes `splits`. It is in the state folder of the last split,
    which a commit deletes last."""
    return join_path(output, f"{state_folder(max(splits))}/{part_file(part)}")


def read_part(path: str) -> FinishedPart | None:
    """Return the contents of a part's file; None if there is none.

    Raises:
        ConfigError: The file is damaged, or another version wrote it.
    """
    try:
        return unpacker(FinishedPart)(storage_for(path).read(path))
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} is damaged, or another version of Recordmill wrote it ({error}). Delete it, and run the part again"
        ) from error
