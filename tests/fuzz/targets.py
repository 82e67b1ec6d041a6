"""What parses a mutated data set, as a job does before and while it reads it."""

import contextlib
import io
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

import recordmill
from recordmill.pipelines.choose_format import choose_conversion
from recordmill.pipelines.formats import formats
from recordmill.schemas.containers import CONTAINERS
from recordmill.schemas.dataset.manifest import decode_manifest
from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.features import ColumnType
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.coco import AnnotationKind, AnnotationSource, FileAnnotations
from recordmill.schemas.inputs.images import ImageRules
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.tables import Column, RowsFile, RowsReading
from recordmill.schemas.rejects import UnusableError
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.annotated.join_annotated import join_rows
from recordmill.transforms.annotated.read_labels import labelled_rows
from recordmill.transforms.containers.container import Contents, container_of
from recordmill.transforms.containers.tfrecord import open_records
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.images.decode_segmentation import compress_segmentation, has_several_runs, run_bounds_px
from recordmill.transforms.images.load_images import _check_or_transcode, inspect_image
from recordmill.transforms.join.match_blocks import FileState
from recordmill.transforms.join.observed_labels import choose_labels
from recordmill.transforms.records.parse_record import parse_record
from recordmill.transforms.records.tar import build_tar_index
from recordmill.transforms.rows.choose_type import narrowest_type
from recordmill.transforms.rows.convert_columns import convert_column
from recordmill.transforms.rows.observe_columns import TableStats, observe
from recordmill.transforms.rows.read_rows import read_rows, read_texts
from recordmill.transforms.shape.class_map import new_class_names, read_class_map
from recordmill.transforms.storage.resolve import storage_for
from tests.fuzz import seeds
from tests.transforms.coco.whole_files import read_whole

OUTCOMES = (RecordmillError, UnusableError)
"""Exceptions that a mutated file may raise. What else it raises is a fault of the parser."""
_OPTIONS = {
    "voc": {"voc_origin": ["0", "1"]},
    "labelstudio": {"of_several": ["first", "all"]},
    "yolo": {"task": [None, "obb"]},
}


class Target(NamedTuple):
    """Valid files, and what reads them.

    Attributes:
        files: Valid files by name; some of them are mutated.
        read: Takes the folder of the files, and a generator that chooses options.
    """

    name: str
    files: seeds.Files
    read: Callable[[Path, random.Random], None]


def import_parsers() -> None:
    """Import what the child processes of all mutants would import."""
    Image.init()
    import_module("recordmill.pipelines.recognise")
    for entry in formats().values():
        import_module(entry.module)
        if entry.has_label_files:
            import_module(f"recordmill.transforms.{entry.name}.read_{entry.name}")


def all_targets() -> list[Target]:
    data_sets = {name: _converted(name) for name in CONTAINERS}
    targets = [Target(f"data_set_{name}", files, _read_data_set) for name, files in data_sets.items()]
    return [*file_targets(), *targets, *(_shard_target(name, files) for name, files in data_sets.items())]


def file_targets() -> list[Target]:
    """Return the targets whose files are made without a job."""
    targets = [
        Target(name, files, partial(_read_labels, format_)) for name, (format_, files) in seeds.label_sets().items()
    ]
    targets += [Target(name, {name: data}, partial(_read_table, name)) for name, data in seeds.tables().items()]
    for kind in AnnotationKind:
        content = seeds.PANOPTIC if kind is AnnotationKind.PANOPTIC else seeds.COCO
        content = content | {"annotations": []} if kind is AnnotationKind.IMAGE_INFO else content
        targets.append(Target(f"coco_{kind.value}", {"a.json": seeds._json(content)}, partial(_read_coco, kind)))
    targets += [Target(name, {name: data}, partial(_read_image, name)) for name, data in seeds.images().items()]
    targets += [Target(name, {name: data}, partial(_read_archive, name)) for name, data in seeds.archives().items()]
    targets.append(
        Target("segmentation", {f"{n}.json": text for n, text in enumerate(_SEGMENTATIONS)}, _read_segmentations)
    )
    targets.append(Target("class_map", seeds.CLASS_MAPS, _read_class_maps))
    return targets


def _read_class_maps(folder: Path, rng: random.Random) -> None:
    labels = LabelMap(tuple(Category(number, name) for number, name in enumerate(("car", "bus", "cat, big"))))
    for path in sorted(folder.iterdir()):
        with contextlib.suppress(RecordmillError):
            class_map = read_class_map(str(path))
            new_class_names(labels, class_map)


def _read_labels(format_: str, folder: Path, rng: random.Random) -> None:
    with contextlib.suppress(RecordmillError):  # of the recognition; the format is named below
        choose_conversion({"data": [str(folder)]})
    own = {name: rng.choice(values) for name, values in _OPTIONS.get(format_, {}).items()}
    choices = {"masks": rng.choice(("none", "rle")), "fields": rng.choice(((), ("all",))), **own}
    if format_ == "yolo":
        choices["fields"] = rng.choice(((), ("score",)))
    options: Any = formats()[format_].options(data=str(folder), output=str(folder / "out"), **choices)
    source = options.source()
    named = []
    for place in source.folders:
        for file in storage_for(place.path).walk(place.path):
            name = place.prefix + file.name
            if not source.is_label(name):
                continue
            data = storage_for(file.path).read(file.path)
            images = source.parse(data if source.label_name else io.BytesIO(data), name)
            named += [(image.sample.file_name or name, image, name) for image in images if image.sample]
    if not named:
        return
    names, images, files = map(list, zip(*named, strict=True))
    block, traits = labelled_rows(names, images, files, source)
    list(source.check(frozenset(trait.name for trait in traits if trait.kind == "note")))
    labels = (
        LabelMap(source.categories) if source.categories is not None else choose_labels(traits, is_image_class=False)
    )
    zeros = np.zeros(len(block), np.int64)
    states = np.full(len(block), FileState.FOUND, np.int64)
    block = block.replace(split=zeros, source=zeros, part=np.arange(len(block)), state=states, file_bytes=zeros)
    join_rows([block], labels, options, source, ("train",), FactsBuilder())


def _read_table(name: str, folder: Path, rng: random.Random) -> None:
    path = str(folder / name)
    file, stats, batches = RowsFile(path, 0, ""), TableStats(), []
    for batch in read_rows(file, RowsReading()):
        stats.add(observe(batch, 0))
        batches.append(batch)
    for column, column_stats in stats.columns.items():
        type_ = rng.choice(
            [narrowest_type(column_stats), rng.choice([ColumnType.INT64, ColumnType.FLOAT, ColumnType.BYTES])]
        )
        for batch in batches:
            convert_column(Column(column, column, type_), batch.columns.get(column), len(batch.lines), {})
    if stats.columns:
        list(read_texts(path, lambda names: names[:2], has_values=True)[1])


def _read_coco(kind: AnnotationKind, folder: Path, rng: random.Random) -> None:
    path = str(folder / "a.json")
    with contextlib.suppress(RecordmillError):
        choose_conversion({"data": [str(folder)]})
    masks = str(folder / "masks") if kind is AnnotationKind.PANOPTIC else ""
    for item in read_whole(AnnotationSource(kind, path, masks), rng.random() < 0.5, rng.choice((64, 1 << 20))):
        for annotation in item.annotations if isinstance(item, FileAnnotations) else ():
            if annotation.segmentation:
                _refuse(partial(compress_segmentation, annotation.segmentation, 40, 30))


def _refuse(run: Callable[[], object]) -> None:
    with contextlib.suppress(UnusableError):
        run()


def _read_image(name: str, folder: Path, rng: random.Random) -> None:
    data = (folder / name).read_bytes()
    _refuse(partial(inspect_image, data, rng.choice(("none", "header", "decode"))))
    rules = ImageRules(
        rng.choice(("header", "decode")), rng.choice(("keep", "jpeg", "png")), rng.choice((None, 16)), 95, None
    )
    _refuse(partial(_check_or_transcode, data, rng.choice((None, 40)), rng.choice((None, 30)), rules))


def _read_archive(name: str, folder: Path, rng: random.Random) -> None:
    path = str(folder / name)
    storage = storage_for(f"{path}/a")
    with contextlib.suppress(OSError):
        for file in list(storage.walk(path)):
            with contextlib.suppress(OSError):
                storage.read(file.path)
                storage.open(file.path).read()
                storage.read_range(file.path, 1, 10)
    with contextlib.suppress(RecordmillError, OSError):
        choose_conversion({"data": [path]})


_SEGMENTATIONS = (
    b"[[1, 2, 4, 2, 4, 6]]",
    b"[1, 2, 3, 4]",
    b'{"size": [30, 40], "counts": [10, 20, 1170]}',
    b'{"size": [30, 40], "counts": "PbT1"}',
)


def _read_segmentations(folder: Path, rng: random.Random) -> None:
    for path in folder.iterdir():
        text = path.read_bytes()
        run_bounds_px(text)
        with contextlib.suppress(UnusableError):
            compress_segmentation(text, 40, 30)
            has_several_runs(text)


def _converted(container: str) -> seeds.Files:
    """Return the files of a small data set that `convert` writes, without its page."""
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder, "data"), Path(folder, "out")
        write_files(data, seeds.label_sets()["labelme"][1])
        code = "from recordmill.launch.cli import command; command()"
        words = ["convert", str(data), "-o", str(out), "--masks", "rle", "--fields", "all", "--progress", "none"]
        words += ["--container", container]
        subprocess.run([sys.executable, "-c", code, *words], check=True, capture_output=True)
        names = (path for path in sorted(out.rglob("*")) if path.is_file() and path.suffix != ".html")
        return {path.relative_to(out).as_posix(): path.read_bytes() for path in names}


def _read_data_set(folder: Path, rng: random.Random) -> None:
    for path in folder.glob("*.tfrecord-*"):
        with contextlib.suppress(RecordmillError):
            for record in open_records(str(path)):
                parse_record(record)
    with contextlib.suppress(RecordmillError):
        for path in folder.glob("*.tar"):
            build_tar_index(str(path), lambda _: None)
    data = recordmill.open(folder)
    for split in data:
        with contextlib.suppress(RecordmillError):
            list(data[split].numpy())
        with contextlib.suppress(RecordmillError):
            data[split].read(range(len(data[split])))
    repr(data)


def _shard_target(container: str, files: seeds.Files) -> Target:
    """Return the target of the shard of a data set and its index, without the other files."""
    manifest = decode_manifest(files["manifest.json"], "")
    (split,) = manifest.splits.values()
    (info,) = split.shards
    contents = Contents(manifest.table, manifest.labels)
    shard = {name: data for name, data in files.items() if name in (info.file, f".index/{info.file}.idx")}
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), shard)
        reader = container_of(container).read(str(Path(folder, info.file)), contents)
        records = [*reader.records()]
    return Target(f"shard_{container}", shard, partial(_read_shard, info, container, contents, records))


def _read_shard(
    info: ShardInfo, container: str, contents: Contents, expected: list[bytes], folder: Path, rng: random.Random
) -> None:
    """Read a shard in each way. A read that ends without an error has the expected records: of a size in the manifest,
    and with its SHA-256 for verify."""
    path = str(folder / info.file)
    reader = container_of(container).read(path, contents)
    with contextlib.suppress(RecordmillError, OSError):
        records = list(reader.records())
        reader.index()
        assert records == expected or reader.sha256.hexdigest() != info.sha256, "verify sees no fault"
    with contextlib.suppress(RecordmillError, OSError):
        list(container_of(container).open(path, contents, None).in_order())
    numbers = rng.sample(range(len(expected)), len(expected))
    with contextlib.suppress(RecordmillError, OSError):
        file = container_of(container).open(path, contents, info)
        in_order, by_number = list(file.in_order()), file.read(numbers)
        if container not in _UNCHECKED:
            assert in_order == expected, "other records in order"
            assert by_number == [expected[number] for number in numbers], "other records by number"


_UNCHECKED = {"webdataset"}
"""Containers whose readers may miss a changed byte, see docs/containers.md. `verify` does not."""


def write_files(folder: Path, files: Iterable[tuple[str, bytes]] | seeds.Files) -> None:
    for name, data in dict(files).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
