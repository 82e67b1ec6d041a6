"""What there is to convert, from checked options: a function a verb. Pipelines are imported when a job is built."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from recordmill.launch.preflight.check_inputs import (
    check_coco_inputs,
    check_embed_inputs,
    check_folder_inputs,
    check_sample,
    check_table_inputs,
    find_rows,
)
from recordmill.launch.preflight.choose_encoders import choose_encoder, saved_classes
from recordmill.launch.preflight.recipe import coco_recipes, embed_recipes, folder_recipes, table_recipes
from recordmill.launch.terminal.require_tensorflow import require_tensorflow
from recordmill.launch.verbs.convert import Conversion
from recordmill.pipelines.options.coco_options import CAPTIONS, CocoOptions
from recordmill.pipelines.options.embed_options import EmbedOptions
from recordmill.pipelines.options.folder_options import FolderOptions
from recordmill.pipelines.options.table_options import TableOptions
from recordmill.schemas.encoders import TextForm
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.layouts import features_table
from recordmill.schemas.tables import RowsFile
from recordmill.transforms.storage.resolve import storage_for


def coco(options: CocoOptions) -> Conversion:
    """What `recordmill coco` converts.

    Raises:
        ConfigError: a file or folder that the options name is not there.
    """
    check_coco_inputs(options)
    form = options.text_form
    text = None if form is TextForm.RAW else choose_encoder(options, form, CAPTIONS, options.output, options.splits)

    def job() -> Any:
        from recordmill.pipelines import coco, convert

        splits, gather = options.splits, partial(coco.gather, options=options, text=text)
        return convert.Job(options, splits, gather, convert.pictures(options, splits, options.table))

    return Conversion(options, options.splits, lambda: coco_recipes(options, text), job)


def folder(options: FolderOptions) -> Conversion:
    """What `recordmill folder` converts.

    Raises:
        ConfigError: a file or folder that the options name is not there; splits are asked for in two ways.
        AnnotationFileError: a table of labels cannot be read.
    """
    check_folder_inputs(options)
    if not options.labels:
        check_sample(options)
    recipes = folder_recipes(options)
    splits = tuple(recipe.split for recipe in recipes)

    def job() -> Any:
        from recordmill.pipelines import convert, folder

        gather = partial(folder.gather, options=options, splits=splits, table=options.table)
        return convert.Job(options, splits, gather, convert.pictures(options, splits, options.table))

    return Conversion(options, splits, lambda: recipes, job)


def embed(options: EmbedOptions) -> Conversion:
    """What `recordmill embed` converts. The model is loaded, so that what is wrong with it is told first.

    Raises:
        ConfigError: a file or folder that the options name is not there; the model cannot be loaded, or takes no
            pictures; splits are asked for in two ways; TensorFlow is not installed.
        AnnotationFileError: a table cannot be read.
    """
    check_embed_inputs(options)
    if not (options.labels or options.rows):
        check_sample(options)
    require_tensorflow("embed", is_checking=False)
    from recordmill.transforms.encoders.load_model import load_model

    model = load_model(options.choice).found
    rows = table(options.as_table()) if options.rows else None
    recipes = embed_recipes(options, model, rows.recipes() if rows else folder_recipes(options))
    splits = tuple(recipe.split for recipe in recipes)

    def job() -> Any:
        from recordmill.pipelines import convert, embed, folder

        table = features_table(model.feature_shape, options.dtype)

        def gather(p: Any) -> Any:
            gathered = rows.job().gather(p) if rows else folder.gather(p, options, splits, table)
            return embed.with_features(p, gathered, options, splits, table)

        return convert.Job(options, splits, gather, embed.features(options, splits, model, table))

    return Conversion(options, splits, lambda: recipes, job)


def table(options: TableOptions) -> Conversion:
    """What `recordmill table` converts.

    Raises:
        ConfigError: a file that the options name is not there.
        AnnotationFileError: a file cannot be read.
    """
    paths = find_rows(options.rows)
    check_table_inputs(options, paths)
    saved = saved_classes(options.encoders) if options.label else ()
    if saved and options.classes and options.classes != saved:
        raise ConfigError(
            f"--classes are not those that --encoders has, {', '.join(saved[:8])}{' …' if len(saved) > 8 else ''}: one "
            "index would stand for two classes; leave --classes out"
        )
    options = replace(options, classes=saved or options.classes)  # so that an index is the same class
    splits = options.splits
    if options.split_column:
        from recordmill.transforms.table.make_records import named_splits

        splits = named_splits(_files(paths), options.split_column, options.encoding)
    texts = tuple(
        choose_encoder(options, options.text_form, column, options.output, splits) for column in options.encoded_columns
    )

    def job() -> Any:
        from recordmill.pipelines import convert
        from recordmill.pipelines.table import Table, gather
        from recordmill.transforms.table.read_schema import read_schema

        given = read_schema(options.schema) if options.schema else None
        found = Table(options, _files(paths), given, splits, texts)
        return convert.Job(options, splits, partial(gather, table=found), found.contents)

    return Conversion(options, splits, lambda: table_recipes(options, paths, splits, texts), job)


def _files(paths: Sequence[str]) -> tuple[RowsFile, ...]:
    found = ((path, storage_for(path).stat(path)) for path in paths)
    return tuple(
        RowsFile(number, path, file.size_bytes, file.version) for number, (path, file) in enumerate(found) if file
    )
