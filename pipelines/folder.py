"""Format `folder`: convert images of one class each."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from recordmill.pipelines.convert import (
    Job,
    encode_and_plan,
    input_file,
    place_in_split,
    read_division,
    read_existing,
)
from recordmill.pipelines.gathered import Gathered
from recordmill.schemas.dataset.recipes import InputFile, unlisted_folder
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.files import File
from recordmill.schemas.inputs.labels import (
    SAME_CLASSES,
    ExistingLabels,
    LabelMap,
    adopt_labels,
    misread_numbers,
    name_warnings,
)
from recordmill.schemas.inputs.splits import Division
from recordmill.transforms.blocks.flatten_collections import flatten_collections
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.folder.choose_classes import (
    ListClasses,
    WarnNestedClasses,
    check_sample,
    folders_without_images,
)
from recordmill.transforms.folder.find_splits import find_split_folders
from recordmill.transforms.folder.folder_options import FolderOptions
from recordmill.transforms.folder.read_folder import ReadTables, choose_table, count_block_rows, folder_rows
from recordmill.transforms.folder.read_labels import names_stems, table_splits
from recordmill.transforms.folder.stratify import Stratify
from recordmill.transforms.join.divide_images import DivideImages
from recordmill.transforms.join.join_files import JoinFiles
from recordmill.transforms.join.list_images import ListFolders
from recordmill.transforms.shape.shape_classes import MapNames
from recordmill.transforms.storage.resolve import file_version

_LOGGER = logging.getLogger(__name__)


def prepare(options: FolderOptions) -> Job:
    """Return the job of the format `folder`.

    Raises:
        ConfigError: No image has a class, splits are given in two ways, or the tables have none.
        AnnotationFileError: A table cannot be read.
    """
    parts = find_parts(options)
    own_splits = tuple(parts) or table_column_splits(options)
    splits = own_splits or options.splits
    jobs = tuple(_part_job(part, (split,)) for split, part in parts.items())
    if parts:
        options = options.model_copy(update={"images": tuple(part.images[0] for part in parts.values())})
    steps = partial(gather, options=options, splits=splits, parts=parts)
    maker, plan = encode_and_plan(options, splits, options.table)
    read = partial(inputs, options)
    return Job(options, splits, read, steps, maker, plan, names_splits=bool(own_splits), parts=jobs)


def find_parts(options: FolderOptions) -> dict[str, FolderOptions]:
    """Return the options of each split whose folder has class folders; none without such folders.

    Raises:
        ConfigError: --split names splits, too.
    """
    if options.labels or options.label_from != "folder" or len(options.images) > 1:
        return {}
    folders, warnings = find_split_folders(options.images[0])
    if folders and options.is_split_given:
        raise ConfigError(
            f"{options.images[0]} has folders of the splits {', '.join(folders)}, and --split names splits, too. Leave "
            "--split out, or give one of the folders as DATA"
        )
    for warning in warnings if folders else ():
        _LOGGER.warning("%s", warning)
    return {
        split: options.model_copy(update={"images": (folder,), "split": ((split, Fraction(1)),)})
        for split, folder in folders.items()
    }


def _part_job(part: FolderOptions, splits: tuple[str, ...]) -> Job:
    check_sample(part)
    steps = partial(gather, options=part, splits=splits)
    return Job(part, splits, partial(inputs, part), steps, *encode_and_plan(part, splits, part.table))


def inputs(options: FolderOptions) -> Iterator[InputFile]:
    """Yield the tables of labels, or the folders, which the job itself lists, because a million files take minutes."""
    if options.labels:
        yield from (input_file("labels", path) for path in sorted(options.labels))
    else:
        yield from map(unlisted_folder, sorted(options.images))


def table_column_splits(options: FolderOptions) -> tuple[str, ...]:
    """Return the splits of the tables of labels; none without a column of them. Without tables, check first for images.

    Raises:
        ConfigError, AnnotationFileError: See `prepare`.
    """
    if not options.labels:
        check_sample(options)
    by_table = {path: table_splits(path, options) for path in options.labels}
    with_splits = sorted(path for path, splits in by_table.items() if splits is not None)
    if not with_splits:
        return ()
    if len(with_splits) < len(by_table):
        raise ConfigError(f"--labels: {', '.join(with_splits)} has a column of splits, the other tables do not")
    splits = tuple(sorted({split for splits in by_table.values() for split in splits or ()}))
    if not splits:
        raise ConfigError(f"{', '.join(with_splits)}: no row is usable, so there is nothing to write")
    if options.is_split_given:
        raise ConfigError(
            f"{with_splits[0]} has a column of splits ({', '.join(splits)}). Leave out --split, or remove the column"
        )
    return splits


def gather(
    p: beam.Pipeline, options: FolderOptions, splits: tuple[str, ...], parts: Mapping[str, FolderOptions] = {}
) -> Gathered:
    """Return image files with their classes and splits. `splits` are those of the job.

    Args:
        parts: See `find_parts`.
    """
    division = read_division(p, options)
    existing = read_existing(options, splits)
    rows_and_blocks: list[tuple[PCollection, PCollection, PCollection | None]]
    rows_and_blocks = [_read_part(p, split, part, splits) for split, part in parts.items()]
    rows_and_blocks = rows_and_blocks or [_read_images(p, "", options, splits, division)]
    observed: list[Any] = [AsList(labels) for _, _, labels in rows_and_blocks if labels is not None] or [[]]
    choose = WithFacts(choose_table, options, splits, existing, *observed, types=FeatureTable)
    table = p | "OnceForTable" >> beam.Impulse() | "ChooseTable" >> choose
    rows = flatten_collections([rows for rows, *_ in rows_and_blocks], "Rows")
    blocks = flatten_collections([blocks for _, blocks, _ in rows_and_blocks], "Blocks")
    classes = rows | "ListClasses" >> ListClasses(options.read_classes, _class_folders(options), options.add)
    adopt = WithFacts(_adopt_labels, existing if options.has_final_labels else None, options.classes, splits)
    labels = classes | "AdoptLabels" >> adopt
    _warn_about_classes(rows, labels, options, splits)
    return Gathered(blocks, labels, table, division=division if options.keeps_groups else None)


def _read_part(
    p: beam.Pipeline, split: str, part: FolderOptions, splits: tuple[str, ...]
) -> tuple[PCollection, PCollection, None]:
    """Return what `_read_images` does for the folder of one split."""
    rows, blocks, _ = _read_images(p, split, part, (split,), part.division)
    return rows, place_in_split(blocks, split, splits), None


def _read_images(
    p: beam.Pipeline, name: str, options: FolderOptions, splits: tuple[str, ...], division: Division | AsSingleton
) -> tuple[PCollection, PCollection, PCollection | None]:
    """Return image rows with their classes, Blocks of the images that have a file, and ObservedLabels of open fields,
    if there are tables.

    Args:
        name: End of the steps' names.
    """
    list_files = ListFolders(options.output, folder_rows, options, splits, division)
    files = p | f"ImageFolders{name}" >> beam.Create(options.images) | f"ListImages{name}" >> list_files
    tables = [File(path, version=file_version(path)) for path in options.labels]
    rows, observed = files, None
    if tables:
        read = ReadTables(options, splits, division, files if names_stems(options) else None)
        rows, observed = p | "LabelTables" >> beam.Create(tables) | read
    sides = (rows, files) if tables else (rows,)
    blocks = sides | f"JoinFiles{name}" >> JoinFiles(splits, options.seed, options.read_classes, options.input_rows)
    blocks = _divide_blocks(blocks, options, division, splits)  # of images that can be written, unless they are broken
    blocks | f"CountRows{name}" >> WithFacts(count_block_rows, options, splits)
    return rows, blocks, observed


def _divide_blocks(
    blocks: PCollection, options: FolderOptions, division: Division | AsSingleton, splits: tuple[str, ...]
) -> PCollection:
    """Return Blocks with splits that may depend on all images that are written."""
    if not options.stratify and options.split_by != "rank":
        return blocks
    counted = blocks | "MapNames" >> MapNames(options) if options.class_map else None
    if options.stratify:
        return blocks | "Stratify" >> Stratify(division, splits, counted)
    return (blocks,) | "DivideImages" >> DivideImages(division, splits, counted)


def _adopt_labels(
    labels: LabelMap,
    facts: FactsBuilder,
    existing: ExistingLabels | None,
    classes: tuple[str, ...],
    splits: tuple[str, ...],
) -> Iterator[LabelMap]:
    """Yield the label map of the data set to which splits are added, if it has all classes; warn about classes without
    images."""
    if existing:
        labels, absent = adopt_labels(labels, existing, bool(classes), SAME_CLASSES)
        facts.warn_all(splits, filter(None, [absent]))
    yield labels


def _warn_about_classes(
    rows: PCollection, labels: PCollection, options: FolderOptions, splits: tuple[str, ...]
) -> None:
    """Add the steps that warn about classes and their folders."""
    if not options.classes and options.has_final_labels:
        labels | "WarnNames" >> WithFacts(_warn_class_names, splits)
    if folders := _class_folders(options):
        texts = [*folders_without_images(folders, options.output)]
        rows.pipeline | "FoldersWithoutImages" >> beam.Create([texts]) | "WarnFolders" >> WithFacts(_warn_texts, splits)
        rows | "WarnNestedClasses" >> WarnNestedClasses(labels, splits)


def _warn_class_names(labels: LabelMap, facts: FactsBuilder, splits: tuple[str, ...]) -> None:
    facts.warn_all(splits, [*misread_numbers(labels), *name_warnings(labels)])


def _warn_texts(texts: Sequence[str], facts: FactsBuilder, splits: tuple[str, ...]) -> None:
    facts.warn_all(splits, texts)


def _class_folders(options: FolderOptions) -> tuple[str, ...]:
    """Return the folders whose sub-folders are classes."""
    return () if options.labels or options.label_from != "folder" else options.images
