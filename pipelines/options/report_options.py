"""What `recordmill report` is asked to do."""

from dataclasses import dataclass

from recordmill.pipelines.options.option import Kind, Options, option


@dataclass(frozen=True, kw_only=True)
class ReportOptions(Options):
    """What `recordmill report` is asked to do."""

    folder: str = option(kind=Kind.ARGUMENT, group="", metavar="OUT", help="folder of the data set")
