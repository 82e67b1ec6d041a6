"""What `recordmill sample` is asked to do."""

from dataclasses import dataclass

from recordmill.pipelines.options.option import WRITE, Kind, Options, option


@dataclass(frozen=True, kw_only=True)
class SampleOptions(Options):
    """What `recordmill sample` is asked to do."""

    folder: str = option(kind=Kind.ARGUMENT, group="", metavar="DIR", help="where to write it; a new or empty folder")
    count: int = option(240, kind=Kind.INTEGER, group=WRITE, metavar="N", help="how many images", least=1)
    seed: int = option(0, kind=Kind.INTEGER, group=WRITE, metavar="N", help="draws other pictures")
    odd: bool = option(
        False,
        kind=Kind.SWITCH,
        group=WRITE,
        help="add pictures in every odd form: formats, depths, turned, damaged",
    )
