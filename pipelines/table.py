"""Format `table`: convert rows of tables to TFRecord shards."""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from operator import attrgetter

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from recordmill.pipelines.choose_encoder import choose_encoder, saved_classes, text_files
from recordmill.pipelines.convert import (
    Job,
    encode_and_plan,
    input_file,
    place_in_split,
)
from recordmill.pipelines.gathered import Gathered
from recordmill.schemas.dataset.recipes import InputFile, unlisted_folder
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Feature, FeatureTable
from recordmill.schemas.inputs.encoders import EncoderSource
from recordmill.schemas.inputs.tables import Column, RowsFile, RowsReading, TableSchema
from recordmill.transforms.blocks.flatten_collections import flatten_collections
from recordmill.transforms.blocks.pack_block import Keyed
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.dataset_folder import existing_labels
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.join.join_files import RANGE_BITS, JoinFiles
from recordmill.transforms.join.list_images import ListFolders, files_by_name
from recordmill.transforms.join.match_blocks import MatchRows
from recordmill.transforms.rows.find_rows import find_row_splits, find_rows, rows_files
from recordmill.transforms.table.choose_schema import ChosenSchema, numbered_columns, with_texts
from recordmill.transforms.table.find_equal_keys import equal_keys_warning
from recordmill.transforms.table.fit_columns import choose_columns, fit_texts, observe_file
from recordmill.transforms.table.limit_rows import Part, limit_rows
from recordmill.transforms.table.make_records import list_splits
from recordmill.transforms.table.read_records import BUCKETS, read_image_rows, stratify_rows
from recordmill.transforms.table.read_schema import columns_by_name, read_schema
from recordmill.transforms.table.spill_rows import CopyRows, PlanRows, Spill, spill_file
from recordmill.transforms.table.table_options import TableOptions


def prepare(options: TableOptions) -> Job:
    """Return the job of the format `table`.

    Raises:
        ConfigError: Saved encoders have other classes, or are unusable.
        AnnotationFileError: A file cannot be read.
    """
    parts = find_parts(options)
    files = tuple(rows_files(find_rows(*options.rows)))
    saved = saved_classes(options.encoders) if options.label else ()
    if saved and options.classes and options.classes != saved:
        raise ConfigError(
            f"--classes differ from the classes of --encoders, {', '.join(saved[:8])}{' …' if len(saved) > 8 else ''}: "
            "one index would mean two classes. Leave --classes out"
        )
    options = options.model_copy(update={"classes": saved or options.classes})  # an index stays the same class
    column = options.split_column
    splits = tuple(parts) or (list_splits(files, column, options.reading) if column else options.splits)
    form, output = options.text_form, options.output
    texts = tuple(choose_encoder(options, form, name, output, splits) for name in options.encoded_columns)
    schema = read_schema(options.schema_file) if options.schema_file else TableSchema(())
    known = columns_by_name(schema, options.read_columns)
    steps = partial(gather, options=options, files=files, known=known, splits=splits, texts=texts, parts=parts)
    read = partial(inputs, options, files, texts)
    if options.image_column:
        job = Job(options, splits, read, steps, *encode_and_plan(options, splits, options.table))
    else:
        job = Job(options, splits, read, steps, CopyRows(), PlanRows(splits, options.sizing), has_images=False)
    jobs = tuple(
        job._replace(options=part, splits=(split,), inputs=partial(inputs, part, rows_files(part.rows)))
        for split, part in parts.items()
    )
    return job._replace(parts=jobs)


def find_parts(options: TableOptions) -> dict[str, TableOptions]:
    """Return the options of each split, if DATA is a folder whose files or folders have the names of splits.

    Raises:
        ConfigError: Other options name splits, too, or divide rows.
    """
    by_split = find_row_splits(options.rows[0]) if len(options.rows) == 1 else {}
    dividing = ["--split"] if options.is_split_given else []
    dividing += options.given("split_column", "stratify", "split_by")
    dividing += ["--text"] if options.encoded_columns else []
    if by_split and dividing:
        raise ConfigError(
            f"{options.rows[0]} has files of the splits {', '.join(by_split)}, which {dividing[0]} would divide again. "
            "Leave it out, or give the files of one split as DATA"
        )
    return {
        split: options.model_copy(update={"rows": paths, "split": ((split, Fraction(1)),)})
        for split, paths in by_split.items()
    }


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
    parts: Mapping[str, TableOptions] = {},
) -> Gathered:
    """Return rows as records, in sorted files; or, with classes, splits and file names, as images.

    Args:
        known: Columns of --schema by name.
        texts: Encoders of columns of texts.
        parts: See `find_parts`.
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
    by_split = {split: tuple(file for file in files if file.path in part.rows) for split, part in parts.items()}
    if options.limits and not options.image_column:
        rows: list[Part] = [(own, parts[split], (split,)) for split, own in by_split.items()] or [
            (files, options, splits)
        ]
        chosen = limit_rows(p, rows, chosen, options.limits, job[-1])
    blocks = flatten_collections(
        [
            _read_rows(p, split, split_files, chosen, listed, parts.get(split, options), splits, job[-1])
            for split, split_files in (by_split or {"": files}).items()
        ],
        "Rows",
    )
    if not options.image_column and options.key and not options.dry_run:
        may_group = not (options.stratify or options.split_column)
        warn = WithFacts(_warn_equal_keys, AsList(blocks), options.output, options.key, may_group, splits[0])
        p | "OnceSpilled" >> beam.Impulse() | "CompareKeys" >> warn
    chosen | "WarnColumns" >> WithFacts(_warn_columns, splits)
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


def _read_rows(
    p: beam.Pipeline,
    split: str,
    files: Iterable[RowsFile],
    chosen: PCollection,
    listed: PCollection | None,
    options: TableOptions,
    splits: tuple[str, ...],
    reading: RowsReading,
) -> PCollection:
    """Return the Spills of rows; or, if rows have images, (BlockKey, packed complete Block) of these.

    Args:
        split: Split of the files; "" if the rows are divided, or are of one split.
        options: Options of the split.
        splits: Splits of the job.
    """
    own = (split,) if split else splits
    # One reshuffle a pass, or runners fuse steps that wait for each other.
    spread = p | f"RowFiles{split}" >> beam.Create(files) | f"SpreadToRead{split}" >> beam.Reshuffle()
    if not options.image_column:
        return spread | f"SpillRows{split}" >> WithFacts(spill_file, AsSingleton(chosen), options, own, reading)
    read = WithFacts(read_image_rows, AsSingleton(chosen), options, own, reading, types=Keyed)
    rows = spread | f"ReadImageRows{split}" >> read
    if listed:
        rows = (rows, listed) | f"MatchRows{split}" >> MatchRows("path", None, options.seed, RANGE_BITS)
    blocks = (rows,) | f"JoinFiles{split}" >> JoinFiles(own, options.seed)
    return place_in_split(blocks, split, splits) if split else blocks


def _warn_columns(chosen: ChosenSchema, facts: FactsBuilder, splits: tuple[str, ...]) -> None:
    facts.warn_all(splits[:1], chosen.warnings)
    for split in splits:
        for name in chosen.read_classes:
            facts.add_mapped(split, chosen.mapped_class(name))


# Long list of arguments: files of spills, and the names in the warning.
def _warn_equal_keys(
    _: bytes, facts: FactsBuilder, spills: list[Spill], output: str, column: str, may_group: bool, split: str
) -> None:
    text = equal_keys_warning(spills, output, column, may_group)
    facts.warn_all([split], filter(None, [text]))


def _record_features(chosen: ChosenSchema, image_features: tuple[Feature, ...]) -> FeatureTable:
    """Return the features of columns and of rows' images."""
    return chosen.schema.table(image_features)
