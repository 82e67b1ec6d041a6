"""`recordmill embed`: what a model makes of images of one class each becomes TFRecord shards."""

import apache_beam as beam

from recordmill.pipelines.convert import Contents, Gathered, planned_blocks
from recordmill.pipelines.options.embed_options import EmbedOptions
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.models import RANDOM, FeatureModel
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.encoders.embed_pictures import EmbedPictures

_RANDOM_WEIGHTS = (
    "--weights none: the weights are random, so the features mean nothing; give --weights imagenet or a file to train "
    "on them"
)


def features(options: EmbedOptions, splits: tuple[str, ...], model: FeatureModel, table: FeatureTable) -> Contents:
    """Records that hold what the model makes of pictures."""
    maker = EmbedPictures(options.choice, model, options.batch, options.dtype, options.resize)
    return planned_blocks(options, splits, maker, maker.estimate(table))


def with_features(
    p: beam.Pipeline, gathered: Gathered, options: EmbedOptions, splits: tuple[str, ...], table: FeatureTable
) -> Gathered:
    """Images, as `recordmill folder` or `table` gathers them, that become features of `table`."""
    gathered = gathered._replace(table=p | "Features" >> beam.Create([table]))
    if options.weights != RANDOM:
        return gathered
    warned = Facts(warnings={(split, _RANDOM_WEIGHTS) for split in splits})
    return gathered._replace(facts=(*gathered.facts, p | "RandomWeights" >> beam.Create([warned])))
