"""What a trainer has to be told of a data set: a template of docs/consumers/, filled."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.manifest import Manifest, SplitManifest
from recordmill.schemas.statistics_file import SplitStatistics

_MAX_OBJECTS = 100
"""Of an image, as Model Garden has it; more where an image has more, which would be left out without a word."""
_VALIDATION = ("val", "validation")
_OF_PATTERNS = re.compile(r"[*?\[\]\\,]")
_JPEG = {"jpeg"}


class Consumer(NamedTuple):
    """What a trainer reads.

    Attributes:
        epochs: of the experiment that its template is of.
        part: what its records must hold besides what the layout always has.
        flag: of `recordmill coco`, which gives that.
    """

    layout: str
    epochs: int
    part: Part | None = None
    flag: str = ""


CONSUMERS = {
    "model-garden-retinanet": Consumer("detection", 72),
    "model-garden-maskrcnn": Consumer("detection", 12, Part.MASK_PNG, "--masks png"),
    "model-garden-classification": Consumer("classification", 90),
    "model-garden-segmentation": Consumer("detection", 450, Part.SEMANTIC, "--panoptic or --stuff"),
}
_VERBS = {"classification": "recordmill folder", "detection": "recordmill coco without --layout"}


class Training(NamedTuple):
    """How a model is to be trained on a data set.

    Attributes:
        train, validation: names of splits; empty for the usual ones.
        batch_size: images a step.
        epochs: None for as many as the experiment has.
    """

    train: str = ""
    validation: str = ""
    batch_size: int = 8
    epochs: int | None = None


class _Split(NamedTuple):
    """A split as a template names it; `path` as YAML has it, quoted."""

    examples: int
    path: str


def fill_config(
    consumer: str, folder: str, manifest: Manifest, statistics: Mapping[str, SplitStatistics], training: Training
) -> str:
    """The configuration, as YAML.

    Args:
        consumer: one of CONSUMERS.
        folder: the data set's, a whole path, or one in a bucket.
        statistics: of its splits.

    Raises:
        ConfigError: the consumer cannot read such a data set, or there is nothing to train on, or to validate by.
    """
    reader = CONSUMERS[consumer]
    names = chosen_splits(manifest, training)
    train, validation = (manifest.splits[name] for name in names)
    for fault in _faults(consumer, folder, manifest, (train, validation)):
        raise ConfigError(f"{folder}: {fault}")
    steps = train.examples // training.batch_size
    if not steps:
        raise ConfigError(
            f"{names[0]} has {train.examples:,} records, less than the {training.batch_size} of a step, so no step "
            "would be made; give a smaller --batch-size"
        )
    known = [statistics[name] for name in names if name in statistics]
    values = {
        "train": _Split(train.examples, _pattern(folder, train)),
        "validation": _Split(validation.examples, _pattern(folder, validation)),
        "num_classes": _semantic_classes(manifest) if reader.part is Part.SEMANTIC else manifest.num_classes,
        "max_objects": max([_MAX_OBJECTS, *map(_most_objects, known)]),
        "is_jpeg": len(known) == len(names) and all(each.formats.keys() <= _JPEG for each in known),
        "batch_size": training.batch_size,
        "epochs": training.epochs or reader.epochs,
        "steps": steps,
        "validation_steps": -(-validation.examples // training.batch_size),
        # In digits, as YAML takes 1e-05 for a text.
        "rate": lambda of_one_image: f"{of_one_image * training.batch_size:.8f}",
    }
    return str(_template(consumer).render(values))


def chosen_splits(manifest: Manifest, training: Training) -> tuple[str, str]:
    """The split that trains, and the one that validates.

    Raises:
        ConfigError: it is not there, or not clear which it is.
    """
    there = ", ".join(manifest.splits)
    train = training.train or "train"
    if train not in manifest.splits:
        raise ConfigError(f"there is no split {train!r}, but {there}; --train SPLIT says which one trains")
    others = [name for name in manifest.splits if name != train]
    usual = others if len(others) == 1 else [name for name in _VALIDATION if name in others]
    if not (training.validation or others):
        raise ConfigError(f"there is no split but {train}, so nothing to validate by; convert one with --split val")
    if not (training.validation or usual):
        raise ConfigError(f"which split validates is not clear, of {', '.join(others)}; --validation SPLIT says so")
    validation = training.validation or usual[0]
    if validation not in manifest.splits:
        raise ConfigError(f"there is no split {validation!r}, but {there}; --validation SPLIT says which one validates")
    if train == validation:
        raise ConfigError(f"{train} would train and validate, and what is measured would say nothing; give two splits")
    return train, validation


def _faults(consumer: str, folder: str, manifest: Manifest, splits: tuple[SplitManifest, ...]) -> Iterator[str]:
    """Why such a data set cannot be read."""
    reader = CONSUMERS[consumer]
    if manifest.layout != reader.layout:
        yield (
            f"its layout is {manifest.layout}, and {consumer} reads {reader.layout}, which {_VERBS[reader.layout]} "
            "writes"
        )
    if reader.part and reader.part not in manifest.parts:
        yield f"{consumer} trains on what no record holds; convert again with {reader.flag}"
    if reader.part is not Part.SEMANTIC and not manifest.categories:
        yield "it has no class that a model could learn"
    if packed := {split.compression for split in splits} - {""}:
        yield f"its shards are compressed, and Model Garden reads no {packed.pop()}; convert again without --gzip"
    if any(not split.examples for split in splits):
        yield f"{' or '.join(split.recipe.split for split in splits)} has no records"
    if match := _OF_PATTERNS.search(folder):
        yield (
            f"Model Garden takes names of files for patterns with commas between them, so it would not find those in a "
            f"folder with {match[0]!r} in its path; move it"
        )


def _pattern(folder: str, split: SplitManifest) -> str:
    """What matches a split's shards and nothing beside them, quoted as YAML has it.

    `coco-train.tfrecord-00000-of-00008` becomes `coco-train.tfrecord-*-of-00008`.
    """
    name = re.sub(r"-\d+-of-(\d+)", r"-*-of-\1", split.shards[0].file)
    return msgspec.json.encode(f"{folder.rstrip('/')}/{name}").decode()


def _most_objects(statistics: SplitStatistics) -> int:
    objects = statistics.histograms.get("objects_an_image")
    return int(objects.largest) if objects else 0


def _semantic_classes(manifest: Manifest) -> int:
    return 1 + max(manifest.labels.semantic_by_id().values(), default=0)


def _template(consumer: str) -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("recordmill.consumers", ".")
    return Environment(loader=loader, undefined=StrictUndefined, keep_trailing_newline=True).get_template(
        f"{consumer}.yaml"
    )
