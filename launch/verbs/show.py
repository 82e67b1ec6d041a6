"""`recordmill show`: print a data set and its records. It imports neither Beam nor TensorFlow."""

import io
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec
from PIL import Image
from rich.cells import cell_len, set_cell_size
from rich.console import Console

from recordmill.launch.preflight.check_folder import folder_fault
from recordmill.launch.terminal.console import print_lines, searching, terminal
from recordmill.pipelines.dataset_options import ShowOptions
from recordmill.schemas.dataset.manifest import Manifest, SplitManifest
from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.schemas.features import Part
from recordmill.schemas.paths import is_remote
from recordmill.schemas.rejects import UnusableError
from recordmill.schemas.sizes import number_text, printable, size_text
from recordmill.transforms.dataset.fact_lines import data_set_lines
from recordmill.transforms.insight.draw_record import draw_record
from recordmill.transforms.insight.overlay import Overlay
from recordmill.transforms.show.choose_records import Choice, Record, choose_records, json_document
from recordmill.transforms.show.describe_values import describe_list, describe_record
from recordmill.transforms.show.find_shards import Shards, find_shards
from recordmill.transforms.storage.resolve import join_path, split_folder, storage_for

_SAVED = 20
"""Default number of images that are saved to a folder."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_ID = 60
PLAIN_WIDTH = 120
"""Default width, for example in a pipe."""
_CLASSES_SHOWN = 20
_LONGEST_NAME = 30
_LEAST_VALUE = 26
_LONGEST_FEATURE = 36
_LAYOUTS = {
    "detection": "layout detection, which the Object Detection API and Model Garden read",
    "classification": "layout classification, which Model Garden reads",
    "tfds": "layout tfds, that of COCO in TensorFlow Datasets",
    "keras": "layout keras, of the recipe at keras.io",
    "unknown": "an unknown layout; features that many layouts share are recognised",
}
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def run(options: ShowOptions) -> None:
    """Print a data set, or save its images.

    Raises:
        ConfigError: There is no such record, or a record has no image.
        RecordError: A file is damaged; earlier records have been printed.
    """
    if options.save and (fault := _target_fault(options)):
        raise ConfigError(f"--save: {fault}")
    shards = find_shards(options.path, options.split)
    choice = Choice(options.id, options.index, *options.find_terms)
    console = terminal()
    if choice == Choice() and not (options.as_json or options.save):
        print_overview(console, options.path, shards)
    with searching() as search:
        records = search.pausing(choose_records(shards, choice, _record_count(options), search.read))
        if options.as_json:
            _print_json(options.path, shards, records)
        elif options.save:
            _save_images(options, records, shards, console)
        else:
            print_records(console, records, screen_width(), name_layout=shards.manifest is None)


def _record_count(options: ShowOptions) -> int:
    if options.count is not None:
        return options.count
    if options.save:
        return 1 if options.saves_one_image else _SAVED
    is_one = options.id or options.index is not None or options.as_json
    return 1 if is_one else records_side_by_side(screen_width())


def _target_fault(options: ShowOptions) -> str:
    """Return the reason why images cannot be saved at the path; empty if they can."""
    if not options.saves_one_image:
        return folder_fault(options.save)
    if not is_remote(options.save) and os.path.isdir(options.save):
        return f"{options.save} is a folder. Choose a name without the suffix of an image"
    return folder_fault(split_folder(options.save)[0])


def _draw_record_image(record: Record, side: int) -> tuple[Image.Image, Overlay]:
    """Return the image of a record with its annotations drawn.

    Raises:
        ConfigError: The record has no image, or the image does not decode.
    """
    where = f"record {record.number} of {record.shard.path}"
    raw = next((feature.shape for feature in record.table.features if feature.source == "image.pixels"), ())
    try:
        image = record.view().decode_image(tuple(map(int, raw)))
    except UnusableError as fault:
        raise ConfigError(
            f"the image of {where} cannot be drawn: {fault.detail}; recordmill show without --save "
            "shows the other values of the record"
        ) from fault
    if image is None:
        raise ConfigError(
            f"{where} does not have an image that can be recognised and drawn. Leave out --save to print its values"
        )
    overlay = record.overlay(record.view(image.size))
    return draw_record(image, overlay, side), overlay


def _save_images(options: ShowOptions, records: Iterable[Record], shards: Shards, console: Console) -> None:
    """Save the images of records. Of several records, those without an image are counted.

    Raises:
        ConfigError: No record has an image.
    """
    faults: list[ConfigError] = []
    saved = 0
    for record in records:
        try:
            image, overlay = _draw_record_image(record, options.side)
        except ConfigError as fault:
            faults.append(fault)
        else:
            console.print(_save_image(options, record, shards, image, overlay))
            saved += 1
    if faults and not saved:
        raise faults[0]
    if faults:
        console.print(f"{number_text(len(faults), 'record')} without an image to save; the first: {faults[0]}")


def _save_image(options: ShowOptions, record: Record, shards: Shards, image: Image.Image, overlay: Overlay) -> str:
    """Save an image, and return a message."""
    path = options.save
    if not options.saves_one_image:
        shard = shards.shards.index(record.shard)
        id_ = _UNSAFE.sub("_", record.ids[0] if record.ids else "").strip("_")[:_LONGEST_ID]  # no path separators
        parts = (record.shard.split, f"{shard:05d}", f"{record.number:06d}", id_)
        path = join_path(path, "-".join(filter(None, parts)) + ".png")
    stream = io.BytesIO()
    image.save(stream, "PNG" if path.lower().endswith(".png") else "JPEG", quality=92)
    storage_for(path).write(path, stream.getvalue())
    classes = ", ".join(sorted(record.classes)) or "no class"
    notes = "".join(f"; {fault}" for fault in overlay.faults)
    return printable(f"{path}: {', '.join(record.ids) or f'record {record.number}'}: {classes}{notes}")


def _print_json(path: str, shards: Shards, records: Iterable[Record]) -> None:
    """Print one JSON document. If a file is damaged, the document has the records before the damage."""
    shown_records: list[Record] = []
    damage: RecordError | None = None
    try:
        shown_records.extend(records)
    except RecordError as error:
        damage = error
    document = msgspec.json.encode(json_document(path, shards, shown_records))
    sys.stdout.write(msgspec.json.format(document).decode() + "\n")
    if damage:
        raise damage


def screen_width() -> int:
    return shutil.get_terminal_size((PLAIN_WIDTH, 40)).columns


def print_overview(console: Console, path: str, shards: Shards) -> None:
    """Print an overview of a data set, or the number of files if there is no manifest."""
    if shards.manifest is not None and shards.is_whole:
        splits = {shard.split for shard in shards.shards}
        is_utf = isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower().replace("-", "") == "utf8"
        blocks = is_utf and sys.stdout.isatty()
        print_lines(console, overview_lines(path, shards.manifest, sorted(splits), screen_width(), blocks))
    else:
        sizes = [storage_for(shard.path).size(shard.path) or 0 for shard in shards.shards]
        known = [shard.records for shard in shards.shards if shard.records is not None]
        records = f", {sum(known):,} records" if len(known) == len(sizes) else ""
        console.print(f"{printable(path)}: {number_text(len(sizes), 'file')} of {size_text(sum(sizes))}{records}")
    console.print()


def overview_lines(path: str, manifest: Manifest, names: Sequence[str], width: int, blocks: bool) -> Iterator[str]:
    """Return the lines of a manifest.

    Args:
        names: Names of the splits.
        width: Width of the screen in columns.
        blocks: True to draw bars with block characters, and not with #.
    """
    splits = {name: manifest.splits[name] for name in names}
    kinds = ", ".join(_content_names(manifest, splits.values()))
    yield f"{manifest.name} in {printable(path)}: layout {manifest.layout}{f', with {kinds}' if kinds else ''}"
    yield from data_set_lines(path, manifest, names)
    if manifest.categories:
        yield ""
        yield from _class_lines(manifest, splits, width, blocks)


def _content_names(manifest: Manifest, splits: Iterable[SplitManifest]) -> Iterator[str]:
    yield from (part.value.replace("_", " ") for part in Part if part in manifest.parts)
    yield from (f"{encoder.column} as {encoder.form.value}" for encoder in manifest.encoders)
    if any(split.compression for split in splits):
        yield "GZIP"


def pad_text(text: str, width: int) -> str:
    """Return a text padded or cut to a width. A letter may take two columns."""
    if cell_len(text) > width:
        text = set_cell_size(text, max(0, width - 1)).rstrip() + "…"
    return set_cell_size(text, width)


def _class_lines(manifest: Manifest, splits: dict[str, SplitManifest], width: int, blocks: bool) -> Iterator[str]:
    """Return lines of the classes with the most objects, or images, with numbers and bars."""
    names = [printable(category.name) for category in manifest.categories]
    # An edited manifest may have fewer counts.
    counts = [(*split.class_counts, *[0] * len(names))[: len(names)] for split in splits.values()]
    totals = [sum(numbers[index] for numbers in counts) for index in range(len(names))]
    order = sorted(range(len(names)), key=lambda index: -totals[index])
    shown, other_classes = order[:_CLASSES_SHOWN], order[_CLASSES_SHOWN:]
    name_width = min(_LONGEST_NAME, max(cell_len(names[index]) for index in shown))
    columns = [[f"{numbers[index]:,}" for index in shown] for numbers in counts]
    widths = [max(map(len, (name, *column))) for name, column in zip(splits, columns, strict=True)]
    heads = "  ".join(f"{name:>{width_}}" for name, width_ in zip(splits, widths, strict=True))
    yield f"{pad_text(f'{len(names):,} classes', max(name_width, 11))}  {heads}"
    name_width = max(name_width, 11)
    room = max(0, min(60, width - name_width - sum(widths) - 2 * len(widths) - 3))
    for row, index in enumerate(shown):
        numbers = "  ".join(f"{column[row]:>{width_}}" for column, width_ in zip(columns, widths, strict=True))
        length = bar(totals[index], totals[shown[0]], room, blocks)
        yield f"{pad_text(names[index], name_width)}  {numbers}  {length}".rstrip()
    if other_classes:
        span = {totals[other_classes[0]], totals[other_classes[-1]]}
        yield f"and {len(other_classes):,} more, with {' to '.join(f'{number:,}' for number in sorted(span))} each"
    if empty := sum(not total for total in totals):
        yield f"{empty:,} classes have none"


def bar(number: int, largest: int, width: int, blocks: bool) -> str:
    """Return a bar with the length of its number's share of the largest. A number above 0 has at least one character.

    >>> bar(5, 10, 8, blocks=False), bar(1, 1000, 8, blocks=False), bar(0, 10, 8, blocks=True)
    ('####', '#', '')
    """
    if not number or not width:
        return ""
    if not blocks:
        return "#" * max(1, round(width * number / largest))
    eighths = max(1, round(8 * width * number / largest))
    return (_EIGHTHS[8] * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def print_records(console: Console, records: Iterable[Record], width: int, name_layout: bool) -> None:
    """Print records as tables, side by side. Records before a damaged one are printed before its error.

    Args:
        name_layout: True to print the layout of the records, if it was not printed before.
    """
    waiting, layout = iter(records), ""
    while True:
        shown: list[Record] = []
        try:
            shown.extend(islice(waiting, records_side_by_side(width)))
        finally:
            if name_layout and shown and shown[0].table.layout != layout:
                layout = shown[0].table.layout
                console.print(_LAYOUTS.get(layout, f"layout {layout}"))
            print_lines(console, record_lines(shown, width) if shown else ())
        if not shown:
            return


def records_side_by_side(width: int) -> int:
    """Return the number of records that fit side by side.

    >>> records_side_by_side(80), records_side_by_side(200)
    (1, 3)
    """
    return max(1, min(3, (width - _LONGEST_FEATURE - 14) // _LEAST_VALUE))


def record_lines(records: Sequence[Record], width: int) -> Iterator[str]:
    """Yield the lines of a table with a row per feature: name, type, and its values in each record."""
    described = [
        [
            *describe_record(record.features, record.table, record.meanings),
            *(describe_list(name, steps, record.meanings.get(name, ())) for name, steps in record.lists.items()),
        ]
        for record in records
    ]
    types = {name: type_ for rows in described for name, type_, _ in rows}
    values = [{name: text for name, _, text in rows} for rows in described]
    names = sorted(types)
    name_width = min(_LONGEST_FEATURE, max(map(cell_len, ("feature", *map(printable, names)))))
    type_width = max(map(len, ("type", *types.values())))
    room = max(8, (width - name_width - type_width - 2 - 2 * len(records)) // len(records))
    wheres = (record.shard.split or os.path.basename(record.shard.path) for record in records)
    heads = [f"{where} {record.number}" for where, record in zip(wheres, records, strict=True)]
    rows = [("feature", "type", heads)]
    rows += [(name, types[name], [texts.get(name, "(none)") for texts in values]) for name in names]
    for name, type_, cells in rows:
        shown = (pad_text(printable(cell[:1000].replace("\n", " ")), room) for cell in cells)
        yield "  ".join([pad_text(printable(name), name_width), pad_text(type_, type_width), *shown]).rstrip()
