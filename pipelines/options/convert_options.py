"""What a job is asked to do: frozen values, checked once, before anything runs. Here is what all conversions have.

Nothing here imports Beam, so that the command line can be read, and refused, at once.
"""

from abc import ABC
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from recordmill.pipelines.options.option import LEAVE_OUT, WRITE, Kind, Options, option
from recordmill.schemas.features import FeatureTable, ShardNaming
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.names import dataset_name_fault
from recordmill.schemas.shards import ShardSizing
from recordmill.schemas.splits import ONLY_CASE, SplitShares, split_name_fault

DEFAULT_SHARD_BYTES = 150_000_000
MAX_SHARDS = 99_999
"""What fits the five digits of a shard's name."""
INT64 = 1 << 63
ALL_TRAIN = (("train", Fraction(1)),)

_SPLIT = "[A-Za-z0-9][A-Za-z0-9_]{0,79}"
_SHARE = f"{_SPLIT} *= *([0-9]{{0,9}}[.]?[0-9]{{1,18}}([eE]-?[0-9])?|[0-9]{{1,9}}/[1-9][0-9]{{0,8}})"

RecipeValue = str | int | float | bool | list[str] | None


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(Options, ABC):
    """What any conversion is asked to do. Names are those of the flags; see docs/cli.md."""

    output: str = option(Kind.PATH, WRITE, metavar="DIR").says("folder of the data set, made if need be")
    name: str = option(Kind.TEXT, WRITE, pattern="[A-Za-z0-9][A-Za-z0-9_.-]{0,79}").says(
        "begins the shards' file names"
    )
    layout: str = option(Kind.CHOICE, WRITE).says(
        "features of a record", "the features of a record, see [records.md](records.md)"
    )
    shard_size: int | None = option(
        Kind.SIZE,
        WRITE,
        None,
        metavar="150MB",
        least=1,
        usual=f"{DEFAULT_SHARD_BYTES // 10**6}MB",
        pattern="[0-9]{1,9}([.][0-9]{1,6})? ?([kKmMgG][iI]?)?[bB]?",
    ).says(
        "aim at shards of so many bytes, before compression",
        "bytes to aim at, before compression; each shard but the last is within an image of it. Where one image is "
        "larger than this, its size is aimed at instead",
    )
    num_shards: int | None = option(Kind.INTEGER, WRITE, None, metavar="N", least=1, largest=MAX_SHARDS).says(
        "number of shards of a split, with equal numbers of images",
        "so many shards a split; their numbers of images differ by one at most",
    )
    examples_per_shard: int | None = option(Kind.INTEGER, WRITE, None, metavar="N", least=1).says(
        "number of records in each shard but the last",
        "exactly so many records in each shard but the last. What turns out broken while it is written is missing "
        "from its shard",
    )
    gzip: bool = option(Kind.SWITCH, WRITE, False).says(
        "compress the shards (JPEGs do not get smaller, and reading gets slower)",
        "GZIP shards, named `.gz`. JPEGs do not get smaller; writing (40 MB/s a core) and reading get slower",
    )
    seed: int = option(Kind.INTEGER, WRITE, 0, metavar="N", least=-INT64, largest=INT64 - 1).says(
        "orders the records: the same seed, the same order"
    )
    writer: str = option(Kind.CHOICE, WRITE, "planned", choices=("planned", "beam")).says(
        "write planned shards, or use Beam's sink: no resume, no statistics",
        "shards are planned, and each is written whole by one worker; or Beam's `WriteToTFRecord`: every record is "
        "shuffled, records land in other shards every time, only `--num-shards` sizes them, a job that is stopped "
        "starts from the beginning, and there are no statistics and no search for duplicates",
    )
    split: tuple[tuple[str, Fraction], ...] = option(
        Kind.SHARES,
        WRITE,
        ALL_TRAIN,
        metavar="NAME|NAME=SHARE,…",
        usual="train",
        pattern=f"({_SPLIT}|{_SHARE}( *, *{_SHARE})*)",
    ).says(
        "one split, or several with their shares",
        "one split, or several: `train=0.8,val=0.1,test=0.1`. Shares are decimals or fractions (`1/3`) and sum to 1",
    )
    split_seed: int = option(Kind.INTEGER, WRITE, 0, metavar="N", least=-INT64, largest=INT64 - 1).says(
        "divides otherwise",
        "divides otherwise. (`--seed` only orders records: it moves nothing from one split to another)",
    )
    overwrite: bool = option(Kind.SWITCH, WRITE, False).says(
        "replace what the folder holds of these splits",
        "write these splits anew; what the folder holds of them stays until the new ones are whole",
    )
    dry_run: bool = option(Kind.SWITCH, WRITE, False).says("print the plan and write nothing")
    max_rejects: float = option(
        Kind.NUMBER,
        LEAVE_OUT,
        0.01,
        metavar="FRACTION",
        least=0,
        largest=1,
        measure="a fraction",
        pattern="(0|1|[01][.]0*|0?[.][0-9]+|[0-9]([.][0-9]+)?[eE]-[1-9][0-9]?)",
    ).says(
        "fraction of images, or annotations, that may be rejected",
        "if more of the images, or of the annotations, of all splits are rejected, the job fails: before the first "
        "picture is read, where annotations and file names say so, as soon as pictures have made it certain and a "
        "hundred rejects are known, or else at its end. The shards are kept then: the same command with a larger "
        "fraction accepts them at once",
    )

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that are asked for by name."""
        return self.shares.names

    @property
    def shares(self) -> SplitShares:
        return SplitShares(self.split, self.split_seed)

    @property
    def division_options(self) -> dict[str, RecipeValue]:
        """Those of `record_options` that decide which split is whose."""
        return {"split": str(self.shares), "split_seed": self.split_seed}

    @property
    def paths(self) -> tuple[str, ...]:
        """All that a job reads, and the folder that it writes."""
        return (self.output,)

    @property
    def table(self) -> FeatureTable:
        """What is in a record, as far as the options say."""
        return LAYOUTS[self.layout]

    @property
    def sizing(self) -> ShardSizing:
        if self.num_shards is not None or self.examples_per_shard is not None:
            return ShardSizing(num_shards=self.num_shards, examples_per_shard=self.examples_per_shard)
        usual = LAYOUTS[self.layout].examples_per_shard
        if usual is not None and self.shard_size is None:
            return ShardSizing(examples_per_shard=usual)
        return ShardSizing(shard_bytes=self.shard_size or DEFAULT_SHARD_BYTES)

    @property
    def record_options(self) -> dict[str, RecipeValue]:
        """Those options that decide what is in the shards."""
        return {
            **self._values("examples_per_shard", "gzip", "num_shards", "seed"),
            "shard_size": self.sizing.shard_bytes,
            "writer": self.writer,
        }

    def _values(self, *names: str) -> dict[str, RecipeValue]:
        return {name: getattr(self, name) for name in names}

    def _faults(self) -> Iterator[str]:
        if fault := dataset_name_fault(self.name):
            yield f"--name {self.name!r} {fault}"
        for split in self.splits:
            if fault := split_name_fault(split):
                yield f"--split {split!r} {fault}"
        yield from self._share_faults()
        layout = LAYOUTS.get(self.layout)
        if len(self.split) > 1 and layout and layout.naming is ShardNaming.KERAS:
            yield f"--layout {self.layout} names shards without their split, so a folder has one: give one --split"
        if self.writer == "beam" and layout and layout.naming is not ShardNaming.TFDS:
            yield f"--writer beam cannot name shards as --layout {self.layout} does, by their number of examples"
        sizes = [self.num_shards, self.shard_size, self.examples_per_shard]
        flags = ["--num-shards", "--shard-size", "--examples-per-shard"]
        given = [flag for flag, size in zip(flags, sizes, strict=True) if size is not None]
        if len(given) > 1:
            yield f"{' and '.join(given)} contradict each other: give one"
        if self.writer == "beam" and (self.shard_size or self.examples_per_shard):
            yield "--writer beam sizes shards by --num-shards only (without it, the runner chooses)"

    def _share_faults(self) -> Iterator[str]:
        names = self.splits
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"--split names {name} twice"
        for one, other in combinations(sorted(set(names)), 2):
            if one.lower() == other.lower():
                yield f"--split names {one} and {other}, {ONLY_CASE}: give one of them another name"
        total = sum(share for _, share in self.split)
        if len(self.split) < 2 and self.split_seed:
            yield "--split-seed divides a data set, but --split names a single split"
        if any(not 0 < share <= 1 for _, share in self.split):
            yield "--split: every share must be more than 0 and at most 1"
        elif total != 1:
            yield f"--split: the shares sum to {float(total):.15g}, not 1 (thirds can be given as 1/3)"
