"""What a job is asked to do: frozen values, checked once, before anything runs.

Nothing here imports Beam, so that the command line can be read, and refused, at once.
"""

import math
import re
from dataclasses import dataclass

from schemas.errors import ConfigError
from schemas.layouts import LAYOUTS
from schemas.shards import ShardSizing

WRITERS = ("planned", "beam")
BOX_POLICIES = ("clip", "drop", "keep")
CHECKS = ("none", "header", "decode")
DEFAULT_SHARD_BYTES = 150_000_000
MAX_SHARDS = 99_999
"""What fits the five digits of a shard's name."""

_MAX_NAME = 80
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SPLIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class CocoOptions:
    """What `recordmill coco` is asked to do. Names are those of the flags; see docs/cli.md.

    Attributes:
        shard_size: bytes.
        min_area: pixels².
        workers: threads that fetch and check images, per process; None for one a core.
        max_rejects: fraction, 0..1.
    """

    images: tuple[str, ...]
    instances: tuple[str, ...]
    output: str
    name: str = "coco"
    split: str = "train"
    layout: str = "detection"
    num_shards: int | None = None
    shard_size: int | None = None
    examples_per_shard: int | None = None
    gzip: bool = False
    boxes: str = "clip"
    no_crowd: bool = False
    min_area: float = 0.0
    categories: tuple[str, ...] = ()
    check: str = "decode"
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
    def sizing(self) -> ShardSizing:
        if self.num_shards is None and self.examples_per_shard is None:
            return ShardSizing(shard_bytes=self.shard_size or DEFAULT_SHARD_BYTES)
        return ShardSizing(num_shards=self.num_shards, examples_per_shard=self.examples_per_shard)

    @property
    def record_options(self) -> dict[str, str | int | float | bool | list[str] | None]:
        """Those options that decide what is in the shards."""
        return {
            "boxes": self.boxes,
            "categories": sorted(self.categories),
            "check": self.check,
            "examples_per_shard": self.examples_per_shard,
            "gzip": self.gzip,
            "min_area": self.min_area,
            "no_crowd": self.no_crowd,
            "num_shards": self.num_shards,
            "seed": self.seed,
            "shard_size": self.sizing.shard_bytes,
            "writer": self.writer,
        }

    def _faults(self):
        for flag in ("images", "instances", "output"):
            if not getattr(self, flag):
                yield f"--{flag} is missing"
        for flag, paths in (("images", self.images), ("instances", self.instances)):
            for path in sorted({path for path in paths if paths.count(path) > 1}):
                yield f"--{flag} {path} is given twice"
        if not _NAME.fullmatch(self.name):
            yield f"--name {self.name!r} must be letters, digits, _ . - and begin with a letter or digit"
        if not _SPLIT.fullmatch(self.split):
            yield f"--split {self.split!r} must be letters, digits and _: it is part of file names"
        for flag, value, allowed in (
            ("layout", self.layout, tuple(LAYOUTS)),
            ("boxes", self.boxes, BOX_POLICIES),
            ("check", self.check, CHECKS),
            ("writer", self.writer, WRITERS),
        ):
            if value not in allowed:
                yield f"--{flag} {value!r} is none of {', '.join(allowed)}"
        yield from self._sizing_faults()
        if not (math.isfinite(self.min_area) and self.min_area >= 0):
            yield f"--min-area {self.min_area} must be a number of pixels², 0 or more"
        for flag, text in (("name", self.name), ("split", self.split)):
            if len(text) > _MAX_NAME:
                yield f"--{flag} has {len(text)} characters; file names have room for {_MAX_NAME}"
        if not -(1 << 63) <= self.seed < 1 << 63:
            yield f"--seed {self.seed} does not fit 64 bits"
        if not 0 <= self.max_rejects <= 1:
            yield f"--max-rejects {self.max_rejects} must be a fraction, 0 to 1"
        if self.workers is not None and not 1 <= self.workers <= 256:
            yield f"--workers {self.workers} must be 1 to 256"

    def _sizing_faults(self):
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
