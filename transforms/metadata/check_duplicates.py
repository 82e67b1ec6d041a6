"""A split is refused whose pictures are in the data set more than once, where that was asked for."""

from collections.abc import Iterable, Mapping, Sequence

from recordmill.schemas.dataset_files import state_folder
from recordmill.schemas.duplicates import DUPLICATES, DuplicateGroup, Fingerprints
from recordmill.schemas.errors import DuplicatesError
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.layouts import has_picture
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.metadata.dataset_folder import read_split_manifests
from recordmill.transforms.metadata.folder_duplicates import compared, json_lines, read_fingerprints
from recordmill.transforms.storage.resolve import join_path, storage_for


def check_duplicates(
    output: str, fingerprints: Mapping[str, Sequence[Fingerprints]], table: FeatureTable, policy: str
) -> set[str]:
    """Compare a job's splits with each other, and with those that jobs before have written to the folder.

    Args:
        fingerprints: of the job's splits.
        policy: `leakage` refuses images that are in several splits, `fail` all that are there more than once.

    Returns:
        The splits that were compared.

    Raises:
        DuplicatesError: there are some, of which a list is in the folder of the first split's state; or a split has no
            fingerprints to compare with.
    """
    before = read_split_manifests(output)
    groups = _refused(output, before, fingerprints, table, policy)
    if not groups:
        return before.keys() | fingerprints.keys()
    storage = storage_for(output)
    path = join_path(output, f"{state_folder(min(fingerprints))}/{DUPLICATES}")
    storage.write(path, json_lines(groups))
    raise DuplicatesError(
        f"{_told(groups, policy)}. All are in {path}. The shards are kept: leave some of the images out, or keep those "
        "of a group in one split, and run again; or run again with --duplicates report to accept this"
    )


def check_complete_duplicates(output: str, splits: Iterable[str], table: FeatureTable, policy: str) -> None:
    """Likewise splits that are in the folder already, as nothing is written of them, or another job has come with its
    own meanwhile.

    Raises:
        DuplicatesError: there are some; the folder's own list has them.
    """
    found = read_split_manifests(output)
    fingerprints = _read(output, {split: found[split] for split in splits})
    groups = _refused(output, found, fingerprints, table, policy)
    if groups:
        path = join_path(output, DUPLICATES)
        raise DuplicatesError(
            f"{_told(groups, policy)}. All of the folder are in {path}. The splits are complete, and stay: "
            "leave some of the images out, or keep those of a group in one split, and write again; or run again with "
            "--duplicates report to accept this"
        )


def _read(output: str, manifests: Mapping[str, Manifest]) -> dict[str, list[Fingerprints]]:
    """The fingerprints of splits, of which these are the manifests."""
    found = (read_fingerprints(output, manifest, [split]) for split, manifest in manifests.items())
    return {split: of_shards for each in found for split, of_shards in each.items()}


def _refused(
    output: str,
    found: Mapping[str, Manifest],
    fingerprints: Mapping[str, Sequence[Fingerprints]],
    table: FeatureTable,
    policy: str,
) -> list[DuplicateGroup]:
    if not has_picture(table):
        return []
    names = found.keys() - fingerprints.keys()
    others = _read(output, {split: found[split] for split in names})
    if lacking := sorted(names - others.keys()):
        raise DuplicatesError(
            f"--duplicates {policy}: {', '.join(lacking)} of {output} cannot be compared, as its fingerprints are "
            "missing or damaged; convert it again with --overwrite"
        )
    return [
        group
        for group in compared({**others, **fingerprints}, table).groups
        if (policy == "fail" or group.is_leak) and any(image.split in fingerprints for image in group.images)
    ]


def _told(groups: Sequence[DuplicateGroup], policy: str) -> str:
    images, leaks = sum(len(group.images) for group in groups), sum(group.is_leak for group in groups)
    across = f", {leaks:,} of them in several splits" if leaks else ""
    pictures = "picture" if len(groups) == 1 else "pictures"
    first = groups[0].images[0]
    other = next((image for image in groups[0].images if image.split != first.split), groups[0].images[1])
    example = " and ".join(f"{image.file_name!r} of {image.split}" for image in (first, other))
    return (
        f"{images:,} images are {len(groups):,} {pictures}, exactly or nearly{across}, which --duplicates {policy} "
        f"refuses; for example {example}"
    )
