"""What a job is asked to do: frozen values, checked once, before anything runs. Here is what all conversions have.

Nothing here imports Beam, so that the command line can be read, and refused, at once.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import FeatureTable, ShardNaming
from recordmill.schemas.images import PictureRules
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.shards import ShardSizing
from recordmill.schemas.splits import split_name_fault

WRITERS = ("planned", "beam")
CHECKS = ("none", "header", "decode")
FORMATS = ("keep", "jpeg", "png")
DEFAULT_SHARD_BYTES = 150_000_000
MAX_SHARDS = 99_999
"""What fits the five digits of a shard's name."""

RecipeValue = str | int | float | bool | list[str] | None

_MAX_NAME = 80
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(ABC):
    """What any conversion is asked to do. Names are those of the flags; see docs/cli.md.

    Attributes:
        max_side: pixels; None leaves pictures as large as they are.
        shard_size: bytes.
        workers: threads that fetch and check images, per process; None for one a core, or 32 for buckets.
        max_rejects: fraction, 0..1.
    """

    images: tuple[str, ...]
    output: str
    name: str
    layout: str
    num_shards: int | None = None
    shard_size: int | None = None
    examples_per_shard: int | None = None
    gzip: bool = False
    check: str = "decode"
    format: str = "keep"
    max_side: int | None = None
    jpeg_quality: int = 95
    seed: int = 0
    writer: str = "planned"
    max_rejects: float = 0.01
    overwrite: bool = False
    dry_run: bool = False
    workers: int | None = None

    def __post_init__(self):
        """Raises ConfigError with every fault that can be seen without looking at a file."""
        faults = list(self._faults())
        if faults:
            raise ConfigError("; ".join(faults))

    @property
    @abstractmethod
    def splits(self) -> tuple[str, ...]:
        """The splits that are asked for by name."""

    @property
    def paths(self) -> tuple[str, ...]:
        """All that a job reads, and the folder that it writes."""
        return (*self.images, self.output)

    @property
    def table(self) -> FeatureTable:
        """What is in a record, as far as the options say."""
        return LAYOUTS[self.layout]

    @property
    def box_policy(self) -> str:
        """See `recordmill.transforms.examples.boxes.fit_box`."""
        return "keep"

    @property
    def pictures(self) -> PictureRules:
        return PictureRules(self.check, self.format, self.max_side, self.jpeg_quality)

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
            "check": self.check,
            "examples_per_shard": self.examples_per_shard,
            "format": self.format,
            "gzip": self.gzip,
            "jpeg_quality": self.jpeg_quality,
            "max_side": self.max_side,
            "num_shards": self.num_shards,
            "seed": self.seed,
            "shard_size": self.sizing.shard_bytes,
            "writer": self.writer,
        }

    def _faults(self) -> Iterator[str]:
        for option in ("images", "output"):
            if not getattr(self, option):
                yield f"{flag(option)} is missing"
        yield from self._given_twice("images")
        if not _NAME.fullmatch(self.name):
            yield f"--name {self.name!r} must be letters, digits, _ . - and begin with a letter or digit"
        if len(self.name) > _MAX_NAME:
            yield f"--name has {len(self.name)} characters; file names have room for {_MAX_NAME}"
        for split in self.splits:
            if fault := split_name_fault(split):
                yield f"--split {split!r} {fault}"
        yield from self._none_of(("check", CHECKS), ("format", FORMATS), ("writer", WRITERS))
        layout = LAYOUTS.get(self.layout)
        if self.writer == "beam" and layout and layout.naming is not ShardNaming.TFDS:
            yield f"--writer beam cannot name shards as --layout {self.layout} does, by their number of examples"
        yield from self._sizing_faults()
        if self.max_side is not None and not 1 <= self.max_side <= 65_500:
            yield f"--max-side {self.max_side} must be 1 to 65500 pixels"
        if not 1 <= self.jpeg_quality <= 100:
            yield f"--jpeg-quality {self.jpeg_quality} must be 1 to 100"
        if not -(1 << 63) <= self.seed < 1 << 63:
            yield f"--seed {self.seed} does not fit 64 bits"
        if not 0 <= self.max_rejects <= 1:
            yield f"--max-rejects {self.max_rejects} must be a fraction, 0 to 1"
        if self.workers is not None and not 1 <= self.workers <= 256:
            yield f"--workers {self.workers} must be 1 to 256"

    def _given_twice(self, *options: str) -> Iterator[str]:
        for option in options:
            paths = getattr(self, option)
            for path in sorted({path for path in paths if paths.count(path) > 1}):
                yield f"{flag(option)} {path} is given twice"

    def _none_of(self, *choices: tuple[str, tuple[str, ...]]) -> Iterator[str]:
        for option, allowed in choices:
            value = getattr(self, option)
            if value not in allowed:
                yield f"{flag(option)} {value!r} is none of {', '.join(allowed)}"

    def _sizing_faults(self) -> Iterator[str]:
        sizes = {
            "num-shards": self.num_shards,
            "shard-size": self.shard_size,
            "examples-per-shard": self.examples_per_shard,
        }
        given = [flag for flag, value in sizes.items() if value is not None]
        if len(given) > 1:
            yield f"{' and '.join('--' + flag for flag in given)} contradict each other: give one"
        for flag, size in sizes.items():
            if size is not None and size < 1:
                yield f"--{flag} {size} must be 1 or more"
        if self.num_shards is not None and self.num_shards > MAX_SHARDS:
            yield f"--num-shards {self.num_shards} is more than the {MAX_SHARDS} that shard names have room for"
        if self.writer == "beam" and (self.shard_size or self.examples_per_shard):
            yield "--writer beam sizes shards by --num-shards only (without it, the runner chooses)"


def flag(option: str) -> str:
    """The flag that sets an option.

    >>> flag("image_info")
    '--image-info'
    """
    return "--" + option.replace("_", "-")
