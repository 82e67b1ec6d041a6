"""Options of conversions of images of one class each."""

from collections.abc import Iterator
from typing import Any, Literal

from recordmill.schemas.inputs.option import (
    ARGUMENT,
    COMMON,
    OF_FORMAT,
    RARE,
    READ,
    WRITE,
    Files,
    Images,
    Names,
    Shares,
    redefine_option,
)
from recordmill.schemas.inputs.options import DividedOptions
from recordmill.schemas.names import NameSources


def _column_option(content: str, usual: str, recorded: bool | str = True, rank: str = OF_FORMAT) -> Any:
    text = f"Column of {content}s in `--labels`. Without it, the first column named {usual}."
    return READ.opt(text, metavar="COLUMN", needs="labels", recorded=recorded, rank=rank)


class LabelledOptions(DividedOptions):
    """Options of conversions of images of one class each."""

    images: Images = ARGUMENT.opt(
        "Folder or .zip of images, including its subfolders; several. The same path in two folders is an error.",
        ...,
        "DATA",
        alias="data",
    )
    labels: Files = READ.opt(
        "Tables of image paths, labels and, optionally, splits; repeatable. CSV in UTF-8, JSON Lines or Parquet.",
        (),
        "FILE",
        also="csv annotations",
        rank=COMMON,
    )
    image_column: str | None = _column_option(
        "path",
        "`path`, `image`, `image_path`, `image_uri`, `filename`, `file_name`, `file`, `name` or `id`",
        "path_column",
    )
    label: str | None = _column_option(
        "label", "`label`, `class`, `class_name`, `category` or `target`", "label_column", COMMON
    )
    split_column: str | None = _column_option("split", "`split`, `set`, `subset` or `ml_use`")
    label_from: Literal["folder", "name"] = READ.opt(
        "Source of the class of an image: its first folder, or the start of its file name.", "folder"
    )
    label_separator: str = READ.opt(
        "Separator after the class in a file name, as in cat_0.jpg. If the name has several, the last one counts.",
        "_",
        "TEXT",
        needs="label_from",
        rank=RARE,
    )
    name: str = redefine_option(DividedOptions, "name", "images")
    split: Shares = redefine_option(
        DividedOptions,
        "split",
        text="One split, or several with their shares. `train=0.8,val=0.1,test=0.1`: shares are decimals or fractions "
        "(`1/3`) and sum to 1. A split column in the tables takes precedence. Its values are lower-cased.",
        usual="train",
    )
    stratify: bool = WRITE.opt("Give each split its share of every class.", False, rank=COMMON)
    classes: Names = WRITE.opt(
        "Only these classes, in the order of their indices. Images of other classes are skipped and counted. Needed if "
        "separate runs for train and val must give classes the same indices, or if there is only one class folder. "
        "Without it, classes are sorted, by number if all are numbers.",
        (),
        "NAME[,NAME…]",
        "all, sorted",
    )

    @property
    def name_sources(self) -> NameSources:
        return NameSources(self.images, self.labels or self.images, images_option="DATA")

    @property
    def class_separator(self) -> str | None:
        """Separator after the class in file names; None if folders are classes."""
        return self.label_separator if self.label_from == "name" else None

    @property
    def read_classes(self) -> tuple[str, ...]:
        """Classes that the source selects; empty for all, as if a class map renames them first."""
        return () if self.changes_classes else self.classes

    def _faults(self) -> Iterator[str]:
        if not self.label_separator:
            yield "--label-separator is empty"
        if self.labels and self.label_from != "folder":
            yield f"--labels and --label-from {self.label_from} contradict each other. Give one"
        for name in sorted({name for name in self.classes if self.classes.count(name) > 1}):
            yield f"--classes names {name!r} twice"
        if self.stratify and len(self.split) < 2:
            yield "--stratify divides classes, but --split names a single split"
        if self.stratify and self.given("split_by"):
            yield f"--stratify and --split-by {self.split_by} contradict each other. Give one"
        if self.stratify and self.group_from:
            yield (
                "--stratify and --group-from contradict each other: a group is not divided, and may have images of "
                "different classes. Give one"
            )
        yield from super()._faults()
