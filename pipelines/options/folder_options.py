"""What `recordmill folder` is asked to do."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from recordmill.pipelines.options.convert_options import RecipeValue
from recordmill.pipelines.options.option import READ, WRITE, Kind, flag, option, redefined, reworded
from recordmill.pipelines.options.picture_options import DividedOptions, PictureOptions
from recordmill.schemas.image_labels import LabelColumns, PathLabels
from recordmill.schemas.names import NameSources


def _column(what: str, usual: str) -> Any:
    return option(Kind.TEXT, READ, None, metavar="NAME").says(
        f"its column of {what}s, if that has no usual name",
        f"its column of {what}s, where that is not called {usual}. Of several the first in this order",
    )


@dataclass(frozen=True, kw_only=True)
class LabelledOptions(DividedOptions):
    """What any conversion of images of one class each is asked to do. Names are those of the flags; see docs/cli.md."""

    images: tuple[str, ...] = reworded(DividedOptions, "images").says(
        "a folder or .zip, and all folders in it; repeatable",
        "a folder or .zip, and all folders in it; repeatable. A name that two folders have is an error",
    )
    labels: tuple[str, ...] = option(Kind.PATHS, READ, (), metavar="FILE").says(
        "CSV of image paths and their labels, and perhaps splits; repeatable"
    )
    path_column: str | None = _column(
        "path", "`path`, `image`, `image_path`, `image_uri`, `filename`, `file_name`, `file`, `name` or `id`"
    )
    label_column: str | None = _column("label", "`label`, `class`, `class_name`, `category` or `target`")
    split_column: str | None = _column("split", "`split`, `set`, `subset` or `ml_use`")
    label_from: str = option(Kind.CHOICE, READ, "folder", choices=("folder", "name")).says(
        "the class is an image's first folder, or begins its file's name"
    )
    label_separator: str = option(Kind.TEXT, READ, "_", metavar="TEXT").says(
        "what ends the class in a name: cat_0.jpg", "what ends the class in a name; of several the last"
    )
    name: str = redefined(DividedOptions, "name", "images")
    split: tuple[tuple[str, Fraction], ...] = redefined(
        DividedOptions,
        "split",
        docs=(
            "one split, or several: `train=0.8,val=0.1,test=0.1`. Shares are decimals or fractions (`1/3`) and sum to "
            "1. A column of splits in the tables decides instead, in lower case"
        ),
    )
    stratify: bool = option(Kind.SWITCH, WRITE, False).says("give each split its share of every class")
    classes: tuple[str, ...] = option(
        Kind.NAMES, WRITE, (), metavar="NAME[,NAME…]", usual="all, sorted", pattern=".*[^ ,].*"
    ).says(
        "only these classes, in the order of their indices",
        "only these classes, in the order of their indices; images of others are left out and counted. Give it "
        "where runs of their own for train and val must number classes alike, or where there is one class folder "
        "only. All are sorted by number where all are numbers",
    )
    max_rejects: float = redefined(DividedOptions, "max_rejects", help="fraction of images that may be rejected")

    @property
    def paths(self) -> tuple[str, ...]:
        return (*super().paths, *self.labels)

    @property
    def name_sources(self) -> NameSources:
        return NameSources(self.images, self.labels or self.images)

    @property
    def columns(self) -> LabelColumns:
        return LabelColumns(self.path_column, self.label_column, self.split_column)

    @property
    def _columns_of_labels(self) -> tuple[str, ...]:
        """Options that are of tables of --labels."""
        return ("path_column", "label_column", "split_column")

    @property
    def path_labels(self) -> PathLabels:
        return PathLabels(self.label_separator if self.label_from == "name" else None)

    @property
    def record_options(self) -> dict[str, RecipeValue]:
        return super().record_options | {
            "classes": list(self.classes),
            **self._values("label_column", "label_from", "label_separator", "path_column", "split_column", "stratify"),
            **self.division_options,
        }

    def _faults(self) -> Iterator[str]:
        if not self.label_separator:
            yield "--label-separator is empty"
        elif self.label_from == "folder" and self.label_separator != LabelledOptions.label_separator:
            yield f"--label-separator {self.label_separator} would do nothing without --label-from name"
        if not self.labels:
            for column in self._columns_of_labels:
                if getattr(self, column):
                    yield f"{flag(column)} is of tables of --labels, and none is given"
        elif self.label_from != "folder":
            yield f"--labels gives the labels, and so does --label-from {self.label_from}: give one"
        for name in sorted({name for name in self.classes if self.classes.count(name) > 1}):
            yield f"--classes names {name!r} twice"
        if self.stratify and len(self.split) < 2:
            yield "--stratify divides classes, but --split names a single split"
        if self.stratify and self.group_from:
            yield (
                "--stratify and --group-from contradict each other: a group may hold images of several classes, and is "
                "not divided; give one"
            )
        yield from super()._faults()


@dataclass(frozen=True, kw_only=True)
class FolderOptions(LabelledOptions, PictureOptions):
    """What `recordmill folder` is asked to do. Names are those of the flags; see docs/cli.md."""

    layout: str = redefined(PictureOptions, "layout", "classification", choices=("classification",))
