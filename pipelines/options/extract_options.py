"""What `recordmill extract` is asked to do."""

from dataclasses import dataclass

from recordmill.pipelines.options.option import WRITE, Kind, Options, option, redefined
from recordmill.pipelines.options.picture_options import PictureOptions


@dataclass(frozen=True, kw_only=True)
class ExtractOptions(Options):
    """What `recordmill extract` is asked to do."""

    folder: str = option(kind=Kind.ARGUMENT, group="", metavar="OUT", help="folder of the data set")
    target: str = option(kind=Kind.ARGUMENT, group="", metavar="DIR", help="where to write it; a new or empty folder")
    split: str = option("", kind=Kind.TEXT, group=WRITE, help="extract only this split")
    workers: int | None = redefined(PictureOptions, "workers")
