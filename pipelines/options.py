"""What a job is asked to do: frozen values, checked once, before anything runs.

Nothing here imports Beam, so that the command line can be read, and refused, at once.
"""

import math
import re
from dataclasses import dataclass

from schemas.coco import AnnotationKind, AnnotationSource
from schemas.errors import ConfigError
from schemas.features import FeatureTable, Part, ShardNaming
from schemas.layouts import LAYOUTS
from schemas.shards import ShardSizing

WRITERS = ("planned", "beam")
BOX_POLICIES = ("clip", "drop", "keep")
CHECKS = ("none", "header", "decode")
FORMATS = ("keep", "jpeg", "png")
MASKS = {
    "none": (),
    "png": (Part.MASK_PNG,),
    "rle": (Part.MASK_RLE,),
    "both": (Part.MASK_PNG, Part.MASK_RLE),
}
ANNOTATIONS = ("instances", "keypoints", "captions", "stuff", "panoptic", "image_info")
"""Options that name annotation files, as `schemas.coco.AnnotationKind` does."""
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
        panoptic_masks: folder or .zip of the PNGs of each panoptic file, in the same order.
        max_side: pixels; None leaves pictures as large as they are.
        shard_size: bytes.
        min_area: pixels².
        workers: threads that fetch and check images, per process; None for one a core.
        max_rejects: fraction, 0..1.
    """

    images: tuple[str, ...]
    output: str
    instances: tuple[str, ...] = ()
    keypoints: tuple[str, ...] = ()
    captions: tuple[str, ...] = ()
    stuff: tuple[str, ...] = ()
    panoptic: tuple[str, ...] = ()
    panoptic_masks: tuple[str, ...] = ()
    image_info: tuple[str, ...] = ()
    name: str = "coco"
    split: str = "train"
    layout: str = "detection"
    masks: str = "none"
    num_shards: int | None = None
    shard_size: int | None = None
    examples_per_shard: int | None = None
    gzip: bool = False
    boxes: str = "clip"
    no_crowd: bool = False
    min_area: float = 0.0
    categories: tuple[str, ...] = ()
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
    def sources(self) -> tuple[AnnotationSource, ...]:
        """The annotation files to read."""
        masks = dict(zip(self.panoptic, self.panoptic_masks, strict=True))
        return tuple(
            AnnotationSource(AnnotationKind(kind), path, masks[path] if kind == "panoptic" else "")
            for kind in ANNOTATIONS
            for path in getattr(self, kind)
        )

    @property
    def table(self) -> FeatureTable:
        """What is in a record, as far as the options say; LVIS's lists join it where the input has them."""
        layout = LAYOUTS[self.layout]
        wanted = [part for parts in self._wanted_parts.values() for part in parts]
        return layout.with_parts(tuple(part for part in layout.parts if part in wanted))

    @property
    def _wanted_parts(self) -> dict[str, tuple[Part, ...]]:
        """What each flag that was given asks to be in a record; one of the parts will do."""
        parts = {
            "keypoints": (Part.KEYPOINTS,),
            "captions": (Part.CAPTIONS,),
            "stuff": (Part.SEMANTIC,),
            "panoptic": (Part.SEMANTIC, Part.PANOPTIC),
        }
        given = {option: wanted for option, wanted in parts.items() if getattr(self, option)}
        return given | ({"masks": MASKS[self.masks]} if self.masks != "none" else {})

    @property
    def sizing(self) -> ShardSizing:
        if self.num_shards is not None or self.examples_per_shard is not None:
            return ShardSizing(num_shards=self.num_shards, examples_per_shard=self.examples_per_shard)
        usual = LAYOUTS[self.layout].examples_per_shard
        if usual is not None and self.shard_size is None:
            return ShardSizing(examples_per_shard=usual)
        return ShardSizing(shard_bytes=self.shard_size or DEFAULT_SHARD_BYTES)

    @property
    def record_options(self) -> dict[str, str | int | float | bool | list[str] | None]:
        """Those options that decide what is in the shards."""
        return {
            "boxes": self.boxes,
            "categories": sorted(self.categories),
            "check": self.check,
            "examples_per_shard": self.examples_per_shard,
            "format": self.format,
            "gzip": self.gzip,
            "jpeg_quality": self.jpeg_quality,
            "masks": self.masks,
            "max_side": self.max_side,
            "min_area": self.min_area,
            "no_crowd": self.no_crowd,
            "num_shards": self.num_shards,
            "seed": self.seed,
            "shard_size": self.sizing.shard_bytes,
            "writer": self.writer,
        }

    def _faults(self):
        for option in ("images", "output"):
            if not getattr(self, option):
                yield f"{flag(option)} is missing"
        if not any(getattr(self, kind) for kind in ANNOTATIONS):
            yield "--instances is missing (or another annotation file: --keypoints, --captions, --panoptic, …)"
        for option in ("images", *ANNOTATIONS):
            paths = getattr(self, option)
            for path in sorted({path for path in paths if paths.count(path) > 1}):
                yield f"{flag(option)} {path} is given twice"
        if not _NAME.fullmatch(self.name):
            yield f"--name {self.name!r} must be letters, digits, _ . - and begin with a letter or digit"
        if not _SPLIT.fullmatch(self.split):
            yield f"--split {self.split!r} must be letters, digits and _: it is part of file names"
        for option, value, allowed in (
            ("layout", self.layout, tuple(LAYOUTS)),
            ("masks", self.masks, tuple(MASKS)),
            ("boxes", self.boxes, BOX_POLICIES),
            ("check", self.check, CHECKS),
            ("format", self.format, FORMATS),
            ("writer", self.writer, WRITERS),
        ):
            if value not in allowed:
                yield f"{flag(option)} {value!r} is none of {', '.join(allowed)}"
        yield from self._kind_faults()
        yield from self._sizing_faults()
        if not (math.isfinite(self.min_area) and self.min_area >= 0):
            yield f"--min-area {self.min_area} must be a number of pixels², 0 or more"
        for option, text in (("name", self.name), ("split", self.split)):
            if len(text) > _MAX_NAME:
                yield f"{flag(option)} has {len(text)} characters; file names have room for {_MAX_NAME}"
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

    def _kind_faults(self):
        if len(self.panoptic) != len(self.panoptic_masks):
            yield (
                f"--panoptic is given {len(self.panoptic)} times and --panoptic-masks {len(self.panoptic_masks)}: each "
                "panoptic file needs the folder or .zip of its PNGs"
            )
        if self.panoptic and self.stuff:
            yield "--panoptic and --stuff both make the semantic mask: give one"
        if self.masks != "none" and not (self.instances or self.keypoints):
            yield f"--masks {self.masks} is of the objects of --instances or --keypoints, and neither is given"
        if self.layout not in LAYOUTS or self.masks not in MASKS:
            return
        held = LAYOUTS[self.layout].parts
        for option, parts in self._wanted_parts.items():
            if not set(parts) & set(held):
                yield f"--layout {self.layout} has no feature for {flag(option)}: leave one of the two out"
        if self.writer == "beam" and LAYOUTS[self.layout].naming is not ShardNaming.TFDS:
            yield f"--writer beam cannot name shards as --layout {self.layout} does, by their number of examples"

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


def flag(option: str) -> str:
    """The flag that sets an option.

    >>> flag("image_info")
    '--image-info'
    """
    return "--" + option.replace("_", "-")
