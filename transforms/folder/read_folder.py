"""Convert image folders, and tables of labels, to Blocks of images of one class each."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.fields import NO_FIELDS, NONE, fields_flag, shortest_name
from recordmill.schemas.inputs.files import File
from recordmill.schemas.inputs.labels import ExistingLabels
from recordmill.schemas.inputs.splits import Division
from recordmill.schemas.layouts import requested_fields
from recordmill.schemas.sizes import printable
from recordmill.transforms.blocks.cut_range import BlockKey
from recordmill.transforms.blocks.pack_block import Keyed, pack_parts, unpack_block
from recordmill.transforms.blocks.run_step import hash_images, ranges_of
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.folder.choose_classes import build_image_rows, label_paths
from recordmill.transforms.folder.folder_options import FolderOptions
from recordmill.transforms.folder.read_labels import file_stems, read_labels
from recordmill.transforms.join.choose_fields import FieldRequest, add_requested_fields
from recordmill.transforms.join.join_files import RANGE_BITS, count_input_rows
from recordmill.transforms.join.list_images import Files, file_block
from recordmill.transforms.join.observed_labels import ObservedLabel


def folder_rows(
    files: Files, facts: FactsBuilder, options: FolderOptions, splits: tuple[str, ...], division: Division
) -> Iterator[Keyed]:
    """Yield (range, packed Block) of image rows if paths give the classes, or else of files."""
    if options.labels:
        block = build_image_rows(file_block(files))
    else:
        block = label_paths(files, options.class_separator, division, splits, facts)
        facts.count_rejected_rows(options.input_rows.path, options.input_rows.kind)
    yield from pack_parts(block, ranges_of(hash_images(block.image_id, options.seed), RANGE_BITS))


_OBSERVED = "observed"
_MOST_SHOWN = 20


class ReadTables(beam.PTransform):
    """Convert the File of each table to (range, packed Block of image rows), and ObservedLabels of their open fields.

    Args:
        files: (range, packed Block) of the image files, if tables name them without their ending; else None.
    """

    def __init__(
        self,
        options: FolderOptions,
        splits: tuple[str, ...],
        division: Division | AsSingleton,
        files: PCollection | None = None,
    ):
        super().__init__()
        self._options, self._splits, self._division, self._files = options, splits, division, files

    def expand(self, tables: PCollection[File]):  # Beam accepts no type hints of several outputs
        stems: AsSingleton | dict[str, str] = {}
        if self._files is not None:
            names = self._files | "FileNames" >> beam.FlatMap(_file_names).with_output_types(str)
            stems = AsSingleton(names | "CollectNames" >> beam.combiners.ToList() | "FileStems" >> beam.Map(file_stems))
        read = WithFacts(
            _read_table, self._options, self._splits, self._division, stems, types=Keyed, tags=(_OBSERVED,)
        )
        return tables | "ReadTable" >> read


def _file_names(keyed: tuple[int, bytes]) -> list[str]:
    return unpack_block(keyed[1]).file_name.texts()


def _read_table(
    table: File,
    facts: FactsBuilder,
    options: FolderOptions,
    splits: tuple[str, ...],
    division: Division,
    file_by_stem: Mapping[str, str],
) -> Iterator[Any]:
    for block, observed in read_labels(table, options, division, splits, facts, file_by_stem):
        yield from (TaggedOutput(_OBSERVED, tuple(label)) for label in observed)
        yield from pack_parts(block, ranges_of(hash_images(block.image_id, options.seed), RANGE_BITS))
    facts.count_rejected_rows(options.input_rows.path, options.input_rows.kind)


def choose_table(
    _: bytes,
    facts: FactsBuilder,
    options: FolderOptions,
    splits: tuple[str, ...],
    existing: ExistingLabels | None,
    observed: Iterable[Any],
) -> Iterator[FeatureTable]:
    """Yield the features of records, with open fields; warn about their values.

    Args:
        observed: ObservedLabels of all rows.
    """
    request = FieldRequest(
        options.requested_columns,
        NO_FIELDS,
        options.names_of_fields,
        existing,
        is_part=options.is_part,
        is_added=options.add,
    )
    labels = [ObservedLabel(*label) for label in observed]
    table, warnings, previews = add_requested_fields(options.table, request, labels)
    paths = {label.name for label in labels if label.kind == "image path"}
    written = {column.path.partition(".")[0] for column in requested_fields(table)}
    unwritten = [shortest_name("image", path, ("",)) for path in sorted(paths - written)]
    if unwritten and options.fields != (NONE,):
        flag = fields_flag(unwritten, _MOST_SHOWN)
        cure = f". Add {flag}" if flag else printable(f": {', '.join(unwritten)}")
        warnings.append(f"--labels has columns that are not written{cure}")
    facts.warn_all(splits[:1], warnings)
    facts.preview(previews)
    yield table


def count_block_rows(
    keyed: tuple[BlockKey, bytes], facts: FactsBuilder, options: FolderOptions, splits: tuple[str, ...]
) -> None:
    """Count the rows of a Block, whose images have their final splits."""
    count_input_rows(facts, [unpack_block(keyed[1]).split], splits, options.input_rows)
