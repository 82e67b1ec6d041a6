"""What `recordmill embed` is asked to do."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from recordmill.pipelines.options.convert_options import RecipeValue
from recordmill.pipelines.options.folder_options import LabelledOptions
from recordmill.pipelines.options.option import MODEL, Kind, flag, option, redefined, reworded
from recordmill.pipelines.options.picture_options import SIZE, size_of
from recordmill.pipelines.options.table_options import TableOptions
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.models import FETCHED, ON_DISK, PREPROCESSING, RANDOM, ModelChoice
from recordmill.schemas.names import NameSources
from recordmill.transforms.storage.interface import is_remote


@dataclass(frozen=True, kw_only=True)
class EmbedOptions(LabelledOptions):
    """What `recordmill embed` is asked to do. Names are those of the flags; see docs/cli.md."""

    rows: tuple[str, ...] = reworded(TableOptions, "rows", ()).says(
        "CSV, TSV, JSON Lines or Parquet whose rows name images, instead of --labels; repeatable",
        "CSV, TSV, JSON Lines or Parquet whose rows name images, as `recordmill table` reads them, instead of "
        "`--labels`: each row becomes a record; repeatable",
    )
    image_column: str | None = reworded(TableOptions, "image_column").says(
        "of --rows: column of paths of images", "column of paths of images"
    )
    label: str | None = reworded(TableOptions, "label").says(
        "of --rows: column of classes", "column of classes in `--rows`"
    )
    key: str | None = reworded(TableOptions, "key").says(
        "of --rows: column that a row is known by, for its split and place",
        "column of `--rows` that a row is known by, for its split and place; without it, its image",
    )
    group_column: str | None = reworded(TableOptions, "group_column").says(
        "of --rows: rows of one value of it go to one split",
        "rows of one value of it (a patient, a video) go to one split, of `--rows`",
    )
    model: str = option(Kind.TEXT, MODEL, metavar="NAME|FILE").says(
        "a model of keras.applications, or a .keras file",
        "a name of keras.applications, `efficientnet-b0`; or a `.keras` file",
    )
    weights: str = option(
        Kind.TEXT, MODEL, "", metavar="FILE|none|imagenet", usual=f"{ON_DISK}, or those in the model's file"
    ).says(
        "a file, random ones, or those that Keras publishes",
        f"a file that was saved from the model; `{RANDOM}`, random ones that are the same every time; `{ON_DISK}`, "
        f"those that Keras publishes, as they are in `~/.keras/models`; `{FETCHED}` lets Keras fetch them",
    )
    layer: str = option(Kind.TEXT, MODEL, "", metavar="NAME", usual="the last before pooling").says(
        "the layer whose output is the feature"
    )
    pool: str = option(Kind.CHOICE, MODEL, "none", choices=("none", "avg")).says(
        "the mean over height and width, or all of it"
    )
    input_size: str = option(Kind.TEXT, MODEL, "", metavar="HxW", usual="the model's own", pattern=SIZE.pattern).says(
        "height and width of the pictures that the model is given"
    )
    preprocess: str | None = option(Kind.CHOICE, MODEL, None, choices=PREPROCESSING, usual="the model's own").says(
        "what is done with pixels of 0 to 255",
        "what is done with pixels of 0 to 255: nothing, division by 255, or a mode of "
        "`keras.applications.imagenet_utils.preprocess_input`",
    )
    resize: str = option(Kind.CHOICE, MODEL, "bilinear", choices=("bilinear", "nearest", "bicubic", "lanczos")).says(
        "how pictures get the model's size, as keras.utils.load_img has it"
    )
    batch: int = option(Kind.INTEGER, MODEL, 16, metavar="N", least=1, largest=4096).says(
        "pictures that the model is given at once"
    )
    dtype: str = option(Kind.CHOICE, MODEL, "float32", choices=("float32", "float16")).says(
        "of features; float16 is written as bytes"
    )
    name: str = redefined(LabelledOptions, "name", "features")
    layout: str = redefined(LabelledOptions, "layout", "features", choices=("features",))

    @property
    def choice(self) -> ModelChoice:
        return ModelChoice(
            self.model, self.weights, self.layer, self.pool, size_of(self.input_size), self.preprocess or ""
        )

    def as_table(self) -> TableOptions:
        """What is asked of the rows.

        Raises:
            ConfigError: what no table can be asked.
        """
        return TableOptions(
            rows=self.rows,
            images=self.images,
            image_column=self.image_column,
            label=self.label,
            columns=tuple(filter(None, [self.label])),
            classes=self.classes,
            key=self.key,
            group_column=self.group_column,
            split_column=self.split_column,
            split=self.split,
            split_seed=self.split_seed,
            stratify=self.stratify,
            output=self.output,
        )

    @property
    def name_sources(self) -> NameSources:
        return NameSources(self.images, self.rows) if self.rows else super().name_sources

    @property
    def _columns_of_labels(self) -> tuple[str, ...]:
        columns = super()._columns_of_labels
        return tuple(column for column in columns if column != "split_column") if self.rows else columns

    @property
    def model_paths(self) -> tuple[str, ...]:
        """The model's file, and that of its weights, where these are not known by a name."""
        given = (self.model, "" if self.weights in (RANDOM, ON_DISK, FETCHED) else self.weights)
        return tuple(path for path in given if path and (is_remote(path) or os.path.exists(path)))

    @property
    def paths(self) -> tuple[str, ...]:
        return (*super().paths, *self.rows, *self.model_paths)

    @property
    def record_options(self) -> dict[str, RecipeValue]:
        names = ("batch", "dtype", "model", "pool", "resize", "weights", *(_OF_ROWS if self.rows else ()))
        return super().record_options | self._values(*names)

    def _faults(self) -> Iterator[str]:
        if self.input_size and not SIZE.fullmatch(self.input_size):
            yield f"--input-size {self.input_size!r} is no height and width in pixels: 224x224 for example"
        faults = [*super()._faults(), *self._row_faults()]
        if self.rows and not faults:
            try:
                self.as_table()
            except ConfigError as error:
                faults = [str(error)]
        yield from faults

    def _row_faults(self) -> Iterator[str]:
        if not self.rows:
            yield from (f"{flag(name)} is of --rows, and none is given" for name in _OF_ROWS if getattr(self, name))
            return
        for name in ("image_column", "label"):
            if not getattr(self, name):
                yield f"{flag(name)} is missing: the column of --rows that has the {_WHAT[name]} of each row"
        if self.labels:
            yield "--labels names images, and so does --rows: give one"
        if self.label_from != "folder":
            yield f"--rows gives the labels, and so does --label-from {self.label_from}: give one"
        for name in ("group_from", "groups"):
            if getattr(self, name):
                yield f"{flag(name)} is of images without --rows; give --group-column"


_OF_ROWS = ("image_column", "label", "key", "group_column")
_WHAT = {"image_column": "image", "label": "class"}
