"""Options that several conversions share. Each source has its own options in its folder below `transforms`.

Nothing here imports Beam, so that errors of the command line are reported without a delay.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Literal

from pydantic import PrivateAttr

from recordmill.schemas.containers import CONTAINERS, TFRECORD, ContainerRow
from recordmill.schemas.errors import missing_extra
from recordmill.schemas.features import FeatureKind, FeatureTable
from recordmill.schemas.inputs.limits import Limits
from recordmill.schemas.inputs.option import (
    COMMON,
    LEAVE_OUT,
    RARE,
    READ,
    RUN,
    WRITE,
    File,
    Files,
    Images,
    Names,
    Options,
    Output,
    Pairs,
    Shares,
    Size,
    option_fields,
)
from recordmill.schemas.inputs.splits import ONLY_CASE, Division, SplitShares, group_fault, split_name_fault
from recordmill.schemas.layouts import LAYOUTS, change_keys_and_types, requested_sizing, shard_names
from recordmill.schemas.names import NameSources, dataset_name_fault, set_name_fault
from recordmill.schemas.problems import PROBLEMS
from recordmill.schemas.shards import DEFAULT_SHARD_BYTES, SIZING_OPTIONS, JobPart, ShardSizing, parse_job_part
from recordmill.schemas.sizes import shorten

MAX_SHARDS = 99_999  # five digits in a shard's name
INT64 = 1 << 63

if TYPE_CHECKING:
    from typing_extensions import Self

    ContainerName = str
else:
    ContainerName = Literal[tuple(CONTAINERS)]

RecipeValue = str | int | float | bool | list[str] | None


class ConvertOptions(Options):
    """Options of all conversions."""

    output: Output = WRITE.opt(
        "Folder of the data set. It is created if it is missing.",
        ...,
        "DIR",
        also="output-dir out dest",
        rank=COMMON,
    )
    name: str = WRITE.opt("Prefix of the shards' file names.", ..., recorded=False)
    layout: str = WRITE.opt("Features of a record. See [records.md](records.md).", ..., recorded=False)
    rename: Pairs = WRITE.opt(
        "Keys of records that differ from the layout's. `--rename image/encoded=image,image/height=rows`. "
        "Recordmill's readers look them up in the manifest.",
        (),
        "KEY=NAME[,…]",
    )
    label_as: Literal["index", "text"] = WRITE.opt(
        "Store the label as a class index, or as the class name. The key is the same.", "index"
    )
    container: ContainerName = WRITE.opt(
        "File format of the shards. The records are the same in each. See [containers.md](containers.md).",
        TFRECORD,
        also="output-format shard-format",
        rank=COMMON,
    )
    shard_size: Size | None = WRITE.opt(
        "Target size of a shard, before compression. Each shard except the last differs from it by less than one "
        "image. If one image is larger, its size is the target.",
        metavar="150MB",
        usual=f"{DEFAULT_SHARD_BYTES // 10**6}MB",
        rank=COMMON,
    )
    num_shards: int | None = WRITE.opt(
        "Number of shards per split. Shards differ by at most one image.",
        ge=1,
        le=MAX_SHARDS,
        also="shards",
    )
    examples_per_shard: int | None = WRITE.opt(
        "Number of records in each shard except the last. A shard has fewer if images turn out to be broken while it "
        "is written.",
        ge=1,
        also="images-per-shard records-per-shard",
        rank=RARE,
    )
    gzip: bool = WRITE.opt(
        "Compress the shards with gzip. Their names end in `.gz`. JPEGs do not get smaller, and both writing (40 MB/s "
        "per core) and reading get slower.",
        False,
    )
    seed: int = WRITE.opt(
        "Seed of the order of records. The same seed gives the same order.",
        0,
        ge=-INT64,
        le=INT64 - 1,
        also="random-seed shuffle-seed",
        rank=RARE,
    )
    writer: Literal["planned", "beam"] = WRITE.opt(
        "Write planned shards, or shards of Beam's own `WriteToTFRecord`. `planned`: one worker writes each shard. "
        "`beam` shuffles every record, so the shard of a record differs between runs. Only `--num-shards` sizes its "
        "shards, an interrupted job restarts from the beginning, and it neither writes statistics nor searches "
        "duplicates.",
        "planned",
        rank=RARE,
    )
    split: Shares = WRITE.opt(
        "One split, or several with their shares. `train=0.8,val=0.1,test=0.1`: shares are decimals or fractions "
        "(`1/3`) and sum to 1. A single split is added to the folder.",
        (("train", Fraction(1)),),
        "NAME|NAME=SHARE,…",
        "train",
        rank=COMMON,
    )
    split_seed: int = WRITE.opt(
        "Seed of the split assignment. `--seed` only orders records and does not change splits.",
        0,
        ge=-INT64,
        le=INT64 - 1,
        rank=RARE,
    )
    overwrite: bool = WRITE.opt(
        "Replace these splits. Existing splits stay until the new ones are complete.",
        False,
        also="force",
        recorded=False,
        rank=COMMON,
    )
    dry_run: bool = WRITE.opt("Print the plan and write nothing.", False, recorded=False, rank=COMMON)
    part: str | None = RUN.opt(
        "Write one part of the job: the shards of each split whose number modulo N is K. N processes, on machines "
        "that share only the output, write parts 0/N to N-1/N. `recordmill seal` then writes the manifest. See "
        "[parts.md](parts.md).",
        metavar="K/N",
        rank=RARE,
    )
    max_rejects: float = LEAVE_OUT.opt(
        "Fraction of images, or of annotations, that may be rejected. If more are rejected, counted over all splits, "
        "the job fails: before it reads the first image, if annotations and file names show it; otherwise as soon as "
        "100 rejects are known and the limit is certain to be exceeded, or at the end. The shards are kept: the same "
        "command with a larger fraction accepts them without writing them again.",
        0.01,
        "FRACTION",
        recorded=False,
        ge=0,
        le=1,
        rank=COMMON,
    )

    @property
    def more_files(self) -> tuple[str, ...]:
        """Files that the job reads without an option for each."""
        return ()

    @property
    def held_files(self) -> tuple[str, ...]:
        """Files whose contents a local job holds in memory."""
        return ()

    @property
    def held_per_byte(self) -> tuple[float, float]:
        """Minimum and maximum bytes of memory per byte of `held_files`."""
        return 0.0, 0.0

    @property
    def paths(self) -> tuple[str, ...]:
        return (*super().paths, *self.more_files)

    @property
    def job_part(self) -> JobPart | None:
        """Part of the job to write; None for all of it."""
        return parse_job_part(self.part) if self.part else None

    @property
    def shares(self) -> SplitShares:
        return SplitShares(self.split, self.split_seed)

    @property
    def is_split_given(self) -> bool:
        """True if the user named splits, even if only `train`, which is the default."""
        return "split" in self.model_fields_set

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits."""
        return self.shares.names

    def checked_shares(self, splits: tuple[str, ...]) -> tuple[tuple[str, Fraction], ...]:
        """Return the shares that the splits of a job should get; none if something else assigns the images."""
        return self.split if self.splits == splits and len(self.split) > 1 else ()

    @property
    def share_cure(self) -> str:
        """Fix for splits that do not get their shares; empty if there is none."""
        return ""

    @property
    def set_options(self) -> "Mapping[str, ConvertOptions]":
        """Options of each data set by name, if a job joins several."""
        return {}

    @property
    def table(self) -> FeatureTable:
        """Features of a record, as far as options decide."""
        return self.layout_table.with_parts(())

    @property
    def layout_table(self) -> FeatureTable:
        """Features of the layout, with the requested keys and types.

        Raises:
            ConfigError: see `recordmill.schemas.layouts.change_keys_and_types`.
        """
        return self.stored(self.usual_table)

    @property
    def usual_table(self) -> FeatureTable:
        """Features of the layout, with its own keys and types."""
        return LAYOUTS[self.layout]

    @property
    def has_fields(self) -> bool:
        """True if records may have open fields, whose keys are known once the data are read."""
        return False

    @property
    def names_of_fields(self) -> dict[str, str]:
        """Requested keys of open fields, by their usual ones."""
        known = {feature.name for feature in self.usual_table.features}
        pairs = parse_pairs(self.rename) if self.has_fields else {}
        return {key: name for key, name in pairs.items() if key not in known}

    def stored(self, table: FeatureTable) -> FeatureTable:
        """Return a layout's features with requested keys and types."""
        names = parse_pairs(self.rename)
        of_layout = {key: name for key, name in names.items() if key not in self.names_of_fields}
        return change_keys_and_types(table, of_layout, self.kinds, self.label_as == "text")

    @property
    def kinds(self) -> dict[str, FeatureKind]:
        """Numeric types by key of a record."""
        return {}

    @property
    def sizing(self) -> ShardSizing:
        return requested_sizing(self.layout, self.num_shards, self.shard_size, self.examples_per_shard)

    @property
    def record_options(self) -> dict[str, RecipeValue]:
        """Options that change shards and differ from their defaults, so that a new option changes no recipe."""
        fields = [field for field in option_fields(type(self)) if field.recorded_as]
        values = {field.recorded_as: getattr(self, field.attribute) for field in fields if self.given(field.attribute)}
        return {
            name: str(self.shares) if name == "split" else list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
        }

    def _faults(self) -> Iterator[str]:
        if fault := dataset_name_fault(self.name):
            yield f"--name {self.name!r} {fault}"
        yield from pair_faults("rename", self.rename, "KEY=NAME")
        yield from self._share_faults()
        yield from container_faults(self.container, self.layout, self.gzip)
        if self.part is not None:
            yield from self._part_faults(self.part)
        if self.writer == "beam" and self.container != TFRECORD:
            yield f"--writer beam cannot write --container {self.container}; it writes --container {TFRECORD}"
        is_keras = shard_names(self.name, "", self.layout, self.container).is_keras
        if len(self.split) > 1 and is_keras:
            yield f"--layout {self.layout} names shards without their split, so a folder has one. Give one --split"
        if self.writer == "beam" and is_keras:
            yield f"--writer beam cannot name shards as --layout {self.layout} does, by their number of examples"
        if len(sizes := self.given(*SIZING_OPTIONS)) > 1:
            yield f"{' and '.join(sizes)} contradict each other. Give one"
        if self.writer == "beam" and (self.shard_size or self.examples_per_shard):
            yield "--writer beam sizes shards by --num-shards only (without it, the runner chooses)"

    def _part_faults(self, part: str) -> Iterator[str]:
        try:
            parse_job_part(part)
        except ValueError as fault:
            yield f"--part {part!r}: {fault}"
        if self.writer == "beam":
            yield "--part needs planned shards, and --writer beam does not plan them. Leave out one of the two"

    def _share_faults(self) -> Iterator[str]:
        names = self.splits
        yield from (f"--split {split!r} {fault}" for split in names if (fault := split_name_fault(split)))
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"--split names {name} twice"
        for one, other in combinations(sorted(set(names)), 2):
            if one.lower() == other.lower():
                yield f"--split names {one} and {other}, {ONLY_CASE}. Give one of them another name"
        total = sum(share for _, share in self.split)
        if len(self.split) < 2 and self.split_seed:
            yield "--split-seed divides a data set, but --split names a single split"
        if wrong := [f"{name}={float(share):g}" for name, share in self.split if not 0 < share <= 1]:
            cure = f"Give fractions: --split {_fractions(self.split)}"
            if any(share <= 0 for _, share in self.split):
                cure = "Leave out splits without images"
            yield f"--split: shares must be more than 0 and at most 1 (got {wrong[0]}). {cure}"
        elif total != 1:
            advice = "Change a share, or add a split (a third is 1/3)"
            yield f"--split: the shares sum to {float(total):.15g}, not 1. {advice}"


def _fractions(split: Sequence[tuple[str, Fraction]]) -> str:
    """Return splits with fractions for numbers or percentages.

    >>> _fractions((("train", Fraction(80)), ("val", Fraction(20))))
    'train=0.8,val=0.2'
    >>> _fractions((("a", Fraction(2)), ("b", Fraction(4))))
    'a=1/3,b=2/3'
    """
    total = sum(share for _, share in split)
    shares = {name: share / total for name, share in split}
    is_short = {name: share.denominator > 1 and 10**6 % share.denominator == 0 for name, share in shares.items()}
    return ",".join(
        f"{name}={f'{float(share):.6f}'.rstrip('0') if is_short[name] else share}" for name, share in shares.items()
    )


class ImageOptions(ConvertOptions):
    """Options of all conversions of image files."""

    images: Images = READ.opt(
        "Folder or .zip of images, including its subfolders; repeatable. Local or in a bucket. The same path in two "
        "folders is an error.",
        ...,
        "DIR|ZIP",
        also="image-dir img-dir input",
        rank=COMMON,
    )
    workers: int | None = RUN.opt(
        "Threads that fetch and check images, per Beam worker. A local job of 1,000 images or more also starts one "
        "process per core, at most 8, and each process writes complete shards with two threads. `1` disables these "
        "processes.",
        usual="one per core, 64 for buckets",
        ge=1,
        le=256,
        also="num-workers jobs",
        rank=RARE,
    )

    @property
    def name_sources(self) -> NameSources:
        """Sources of the names of images and of files."""
        return NameSources(self.images, self.images)

    @property
    def keywords(self) -> Mapping[str, str]:
        """Annotations of keywords for messages, by name; empty to name flags."""
        return {}

    @property
    def has_exact_sizes(self) -> bool:
        """True if shards have exactly their planned size: TFRecords, no compression and no transcoded images."""
        return not self.gzip and self.container == TFRECORD


class ChoiceOptions(ImageOptions):
    """Options of conversions that read image files: which images are skipped, and the split assignment."""

    split_by: Literal["hash", "rank"] = WRITE.opt(
        "How images, or rows, are assigned to splits. `hash`: by a hash of the name, or of the key of a row. An image "
        "never changes its split when others are added, but the shares of a small data set are not exact. `rank`: in "
        "the order of these hashes. Shares are exact to one image or one group, but images may change splits when "
        "others are added.",
        "hash",
    )
    exclude: Files = LEAVE_OUT.opt(
        "Skip the images and annotations that a file lists; repeatable. The "
        "[problems-SPLIT.jsonl](records.md#problems-splitjsonl) of a data set of the same images, or one file name or "
        "image id per line. They are rejected as `excluded`, which `--max-rejects` does not count.",
        (),
        "FILE",
    )
    exclude_kinds: Names = LEAVE_OUT.opt(
        "Kinds of problems that `--exclude` skips, see [records.md](records.md#problems-splitjsonl).",
        (),
        "KIND[,…]",
        "all",
        needs="exclude",
    )
    class_map: File | None = READ.opt(
        "Rename, merge or drop classes by name. A CSV or YAML file of names and new names: `car,vehicle`. An empty "
        "new name drops the class. `*` stands for all classes that the file does not name. `--categories` and "
        "`--classes` select by the new names and set the order. See [shape.md](shape.md#classes).",
        metavar="FILE",
        rank=COMMON,
    )
    limit: int | None = LEAVE_OUT.opt(
        "Maximum number of images, or rows, per split. A hash of the name, or of the key of a row, selects them, so a "
        "smaller N selects a subset. Groups stay complete. See [shape.md](shape.md#less).",
        metavar="N",
        ge=1,
        also="max-images max-samples num-images num-samples subset",
        rank=COMMON,
    )
    max_per_class: int | None = LEAVE_OUT.opt(
        "Skip images whose classes all have N objects already. Per split, in the order of a hash of the names. The "
        "class of an image, or row, counts as one object. See [shape.md](shape.md#less).",
        metavar="N",
        ge=1,
        also="max-objects-per-class max-images-per-class balance undersample",
    )
    _is_part: bool = PrivateAttr(False)
    _groups_prefix: str = PrivateAttr("")

    @property
    def groups_prefix(self) -> str:
        """Beginning of the names of the images in the file of `--groups`. Not empty for one of several sets that has
        the groups of the job, which counts them."""
        return self._groups_prefix

    @property
    def is_part(self) -> bool:
        """True for the options of one of several sets, see `as_part`."""
        return self._is_part

    @property
    def changes_classes(self) -> bool:
        """True if records have other classes than the source."""
        return bool(self.class_map)

    @property
    def has_final_labels(self) -> bool:
        """True if records have the classes that the source reads."""
        return not (self.changes_classes or self.is_part)

    @property
    def has_image_classes(self) -> bool:
        """True if images, or rows, have one class each, whose id is its index."""
        return "classes" in type(self).model_fields

    @property
    def has_classes_in_blocks(self) -> bool:
        """False if the source writes classes to records itself, and applies the class map."""
        return True

    def as_part(self, groups_prefix: str = "") -> "Self":
        """Return the options of one of several sets, whose classes are those of all sets.

        Args:
            groups_prefix: Beginning of the names of its images in the file of `--groups`.
        """
        part = self.model_copy()
        part._is_part, part._groups_prefix = True, groups_prefix
        return part

    @property
    def limits(self) -> Limits | None:
        """Limits of a split's images; None without any."""
        return Limits(self.limit, self.max_per_class) if self.limit or self.max_per_class else None

    def _faults(self) -> Iterator[str]:
        if unknown := sorted(set(self.exclude_kinds) - PROBLEMS.keys()):
            yield f"--exclude-kinds must be among {', '.join(PROBLEMS)} (got {unknown[0]!r})"
        yield from super()._faults()


class DividedOptions(ChoiceOptions):
    """Options of conversions that assign splits by image names."""

    group_from: str | None = WRITE.opt(
        "Keep images whose paths have the same match in one split. A regular expression, searched in each path below "
        "the folder of images. Images with the same match (its first group, or the complete match without a group) "
        "stay together, for example all images of a patient or a video: `'patient[0-9]+'`, `'^(.*)_frame'`.",
        metavar="REGEX",
        rank=COMMON,
    )
    groups: File | None = WRITE.opt(
        "File of groups of images that must stay in one split. The `duplicates.jsonl` of a data set of the same "
        "images, or a table with the columns `file_name` and `group` (a patient, a video, a place).",
        metavar="FILE",
    )
    add: bool = WRITE.opt(
        "Add new images to a finished data set. Their records are written to new shards. An image that the data set "
        "already has (same split and file name) is skipped and counted. See [grow.md](grow.md).",
        False,
        also="append",
        recorded=False,
        rank=COMMON,
    )
    add_as: str | None = WRITE.opt(
        "Add the images as a set of this name. Their file names begin with it, so that different images with the same "
        "name do not collide.",
        metavar="NAME",
        needs="add",
        rank=RARE,
    )
    sync: bool = WRITE.opt(
        "Also rewrite changed images. An image is changed if its labels, masks, fields or bytes differ from the data "
        "set. Its shard is rewritten under a new name, and the old file stays until the next run. Images that are "
        "missing from the source are listed and stay.",
        False,
        needs="add",
        also="update",
        rank=RARE,
    )
    prune: bool = WRITE.opt(
        "Delete the files that `--sync` replaces at the end of the run. Without it, the next run deletes them.",
        False,
        needs="add",
        recorded=False,
        rank=RARE,
    )

    @property
    def is_part(self) -> bool:
        """True for the options of one of several sets, and of images that are added to a data set, which adopts their
        classes and fields."""
        return self.add or super().is_part

    @property
    def keeps_groups(self) -> bool:
        return bool(self.group_from or self.groups)

    @property
    def share_cure(self) -> str:
        if self.given("split_by", "stratify"):
            return "Other shares or smaller groups may come closer" if self.keeps_groups else ""
        stratified = self.model_copy(update={"stratify": True})
        also = "" if any(stratified._faults()) else ", and --stratify also divides each class so; with both,"
        return f"--split-by rank is exact to one image, or one group{also or ';'} images may move when others are added"

    @property
    def division(self) -> Division:
        """Split assignment, without the groups of a file."""
        return Division(self.shares, unicodedata.normalize("NFC", self.group_from or ""))  # as names are

    def _faults(self) -> Iterator[str]:
        if self.group_from is not None and (fault := group_fault(self.group_from)):
            yield f"--group-from {self.group_from} {fault}"
        given = self.given("group_from", "groups")
        if len(self.split) < 2 and self.limit is None:
            yield from (f"{flag} keeps groups of images in one split, but --split names only one" for flag in given)
        if len(self.split) < 2 and self.given("split_by"):
            yield "--split-by divides a data set, but --split names a single split"
        if len(given) > 1:
            yield "--groups and --group-from both say which images belong together. Give one"
        if self.add:
            yield from self._add_faults()
        yield from super()._faults()

    def _add_faults(self) -> Iterator[str]:
        """Yield the errors of options that `--add` cannot have."""
        for name, why in _NOT_ADDED.items():
            if flags := self.given(name):
                value = getattr(self, name) if isinstance(getattr(self, name), str) else ""
                yield f"--add does not fit {f'{flags[0]} {value}'.strip()}, which {why}. Leave out one of the two"
        if self.add_as is not None and (fault := set_name_fault(self.add_as)):
            yield f"--add-as {shorten(repr(self.add_as), 80)} {fault}, and file names begin with it"


_NOT_ADDED = {
    "split_by": "moves images to other splits when others are added",
    "stratify": "moves images to other splits when others are added",
    "limit": "chooses among the images of one job, without those of the data set",
    "max_per_class": "counts the objects of one job, without those of the data set",
    "part": "is for a new data set",
    "overwrite": "replaces splits",
    "writer": "neither plans nor numbers shards",
}
"""Reasons why options do not fit `--add`."""


def container_faults(container: str, layout: str, gzip: bool) -> Iterator[str]:
    """Yield what a container cannot do. Each error names the containers that can."""
    row, named = CONTAINERS[container], f"--container {container}"
    if row.layouts and layout not in row.layouts:
        yield (
            f"{named} stores layout {' or '.join(row.layouts)}, and the records have layout {layout}; "
            f"{_containers(lambda other: not other.layouts or layout in other.layouts)} stores it"
        )
    if gzip and not row.can_gzip:
        yield f"--gzip does not compress {named}; {_containers(lambda other: other.can_gzip)} can be compressed"
    if not row.is_installed:
        yield str(missing_extra(named, row.extra))


def _containers(can: Callable[[ContainerRow], bool]) -> str:
    """Return the containers that can do something, for a message."""
    return f"--container {' or '.join(name for name, row in CONTAINERS.items() if can(row))}"


_SIZE = re.compile("([1-9][0-9]{0,3})x([1-9][0-9]{0,3})")


def parse_image_size(text: str) -> tuple[int, int] | None:
    """Return height and width in pixels; None if the text has another form.

    >>> parse_image_size("224x160"), parse_image_size("224")
    ((224, 160), None)
    """
    match = _SIZE.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else None


def pair_faults(name: str, values: tuple[str, ...], form: str, allowed: Iterable[str] = ()) -> Iterator[str]:
    """Yield the errors of the `NAME=VALUE` texts of an option."""
    for value in values:
        key, _, text = value.partition("=")
        if not key or "=" not in value or (allowed and text not in allowed):
            yield f"--{name} must be {form} (got {value!r})"
    if len(parse_pairs(values)) < len(values):
        yield f"--{name} names a key twice"


def parse_pairs(options: tuple[str, ...]) -> dict[str, str]:
    """Return `NAME=VALUE` texts as a mapping."""
    return {name: value for name, _, value in (text.partition("=") for text in options)}
