"""`recordmill table`: rows of tables become TFRecord shards."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from recordmill.pipelines.convert import Gathered, ImageJob, demands_of, pictures
from recordmill.pipelines.options.table_options import TableOptions
from recordmill.schemas.encoders import EncoderSource, TextCounts
from recordmill.schemas.features import Feature, FeatureTable
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.layouts import DECODED_PICTURE, TABLE, picture_of_row
from recordmill.schemas.recipes import Recipe
from recordmill.schemas.rejects import Metric
from recordmill.schemas.shards import ShardSizing
from recordmill.schemas.tables import TEXT_PARTS, ColumnType, RowsFile, TableSchema
from recordmill.transforms.dataset.facts import FACTS, AddFacts, Facts
from recordmill.transforms.folder.read_folder import RANGE_BITS, FolderRules, JoinFiles
from recordmill.transforms.join.list_images import ListFiles
from recordmill.transforms.join.match_rows import MatchRows
from recordmill.transforms.metadata.check_findings import CheckFindings
from recordmill.transforms.metadata.report_plan import ReportPlan
from recordmill.transforms.metadata.write_metadata import Findings, Target, WriteMetadata
from recordmill.transforms.report.report_folder import ReportFolder
from recordmill.transforms.runtime import progress
from recordmill.transforms.shards.shard_file import ShardPlace
from recordmill.transforms.shards.split_plan import SplitPlan, sizing_warnings
from recordmill.transforms.shards.write_shards import Written, facts_of, shard_of
from recordmill.transforms.shards.write_with_beam_sink import SinkRecords, only_counted
from recordmill.transforms.table.choose_schema import ChosenSchema, ColumnChoice, with_texts
from recordmill.transforms.table.find_equal_keys import EqualKeys, FindEqualKeys, equal_keys_warning
from recordmill.transforms.table.fit_texts import FitTexts
from recordmill.transforms.table.infer_schema import InferSchema
from recordmill.transforms.table.read_picture_rows import BUCKETS, ReadPictureRows
from recordmill.transforms.table.spill_file import RANGES, Spill, read_spill
from recordmill.transforms.table.spill_rows import OF_FILE, OfFile, RowsRecipe, SpillRows
from recordmill.transforms.table.stratify_rows import StratifyRows
from recordmill.transforms.table.write_row_shards import WriteRowShards, plan_rows
from recordmill.transforms.text.encode_captions import EncodedTexts


class TableJob(NamedTuple):
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

    def write(self, p: beam.Pipeline, recipes: Sequence[Recipe]) -> None:
        """Write the splits that there are recipes for, which are all splits of the job."""
        options = self.options
        gathered = _gather(p, self, options.output)
        findings, demands = gathered.findings, demands_of(options, self.splits, options.output)
        checked = findings.facts | "CheckFindings" >> CheckFindings(demands, findings.warnings)
        if options.writer == "beam":
            place = ShardPlace(options.output, options.name, options.layout, options.gzip)
            spread = gathered.spills | "SpreadSpills" >> beam.Reshuffle()
            records = spread | "Records" >> beam.FlatMap(_records, AsSingleton(checked))
            shards = records | "SinkRecords" >> SinkRecords(place, self.splits, options.num_shards)
            facts = [
                gathered.spills | "Counted" >> beam.Map(_counted),
                shards | "OnlyCounted" >> beam.Map(only_counted),
            ]
        else:
            results = gathered.plans | "WriteRowShards" >> WriteRowShards(
                gathered.spills, checked, gathered.chosen, recipes, options.output
            )
            shards = results | "Shards" >> beam.Map(shard_of)
            facts = [results | "Facts" >> beam.Map(facts_of)]
        facts.append(gathered.of_files | "OfFiles" >> beam.Map(_classes_of_file))
        written = Written(shards, facts | "AllFacts" >> beam.Flatten(), p | "NoPictures" >> beam.Create([]))
        target = Target(tuple(recipes), options.output, options.max_rejects)
        metadata = WriteMetadata(gathered.labels, gathered.table, findings, target, gathered.texts)
        written | "WriteMetadata" >> metadata | "ReportFolder" >> ReportFolder(options.output)

    def report(self, p: beam.Pipeline, path: str) -> None:
        """Write nothing but the plan, as JSON into the local file `path`."""
        gathered = _gather(p, self, output="")
        findings, demands = gathered.findings, demands_of(self.options, self.splits, output="")
        checked = findings.facts | "CheckFindings" >> CheckFindings(demands, findings.warnings)
        classes = gathered.of_files | "Classes" >> beam.FlatMap(_classes) | "AddClasses" >> beam.CombinePerKey(sum)
        gathered.plans | "ReportPlan" >> ReportPlan(
            checked, findings, classes, gathered.labels, gathered.table, path, gathered.texts
        )


class _Gathered(NamedTuple):
    """What the steps before the writing give: ChosenSchema, LabelMap, FeatureTable (one of each), Spill, OfFile,
    (split, SplitPlan), and what was found; of texts, None where none are encoded."""

    chosen: PCollection
    labels: PCollection
    table: PCollection
    spills: PCollection
    of_files: PCollection
    plans: PCollection
    findings: Findings
    texts: EncodedTexts | None


def _records(spill: Spill, _: object) -> Iterator[tuple[str, bytes]]:
    return ((spill.split, record) for record in read_spill(spill, 0, RANGES).records.to_pylist())


def _counted(spill: Spill) -> Facts:
    counts = {Metric.IMAGES: spill.rows, Metric.RECORD_BYTES: spill.bytes}
    return Facts({(spill.split, metric.value): number for metric, number in counts.items()})


def _classes_of_file(of: OfFile) -> Facts:
    return Facts(classes={(of.split, index): number for index, number in of.classes.items()})


class _Columns(NamedTuple):
    """How columns are written: one ChosenSchema, and the encoders of texts; None where there are none."""

    chosen: PCollection
    encoders: PCollection | None

    def texts(self, of_files: PCollection) -> EncodedTexts | None:
        """With what OfFile say of the texts."""
        if self.encoders is None:
            return None
        return EncodedTexts(self.encoders, of_files | "TextCounts" >> beam.FlatMap(_text_counts))


def choose_columns(files: PCollection, job: TableJob, taken: tuple[str, ...] = ()) -> _Columns:
    """Look at all rows; `taken` as of ColumnChoice."""
    options, divided = job.options, job.options.row_splits(job.splits)
    choice = _choice(options, job.given, divided.columns)._replace(taken=taken)
    chosen = files | "InferSchema" >> InferSchema(choice, job.files, options.read_columns, options.encoding)
    if options.stratify:
        chosen = files | "StratifyRows" >> StratifyRows(chosen, rows_recipe(job, output=""))
    if not job.texts:
        return _Columns(chosen, None)
    encoders = files | "FitTexts" >> FitTexts(job.texts, divided, choice.defaults, options.encoding, chosen)
    with_encoders = beam.Map(with_texts, AsList(encoders), options.text_names_by_column, taken)
    return _Columns(chosen | "WithTexts" >> with_encoders, encoders)


def rows_recipe(job: TableJob, output: str) -> RowsRecipe:
    options = job.options
    return RowsRecipe(output, options.row_splits(job.splits), options.seed, options.read_columns, options.encoding)


def _gather(p: beam.Pipeline, job: TableJob, output: str) -> _Gathered:
    options = job.options
    files = p | "Files" >> beam.Create(job.files)
    columns = choose_columns(files, job)
    chosen = columns.chosen
    spilled = files | "SpillRows" >> SpillRows(chosen, rows_recipe(job, output))
    plans = (
        p
        | "Splits" >> beam.Create(job.splits)
        | "PlanRows" >> beam.Map(_plan, AsList(spilled.spills), options.sizing).with_output_types(tuple[str, SplitPlan])
    )
    warnings = [
        warnings_of(chosen, job),
        plans | "OfSizes" >> beam.FlatMap(_of_sizes, options.sizing).with_output_types(Any),
    ]
    if options.key:
        found = spilled.spills | "FindEqualKeys" >> FindEqualKeys()
        warnings.append(found | "OfKeys" >> beam.FlatMap(_of_keys, options.key, job.splits[0]).with_output_types(Any))
    rows = spilled[OF_FILE] | "InputRows" >> beam.Map(_rows_of_file)
    facts = (spilled[FACTS], rows) | "AddFacts" >> AddFacts()
    findings = Findings(facts, warnings | "Warnings" >> beam.Flatten())
    return _Gathered(
        chosen,
        chosen | "Labels" >> beam.Map(labels_of),
        chosen | "Table" >> beam.Map(table_of),
        spilled.spills,
        spilled[OF_FILE],
        plans,
        findings,
        columns.texts(spilled[OF_FILE]),
    )


def picture_job(job: TableJob) -> ImageJob:
    """The conversion of rows with the pictures that they name. Rows move between steps, encoded, as annotations of
    pictures do; pictures are read where a shard is written. The columns are not known before the job."""
    options = job.options
    table = msgspec.structs.replace(TABLE, features=picture_of_row(options.pictures.raw_size))
    contents = pictures(options)._replace(table=table)
    return ImageJob(options, job.splits, partial(_gather_pictures, job=job), contents)


def _gather_pictures(p: beam.Pipeline, job: TableJob) -> Gathered:
    """Rows, with their classes and splits, and the files that they name."""
    options = job.options
    files = p | "Files" >> beam.Create(job.files)
    pictures = picture_of_row(options.pictures.raw_size)
    columns = choose_columns(files, job, (DECODED_PICTURE, *(feature.name for feature in pictures)))
    chosen = columns.chosen
    rows = files | "ReadPictureRows" >> ReadPictureRows(
        chosen, rows_recipe(job, options.output), options.image_column or "", options.images
    )
    list_files = ListFiles(options.output, "path", BUCKETS)
    listed = p | "ImageFolders" >> beam.Create(options.images) | "ListImages" >> list_files
    matched = (rows.rows, listed) | "MatchRows" >> MatchRows("path", None, options.seed, RANGE_BITS)
    rules = FolderRules(options.output, None, (), job.splits, options.seed, "", "")
    joined = (matched.rows,) | "JoinFiles" >> JoinFiles(rules)
    counted = rows[OF_FILE] | "InputRows" >> beam.Map(_rows_of_file)
    return Gathered(
        joined.blocks,
        chosen | "Labels" >> beam.Map(labels_of),
        chosen | "Table" >> beam.Map(table_of, pictures),
        (rows[FACTS], counted, matched[FACTS], joined[FACTS]),
        warnings_of(chosen, job),
        columns.texts(rows[OF_FILE]),
    )


def warnings_of(chosen: PCollection, job: TableJob) -> PCollection:
    """(split, text) of columns."""
    return chosen | "OfColumns" >> beam.FlatMap(_warnings, job.splits[0]).with_output_types(Any)


def _rows_of_file(of: OfFile) -> Facts:
    return Facts(inputs={(of.split, of.rows.path, of.rows.kind): of.rows})


def _of_sizes(of_split: tuple[str, SplitPlan], sizing: ShardSizing) -> list[tuple[str, str]]:
    split, plan = of_split
    return [(split, text) for text in sizing_warnings(split, plan, sizing, "row")]


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


def _text_counts(of: OfFile) -> Iterator[tuple[tuple[str, str], TextCounts]]:
    return (((of.split, column), counts) for column, counts in of.texts.items())


def _plan(split: str, spills: list[Spill], sizing: ShardSizing) -> tuple[str, SplitPlan]:
    plan = plan_rows((spill for spill in spills if spill.split == split), sizing)
    progress.planned(plan.images, plan.shards, "rows")
    return split, plan


def _warnings(chosen: ChosenSchema, split: str) -> Iterator[tuple[str, str]]:
    return ((split, text) for text in chosen.warnings)


def _of_keys(found: EqualKeys, column: str, split: str) -> list[tuple[str, str]]:
    text = equal_keys_warning(found, column)
    return [(split, text)] if text else []


def _classes(of: OfFile) -> Iterator[tuple[tuple[str, int], int]]:
    return (((of.split, index), number) for index, number in of.classes.items())


def labels_of(chosen: ChosenSchema) -> LabelMap:
    return chosen.labels


def table_of(chosen: ChosenSchema, pictures: tuple[Feature, ...] = ()) -> FeatureTable:
    """The features of columns, and of the pictures that rows name."""
    return chosen.schema.table(pictures)
