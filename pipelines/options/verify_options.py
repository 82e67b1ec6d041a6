"""What `recordmill verify` is asked to do."""

from collections.abc import Iterator
from dataclasses import MISSING, dataclass

from recordmill.pipelines.options.option import READ, RUN, Kind, Options, option, redefined
from recordmill.pipelines.options.picture_options import PictureOptions
from recordmill.schemas.plan_report import Check


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(Options):
    """What `recordmill verify` is asked to do."""

    folder: str = option(kind=Kind.ARGUMENT, group="", metavar="OUT", help="folder of the data set")
    check: str = option(
        Check.TENSORFLOW.value,
        kind=Kind.CHOICE,
        group=RUN,
        help="checksums and what records say, also every picture, or all of it by TensorFlow",
        docs=(
            "`hashes`: checksums, SHA-256 of files and pictures, and what records say; `decode`: every picture is "
            "decoded, too; `tensorflow`: TensorFlow, which must be installed, parses and decodes"
        ),
        choices=tuple(each.value for each in Check),
    )
    sample: float = option(
        1.0,
        kind=Kind.NUMBER,
        group=RUN,
        metavar="FRACTION",
        help="read only so many of each split's shards, 1 at least",
        docs="read only so many of each split's shards, and 1 at least; which they are follows from their names",
        least=0,
        largest=1,
        pattern="(0|1|[01][.]0*|0?[.][0-9]+|[0-9]([.][0-9]+)?[eE]-[1-9][0-9]?)",
    )
    recompute: int | None = option(
        None,
        kind=Kind.INTEGER,
        group=RUN,
        metavar="N",
        help="of features: let the model make the first N of each shard again",
        docs="of a data set of `embed`: the model makes the features of the first N records of each shard again",
        least=1,
        largest=4096,
    )
    images: tuple[str, ...] = option(
        (),
        kind=Kind.PATHS,
        group=READ,
        metavar="DIR|ZIP",
        help="where the pictures are for that; repeatable",
        usual="where they were",
    )
    tolerance: float | None = option(
        None,
        kind=Kind.NUMBER,
        group=RUN,
        metavar="FRACTION",
        help="how far features may be off, of their largest number",
        least=0,
        largest=1,
        usual="what the manifest says, 0.001",
    )
    workers: int | None = redefined(PictureOptions, "workers")

    @property
    def paths(self) -> tuple[str, ...]:
        """All that the job reads."""
        return (self.folder, *self.images)

    @property
    def thoroughness(self) -> Check:
        return Check(self.check)

    def _faults(self) -> Iterator[str]:
        if self.recompute is not None and self.thoroughness is not Check.TENSORFLOW:
            yield f"--recompute needs TensorFlow, and --check {self.check} does without it: give one"
        for name in ("images", "tolerance"):
            if getattr(self, name) not in (None, ()) and self.recompute is None:
                yield f"--{name} would do nothing without --recompute"


@dataclass(frozen=True, kw_only=True)
class ServiceVerifyOptions(Options):
    """Those that a service may give: where it runs the job, there is no TensorFlow."""

    folder: str = redefined(VerifyOptions, "folder")
    check: str = redefined(
        VerifyOptions,
        "check",
        MISSING,
        help="checksums and what records say, or also every picture",
        choices=(Check.HASHES.value, Check.DECODE.value),
    )
    sample: float = redefined(VerifyOptions, "sample")
    workers: int | None = redefined(VerifyOptions, "workers")
