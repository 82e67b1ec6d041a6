"""Read chosen records from finished shards; draw annotated thumbnails."""

import io
import logging
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec
from PIL import Image

from recordmill.schemas.containers import CONTAINERS
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import ConfigError, IndexMismatchError, RecordError
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.problems import (
    DUPLICATES,
    Agreement,
    DuplicateGroup,
    DuplicateImage,
    Likeness,
    ProblemLine,
    split_problems,
)
from recordmill.schemas.sizes import first_texts
from recordmill.schemas.statistics import (
    FINDING_EXAMPLES,
    FINDINGS,
    GALLERY,
    Example,
    Finding,
    SplitStatistics,
    different_images,
)
from recordmill.transforms.containers.container import Contents, RecordFile, container_of
from recordmill.transforms.dataset.dataset_folder import read_file
from recordmill.transforms.dataset.record_view import RecordView
from recordmill.transforms.images.load_images import decode_rgb
from recordmill.transforms.images.open_image import convert_for_jpeg, image_kind, open_image
from recordmill.transforms.insight.draw_record import draw_problem, draw_shapes
from recordmill.transforms.insight.overlay import OverlayReader
from recordmill.transforms.records.parse_record import RecordParser, convert_to_layout_types, join_values
from recordmill.transforms.records.tfrecord import framed_size
from recordmill.transforms.runtime.threads import look_ahead
from recordmill.transforms.storage.interface import UnreadableFileError
from recordmill.transforms.storage.resolve import join_path, storage_for

_LOGGER = logging.getLogger(__name__)

_SIDE = 320
_JPEG_QUALITY = 75
_NAMED = 6
"""Maximum number of objects whose names are drawn. More names would cover a thumbnail."""
_READS = 4
_ROW_SHOWN = 6
"""Number of examples of each kind except `sample`: a row of the page."""

ChosenExample = tuple[str, str, Example]
"""Name of the gallery or finding, split, and location of the record."""
_Group = list[tuple[int, ChosenExample]]
"""Numbered examples."""


class Thumbnail(NamedTuple):
    """A small image of a record.

    Attributes:
        why: Name of the gallery or finding.
        jpeg: JPEG file, about 320 pixels per side at most.
        width, height: Size in pixels.
        texts: File name, class, captions.
        objects: Number of drawn objects.
    """

    why: str
    split: str
    jpeg: bytes
    width: int
    height: int
    texts: tuple[str, ...]
    objects: int


def choose_examples(splits: Mapping[str, SplitStatistics]) -> list[ChosenExample]:
    """Return the examples of a folder's splits: each image once in the gallery, and for each of its findings."""
    gallery: dict[int, ChosenExample] = {}
    for why, most in GALLERY.items():
        candidates = [
            (why, split, example)
            for split, statistics in splits.items()
            for example in statistics.examples.get(why, ())
        ]
        for chosen in _choose_best(candidates, most if why == "sample" else _ROW_SHOWN):
            gallery.setdefault(chosen[2].key, chosen)
    finding_examples: list[ChosenExample] = []
    for name in FINDINGS:
        findings = {split: statistics.findings.get(name, Finding()) for split, statistics in splits.items()}
        candidates = [(name, split, example) for split, finding in findings.items() for example in finding.examples]
        finding_examples += _choose_best(candidates, FINDING_EXAMPLES)
    return [*gallery.values(), *finding_examples]


def _choose_best(candidates: Iterable[ChosenExample], most: int) -> list[ChosenExample]:
    by_example = {example: (why, split, example) for why, split, example in candidates}
    return [by_example[example] for example in different_images(by_example, most)]


_Suspicious = Mapping[tuple[str, str, str], set[int]]
"""Annotation ids by split, kind of problem and file name."""


def read_examples(folder: str, manifest: Manifest, chosen: Sequence[ChosenExample]) -> list[Thumbnail]:
    """Return thumbnails of the chosen records in order. Skip unreadable records, and warn with their number.

    Raises:
        OSError: Storage fails.
    """
    suspicious = _read_suspicious_ids(folder, manifest.splits)
    drawn: list[tuple[int, Thumbnail | None]] = []
    with ThreadPoolExecutor(_READS) as pool:
        read = partial(_read_group, folder, manifest)
        for group, records in look_ahead(read, _group_by_shard(chosen), pool, _READS):
            for number, chosen_example in group:
                _, _, example = chosen_example
                image_records = records.get((example.shard, example.record), [])
                drawn.append((number, _draw_thumbnail(chosen_example, image_records, manifest, suspicious)))
    missing = sorted({chosen[number][2].shard for number, thumbnail in drawn if not thumbnail})
    thumbnails = [thumbnail for _, thumbnail in sorted(drawn, key=itemgetter(0)) if thumbnail]
    if missing:
        _LOGGER.warning(
            "the report lacks %d of its %d images: records of %s cannot be read or decoded. To see why: "
            "recordmill verify %s",
            *(len(chosen) - len(thumbnails), len(chosen), first_texts(missing, 1), shlex.quote(folder)),
        )
    return thumbnails


def _read_suspicious_ids(folder: str, splits: Iterable[str]) -> _Suspicious:
    """Read annotations' problems, except of damaged files, which `verify` reports."""
    decoder = msgspec.json.Decoder(ProblemLine)
    ids: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    for split in splits:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            for line in decoder.decode_lines(read_file(folder, split_problems(split)) or b""):
                if line.id is not None:
                    ids[split, line.kind, line.file_name].add(line.id)
    return ids


def _group_by_shard(chosen: Iterable[ChosenExample]) -> list[_Group]:
    """Return groups of examples to read together: those of a shard."""
    ordered = sorted(enumerate(chosen), key=lambda item: (item[1][2].shard, item[1][2].record))
    return [list(group) for _, group in groupby(ordered, lambda item: item[1][2].shard)]


_DAMAGE = (ConfigError, RecordError, IndexMismatchError, FileNotFoundError)
"""Errors of shards that have changed since they were written. `verify` reports how."""


def _read_group(folder: str, manifest: Manifest, group: _Group) -> tuple[_Group, dict[tuple[str, int], list[bytes]]]:
    examples = [example for _, (_, _, example) in group]
    shard = examples[0].shard
    infos = (info for split in manifest.splits.values() for info in split.shards if info.file == shard)
    container, contents = container_of(manifest.container), Contents(manifest.table, manifest.labels)
    path = join_path(folder, shard)
    records: dict[tuple[str, int], list[bytes]] = {}
    if CONTAINERS[manifest.container].has_random_access and not shard.endswith(".gz"):
        file = container.open(path, contents, next(infos, None))
        first_records = _read_undamaged(file, [example.record for example in examples])
        for example in examples:
            with suppress(*_DAMAGE, KeyError):
                later_records = (file.read([number])[0] for number in range(example.record + 1, len(file)))
                following = chain([first_records[example.record]], later_records)
                records[shard, example.record] = _image_records(example, following)
    missing = {example.record: example for example in examples if (shard, example.record) not in records}
    if missing:  # in a damaged shard, those before the damage can be read in order
        with suppress(*_DAMAGE):
            for record, image_records in _read_in_order(missing, container.open(path, contents, None).in_order()):
                records[shard, record] = image_records
    return group, records


def _read_undamaged(file: RecordFile, numbers: Sequence[int]) -> dict[int, bytes]:
    """Return the records with these numbers that can be read, by few reads if they are all undamaged."""
    with suppress(*_DAMAGE, IndexError):
        return dict(zip(numbers, file.read(numbers), strict=True))
    records = {}
    for number in numbers:
        with suppress(*_DAMAGE, IndexError):
            records[number] = file.read([number])[0]
    return records


def _image_records(example: Example, following: Iterator[bytes]) -> list[bytes]:
    """Return the records of an image. A byte range does not have their number.

    Args:
        following: Records of the shard from the image's first one on.
    """
    if example.bytes is msgspec.UNSET:
        return list(islice(following, example.records))
    image_records, size = [], 0
    for record in following:
        image_records.append(record)
        size += framed_size(len(record))
        if size >= example.bytes:
            break
    return image_records


def _read_in_order(examples: Mapping[int, Example], records: Iterable[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the number of each example's first record with its records, which follow each other without a gap.

    Args:
        examples: By the number of their first record.
        records: All records of the shard.
    """
    numbered = enumerate(records)
    following = (record for _, record in numbered)
    for number, record in numbered:
        if number in examples:
            yield number, _image_records(examples[number], chain([record], following))
        if number >= max(examples):
            return


def _draw_thumbnail(
    chosen: ChosenExample, records: list[bytes], manifest: Manifest, suspicious: _Suspicious
) -> Thumbnail | None:
    why, split, _ = chosen
    if not records:
        return None
    try:
        values = join_values(list(map(RecordParser(manifest.table), records)))
        values = convert_to_layout_types(values, manifest.table, manifest.labels)
        image, size = _open_record_image(values, manifest.table)
    except Exception:  # bytes may have changed since, or were never checked
        _LOGGER.debug("no image of %s", chosen, exc_info=True)
        return None
    record = RecordView(values, size)
    overlay = OverlayReader(manifest.labels, manifest.table)(record)
    shapes = overlay.layers[0].shapes
    if why in GALLERY:
        drawing = draw_shapes(image, shapes, _SIDE, names=len(shapes) <= _NAMED)
    else:
        ids = suspicious.get((split, why, overlay.lines[0] if overlay.lines else ""), set())
        marked = [index for index, id_ in enumerate(record.column("objects.id")[: len(shapes)]) if id_ in ids]
        drawing = draw_problem(image, shapes, marked, _SIDE)
    file = io.BytesIO()
    drawing.save(file, "JPEG", quality=_JPEG_QUALITY)
    objects = len(shapes) if overlay.layers[0].title == "objects" else 0  # regions of a map are no objects
    return Thumbnail(why, split, file.getvalue(), *drawing.size, overlay.lines, objects)


def _open_record_image(values: dict[str, Any], table: FeatureTable) -> tuple[Image.Image, tuple[int, int]]:
    """Return the image and its width and height. A JPEG is decoded to less than twice the requested size."""
    data = values.get("image.encoded", b"")
    if image_kind(data) == "jpeg":
        with open_image(data, "jpeg") as image:
            width, height = image.size
        part = max(1, max(width, height) // _SIDE)
        return Image.fromarray(decode_rgb(data, (max(1, height // part), max(1, width // part)))), (width, height)
    shapes = {feature.source: feature.shape for feature in table.features}
    pixels = RecordView(values).decode_image(tuple(map(int, shapes.get("image.pixels", ()))))
    if pixels is None:
        raise ValueError("a record without an image")
    return convert_for_jpeg(pixels), pixels.size


GROUPS_SHOWN = 6
_GROUPS_BYTES = 1 << 22
_IMAGES_SHOWN = 3
"""Maximum number of images shown per group."""
_ROWS = {
    "leaked": "Exact or near copies in another split",
    "exact": "Exact copies of another image",
    "near": "Near copies of another image",
    "labels_differ": "Copies with different labels",
}


def read_first_groups(folder: str, number: int) -> list[DuplicateGroup]:
    """Return the first groups of duplicates.jsonl, from at most 4 MB. Return [] if it is damaged (see `verify`)."""
    try:
        data = storage_for(folder).read_range(join_path(folder, DUPLICATES), 0, _GROUPS_BYTES)
    except (FileNotFoundError, UnreadableFileError):
        return []
    lines = data.splitlines(keepends=True)[:number]
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        return [msgspec.json.decode(line, type=DuplicateGroup) for line in lines if line.endswith(b"\n")]
    return []


def choose_duplicates(groups: Sequence[DuplicateGroup]) -> list[ChosenExample]:
    """Return at most _IMAGES_SHOWN images of each group, one image of each split first."""
    return [
        (
            _duplicates_title(number),
            image.split,
            Example(0, 0, image.shard, image.record, image.offset, image.bytes, image.records),
        )
        for number, group in enumerate(groups)
        for image in _one_per_split_first(group)[:_IMAGES_SHOWN]
    ]


def duplicate_titles(groups: Sequence[DuplicateGroup]) -> dict[str, tuple[str, str]]:
    """Return each group's title and explanation, by Chosen's `why`."""
    titles = {}
    for number, group in enumerate(groups):
        splits = sorted({image.split for image in group.images})
        what = "The same image" if group.kind is Likeness.EXACT else "Similar images"
        meaning = f"{len(group.images):,} images{', with different labels' if group.labels is Agreement.DIFFER else ''}"
        titles[_duplicates_title(number)] = f"{what} in {' and '.join(splits)}", meaning
    return titles


def duplicate_rows(manifest: Manifest) -> list[tuple[str, ...]]:
    """Return a row per kind of duplicate with its number in each split; empty for a split that was not compared."""
    if manifest.duplicates is msgspec.UNSET:
        return []
    splits = [manifest.duplicates.splits.get(split) for split in manifest.splits]
    rows = [(title, [getattr(counts, name) if counts else None for counts in splits]) for name, title in _ROWS.items()]
    return [
        (title, *("" if number is None else f"{number:,}" for number in numbers))
        for title, numbers in rows
        if any(numbers)
    ]


def _duplicates_title(number: int) -> str:
    return f"duplicates {number}"


def _one_per_split_first(group: DuplicateGroup) -> list[DuplicateImage]:
    first = {image.split: image for image in reversed(group.images)}
    return [*sorted(first.values()), *(image for image in group.images if image is not first[image.split])]
