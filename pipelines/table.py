"""`recordmill table`: convert rows of tables to TFRecord shards."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from recordmill.pipelines.choose_encoder import choose_encoder, saved_classes, text_files
from recordmill.pipelines.convert import Gathered, Job, choose_images, encode_and_plan, input_file
from recordmill.schemas.dataset.recipes import InputFile, unlisted_folder
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Feature, FeatureTable
from recordmill.schemas.inputs.encoders import EncoderSource
from recordmill.schemas.inputs.tables import Column, RowsFile, RowsReading, TableSchema
from recordmill.transforms.blocks.pack_block import Keyed
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.dataset_folder import existing_labels
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.join.join_files import RANGE_BITS, JoinFiles
from recordmill.transforms.join.list_images import ListFolders, files_by_name
from recordmill.transforms.join.match_blocks import MatchRows
from recordmill.transforms.rows.find_rows import find_rows
from recordmill.transforms.storage.resolve import storage_for
from recordmill.transforms.table.choose_schema import ChosenSchema, numbered_columns, with_texts
from recordmill.transforms.table.find_equal_keys import equal_keys_warning
from recordmill.transforms.table.fit_columns import choose_columns, fit_texts, observe_file
from recordmill.transforms.table.make_records import list_splits
from recordmill.transforms.table.read_records import BUCKETS, read_image_rows, stratify_rows
from recordmill.transforms.table.read_schema import columns_by_name, read_schema
from recordmill.transforms.table.spill_rows import CopyRows, PlanRows, Spill, spill_file
from recordmill.transforms.table.table_options import TableOptions


def prepare(options: TableOptions) -> Job:
    """Return the job of `recordmill table`.

    Raises:
        ConfigError: Saved encoders have other classes, or are unusable.
        AnnotationFileError: A file cannot be read.
    """
    files = tuple(_find_files(options.rows))
    saved = saved_classes(options.encoders) if options.label else ()
    if saved and options.classes and options.classes != saved:
        raise ConfigError(
            f"--classes differ from the classes of --encoders, {', '.join(saved[:8])}{' …' if len(saved) > 8 else ''}: "
            "one index would mean two classes; leave --classes out"
        )
    options = options.model_copy(update={"classes": saved or options.classes})  # an index stays the same class
    column = options.split_column
    splits = list_splits(files, column, options.reading) if column else options.splits
    form, output = options.text_form, options.output
    texts = tuple(choose_encoder(options, form, name, output, splits) for name in options.encoded_columns)
    schema = read_schema(options.schema_file) if options.schema_file else TableSchema(())
    known = columns_by_name(schema, options.read_columns)
    steps = partial(gather, options=options, files=files, known=known, splits=splits, texts=texts)
    read = partial(inputs, options, files, texts)
    if options.image_column:
        return Job(options, splits, read, steps, *encode_and_plan(options, splits, options.table))
    return Job(options, splits, read, steps, CopyRows(), PlanRows(splits, options.sizing), counts_classes=False)


def _find_files(patterns: Iterable[str]) -> Iterator[RowsFile]:
    """Yield the files of rows in the order of their paths."""
    for number, path in enumerate(find_rows(*patterns)):
        if stat := storage_for(path).stat(path):
            yield RowsFile(path, stat.size_bytes, stat.version, number)


def inputs(
    options: TableOptions, files: Iterable[RowsFile], texts: Iterable[EncoderSource] = ()
) -> Iterator[InputFile]:
    """Yield the files that determine the bytes of each split."""
    yield from (input_file("rows", file.path) for file in files)
    if options.schema_file:
        yield input_file("schema", options.schema_file)
    yield from map(unlisted_folder, sorted(options.images))
    yield from dict.fromkeys(file for text in texts for file in text_files(options, text))


# Long list of arguments, here and below: the options do not say which files, columns, splits and encoders there are.
def gather(
    p: beam.Pipeline,
    options: TableOptions,
    files: tuple[RowsFile, ...],
    known: Mapping[str, Column],
    splits: tuple[str, ...],
    texts: tuple[EncoderSource, ...] = (),
) -> Gathered:
    """Return rows as records, in sorted files; or, with classes, splits and file names, as images.

    Args:
        known: Columns of --schema by name.
        texts: Encoders of columns of texts.
    """
    job = options, splits, options.reading_with(known)
    tables = p | "Files" >> beam.Create(files)
    listed = _list_images(p, options) if options.images else None
    chosen = _choose_columns(tables, files, known, *job)
    if options.divides_ranked:
        chosen = stratify_rows(tables, chosen, *job, listed)
    encoders = fit_texts(tables, chosen, texts, *job) if texts else None
    if encoders:
        chosen = chosen | "WithTexts" >> beam.Map(with_texts, AsList(encoders), options)
    spread = tables | "SpreadToRead" >> beam.Reshuffle()  # one a pass, or runners fuse steps that wait for each other
    if options.image_column:
        blocks = _join_images(spread, chosen, listed, *job)
    else:
        blocks = _spill_records(spread, chosen, *job)
    chosen | "WarnColumns" >> WithFacts(_warn_columns, splits[0])
    return Gathered(
        blocks,
        chosen | "Labels" >> beam.Map(attrgetter("labels")),
        chosen | "Table" >> beam.Map(_record_features, options.table.features),
        encoders,
    )


def _list_images(p: beam.Pipeline, options: TableOptions) -> PCollection:
    """Return (bucket of names, packed Block) of image files."""
    list_files = ListFolders(options.output, files_by_name, "path", BUCKETS)
    return p | "ImageFolders" >> beam.Create(options.images) | "ListImages" >> list_files


def _choose_columns(
    tables: PCollection,
    files: tuple[RowsFile, ...],
    known: Mapping[str, Column],
    options: TableOptions,
    splits: tuple[str, ...],
    reading: RowsReading,
) -> PCollection:
    """Read all rows, and return one ChosenSchema."""
    existing = None if options.dry_run else existing_labels(options.output, splits)
    return (
        tables
        | "SpreadToObserve" >> beam.Reshuffle()
        | "Observe" >> beam.Map(observe_file, reading, numbered_columns(options, known))
        | "AddUp" >> beam.combiners.ToList()
        | "ChooseColumns" >> beam.Map(choose_columns, options, known, existing, files)
    )


def _join_images(
    files: PCollection,
    chosen: PCollection,
    listed: PCollection | None,
    options: TableOptions,
    splits: tuple[str, ...],
    reading: RowsReading,
) -> PCollection:
    """Return (BlockKey, packed complete Block) of the images of rows."""
    read = WithFacts(read_image_rows, AsSingleton(chosen), options, splits, reading, types=Keyed)
    rows = files | "ReadImageRows" >> read
    if listed:
        rows = (rows, listed) | "MatchRows" >> MatchRows("path", None, options.seed, RANGE_BITS)
    blocks = (rows,) | "JoinFiles" >> JoinFiles(splits, options.seed)
    return choose_images(options, blocks, splits)


def _spill_records(
    files: PCollection, chosen: PCollection, options: TableOptions, splits: tuple[str, ...], reading: RowsReading
) -> PCollection:
    """Return the Spills of all rows, and warn about rows that share a key."""
    spill = WithFacts(spill_file, AsSingleton(chosen), options, splits, reading)
    spills = files | "SpillRows" >> spill
    if options.key and not options.dry_run:
        warn = WithFacts(_warn_equal_keys, AsList(spills), options.output, options.key, splits[0])
        files.pipeline | "OnceSpilled" >> beam.Impulse() | "CompareKeys" >> warn
    return spills


def _warn_columns(chosen: ChosenSchema, facts: FactsBuilder, split: str) -> None:
    facts.warn_all([split], chosen.warnings)


# Long list of arguments: files of spills, and the names in the warning.
def _warn_equal_keys(_: bytes, facts: FactsBuilder, spills: list[Spill], output: str, column: str, split: str) -> None:
    text = equal_keys_warning(spills, output, column)
    facts.warn_all([split], filter(None, [text]))


def _record_features(chosen: ChosenSchema, image_features: tuple[Feature, ...]) -> FeatureTable:
    """Return the features of columns and of rows' images."""
    return chosen.schema.table(image_features)
