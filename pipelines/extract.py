"""`recordmill extract`: convert records to image files and labels."""

import shlex
from collections.abc import Iterator, Sequence
from operator import attrgetter

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsList

from recordmill.pipelines.dataset_options import ExtractOptions
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import RecordOf
from recordmill.schemas.field_features import field_columns
from recordmill.schemas.sizes import number_text
from recordmill.transforms.containers.read_shards import ManifestShard
from recordmill.transforms.dataset.fact_lines import uncarried_lines
from recordmill.transforms.extract.extract_files import FileWriter
from recordmill.transforms.extract.extract_rows import MAPS, PAIRED_MASKS, has_maps_only, name_clashes
from recordmill.transforms.extract.extract_shards import ExtractShard
from recordmill.transforms.extract.write_documents import (
    ANNOTATIONS,
    CLASS_VALUES,
    LABEL_COLUMNS,
    ExtractedSplit,
    class_values,
    join_lists,
    write_split,
)
from recordmill.transforms.extract.write_formats import LABEL_FORMATS
from recordmill.transforms.storage.resolve import join_path, storage_for


def shards_to_extract(folder: str, manifest: Manifest, split: str) -> list[ManifestShard]:
    """Return the shards of a split in the manifest; of all splits if `split` is empty.

    Raises:
        ConfigError: There is no such split, a split's name cannot be part of a file name, or records hold no images.
    """
    is_of_rows = manifest.table.record_of is RecordOf.ROW
    if is_of_rows or manifest.table.sources.isdisjoint({"image.encoded", "image.file"}):
        why = "whose records are rows" if is_of_rows else "whose records hold no images"
        raise ConfigError(
            f"{folder} has layout {manifest.layout}, {why}, so there is nothing to extract. Read them with "
            "recordmill.open"
        )
    if split and split not in manifest.splits:
        raise ConfigError(f"--split {split!r}: {folder} has no such split. Its splits are {', '.join(manifest.splits)}")
    splits = [split] if split else list(manifest.splits)
    return [
        ManifestShard(join_path(folder, shard.file), name, shard, manifest.table, manifest.labels, manifest.container)
        for name in splits
        for shard in manifest.splits[name].shards
    ]


WITHOUT_CLASSES = tuple(name for name, format_ in LABEL_FORMATS.items() if not format_.holds_classes)
"""Label formats that cannot store the class of an image without objects."""


def check_format(folder: str, manifest: Manifest, format_: str) -> None:
    """Raise ConfigError if records do not fit a label format."""
    if format_ == "coco":
        return
    coco = f"recordmill extract {shlex.quote(folder)} DIR writes COCO JSON"
    if manifest.table.record_of is RecordOf.ANNOTATION:
        raise ConfigError(
            f"--as {format_}: {folder} has layout {manifest.layout}, with one record per annotation, but a label "
            f"file has all annotations of an image. {coco}, which recordmill convert reads"
        )
    if "objects.id" not in manifest.table.sources and format_ in WITHOUT_CLASSES:
        raise ConfigError(
            f"--as {format_}: records of {folder} have no objects. {coco} or a table of labels, --as hf metadata.jsonl"
        )


def missing_contents(manifest: Manifest, splits: Sequence[str], format_: str, folder: str) -> Iterator[str]:
    """Yield a line for each kind of contents that records, or the labels of `--labels-only`, or the format lack.

    Args:
        folder: Folder of the extracted files.
    """
    layout, sources = manifest.layout, manifest.table.sources
    images = [manifest.splits[split].images for split in splits]
    if tiles := sum(counts.tiles for counts in images):
        whole = number_text(sum(counts.written for counts in images), "image")
        yield f"the images are {tiles:,} tiles of {whole}: boxes and masks are in the pixels of their tile"
    inputs = (rows for split in splits for rows in manifest.splits[split].inputs)
    for line in uncarried_lines(inputs, layout, manifest.container):
        yield f"{'not in the records, and not extracted' if 'image.encoded' in sources else 'not written'}: {line}"
    if format_ != "coco":
        yield from LABEL_FORMATS[format_].warn(splits, manifest.labels, manifest.table)
        if manifest.labels.categories:
            ids = "indices from 0" if format_ in ("yolo", "ndjson") else "names"
            yield f"not written: ids of categories {len(manifest.labels.categories):,}; {format_} has their {ids}"
        return
    if "depth.png" in sources:
        yield (
            f"depth maps count in units of {manifest.table.depth_scale} m: convert reads them with "
            f"--depth-images {shlex.quote(join_path(folder, MAPS['depth.png']))} "
            f"--depth-scale {manifest.table.depth_scale}"
        )
    if has_maps_only(manifest.table, manifest.labels):
        yield "not written: ids of images; convert numbers them by their names"
        return
    label_columns = () if "objects.id" in sources else LABEL_COLUMNS
    if clashes := name_clashes(field_columns(manifest.table), label_columns):
        yield f"not written: fields with the name of another value of the file: {', '.join(clashes)}"
    if "objects.id" not in sources:
        return
    if "objects.is_crowd" not in sources:
        yield f"layout {layout} does not say which objects are crowds: iscrowd is 0"
    if manifest.table.record_of is RecordOf.ANNOTATION:
        yield f"layout {layout} has no records for images without objects"
    if "objects.area_whole" in sources:
        yield f"layout {layout} keeps areas without their fraction"
    if "captions.text" in sources and "captions.id" not in sources:
        yield f"layout {layout} does not keep the ids of captions: they are numbered from 1"
    if "panoptic.category_png" in sources:
        yield f"layout {layout} keeps masks instead of panoptic segments: masks are written, without a panoptic JSON"
    elif sources & {"semantic.png", "panoptic.png"} == {"semantic.png"}:
        yield f"layout {layout} keeps a mask instead of regions of stuff: the mask is written, without a stuff JSON"


_IMAGE_PATHS = {"yolo": "images/SPLIT/NAME", "voc": "SPLIT/NAME", "hf": "NAME", "coco": "NAME"}
"""Paths of images below the folder that `--images` names, in formats that have no `--match`."""


def convert_commands(folder: str, manifest: Manifest, splits: Sequence[str], format_: str) -> Iterator[str]:
    """Yield the commands that convert the labels of `--labels-only`, each in a sentence."""
    has_objects = "objects.id" in manifest.table.sources
    if format_ == "coco" and has_maps_only(manifest.table, manifest.labels):
        words = shlex.join(("recordmill", "convert", "IMAGES", *_map_flags(folder, manifest), "-o", "OUT"))
        yield f"to convert these maps, with the images of each split at IMAGES/SPLIT: {words}"
        return
    if format_ == "coco" or (format_ == "hf" and not has_objects):
        commands = [_convert_file(folder, split, format_, has_objects) for split in splits]
    else:
        name = "imagefolder" if format_ == "hf" else format_
        match = () if format_ in _IMAGE_PATHS else ("--match", "suffix")
        commands = [(folder, "--format", name, "--images", "IMAGES", *match)]
    where = f"at IMAGES/{_IMAGE_PATHS[format_]}" if format_ in _IMAGE_PATHS else "anywhere below IMAGES"
    for command in commands:
        words = shlex.join(("recordmill", "convert", *command, "-o", "OUT"))
        yield f"to convert these labels, with the images {where}: {words}"


def _map_flags(folder: str, manifest: Manifest) -> Iterator[str]:
    """Yield the words of a command that converts extracted masks and depth maps."""
    yield from ("--format", "masks")
    if "semantic.png" in manifest.table.sources:
        yield from ("--mask-images", join_path(folder, PAIRED_MASKS), "--class-names", join_path(folder, CLASS_VALUES))
    if "depth.png" in manifest.table.sources:
        yield from ("--depth-images", join_path(folder, MAPS["depth.png"]))
        yield from ("--depth-scale", f"{manifest.table.depth_scale}")


def _convert_file(folder: str, split: str, format_: str, has_objects: bool) -> tuple[str, ...]:
    """Return the words of a command that converts the file of a split."""
    if has_objects:
        file = join_path(folder, f"{ANNOTATIONS}/instances_{split}.json")
        return "--images", "IMAGES", "--instances", file, "--split", split
    if format_ == "coco":
        return "IMAGES", "--labels", join_path(folder, f"{ANNOTATIONS}/labels_{split}.csv")
    file = join_path(folder, LABEL_FORMATS[format_].labels.format(split=split))
    return "IMAGES", "--labels", file, "--image-column", "file_name", "--label", "label", "--split", split


def build(p: beam.Pipeline, report: str, shards: list[ManifestShard], manifest: Manifest, options: ExtractOptions):
    """Extract shards to the target. The list of ExtractedSplit is written as JSON to `report`. Pieces stay."""
    folder, format_ = options.target, options.format_
    splits = (
        p
        | "Shards" >> beam.Create(shards)
        | "SpreadShards" >> beam.Reshuffle()
        | "ExtractShards"
        >> beam.ParDo(ExtractShard(folder, options.workers, format_, len(shards), options.labels_only))
        | "GroupBySplit" >> beam.GroupByKey()  # (split, [file of a shard])
        | "WriteDocuments" >> beam.Map(write_split, folder, manifest.table, manifest.labels, format_)
    )
    written = beam.Map(_write_extract_report, report, AsList(splits), folder, format_, manifest)
    p | "Once" >> beam.Impulse() | "Report" >> written


def _write_extract_report(
    _: bytes, path: str, splits: list[ExtractedSplit], folder: str, format_: str, manifest: Manifest
) -> None:
    """Write the list of splits to `path`, and the files of a format about the complete data set."""
    if format_ != "coco":
        names, contents = [split.split for split in splits], (manifest.labels, manifest.table)
        for file in LABEL_FORMATS[format_].finish(names, *contents):
            FileWriter(folder).write(file)
        join_lists(folder, names, LABEL_FORMATS[format_], manifest.name, *contents)
    elif manifest.labels.has_pixel_ids and manifest.segments:
        FileWriter(folder).write(class_values(manifest.labels))
    storage_for(path).write(path, msgspec.json.encode(sorted(splits, key=attrgetter("split"))))
