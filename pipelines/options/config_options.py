"""What `recordmill config` is asked to do."""

from collections.abc import Iterator
from dataclasses import dataclass

from recordmill.pipelines.options.option import READ, WRITE, Kind, Options, option
from recordmill.transforms.config.fill_config import CONSUMERS


@dataclass(frozen=True, kw_only=True)
class ConfigOptions(Options):
    """What `recordmill config` is asked to do."""

    consumer: str = option(
        kind=Kind.ARGUMENT, group="", metavar="NAME", help=f"of what the configuration is: {', '.join(CONSUMERS)}"
    )
    folder: str = option(kind=Kind.ARGUMENT, group="", metavar="OUT", help="folder of the data set")
    train: str = option("", kind=Kind.TEXT, group=READ, help="split that trains", metavar="SPLIT", usual="train")
    validation: str = option(
        "",
        kind=Kind.TEXT,
        group=READ,
        metavar="SPLIT",
        help="split that validates",
        usual="the only other one, or else val, or validation",
    )
    batch_size: int = option(
        8, kind=Kind.INTEGER, group=WRITE, metavar="N", help="images a step, on all devices together", least=1
    )
    epochs: int | None = option(
        None,
        kind=Kind.INTEGER,
        group=WRITE,
        metavar="N",
        help="how often each image trains",
        usual="as many as the experiment has",
        least=1,
    )

    def _faults(self) -> Iterator[str]:
        if self.consumer not in CONSUMERS:
            yield f"{self.consumer!r} is not known; configurations are there for {', '.join(CONSUMERS)}"
