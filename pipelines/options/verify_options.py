"""What `recordmill verify` is asked to do."""

from collections.abc import Iterator
from dataclasses import dataclass

from recordmill.pipelines.options.option import READ, RUN, Kind, Options, option, redefined
from recordmill.pipelines.options.picture_options import PictureOptions


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(Options):
    """What `recordmill verify` is asked to do."""

    folder: str = option(kind=Kind.ARGUMENT, group="", metavar="OUT", help="folder of the data set")
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

    def _faults(self) -> Iterator[str]:
        for name in ("images", "tolerance"):
            if getattr(self, name) not in (None, ()) and self.recompute is None:
                yield f"--{name} would do nothing without --recompute"
