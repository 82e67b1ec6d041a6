"""What `recordmill index` is asked to do."""

from dataclasses import dataclass

from recordmill.pipelines.options.option import Kind, Options, option


@dataclass(frozen=True, kw_only=True)
class IndexOptions(Options):
    """What `recordmill index` is asked to do."""

    paths: tuple[str, ...] = option(
        kind=Kind.ARGUMENTS,
        group="",
        metavar="PATH",
        help="folder of a data set, TFRecord file of anybody, or pattern of files in quotes; several",
    )
