"""What `recordmill verify` is asked to do."""

from dataclasses import dataclass

from recordmill.pipelines.options.option import Kind, Options, option, redefined
from recordmill.pipelines.options.picture_options import PictureOptions


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(Options):
    """What `recordmill verify` is asked to do."""

    folder: str = option(kind=Kind.ARGUMENT, group="", metavar="OUT", help="folder of the data set")
    workers: int | None = redefined(PictureOptions, "workers")
