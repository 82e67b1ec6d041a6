"""What decides the bytes of a split, written down: the manifest keeps it, and an interrupted run is known by it."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import astuple, replace

from recordmill.pipelines.options.coco_options import CocoOptions
from recordmill.pipelines.options.convert_options import ALL_TRAIN, RecipeValue
from recordmill.pipelines.options.embed_options import EmbedOptions
from recordmill.pipelines.options.folder_options import LabelledOptions
from recordmill.pipelines.options.picture_options import DividedOptions, ImageOptions
from recordmill.pipelines.options.table_options import TableOptions
from recordmill.pipelines.options.text_options import TextOptions
from recordmill.schemas.encoders import EncoderSource
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.manifest import FORMAT
from recordmill.schemas.models import ON_DISK, TOLERANCE, FeatureModel
from recordmill.schemas.recipes import InputFile, Recipe, to_list
from recordmill.transforms.folder.read_labels import table_splits
from recordmill.transforms.storage.resolve import storage_for


def coco_recipes(options: CocoOptions, text: EncoderSource | None) -> list[Recipe]:
    """What decides the bytes of each split that the options ask for; `text` is what encodes their captions."""
    sources = sorted(options.sources, key=astuple)
    annotations = (_read_file(source.kind.value, source.path, source.masks) for source in sources)
    inputs = (*annotations, *_text_files(options, text), *_groups_files(options))
    return [_recipe(options, split, inputs) for split in options.splits]


def _text_files(options: TextOptions, text: EncoderSource | None) -> Iterator[InputFile]:
    """The files that decide, besides the texts, what they become."""
    if text and text.path:
        yield _read_file("encoders", text.path)
    elif text:
        yield from (_read_file("stop_words", path) for path in sorted(options.stop_words))


def _groups_files(options: DividedOptions) -> Iterator[InputFile]:
    yield from (_read_file("groups", path) for path in options.group_files)


def folder_recipes(options: LabelledOptions) -> list[Recipe]:
    """What decides the bytes of each split that the options, or tables of labels, ask for. What is in folders of images
    is for the job to find: a million files take minutes to list.

    Raises:
        ConfigError: splits are asked for in two ways, or the tables name none.
        AnnotationFileError: a table cannot be read.
    """
    if not options.labels:
        inputs = (*map(to_list, sorted(options.images)), *_groups_files(options))
        return [_recipe(options, split, inputs) for split in options.splits]
    inputs = (*(_read_file("labels", path) for path in sorted(options.labels)), *_groups_files(options))
    return [_recipe(options, split, inputs) for split in _label_splits(options) or options.splits]


def embed_recipes(options: EmbedOptions, found: FeatureModel, of_images: Iterable[Recipe]) -> list[Recipe]:
    """What decides the bytes of each split: the recipes of its images, with the model that was found."""
    of_model: dict[str, RecipeValue] = {
        "feature_shape": list(map(str, found.feature_shape)),
        "input_size": "x".join(map(str, found.input_size)),
        "layer": found.layer,
        "layers": found.layers,
        "preprocess": found.preprocess,
        "same_floats": "on the same processor, with the same versions of TensorFlow and Keras",
        "tolerance": TOLERANCE,
        "weights": options.weights or (options.model if options.model in options.model_paths else ON_DISK),
        "weights_sha256": found.weights_sha256,
    }
    record_options = options.record_options | of_model
    return [replace(_recipe(options, recipe.split, recipe.inputs), options=record_options) for recipe in of_images]


def table_recipes(
    options: TableOptions, paths: Sequence[str], splits: Sequence[str], texts: Sequence[EncoderSource]
) -> list[Recipe]:
    """What decides the bytes of each split of a table.

    Args:
        paths: of all files of rows.
        texts: what encodes the columns of texts.
    """
    inputs = [_read_file("rows", path) for path in paths]
    if options.schema:
        inputs.append(_read_file("schema", options.schema))
    inputs += dict.fromkeys(file for text in texts for file in _text_files(options, text))
    return [_recipe(options, split, tuple(inputs)) for split in splits]


def _label_splits(options: LabelledOptions) -> tuple[str, ...]:
    """The splits that the tables of labels give; none where they give none."""
    by_table = {path: table_splits(path, options.columns) for path in options.labels}
    with_splits = sorted(path for path, splits in by_table.items() if splits is not None)
    if not with_splits:
        return ()
    if len(with_splits) < len(by_table):
        raise ConfigError(f"--labels: {', '.join(with_splits)} says which split an image is of, the others do not")
    splits = tuple(sorted({split for splits in by_table.values() for split in splits or ()}))
    if not splits:
        raise ConfigError(f"{', '.join(with_splits)}: no row that can be used, so there is nothing to write")
    if options.split != ALL_TRAIN:
        raise ConfigError(
            f"{with_splits[0]} says which split an image is of ({', '.join(splits)}), and so does --split"
        )
    return splits


def _recipe(options: ImageOptions, split: str, inputs: tuple[InputFile, ...]) -> Recipe:
    return Recipe(
        FORMAT,
        options.name,
        split,
        options.layout,
        options.table.parts,
        inputs,
        tuple(sorted(options.images)),
        options.record_options,
    )


def _read_file(kind: str, path: str, masks: str = "") -> InputFile:
    size, checksum = storage_for(path).checksum(path)
    return InputFile(kind, path, size, checksum, masks)
