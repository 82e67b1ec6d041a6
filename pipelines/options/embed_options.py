"""What `recordmill embed` is asked to do."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from recordmill.pipelines.options.convert_options import RecipeValue
from recordmill.pipelines.options.folder_options import LabelledOptions
from recordmill.pipelines.options.option import MODEL, Kind, option, redefined
from recordmill.pipelines.options.picture_options import SIZE, size_of
from recordmill.schemas.models import FETCHED, ON_DISK, PREPROCESSING, RANDOM, ModelChoice
from recordmill.transforms.storage.interface import is_remote


@dataclass(frozen=True, kw_only=True)
class EmbedOptions(LabelledOptions):
    """What `recordmill embed` is asked to do. Names are those of the flags; see docs/cli.md."""

    model: str = option(
        kind=Kind.TEXT,
        group=MODEL,
        metavar="NAME|FILE|DIR",
        help="a model of keras.applications, a .keras file, or a SavedModel",
        docs="a name of keras.applications, `efficientnet-b0`; a `.keras` or `.h5` file; or a folder of a SavedModel",
    )
    weights: str = option(
        "",
        kind=Kind.TEXT,
        group=MODEL,
        metavar="FILE|none|imagenet",
        help="a file, random ones, or those that Keras publishes",
        docs=(
            f"a file that was saved from the model; `{RANDOM}`, random ones that are the same every time; `{ON_DISK}`, "
            f"those that Keras publishes, as they are in `~/.keras/models`; `{FETCHED}` lets Keras fetch them"
        ),
        usual=f"{ON_DISK}, or those in the model's file",
    )
    layer: str = option(
        "",
        kind=Kind.TEXT,
        group=MODEL,
        metavar="NAME",
        help="the layer whose output is the feature",
        docs="the layer whose output is the feature; of a SavedModel, the output",
        usual="the last before pooling",
    )
    pool: str = option(
        "none",
        kind=Kind.CHOICE,
        group=MODEL,
        help="the mean over height and width, or all of it",
        choices=("none", "avg"),
    )
    input_size: str = option(
        "",
        kind=Kind.TEXT,
        group=MODEL,
        metavar="HxW",
        help="height and width of the pictures that the model is given",
        usual="the model's own",
        pattern=SIZE.pattern,
    )
    preprocess: str | None = option(
        None,
        kind=Kind.CHOICE,
        group=MODEL,
        help="what is done with pixels of 0 to 255",
        docs=(
            "what is done with pixels of 0 to 255: nothing, division by 255, or a mode of "
            "`keras.applications.imagenet_utils.preprocess_input`"
        ),
        choices=PREPROCESSING,
        usual="the model's own",
    )
    resize: str = option(
        "bilinear",
        kind=Kind.CHOICE,
        group=MODEL,
        help="how pictures get the model's size, as keras.utils.load_img has it",
        choices=("bilinear", "nearest", "bicubic", "lanczos"),
    )
    batch: int = option(
        16,
        kind=Kind.INTEGER,
        group=MODEL,
        metavar="N",
        help="pictures that the model is given at once",
        least=1,
        largest=4096,
    )
    dtype: str = option(
        "float32",
        kind=Kind.CHOICE,
        group=MODEL,
        help="of features; float16 is written as bytes",
        choices=("float32", "float16"),
    )
    name: str = redefined(LabelledOptions, "name", "features")
    layout: str = redefined(LabelledOptions, "layout", "features", choices=("features",))

    @property
    def choice(self) -> ModelChoice:
        return ModelChoice(
            self.model, self.weights, self.layer, self.pool, size_of(self.input_size), self.preprocess or ""
        )

    @property
    def model_paths(self) -> tuple[str, ...]:
        """The model's file or folder, and that of its weights, where these are not known by a name."""
        given = (self.model, "" if self.weights in (RANDOM, ON_DISK, FETCHED) else self.weights)
        return tuple(path for path in given if path and (is_remote(path) or os.path.exists(path)))

    @property
    def paths(self) -> tuple[str, ...]:
        return (*super().paths, *self.model_paths)

    @property
    def record_options(self) -> dict[str, RecipeValue]:
        return super().record_options | {
            "batch": self.batch,
            "dtype": self.dtype,
            "model": self.model,
            "pool": self.pool,
            "resize": self.resize,
            "weights": self.weights,
        }

    def _faults(self) -> Iterator[str]:
        if self.input_size and not SIZE.fullmatch(self.input_size):
            yield f"--input-size {self.input_size!r} is no height and width in pixels: 224x224 for example"
        yield from super()._faults()
