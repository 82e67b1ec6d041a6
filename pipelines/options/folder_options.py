"""What `recordmill folder` is asked to do."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from recordmill.pipelines.options.convert_options import ConvertOptions, RecipeValue
from recordmill.schemas.image_labels import LabelColumns, PathLabels
from recordmill.schemas.splits import SplitShares

LABEL_FROM = ("folder", "name")
ALL_TRAIN = (("train", Fraction(1)),)


@dataclass(frozen=True, kw_only=True)
class FolderOptions(ConvertOptions):
    """What `recordmill folder` is asked to do. Names are those of the flags; see docs/cli.md.

    Attributes:
        labels: tables of image paths and their labels; none where paths themselves tell.
        path_column, label_column, split_column: their columns, where these are not called as usual.
        label_from: `folder`, the first of a path; or `name`, that of the file up to the last `label_separator`.
        classes: names in the order of their indices; empty for all that are found, sorted.
        split: names and shares; not heeded where tables of labels give the splits.
        split_seed: another one, another division.
        stratify: whether the shares hold within each class.
    """

    name: str = "images"
    layout: str = "classification"
    labels: tuple[str, ...] = ()
    path_column: str | None = None
    label_column: str | None = None
    split_column: str | None = None
    label_from: str = "folder"
    label_separator: str = "_"
    classes: tuple[str, ...] = ()
    split: tuple[tuple[str, Fraction], ...] = ALL_TRAIN
    split_seed: int = 0
    stratify: bool = False

    @property
    def splits(self) -> tuple[str, ...]:
        return self.shares.names

    @property
    def paths(self) -> tuple[str, ...]:
        return (*super().paths, *self.labels)

    @property
    def shares(self) -> SplitShares:
        return SplitShares(self.split, self.split_seed)

    @property
    def columns(self) -> LabelColumns:
        return LabelColumns(self.path_column, self.label_column, self.split_column)

    @property
    def path_labels(self) -> PathLabels:
        return PathLabels(self.label_separator if self.label_from == "name" else None)

    @property
    def record_options(self) -> dict[str, RecipeValue]:
        return super().record_options | {
            "classes": list(self.classes),
            "label_column": self.label_column,
            "label_from": self.label_from,
            "label_separator": self.label_separator,
            "path_column": self.path_column,
            "split": str(self.shares),
            "split_column": self.split_column,
            "split_seed": self.split_seed,
            "stratify": self.stratify,
        }

    def _faults(self) -> Iterator[str]:
        yield from self._none_of(("layout", ("classification",)), ("label_from", LABEL_FROM))
        if not self.label_separator:
            yield "--label-separator is empty"
        elif self.label_from != "name" and self.label_separator != FolderOptions.label_separator:
            yield f"--label-separator {self.label_separator} would do nothing without --label-from name"
        if not self.labels:
            for column in ("path_column", "label_column", "split_column"):
                if getattr(self, column):
                    yield f"--{column.replace('_', '-')} is of tables of --labels, and none is given"
        elif self.label_from != "folder":
            yield f"--labels gives the labels, and so does --label-from {self.label_from}: give one"
        yield from self._given_twice("labels")
        for name in sorted({name for name in self.classes if self.classes.count(name) > 1}):
            yield f"--classes names {name!r} twice"
        if len(self.split) < 2:
            if self.stratify:
                yield "--stratify divides classes, but --split names a single split"
            if self.split_seed:
                yield "--split-seed divides images, but --split names a single split"
        yield from self._share_faults()
        yield from super()._faults()

    def _share_faults(self) -> Iterator[str]:
        names = self.splits
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"--split names {name} twice"
        total = sum(share for _, share in self.split)
        if any(not 0 < share <= 1 for _, share in self.split):
            yield "--split: every share must be more than 0 and at most 1"
        elif total != 1:
            yield f"--split: the shares sum to {float(total):.15g}, not 1 (thirds can be given as 1/3)"
        if not -(1 << 63) <= self.split_seed < 1 << 63:
            yield f"--split-seed {self.split_seed} does not fit 64 bits"
