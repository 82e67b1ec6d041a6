"""What a job is asked to do: frozen values, checked once, before anything runs. Here is what all conversions have.

Nothing here imports Beam, so that the command line can be read, and refused, at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from recordmill.pipelines.options.option import LEAVE_OUT, WRITE, Kind, Options, option
from recordmill.schemas.features import FeatureTable, ShardNaming
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.names import dataset_name_fault
from recordmill.schemas.shards import ShardSizing
from recordmill.schemas.splits import split_name_fault

DEFAULT_SHARD_BYTES = 150_000_000
MAX_SHARDS = 99_999
"""What fits the five digits of a shard's name."""
INT64 = 1 << 63

RecipeValue = str | int | float | bool | list[str] | None


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(Options, ABC):
    """What any conversion is asked to do. Names are those of the flags; see docs/cli.md."""

    output: str = option(kind=Kind.PATH, group=WRITE, metavar="DIR", help="folder of the data set, made if need be")
    name: str = option(
        kind=Kind.TEXT,
        group=WRITE,
        help="begins the shards' file names",
        pattern="[A-Za-z0-9][A-Za-z0-9_.-]{0,79}",
    )
    layout: str = option(
        kind=Kind.CHOICE,
        group=WRITE,
        help="features of a record",
        docs="the features of a record, see [records.md](records.md)",
    )
    shard_size: int | None = option(
        None,
        kind=Kind.SIZE,
        group=WRITE,
        metavar="150MB",
        help="aim at shards of so many bytes, before compression",
        docs=(
            "bytes to aim at, before compression; each shard but the last is within an image of it. Where one image is "
            "larger than this, its size is aimed at instead"
        ),
        least=1,
        usual=f"{DEFAULT_SHARD_BYTES // 10**6}MB",
        pattern="[0-9]{1,9}([.][0-9]{1,6})? ?([kKmMgG][iI]?)?[bB]?",
    )
    num_shards: int | None = option(
        None,
        kind=Kind.INTEGER,
        group=WRITE,
        metavar="N",
        help="number of shards of a split, with equal numbers of images",
        docs="so many shards a split; their numbers of images differ by one at most",
        least=1,
        largest=MAX_SHARDS,
    )
    examples_per_shard: int | None = option(
        None,
        kind=Kind.INTEGER,
        group=WRITE,
        metavar="N",
        help="number of records in each shard but the last",
        docs=(
            "exactly so many records in each shard but the last. What turns out broken while it is written is missing "
            "from its shard"
        ),
        least=1,
    )
    gzip: bool = option(
        False,
        kind=Kind.SWITCH,
        group=WRITE,
        help="compress the shards (JPEGs do not get smaller, and reading gets slower)",
        docs=("GZIP shards, named `.gz`. JPEGs do not get smaller; writing (40 MB/s a core) and reading get slower"),
    )
    seed: int = option(
        0,
        kind=Kind.INTEGER,
        group=WRITE,
        metavar="N",
        help="orders the records: the same seed, the same order",
        least=-INT64,
        largest=INT64 - 1,
    )
    writer: str = option(
        "planned",
        kind=Kind.CHOICE,
        group=WRITE,
        help="write whole planned shards, or use Beam's own sink",
        docs=(
            "shards are planned, and each is written whole by one worker; or Beam's `WriteToTFRecord` (every record is "
            "shuffled; records land in other shards every time; only `--num-shards` sizes them)"
        ),
        choices=("planned", "beam"),
    )
    overwrite: bool = option(
        False,
        kind=Kind.SWITCH,
        group=WRITE,
        help="replace what the folder holds of these splits",
        docs="write these splits anew; what the folder holds of them stays until the new ones are whole",
    )
    dry_run: bool = option(False, kind=Kind.SWITCH, group=WRITE, help="print the plan and write nothing")
    max_rejects: float = option(
        0.01,
        kind=Kind.NUMBER,
        group=LEAVE_OUT,
        metavar="FRACTION",
        help="fraction of images, or annotations, that may be rejected",
        docs=(
            "if more of the images, or of the annotations, of all splits are rejected, the job fails: before the first "
            "picture is read, where annotations and file names say so, or else at its end. The shards are kept then: "
            "the same command with a larger fraction accepts them at once"
        ),
        least=0,
        largest=1,
        measure="a fraction",
        pattern="(0|1|[01][.]0*|0?[.][0-9]+|[0-9]([.][0-9]+)?[eE]-[1-9][0-9]?)",
    )

    @property
    @abstractmethod
    def splits(self) -> tuple[str, ...]:
        """The splits that are asked for by name."""

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
            "examples_per_shard": self.examples_per_shard,
            "gzip": self.gzip,
            "num_shards": self.num_shards,
            "seed": self.seed,
            "shard_size": self.sizing.shard_bytes,
            "writer": self.writer,
        }

    def _faults(self) -> Iterator[str]:
        if fault := dataset_name_fault(self.name):
            yield f"--name {self.name!r} {fault}"
        for split in self.splits:
            if fault := split_name_fault(split):
                yield f"--split {split!r} {fault}"
        layout = LAYOUTS.get(self.layout)
        if self.writer == "beam" and layout and layout.naming is not ShardNaming.TFDS:
            yield f"--writer beam cannot name shards as --layout {self.layout} does, by their number of examples"
        sizes = [self.num_shards, self.shard_size, self.examples_per_shard]
        flags = ["--num-shards", "--shard-size", "--examples-per-shard"]
        given = [flag for flag, size in zip(flags, sizes, strict=True) if size is not None]
        if len(given) > 1:
            yield f"{' and '.join(given)} contradict each other: give one"
        if self.writer == "beam" and (self.shard_size or self.examples_per_shard):
            yield "--writer beam sizes shards by --num-shards only (without it, the runner chooses)"
