"""Commit finished splits.

Shards are moved from the split's state folder to the output. Then the split's manifest is written. manifest.json, label
maps, statistics.json, duplicates.jsonl, problems-SPLIT.jsonl and TFDS's files are built from the manifests of all
splits. Until then readers find the earlier version of the split. After a kill, the same command continues. A run of
`convert --add` writes its new manifests to a log first, so that any later run can complete its commit.

Other jobs may commit other splits of the folder at the same time. No job writes the manifest of another job's split.
After a job has written manifest.json, it reads the splits' manifests again, and repeats if they have changed. So the
last job writes all splits."""

import shlex
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import msgspec

from recordmill.schemas.dataset.dataset_files import (
    CHANGES,
    COMMIT,
    MANIFEST,
    split_changes,
    split_manifest,
    split_rejects,
    state_folder,
)
from recordmill.schemas.dataset.manifest import Manifest, SplitManifest, encode_json, encode_manifest, with_digest
from recordmill.schemas.dataset.tfds import is_readable, shard_links, tfds_files
from recordmill.schemas.errors import CategoryError, ConfigError, JobError
from recordmill.schemas.features import Feature, RecordOf, format_parts
from recordmill.schemas.image_records import split_images
from recordmill.schemas.inputs.encoders import CLASSES, TextEncoder, classes_file, encode_encoder, encoder_file
from recordmill.schemas.inputs.labels import LABEL_FILES, label_files
from recordmill.schemas.inputs.tables import SCHEMA_FILES, schema_files
from recordmill.schemas.paths import is_remote
from recordmill.schemas.problems import DUPLICATES, split_fingerprints, split_problems
from recordmill.schemas.shards import IndexInfo, ShardInfo
from recordmill.schemas.statistics import REPORT, STATISTICS, split_statistics
from recordmill.transforms.containers.container import container_of
from recordmill.transforms.dataset.dataset_folder import (
    delete_old_files,
    delete_state,
    file_sha256,
    read_file,
    read_split_manifests,
)
from recordmill.transforms.dataset.rejects import rejects_path
from recordmill.transforms.insight.across_splits import compare_all_splits, fingerprints_path, folder_statistics
from recordmill.transforms.records.shard_index import index_file
from recordmill.transforms.shards.image_records import images_path
from recordmill.transforms.shards.shard_file import is_intact, shard_files
from recordmill.transforms.storage.interface import Storage
from recordmill.transforms.storage.resolve import join_path, storage_for

_MOVES = 16
"""Number of shards that are moved concurrently. In a bucket, each takes one or two requests."""
_READS = 3
"""Number of times that a list is read. Each of two runs at once writes it once."""


class CommitLog(msgspec.Struct, frozen=True):
    """Commit of a run of `convert --add`, in the state folder of its first split until it is complete.

    All lists and shards of the run are in the state folders before it is written, so that any process can repeat it.

    Attributes:
        base: `Manifest.sha256` of the manifest of each split that grows.
        manifests: New manifest of each split.
    """

    base: dict[str, str]
    manifests: dict[str, Manifest]


def commit_splits(
    output: str,
    manifest: Manifest,
    statistics: Mapping[str, bytes | None],
    encoders: Iterable[TextEncoder] = (),
    base: Mapping[str, str] | None = None,
) -> Manifest:
    """Commit the splits of one job, which are those of `manifest`, and return the folder's manifest.

    Shards, rejects, fingerprints and images are in the state folders of the splits.

    Args:
        statistics: Statistics of each split that has some, as JSON.
        encoders: Encoders in the manifest.
        base: Of JobLimits. With it, no split is replaced: readers see the data set before or after the commit.

    Raises:
        CategoryError: The folder has another split, with other classes, other parts of records or other encoders.
        JobError: A shard is missing; or another run has written a split that this one adds to.
        OSError: Storage fails.
    """
    storage = storage_for(output)
    own = {split: msgspec.structs.replace(manifest, splits={split: entry}) for split, entry in manifest.splits.items()}
    shards = {shard.file for entry in manifest.splits.values() for shard in entry.shards}
    before = read_split_manifests(output)
    merge_manifests(output, {**before, **own})  # raises before anything is changed, if splits contradict each other
    both = before.keys() & own.keys()
    if base is not None:
        check_base(output, own, base, before)
        for split in both:
            _check_agreement(output, before[split], own[split])
    replaced = {split: before[split] for split in both if encode_manifest(before[split]) != encode_manifest(own[split])}
    if replaced and base is None:
        _withdraw(output, replaced, current_shards=shards)
    for encoder in encoders:
        storage.write(join_path(output, encoder_file(encoder.column)), encode_encoder(encoder))
    for split, data in statistics.items():
        _write_or_delete(storage, statistics_path(output, split), data)
    if base is not None:
        log = CommitLog(dict(base), {split: with_digest(entry) for split, entry in own.items()})
        storage.write(_log_path(output, min(own)), encode_json(log))
        return _complete_commit(output, log)
    for split, entry in manifest.splits.items():
        _place_split(output, own[split], entry.shards)
    try:
        whole = publish(output)
    except CategoryError:  # another job has committed its split meanwhile
        _withdraw(output, own, current_shards=shards)
        raise
    for entry in manifest.splits.values():
        delete_old_files(output, entry)
    return whole or manifest


def check_base(output: str, splits: Iterable[str], base: Mapping[str, str], manifests: Mapping[str, Manifest]) -> None:
    """Check that no other run has written the splits since a run of --add began.

    Args:
        base: Of JobLimits.
        manifests: Manifests of the folder's splits now.

    Raises:
        JobError: Another run has.
    """
    for split in sorted(splits):
        now = manifests[split].sha256 if split in manifests else ""
        if now != base.get(split, ""):
            raise JobError(
                f"{output}: another run has written split {split} since this run of --add began. Run the same command "
                "again: it adds what is still missing"
            )


def finish_commit(output: str) -> list[str]:
    """Complete a commit of `convert --add` that was interrupted, and return its splits; none without one.

    A commit whose splits were written by another run meanwhile is dropped.

    Raises:
        ConfigError: See `read_commits`.
        JobError: A shard or a list is missing.
        OSError: Storage fails.
    """
    splits: list[str] = []
    for split, log in read_commits(output).items():
        before = read_split_manifests(output)
        digests = {name: {log.base.get(name, ""), entry.sha256} for name, entry in log.manifests.items()}
        if all((before[name].sha256 if name in before else "") in own for name, own in digests.items()):
            try:
                _complete_commit(output, log)
            except JobError as error:
                log_path = shlex.quote(_log_path(output, split))
                raise JobError(
                    f"{error}. If this error comes again, a file of an interrupted run of --add is lost. Delete "
                    f"{log_path}, and run the same command once more"
                ) from error
            splits += log.manifests
        else:
            storage_for(output).delete(_log_path(output, split))
    return sorted(splits)


def read_commits(output: str) -> dict[str, CommitLog]:
    """Return the commits of `convert --add` that are not complete, by the first split of their run.

    Raises:
        ConfigError: A log cannot be read.
    """
    storage, commits = storage_for(output), {}
    if not storage.is_folder(output):
        return {}
    ending = f"/{COMMIT}"
    for name in sorted(storage.walk_names(output)):
        if name.startswith(state_folder("")) and name.endswith(ending):
            with suppress(FileNotFoundError):  # another process completes it just now
                log = _read_log(join_path(output, name))
                commits[name.removeprefix(state_folder("")).removesuffix(ending)] = log
    return commits


def _read_log(path: str) -> CommitLog:
    try:
        return msgspec.json.decode(storage_for(path).read(path), type=CommitLog)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} cannot be read ({error}); was it edited? Delete it, and run the same command again"
        ) from error


def unfinished_files(output: str, manifest: Manifest) -> set[str]:
    """Return the files that commits of `convert --add` were replacing when they were interrupted; each is that of the
    data set before or after. The shards of `manifest` are not among them, nor is manifest.json."""
    if not (commits := read_commits(output)):
        return set()
    files = {STATISTICS, DUPLICATES, *map(split_problems, manifest.splits)}
    new = {split: entry for log in commits.values() for split, entry in log.manifests.items()}
    for split, split_manifest_ in new.items():
        entry = split_manifest_.splits[split]
        files |= {
            split_manifest(split),
            split_problems(split),
            *(file for _, file, _ in _split_lists("", split, entry)),
        }
        files |= {file for shard in entry.shards for file in (shard.file, index_file(shard.file))}
        files |= shard_links(split_manifest_.shard_names(split), entry).keys()
    for whole in (manifest, merge_manifests(output, {**read_split_manifests(output), **new})):
        files |= companions(whole).keys() if whole else set()
    shards = {shard.file for entry in manifest.splits.values() for shard in entry.shards}
    return files - shards - {index_file(shard) for shard in shards}


def statistics_path(output: str, split: str) -> str:
    """Return the path of the statistics of an incomplete split."""
    return join_path(output, f"{state_folder(split)}/{STATISTICS}")


def changes_path(output: str, split: str) -> str:
    """Return the path of the changes that an incomplete run of --add lists."""
    return join_path(output, f"{state_folder(split)}/{CHANGES}")


def _log_path(output: str, split: str) -> str:
    return join_path(output, f"{state_folder(split)}/{COMMIT}")


def _complete_commit(output: str, log: CommitLog) -> Manifest:
    """Complete a commit, from any of its steps. Its log is deleted last."""
    entries = {split: manifest.splits[split] for split, manifest in sorted(log.manifests.items())}
    for split, entry in entries.items():
        number = entry.runs[-1].shards if split in log.base else len(entry.shards)
        _place_split(output, log.manifests[split], entry.shards[len(entry.shards) - number :])
    manifest = publish(output)
    first, *rest = entries
    for split in rest:
        delete_old_files(output, entries[split])
    delete_state(output, first, keep=COMMIT)
    delete_old_files(output, entries[first])
    assert manifest
    return manifest


def _place_split(output: str, manifest: Manifest, shards: Iterable[ShardInfo]) -> None:
    """Move shards and lists of a split from its state folder to the output, and write its manifest.

    Args:
        shards: Shards that the job wrote. Those of earlier runs are in the output.
    """
    storage = storage_for(output)
    ((split, entry),) = manifest.splits.items()
    with ThreadPoolExecutor(_MOVES) as pool:
        list(pool.map(partial(_move_shard, storage, output, split), shards))
    for written, file, sha256 in _split_lists(output, split, entry):
        path = join_path(output, file)
        if sha256 is msgspec.UNSET:
            storage.delete(path)
        else:
            _move_list(storage, written, path, sha256)
    storage.write(join_path(output, split_manifest(split)), encode_manifest(manifest))


def _split_lists(output: str, split: str, entry: SplitManifest) -> list[tuple[str, str, str | msgspec.UnsetType]]:
    """Return the lists of a split: path in its state folder, name in the output, and SHA-256; UNSET if it has none."""
    return [
        (rejects_path(output, split), split_rejects(split), entry.rejects_sha256),
        (statistics_path(output, split), split_statistics(split), entry.statistics_sha256),
        (fingerprints_path(output, split), split_fingerprints(split), entry.fingerprints_sha256),
        (images_path(output, split), split_images(split), entry.images_sha256),
        (changes_path(output, split), split_changes(split), entry.changes_sha256),
    ]


def _write_or_delete(storage: Storage, path: str, data: bytes | None) -> None:
    if data is None:
        storage.delete(path)
    else:
        storage.write(path, data)


def _withdraw(output: str, replaced: Mapping[str, Manifest], current_shards: set[str]) -> None:
    """Remove splits from the data set: first files beside the shards that name them alone, then their manifests, then
    their shards that are not in `current_shards`, and encoders that no other split has."""
    storage = storage_for(output)
    splits = read_split_manifests(output)
    remaining = {split: manifest for split, manifest in splits.items() if split not in replaced}
    remaining_files = _folder_files(output, remaining)
    for manifests in [{split: manifest} for split, manifest in replaced.items()] if remaining else [splits]:
        for name, data in _folder_files(output, manifests).items():
            if name not in remaining_files and read_file(output, name) == data:  # edited ones have a user's text
                storage.delete(join_path(output, name))
    for split in replaced:
        storage.delete(join_path(output, split_manifest(split)))
    left = publish(output)
    for split, manifest in replaced.items():
        entry = manifest.splits[split]
        links = shard_links(manifest.shard_names(split), entry)
        shards = sorted({shard.file for shard in entry.shards} - current_shards)
        for file in (*shards, *map(index_file, shards), *sorted(links)):
            storage.delete(join_path(output, file))
        files = {info.file for info in manifest.encoders} | ({CLASSES} if manifest.encoders else set())
        for file in sorted(files) if left is None else ():
            storage.delete(join_path(output, file))


def _folder_files(output: str, splits: Mapping[str, Manifest]) -> Mapping[str, bytes]:
    """Return the files beside the shards that a data set of these splits has."""
    whole = merge_manifests(output, splits)
    return container_of(whole.container).folder_files(whole) if whole else {}


def _move_shard(storage: Storage, output: str, split: str, shard: ShardInfo) -> None:
    """Move a shard and its index from the state folder, unless they were moved before."""
    for name, file in shard_files(shard).items():
        path, written = join_path(output, name), join_path(output, f"{state_folder(split)}/{name}")
        with suppress(FileNotFoundError):
            if is_ours(storage, written, file):
                storage.move(written, path)
                continue
        if not is_intact(storage, path, file):
            raise JobError(f"{path} is missing or has changed. Another run may have written there. Run again")


def _move_list(storage: Storage, written: str, path: str, sha256: str) -> None:
    """Move a list of a split, unless another run of the job has moved it.

    A list of the same content is not replaced, because the other run may read it. An object of a bucket that another
    run replaces while it is read is read again.
    """
    for _ in range(_READS):
        with suppress(FileNotFoundError):
            if file_sha256(path) == sha256:
                return
        with suppress(FileNotFoundError):
            if file_sha256(written) == sha256:
                storage.move(written, path)
                return
    raise JobError(f"{path} is missing or has changed. Another run may have written there. Run again")


def is_ours(storage: Storage, path: str, file: ShardInfo | IndexInfo) -> bool:
    """Return True if no other run has replaced the file. For a local shard it compares the size only, because a
    checksum would read all of it."""
    if is_remote(path) or isinstance(file, IndexInfo):
        return is_intact(storage, path, file)
    return storage.size(path) == file.bytes


def prune_replaced(output: str, splits: Iterable[str]) -> int:
    """Delete the shards of some splits that --add --sync has replaced, after the manifest is written. Return
    their number."""
    storage, manifests, files = storage_for(output), read_split_manifests(output), list[str]()
    for split in set(splits) & manifests.keys():
        entry = manifests[split].splits[split]
        if entry.replaced_shards:
            files += entry.replaced_shards
            entries = {split: msgspec.structs.replace(entry, replaced_shards=msgspec.UNSET)}
            pruned = msgspec.structs.replace(manifests[split], splits=entries)
            storage.write(join_path(output, split_manifest(split)), encode_manifest(pruned))
    if files:
        publish(output)
    for file in files:
        storage.delete(join_path(output, file))
        storage.delete(join_path(output, index_file(file)))
    return len(files)


def publish(output: str) -> Manifest | None:
    """Write manifest.json, label maps, statistics.json, duplicates.jsonl, problems-SPLIT.jsonl and TFDS's files of all
    splits; return None without splits.

    Raises:
        CategoryError: The splits contradict each other.
    """
    storage = storage_for(output)
    path = join_path(output, MANIFEST)
    storage.delete(join_path(output, REPORT))  # outdated; written again at the end of the job
    splits = read_split_manifests(output)
    while True:
        manifest = merge_manifests(output, splits)
        if manifest is None:
            storage.delete(path)
        else:
            manifest = _write_duplicates(output, manifest)
            _write_companions(output, manifest)
            storage.write(path, encode_manifest(manifest))
        seen, splits = splits, read_split_manifests(output)
        if splits == seen:
            return manifest


def merge_manifests(output: str, splits: Mapping[str, Manifest]) -> Manifest | None:
    """Return the manifest of all splits, with the classes of the split that has the most. Other splits
    have the first of these classes.

    Raises:
        CategoryError: Splits differ in label map or features.
    """
    if not splits:
        return None
    manifests = [splits[name] for name in sorted(splits)]
    first = max(manifests, key=lambda manifest: (len(manifest.categories), len(manifest.segments)))
    for other in manifests:
        _check_agreement(output, first, other)
    entries = {name: splits[name].with_labels(first.labels).splits[name] for name in sorted(splits)}
    return msgspec.structs.replace(first, splits=entries, sha256="")


def _check_agreement(output: str, one: Manifest, other: Manifest) -> None:
    (split,), (second,) = one.splits, other.splits
    have_labels = one.labels.begins_with(other.labels) or other.labels.begins_with(one.labels)
    differences = (
        (
            (one.name, one.layout) == (other.name, other.layout),
            "another name or layout",
            "two data sets would be mixed",
        ),
        (one.container == other.container, "another container", "readers could not use both"),
        (
            one.parts == other.parts,
            f"{format_parts(other.parts)} in its records where {split} has {format_parts(one.parts)}",
            "readers could not use both",
        ),
        (_keys(one) == _keys(other), "other features in its records", "readers could not use both"),
        (one.depth_scale == other.depth_scale, "another scale of its depth maps", "readers could not use both"),
        (one.encoders == other.encoders, "another vocabulary of its texts", "one index would stand for two terms"),
        (have_labels, "other categories", "one label map cannot serve both"),
    )
    for is_same, what, harm in differences:
        if not is_same:
            raise CategoryError(
                f"{output}: split {second} has {what} than split {split}; {harm}. Its shards are kept. Write one "
                "of the two splits to another folder"
            )


def _keys(manifest: Manifest) -> list[Feature]:
    """Return the features without their descriptions, which may differ between versions of Recordmill."""
    return [msgspec.structs.replace(feature, unit="", meaning="") for feature in manifest.features]


def companions(manifest: Manifest) -> Mapping[str, bytes]:
    """Return the files that follow from a manifest, by name."""
    texts: dict[str, str] = {}
    if manifest.labels.all or manifest.table.record_of is not RecordOf.ROW:
        texts |= label_files(manifest.labels, manifest.label_by_id)
    if manifest.table.record_of is RecordOf.ROW:
        texts |= schema_files(manifest.features, [category.name for category in manifest.categories])
    files = {name: text.encode() for name, text in texts.items()} | tfds_files(manifest)
    files |= container_of(manifest.container).folder_files(manifest)
    if manifest.encoders:
        files[CLASSES] = classes_file(category.name for category in manifest.categories)
    return files


def _write_companions(output: str, manifest: Manifest) -> None:
    """Write the files that follow from the manifest. Delete TFDS's files if TFDS cannot read the shards."""
    storage = storage_for(output)
    files = dict(companions(manifest))
    for_tfds = tfds_files(manifest).keys()
    if not (is_readable(manifest) and _link_shards(output, manifest)):
        files = {name: data for name, data in files.items() if name not in for_tfds}
    _write_or_delete(storage, join_path(output, STATISTICS), folder_statistics(output, manifest.splits))
    for name in {*LABEL_FILES, *SCHEMA_FILES, *for_tfds} - files.keys():
        storage.delete(join_path(output, name))
    keep_edits = container_of(manifest.container).keep_edits
    for name, data in files.items():
        storage.write(join_path(output, name), keep_edits(name, data, read_file(output, name)))


def _write_duplicates(output: str, manifest: Manifest) -> Manifest:
    """Write the files of duplicates and possible problems, and return the manifest with their numbers."""
    storage = storage_for(output)
    duplicates, problems, files = compare_all_splits(output, manifest) or (msgspec.UNSET, msgspec.UNSET, {})
    for file in (DUPLICATES, *map(split_problems, manifest.splits)):
        _write_or_delete(storage, join_path(output, file), files.get(file))
    return msgspec.structs.replace(manifest, duplicates=duplicates, problems=problems)


def _link_shards(output: str, manifest: Manifest) -> bool:
    """Link TFDS's names to shards with other names. Return False if the storage has no links."""
    storage = storage_for(output)
    return all(
        storage.link(join_path(output, link), target)
        for name, split in manifest.splits.items()
        for link, target in shard_links(manifest.shard_names(name), split).items()
    )
