"""`recordmill table`: rows of tables become TFRecord shards."""

from typing import NamedTuple

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsList, PCollection

from recordmill.pipelines.convert import Contents, Gathered, pictures
from recordmill.pipelines.options.table_options import TableOptions
from recordmill.schemas.encoders import EncoderSource
from recordmill.schemas.features import Feature, FeatureTable
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.layouts import DECODED_PICTURE, TABLE, picture_of_row
from recordmill.schemas.tables import TEXT_PARTS, ColumnType, RowsFile, TableSchema
from recordmill.transforms.dataset.facts import FACTS, Facts
from recordmill.transforms.folder.read_folder import RANGE_BITS, FolderRules, JoinFiles
from recordmill.transforms.join.list_images import ListFiles
from recordmill.transforms.join.match_blocks import MatchRows
from recordmill.transforms.table.choose_schema import ChosenSchema, ColumnChoice, with_texts
from recordmill.transforms.table.copy_rows import CopyRows
from recordmill.transforms.table.find_equal_keys import EqualKeys, FindEqualKeys, equal_keys_warning
from recordmill.transforms.table.fit_texts import FitTexts
from recordmill.transforms.table.infer_schema import InferSchema
from recordmill.transforms.table.make_records import RowsRecipe
from recordmill.transforms.table.read_records import BUCKETS, ReadPictureRows, StratifyRows
from recordmill.transforms.table.spill_rows import PlanRows, SpillRows


class Table(NamedTuple):
    """A table to write.

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
        return RowsRecipe(
            "" if options.dry_run else options.output,
            options.row_splits(self.splits),
            options.seed,
            options.read_columns,
            options.encoding,
            options.image_column or "",
            options.images,
        )

    @property
    def contents(self) -> Contents:
        """What is in records. The columns are not known before the job."""
        options = self.options
        if not options.image_column:
            return Contents(CopyRows(), PlanRows(self.splits, options.sizing))
        features = picture_of_row(options.pictures.raw_size)
        return pictures(options, self.splits, msgspec.structs.replace(TABLE, features=features))


def gather(p: beam.Pipeline, table: Table) -> Gathered:
    """Rows as records, in sorted files; or, with their classes and splits and the files that they name, as images."""
    options, recipe = table.options, table.recipe
    features = picture_of_row(options.pictures.raw_size) if options.image_column else ()
    files = p | "Files" >> beam.Create(table.files)
    columns = _choose_columns(files, table, (DECODED_PICTURE, *(each.name for each in features)) if features else ())
    chosen = columns.chosen
    if options.image_column:
        read = files | "ReadPictureRows" >> ReadPictureRows(chosen, recipe)
        list_files = ListFiles(options.output, "path", BUCKETS)
        listed = p | "ImageFolders" >> beam.Create(options.images) | "ListImages" >> list_files
        matched = (read.rows, listed) | "MatchRows" >> MatchRows("path", None, options.seed, RANGE_BITS)
        rules = FolderRules(options.output, None, (), table.splits, options.seed, "", "")
        joined = (matched.rows,) | "JoinFiles" >> JoinFiles(rules)
        blocks, facts = joined.blocks, [read[FACTS], matched[FACTS], joined[FACTS]]
    else:
        read = files | "SpillRows" >> SpillRows(chosen, recipe)
        blocks, facts = read.spills, [read[FACTS]]
        if options.key and recipe.output:
            found = blocks | "FindEqualKeys" >> FindEqualKeys(recipe.output)
            facts.append(found | "OfKeys" >> beam.Map(_of_keys, options.key, table.splits[0]))
    return Gathered(
        blocks,
        chosen | "Labels" >> beam.Map(labels_of),
        chosen | "Table" >> beam.Map(table_of, features),
        (*facts, chosen | "OfColumns" >> beam.Map(_of_columns, table.splits[0])),
        columns.encoders,
    )


class _Columns(NamedTuple):
    """How columns are written: one ChosenSchema, and the encoders of texts; None where there are none."""

    chosen: PCollection
    encoders: PCollection | None


def _choose_columns(files: PCollection, table: Table, taken: tuple[str, ...]) -> _Columns:
    """Look at all rows; `taken` as of ColumnChoice."""
    options, recipe = table.options, table.recipe
    choice = _choice(options, table.given, recipe.splits.columns)._replace(taken=taken)
    chosen = files | "InferSchema" >> InferSchema(choice, table.files, recipe)
    if options.stratify:
        chosen = files | "StratifyRows" >> StratifyRows(chosen, recipe)
    if not table.texts:
        return _Columns(chosen, None)
    encoders = files | "FitTexts" >> FitTexts(table.texts, recipe, choice.defaults, chosen)
    with_encoders = beam.Map(with_texts, AsList(encoders), options.text_names_by_column, taken)
    return _Columns(chosen | "WithTexts" >> with_encoders, encoders)


def _choice(options: TableOptions, given: TableSchema | None, required: tuple[str, ...]) -> ColumnChoice:
    """What the flags say of columns, and what the schema says of those that are read and the flags do not. Of columns
    whose texts became numbers, it says only that they were texts."""
    read = options.read_columns
    columns = [column for column in given.columns if not read or column.name in read] if given else []
    plain = [column for column in columns if column.type not in TEXT_PARTS]
    defaults = {column.name: column.default for column in columns if column.default is not None}
    return ColumnChoice(
        options.written_columns,
        options.label or "",
        options.classes,
        {column.name: (ColumnType.BYTES, False) for column in columns}
        | {column.name: (column.type, column.is_list) for column in plain},
        defaults | options.defaults,
        {column.name: column.feature for column in plain if column.feature != column.name} | options.renamed,
        required,
        options.text_column,
        {column.name: column.values for column in plain if column.values},
        options.image_column or "",
    )


def _of_columns(chosen: ChosenSchema, split: str) -> Facts:
    return Facts(warnings={(split, text) for text in chosen.warnings})


def _of_keys(found: EqualKeys, column: str, split: str) -> Facts:
    text = equal_keys_warning(found, column)
    return Facts(warnings={(split, text)} if text else set())


def labels_of(chosen: ChosenSchema) -> LabelMap:
    return chosen.labels


def table_of(chosen: ChosenSchema, pictures: tuple[Feature, ...] = ()) -> FeatureTable:
    """The features of columns, and of the pictures that rows name."""
    return chosen.schema.table(pictures)
