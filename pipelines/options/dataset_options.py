"""What the verbs that convert nothing are asked to do."""

from collections.abc import Iterator
from dataclasses import MISSING, dataclass

from recordmill.pipelines.options.option import READ, RUN, WRITE, Kind, Options, option, redefined
from recordmill.pipelines.options.picture_options import PictureOptions
from recordmill.schemas.checks import Check


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(Options):
    """What `recordmill verify` is asked to do."""

    folder: str = option(Kind.ARGUMENT, "", metavar="OUT").says("folder of the data set")
    check: str = option(Kind.CHOICE, RUN, Check.TENSORFLOW.value, choices=tuple(each.value for each in Check)).says(
        "checksums and what records say, also every picture, or all of it by TensorFlow",
        "`hashes`: checksums, SHA-256 of files and pictures, and what records say; `decode`: every picture is "
        "decoded, too; `tensorflow`: TensorFlow, which must be installed, parses and decodes",
    )
    sample: float = option(
        Kind.NUMBER,
        RUN,
        1.0,
        metavar="FRACTION",
        least=0,
        largest=1,
        pattern="(0|1|[01][.]0*|0?[.][0-9]+|[0-9]([.][0-9]+)?[eE]-[1-9][0-9]?)",
    ).says(
        "read only so many of each split's shards, 1 at least",
        "read only so many of each split's shards, and 1 at least; which they are follows from their names",
    )
    recompute: int | None = option(Kind.INTEGER, RUN, None, metavar="N", least=1, largest=4096).says(
        "of features: let the model make the first N of each shard again",
        "of a data set of `embed`: the model makes the features of the first N records of each shard again",
    )
    images: tuple[str, ...] = option(Kind.PATHS, READ, (), metavar="DIR|ZIP", usual="where they were").says(
        "where the pictures are for that; repeatable"
    )
    tolerance: float | None = option(
        Kind.NUMBER, RUN, None, metavar="FRACTION", least=0, largest=1, usual="what the manifest says, 0.001"
    ).says("how far features may be off, of their largest number")
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


@dataclass(frozen=True, kw_only=True)
class ExtractOptions(Options):
    """What `recordmill extract` is asked to do."""

    folder: str = option(Kind.ARGUMENT, "", metavar="OUT").says("folder of the data set")
    target: str = option(Kind.ARGUMENT, "", metavar="DIR").says("where to write it; a new or empty folder")
    split: str = option(Kind.TEXT, WRITE, "").says("extract only this split")
    workers: int | None = redefined(PictureOptions, "workers")


@dataclass(frozen=True, kw_only=True)
class ShowOptions(Options):
    """What `recordmill show` is asked to do."""

    path: str = option(Kind.ARGUMENT, "", metavar="OUT").says(
        "folder of a data set, a TFRecord file of anybody, or a pattern of files in quotes"
    )
    split: str = option(Kind.TEXT, READ, "").says("show only this split")
    id: str = option(Kind.TEXT, READ, "").says("the record of this image id, or file name")
    index: int | None = option(Kind.INTEGER, READ, None, metavar="N", least=0).says(
        "begin at this record, counted from 0 over all shards"
    )
    find: str = option(Kind.TEXT, READ, "", metavar="category=NAME|FEATURE=VALUE").says(
        "records with an object, or image, of a class; or with a value in a feature"
    )
    count: int | None = option(
        Kind.INTEGER, READ, None, metavar="N", usual="as many as there is room for", least=1
    ).says(
        "how many records",
        "how many records. Of those that follow one another, or are found, as many as stand side by side; of an "
        "`--index` or `--id` 1; of `--save` with a folder 20",
    )
    json: bool = option(Kind.SWITCH, WRITE, False).says("print one JSON document instead")
    save: str = option(Kind.PATH, WRITE, "", metavar="FILE.png|DIR").says(
        "save the picture with boxes, masks, keypoints and names drawn in; several into a folder"
    )
    side: int = option(Kind.INTEGER, WRITE, 1024, metavar="PX", least=64, largest=16_384).says(
        "longer side of the picture at the most"
    )

    @property
    def is_for_one_picture(self) -> bool:
        """Whether --save names a file, and not a folder."""
        return self.save.lower().endswith((".png", ".jpg", ".jpeg"))

    @property
    def found(self) -> tuple[str, str]:
        """The two sides of --find; empty without it."""
        name, _, value = self.find.partition("=")
        return name, value

    def _faults(self) -> Iterator[str]:
        if self.save and self.json:
            yield "--save and --json each say what becomes of a record; give one of them"
        if self.find and not all(self.found):
            yield f"--find {self.find!r} must be category=NAME, or FEATURE=VALUE"
        if self.id and self.find:
            yield "--id and --find each say which records; give one of them"
        if self.is_for_one_picture and (self.count or 1) > 1:
            yield f"--save {self.save} is one picture, and --count {self.count} are more; name a folder to save them in"


@dataclass(frozen=True, kw_only=True)
class ReportOptions(Options):
    """What `recordmill report` is asked to do."""

    folder: str = option(Kind.ARGUMENT, "", metavar="OUT").says("folder of the data set")


@dataclass(frozen=True, kw_only=True)
class IndexOptions(Options):
    """What `recordmill index` is asked to do."""

    paths: tuple[str, ...] = option(Kind.ARGUMENTS, "", metavar="PATH").says(
        "folder of a data set, TFRecord file of anybody, or pattern of files in quotes; several"
    )


@dataclass(frozen=True, kw_only=True)
class SampleOptions(Options):
    """What `recordmill sample` is asked to do."""

    folder: str = option(Kind.ARGUMENT, "", metavar="DIR").says("where to write it; a new or empty folder")
    count: int = option(Kind.INTEGER, WRITE, 240, metavar="N", least=1).says("how many images")
    seed: int = option(Kind.INTEGER, WRITE, 0, metavar="N").says("draws other pictures")
    odd: bool = option(Kind.SWITCH, WRITE, False).says(
        "add pictures in every odd form: formats, depths, turned, damaged"
    )
