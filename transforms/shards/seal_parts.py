"""Commit the splits of a job whose parts have all ended."""

import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Any

import msgspec

from recordmill.schemas.dataset.dataset_files import PART_FILES, state_folder
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import ConfigError, EndedElsewhereError, JobError
from recordmill.schemas.names import NameSources
from recordmill.schemas.shards import JobPart, ShardKey
from recordmill.schemas.sizes import first_texts
from recordmill.transforms.dataset.dataset_folder import read_manifest
from recordmill.transforms.dataset.facts import add_facts
from recordmill.transforms.runtime.beam_steps import library_versions
from recordmill.transforms.shards.check_findings import JobLimits
from recordmill.transforms.shards.commit_splits import is_ours
from recordmill.transforms.shards.job_parts import FinishedPart, JobPlan, part_path, read_part
from recordmill.transforms.shards.shard_file import FinishedShards, shard_files
from recordmill.transforms.shards.write_metadata import is_committed, write_metadata
from recordmill.transforms.storage.resolve import join_path, storage_for

_PART_PATH = re.compile(rf"{re.escape(state_folder(''))}([A-Za-z0-9_]+)/{PART_FILES}")
_SHOWN = 8
_CONCURRENT_READS = 16  # number of files that are read concurrently: in a bucket, each is a request


def find_parts(output: str) -> dict[str, list[JobPart]]:
    """Return the finished parts of each job, by the last of its splits."""
    storage, parts = storage_for(output), defaultdict(list)
    for name in storage.walk_names(output) if storage.is_folder(output) else ():
        if match := _PART_PATH.fullmatch(name):
            parts[match[1]].append(JobPart(int(match[2]), int(match[3])))
    return {split: sorted(split_parts) for split, split_parts in sorted(parts.items())}


def read_parts(output: str, split: str, parts: Sequence[JobPart]) -> list[FinishedPart]:
    """Return parts of a job, of which `find_parts` has `split`.

    Raises:
        ConfigError: See `read_part`.
        EndedElsewhereError: A part is gone.
    """
    paths = [part_path(output, [split], part) for part in parts]
    with ThreadPoolExecutor(_CONCURRENT_READS) as pool:
        read = [part for part in pool.map(read_part, paths) if part is not None]
    if len(read) < len(paths):
        raise EndedElsewhereError(
            f"{output}: parts of {split} were deleted just now, perhaps because another recordmill seal ended. Run "
            "again"
        )
    return read


def is_sealed(output: str, plan: JobPlan) -> bool:
    """Return True if the splits of a plan are complete, and the state folders have no shards of a newer run."""
    storage, manifest = storage_for(output), read_manifest(output)
    if manifest is None or any(
        recipe.shard_names.is_one(name)
        for recipe in plan.recipes
        for name in storage.names(join_path(output, state_folder(recipe.split)))
    ):
        return False
    return all(is_committed(output, recipe.of_layout(plan.table.layout), manifest) for recipe in plan.recipes)


def choose_parts(output: str, parts: Sequence[JobPart], splits: Iterable[str]) -> list[JobPart]:
    """Return all parts of a job. If it was divided in several ways, one whose parts are all there is chosen.

    Raises:
        ConfigError: Parts are missing.
    """
    by_count: dict[int, list[JobPart]] = defaultdict(list)
    for part in parts:
        by_count[part.count].append(part)
    count = min(by_count, key=lambda count: (len(by_count[count]) < count, -len(by_count[count])))
    missing = [part for index in range(count) if (part := JobPart(index, count)) not in by_count[count]]
    if missing:
        other_counts = [f"N = {other}" for other in sorted(by_count) if other != count]
        mixed = (
            f" There are parts of {' and '.join(other_counts)}, too, which do not count here." if other_counts else ""
        )
        raise ConfigError(
            f"{output}: {_list_parts(missing)} of {' and '.join(sorted(splits))} {_are(missing)} missing, or still "
            f"running.{mixed} Run the same command with {_part_flags(missing)}, and then: recordmill seal "
            f"{shlex.quote(output)}"
        )
    return by_count[count]


def _list_parts(parts: Sequence[JobPart]) -> str:
    return f"part{'s' * (len(parts) > 1)} {first_texts(map(str, parts), _SHOWN)}"


def _part_flags(parts: Sequence[JobPart]) -> str:
    return first_texts((f"--part {part}" for part in parts), _SHOWN)


def _are(parts: Sequence[JobPart]) -> str:
    return "are" if len(parts) > 1 else "is"


def seal_parts(output: str, parts: Sequence[FinishedPart], max_rejects: float | None = None) -> Manifest:
    """Check the parts of a job, and commit its splits as one job does.

    Args:
        parts: All parts.
        max_rejects: Fraction that may be rejected; None for that of the parts.

    Raises:
        ConfigError: Parts were planned differently, or by other versions than this process has; or shards are missing
            or damaged.
        RecordmillError: See `write_metadata`.
    """
    if max_rejects is not None:
        parts = [_with_limit(part, max_rejects) for part in parts]
    _check_plans(output, parts)
    _check_shards(output, parts)
    plan = parts[0].plan
    limits = JobLimits(
        plan.splits, NameSources((), ()), plan.max_rejects, output, is_exact=False, duplicates=plan.duplicates
    )
    return write_metadata(
        plan.recipes,
        limits,
        add_facts([plan.facts, *(part.facts for part in parts)]),
        [note for part in parts for note in part.notes],
        chain(plan.lists, *(part.lists for part in parts)),
        plan.labels,
        plan.table,
        plan.encoders,
    )


def _with_limit(part: FinishedPart, max_rejects: float) -> FinishedPart:
    plan = msgspec.structs.replace(part.plan, max_rejects=max_rejects)
    return msgspec.structs.replace(part, plan=plan, digest=plan.digest)


def _check_plans(output: str, parts: Sequence[FinishedPart]) -> None:
    """Refuse parts with different plans, or of other versions than those of this process."""
    by_digest: dict[str, list[FinishedPart]] = defaultdict(list)
    for part in parts:
        by_digest[part.digest].append(part)
    majority, *other_groups = sorted(by_digest.values(), key=len, reverse=True)
    if other_groups:
        odd = other_groups[0]
        raise ConfigError(
            f"{output}: {_list_parts([part.part for part in odd])} {'differ' if len(odd) > 1 else 'differs'} from "
            f"{_list_parts([part.part for part in majority])} ({majority[0].plan.differences(odd[0].plan)}). All parts "
            "need the same command, the same versions, and the same files under the same paths. Run the outdated parts "
            "again"
        )
    plan = majority[0].plan
    versions = library_versions(plan.recipes[0].of_layout(plan.table.layout).layout, plan.recipes[0].container)
    if plan.made_by != versions:
        here = msgspec.structs.replace(plan, made_by=dict(versions))
        raise ConfigError(
            f"{output}: its parts were written with other versions than those of this machine "
            f"({plan.differences(here)}). Run recordmill seal with the versions of the parts"
        )


def _check_shards(output: str, parts: Sequence[FinishedPart]) -> None:
    """Refuse parts with shards that are missing or damaged."""
    plan, count = parts[0].plan, parts[0].part.count
    notes = dict(chain.from_iterable(part.notes for part in parts))
    finished = {
        recipe.split: FinishedShards(output, recipe.name, plan.table.layout, recipe.container)
        for recipe in plan.recipes
    }
    keys = list(plan.keys())
    with ThreadPoolExecutor(_CONCURRENT_READS) as pool:
        are_there: Callable[..., Any] = partial(_is_there, output, finished, notes)
        damaged = [key for key, is_there in zip(keys, pool.map(are_there, keys), strict=True) if not is_there]
    if damaged:
        again = sorted({JobPart(key.index % count, count) for key in damaged})
        names = [f"{key.split} {key.index} of {key.count}" for key in damaged]
        raise ConfigError(
            f"{output}: shards are missing, or have changed since their part ended: {first_texts(names, _SHOWN)}. Run "
            f"the same command again with {_part_flags(again)}"
        )


def _is_there(output: str, finished: dict[str, FinishedShards], notes: dict[ShardKey, str], key: ShardKey) -> bool:
    """Return True if a shard has its note, and its files have their sizes. They are in the state folder, or in the
    output if an earlier commit was interrupted."""
    try:
        info = finished[key.split].result(key, notes[key]).info
    except (KeyError, JobError):
        return False
    storage, folders = storage_for(output), (join_path(output, state_folder(key.split)), output)
    return all(
        any(is_ours(storage, join_path(folder, name), file) for folder in folders)
        for name, file in shard_files(info).items()
    )
