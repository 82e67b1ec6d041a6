"""`recordmill convert --model`: an encoder that stores what a model computes from images of another source."""

from typing import Any

import apache_beam as beam

from recordmill.pipelines.convert import Job
from recordmill.pipelines.formats import FORMATS
from recordmill.pipelines.gathered import Gathered
from recordmill.pipelines.model_options import LabelledModelOptions, ModelOptions, RowsModelOptions
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.models import FETCHED, ON_DISK, RANDOM, TOLERANCE, FeatureModel
from recordmill.schemas.inputs.options import ImageOptions, RecipeValue
from recordmill.schemas.layouts import features_table
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.encoders.embed_images import EmbedImages
from recordmill.transforms.encoders.load_model import load_model
from recordmill.transforms.shards.plan_blocks import PlanBlocks
from recordmill.transforms.storage.resolve import storage_for

_RANDOM_WEIGHTS = (
    "--weights none: the weights are random, so the features mean nothing. Give --weights imagenet or a file to train "
    "on them"
)


def prepare(options: LabelledModelOptions | RowsModelOptions) -> Job:
    """Return the job of features. The model is loaded, so that its errors are reported immediately.

    Raises:
        ConfigError: The model cannot be loaded, or does not accept images; or see `prepare` of the source.
        AnnotationFileError: A table cannot be read.
    """
    weights = options.weights
    if weights not in (RANDOM, ON_DISK, FETCHED, "") and storage_for(weights).size(weights) is None:
        raise ConfigError(f"--weights {weights}: no such file")
    source: Job = FORMATS[options.source_format].load("prepare")(options.source)
    model = load_model(options.choice).model
    features = options.stored(features_table(model.feature_shape, options.feature_dtype))

    def gather(p: beam.Pipeline) -> Gathered:
        gathered = source.gather(p)._replace(table=p | "Features" >> beam.Create([features]))
        if weights == RANDOM:
            p | "RandomWeights" >> beam.Impulse() | "WarnRandom" >> WithFacts(_warn_random, source.splits)
        return gathered

    maker = EmbedImages(options.choice, model, options.batch, options.feature_dtype, options.resize)
    plan = PlanBlocks(source.splits, options.sizing, maker.estimate(features))
    recorded = _recorded(options, model)
    parts = tuple(
        part._replace(options=options.model_copy(update=_part_update(part.options)), more_recorded=recorded)
        for part in source.parts
    )
    whole = options.model_copy(update={"images": source.options.images}) if parts else options
    return source._replace(options=whole, gather=gather, maker=maker, plan=plan, more_recorded=recorded, parts=parts)


def _part_update(part: ImageOptions) -> dict[str, Any]:
    return {"images": part.images, "split": part.split}


def _warn_random(_: bytes, facts: FactsBuilder, splits: tuple[str, ...]) -> None:
    facts.warn_all(splits, [_RANDOM_WEIGHTS])


def _recorded(options: ModelOptions, model: FeatureModel) -> dict[str, RecipeValue]:
    """Return the recipe's entries about the model, for `verify --recompute`."""
    return {
        **{name: getattr(options, name) for name in ("batch", "model", "pool", "resize")},
        "dtype": options.feature_dtype,
        "feature_shape": list(map(str, model.feature_shape)),
        "input_size": "x".join(map(str, model.input_size)),
        "layer": model.layer,
        "layers": model.layers,
        "preprocess": model.preprocess,
        "same_floats": "on the same processor, with the same versions of TensorFlow and Keras",
        "tolerance": TOLERANCE,
        "weights": options.weights or (options.model if options.model in options.more_files else ON_DISK),
        "weights_sha256": model.weights_sha256,
    }
