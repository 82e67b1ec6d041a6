"""`recordmill table`: convert rows of tables to TFRecord shards."""

from collections.abc import Iterable, Iterator
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from recordmill.pipelines.choose_encoder import choose_encoder, saved_classes, text_files
from recordmill.pipelines.convert import Contents, Gathered, Job, choose_images, image_contents, input_file
from recordmill.schemas.dataset.recipes import InputFile, unlisted_folder
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import ColumnType, Feature, FeatureTable
from recordmill.schemas.inputs.encoders import EncoderSource
from recordmill.schemas.inputs.tables import TEXT_PARTS, RowsFile, TableSchema
from recordmill.schemas.layouts import DECODED_IMAGE
from recordmill.transforms.blocks.pack_block import Keyed
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.dataset_folder import existing_labels
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.join.join_files import RANGE_BITS, JoinFiles
from recordmill.transforms.join.list_images import ListFolders, files_by_name
from recordmill.transforms.join.match_blocks import MatchRows
from recordmill.transforms.rows.find_rows import find_rows
from recordmill.transforms.storage.resolve import storage_for
from recordmill.transforms.table.choose_schema import ChosenSchema, ColumnChoice, with_texts
from recordmill.transforms.table.find_equal_keys import equal_keys_warning, find_equal_keys
from recordmill.transforms.table.fit_columns import choose_columns, fit_texts, observe_file
from recordmill.transforms.table.make_records import RowsRecipe, named_splits
from recordmill.transforms.table.read_records import BUCKETS, read_image_rows, stratify_rows
from recordmill.transforms.table.read_schema import read_schema
from recordmill.transforms.table.spill_rows import CopyRows, PlanRows, Spill, spill_file
from recordmill.transforms.table.table_options import TableOptions


class Table(NamedTuple):
    """Table to write.

    Attributes:
        files: in the order of their paths.
        given: the schema that the user gave; None to infer it.
        splits: names of all.
        texts: what encodes each column of texts.
    """

    options: TableOptions
    files: tuple[RowsFile, ...]
    given: TableSchema | None
    splits: tuple[str, ...]
    texts: tuple[EncoderSource, ...] = ()

    @property
    def recipe(self) -> RowsRecipe:
        options = self.options
        texts = (*options.text_column, *(self.given.texts if self.given else ()))
        return RowsRecipe(
            "" if options.dry_run else options.output,
            options.row_splits(self.splits),
            options.seed,
            options.reading._replace(texts=texts),
            options.image_column or "",
            options.images,
        )

    @property
    def contents(self) -> Contents:
        """Encoder of records. Columns are unknown before the job."""
        options = self.options
        if not options.image_column:
            return Contents(CopyRows(), PlanRows(self.splits, options.sizing))
        return image_contents(options, self.splits, options.table)


def prepare(options: TableOptions) -> Job:
    """Return the job of `recordmill table`.

    Raises:
        ConfigError: saved encoders have other classes, or cannot be used.
        AnnotationFileError: a file cannot be read.
    """
    files = tuple(_files(find_rows(*options.rows)))
    saved = saved_classes(options.encoders) if options.label else ()
    if saved and options.classes and options.classes != saved:
        raise ConfigError(
            f"--classes are not those that --encoders has, {', '.join(saved[:8])}{' …' if len(saved) > 8 else ''}: one "
            "index would stand for two classes; leave --classes out"
        )
    options = options.model_copy(update={"classes": saved or options.classes})  # an index stays the same class
    column = options.split_column
    splits = named_splits(files, column, options.reading) if column else options.splits
    form, output = options.text_form, options.output
    texts = tuple(choose_encoder(options, form, name, output, splits) for name in options.encoded_columns)
    table = Table(options, files, read_schema(options.schema_file) if options.schema_file else None, splits, texts)
    return Job(options, splits, partial(inputs, table), partial(gather, table=table), table.contents)


def _files(paths: Iterable[str]) -> Iterator[RowsFile]:
    for number, path in enumerate(paths):
        if found := storage_for(path).stat(path):
            yield RowsFile(path, found.size_bytes, found.version, number)


def inputs(table: Table) -> Iterable[InputFile]:
    """Return the files that determine the bytes of each split."""
    options = table.options
    rows = [input_file("rows", file.path) for file in table.files]
    schema = [input_file("schema", options.schema_file)] if options.schema_file else []
    images = map(unlisted_folder, sorted(options.images))
    texts = dict.fromkeys(file for text in table.texts for file in text_files(options, text))
    return (*rows, *schema, *images, *texts)


def gather(p: beam.Pipeline, table: Table) -> Gathered:
    """Return rows as records, in sorted files; or, with classes, splits and file names, as images."""
    options, recipe = table.options, table.recipe
    features = options.table.features
    files = p | "Files" >> beam.Create(table.files)
    listed = None
    if options.images:
        list_files = ListFolders(options.output, files_by_name, "path", BUCKETS)
        listed = p | "ImageFolders" >> beam.Create(options.images) | "ListImages" >> list_files
    taken = (DECODED_IMAGE, *(each.name for each in features)) if features else ()
    chosen, encoders = _choose_columns(files, table, taken, listed)
    spread = files | "SpreadToRead" >> beam.Reshuffle()  # one a pass, or runners fuse steps that wait for each other
    if options.image_column:
        read = WithFacts(read_image_rows, AsSingleton(chosen), recipe, types=Keyed)
        rows = spread | "ReadImageRows" >> read
        if listed:
            rows = (rows, listed) | "MatchRows" >> MatchRows("path", None, options.seed, RANGE_BITS)
        blocks = (rows,) | "JoinFiles" >> JoinFiles(table.splits, options.seed)
        blocks = choose_images(options, blocks, table.splits)
    else:
        blocks = spread | "SpillRows" >> WithFacts(spill_file, AsSingleton(chosen), recipe)
        if options.key and recipe.output:
            warn = WithFacts(_warn_equal_keys, AsList(blocks), recipe.output, options.key, table.splits[0])
            p | "OnceSpilled" >> beam.Impulse() | "CompareKeys" >> warn
    chosen | "WarnColumns" >> WithFacts(_warn_columns, table.splits[0])
    return Gathered(
        blocks,
        chosen | "Labels" >> beam.Map(attrgetter("labels")),
        chosen | "Table" >> beam.Map(table_of, features),
        encoders,
    )


def _choose_columns(
    files: PCollection, table: Table, taken: tuple[str, ...], listed: PCollection | None
) -> tuple[PCollection, PCollection | None]:
    """Read all rows; return one ChosenSchema, and the encoders of texts, None without texts.

    Args:
        taken: see ColumnChoice.
        listed: see `stratify_rows`.
    """
    options, recipe = table.options, table.recipe
    choice = _choice(options, table.given, recipe.splits.columns)
    choice = choice._replace(
        taken=taken, beside=existing_labels(recipe.output, table.splits) if recipe.output else None
    )
    chosen = (
        files
        | "SpreadToObserve" >> beam.Reshuffle()
        | "Observe" >> beam.Map(observe_file, recipe, choice.numbered)
        | "AddUp" >> beam.combiners.ToList()
        | "ChooseColumns" >> beam.Map(choose_columns, choice, table.files)
    )
    if options.stratify or options.split_by == "rank":
        chosen = stratify_rows(files, chosen, recipe, listed)
    if not table.texts:
        return chosen, None
    encoders = fit_texts(files, chosen, table.texts, recipe)
    with_encoders = beam.Map(with_texts, AsList(encoders), options.text_names_by_column, choice)
    return chosen | "WithTexts" >> with_encoders, encoders


def _choice(options: TableOptions, given: TableSchema | None, required: tuple[str, ...]) -> ColumnChoice:
    """Return the choices for columns: those of the flags, then those of the schema. The schema says of a column of
    encoded texts only that it was a text."""
    read = options.read_columns
    columns = [column for column in given.columns if not read or column.name in read] if given else []
    plain = [column for column in columns if column.type not in TEXT_PARTS]
    defaults = {column.name: column.default for column in columns if column.default is not None}
    return ColumnChoice(
        options.written_columns,
        options.label or "",
        options.classes,
        {column.name: (ColumnType.BYTES, False, ()) for column in columns}
        | {column.name: (column.type, column.is_list, column.shape) for column in plain},
        defaults | options.defaults,
        {column.name: column.feature for column in plain if column.feature != column.name} | options.renamed,
        required,
        options.text_column,
        {column.name: column.values for column in plain if column.values},
        options.image_columns,
        label_type=ColumnType.CLASS_NAME if options.label_as == "text" else ColumnType.CLASS,
        dtypes=options.column_types,
        counts=options.count_features,
    )


def _warn_columns(chosen: ChosenSchema, facts: FactsBuilder, split: str) -> None:
    facts.warn_all([split], chosen.warnings)


# Long list of arguments: files of spills, and the names in the warning.
def _warn_equal_keys(_: bytes, facts: FactsBuilder, spills: list[Spill], output: str, column: str, split: str) -> None:
    text = equal_keys_warning(find_equal_keys(spills, output), column)
    facts.warn_all([split], filter(None, [text]))


def table_of(chosen: ChosenSchema, image_features: tuple[Feature, ...]) -> FeatureTable:
    """Return the features of columns and of rows' images."""
    return chosen.schema.table(image_features)
