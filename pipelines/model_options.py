"""Options of `recordmill convert --model`: an encoder over images of class folders or of tables."""

import os
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from recordmill.pipelines.formats import FORMATS
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.labelled_options import LabelledOptions
from recordmill.schemas.inputs.models import FETCHED, ON_DISK, RANDOM, ModelChoice, Preprocessing
from recordmill.schemas.inputs.option import (
    COMMON,
    MODEL,
    Options,
    flag,
    redefine_option,
)
from recordmill.schemas.inputs.options import ConvertOptions, parse_image_size
from recordmill.schemas.inputs.rows_options import RowsOptions
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.names import NameSources
from recordmill.schemas.paths import is_remote

_OF_RECORDS = {"dtype", "layout", "name", "rename", "label_as"}  # what the encoder writes of a row


class ModelOptions(Options):
    """Options of a model, and of the features that it computes.

    Attributes:
        source_format: Format of the images.
        source_options: Options of the images.
    """

    source_format: ClassVar[str]
    source_options: ClassVar[type[ConvertOptions]]

    model: str = MODEL.opt(
        "A model of keras.applications, `efficientnet-b0`, or a `.keras` file.", ..., "NAME|FILE", rank=COMMON
    )
    weights: str = MODEL.opt(
        f"File of weights, or `{RANDOM}`, `{ON_DISK}` or `{FETCHED}`. The file must be saved from the same "
        f"model. `{RANDOM}`: random weights, the same in every run. `{ON_DISK}`: the weights that Keras publishes, "
        f"from `~/.keras/models`. `{FETCHED}` lets Keras download them.",
        "",
        "FILE|none|imagenet",
        f"{ON_DISK}, or the weights in the model's file",
    )
    layer: str = MODEL.opt("Layer whose output is the feature.", "", "NAME", "the last before pooling")
    pool: Literal["none", "avg"] = MODEL.opt("Average the feature over height and width, or store all of it.", "none")
    input_size: str = MODEL.opt("Height and width of the model's input images.", "", "HxW", "the model's own")
    preprocess: Preprocessing | None = MODEL.opt(
        "Preprocessing of pixels, 0 to 255. `none`, division by 255, or a mode of "
        "`keras.applications.imagenet_utils.preprocess_input`.",
        usual="the model's own",
    )
    resize: Literal["bilinear", "nearest", "bicubic", "lanczos"] = MODEL.opt(
        "Interpolation of the resize to the model's size, as in keras.utils.load_img.", "bilinear"
    )
    batch: int = MODEL.opt("Images per call of the model.", 16, ge=1, le=4096)
    feature_dtype: Literal["float32", "float16"] = MODEL.opt(
        "Type of features. float16 is stored as bytes.", "float32", recorded="dtype"
    )

    @property
    def choice(self) -> ModelChoice:
        return ModelChoice(
            self.model, self.weights, self.layer, self.pool, parse_image_size(self.input_size), self.preprocess or ""
        )

    @property
    def table(self) -> FeatureTable:
        """Return the table without features, which depend on the model."""
        return LAYOUTS["features"]

    @property
    def source(self) -> Any:
        """Options of the source of images."""
        names = (self.source_options.model_fields.keys() & self.model_fields_set) - _OF_RECORDS
        values = {name: getattr(self, name) for name in names}
        return FORMATS[self.source_format].options.model_construct().model_copy(update=values)

    @property
    def share_cure(self) -> str:
        return self.source.share_cure

    @property
    def name_sources(self) -> NameSources:
        return self.source.name_sources

    @property
    def more_files(self) -> tuple[str, ...]:
        """Return the files of the model and its weights; none if they are known by name."""
        given = (self.model, "" if self.weights in (RANDOM, ON_DISK, FETCHED) else self.weights)
        return tuple(path for path in given if path and (is_remote(path) or os.path.exists(path)))

    def _faults(self) -> Iterator[str]:
        if self.input_size and not parse_image_size(self.input_size):
            yield f"--input-size {self.input_size!r} is not a height and width in pixels: 224x224 for example"
        if self.given("add"):
            yield "--add compares images with stored ones, and --model stores features in their place. Leave --add out"
        yield from super()._faults()


class LabelledModelOptions(ModelOptions, LabelledOptions):
    """Options of features of images in class folders, or with labels in a table."""

    source_format: ClassVar[str] = "folder"
    source_options: ClassVar[type[ConvertOptions]] = LabelledOptions
    name: str = redefine_option(LabelledOptions, "name", "features")
    layout: Literal["features"] = redefine_option(LabelledOptions, "layout", "features")


class RowsModelOptions(ModelOptions, RowsOptions):
    """Options of features of images that rows name or hold."""

    source_format: ClassVar[str] = "table"
    source_options: ClassVar[type[ConvertOptions]] = RowsOptions
    name: str = redefine_option(RowsOptions, "name", "features")
    layout: Literal["features"] = redefine_option(RowsOptions, "layout", "features")

    @property
    def source(self) -> Any:
        return super().source.model_copy(update={"columns": (self.label,)})

    def _faults(self) -> Iterator[str]:
        for name, what in (("image_column", "image"), ("label", "class")):
            if not getattr(self, name):
                yield f"{flag(name)} is missing: the column that has the {what} of each row"
        source_faults = self.source._faults() if self.image_column else ()
        yield from dict.fromkeys((*super()._faults(), *source_faults))
