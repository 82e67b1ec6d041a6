"""`recordmill show`: print a data set and its records. It imports neither Beam nor TensorFlow."""

import io
import os
import re
import sys
from collections.abc import Iterable

import msgspec
from PIL import Image
from rich.console import Console

from recordmill.launch.preflight.check_folder import folder_fault
from recordmill.launch.terminal.console import searching, terminal
from recordmill.launch.terminal.show_screen import print_overview, print_records, records_side_by_side, screen_width
from recordmill.pipelines.dataset_options import ShowOptions
from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.schemas.rejects import UnusableError
from recordmill.schemas.sizes import number_text, printable
from recordmill.transforms.insight.draw_record import draw_record
from recordmill.transforms.insight.overlay import Overlay
from recordmill.transforms.show.choose_records import Choice, Record, choose_records, json_document
from recordmill.transforms.show.find_shards import Shards, find_shards
from recordmill.transforms.storage.interface import is_remote
from recordmill.transforms.storage.resolve import join_path, split_folder, storage_for

_SAVED = 20
"""Default number of images that are saved to a folder."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_ID = 60


def run(options: ShowOptions) -> None:
    """Print a data set, or save its images.

    Raises:
        ConfigError: there is nothing of that kind; a record holds none.
        RecordError: a file is damaged; what comes before has been shown.
    """
    if options.save and (fault := _target_fault(options)):
        raise ConfigError(f"--save: {fault}")
    shards = find_shards(options.path, options.split)
    choice = Choice(options.id, options.index, *options.found)
    console = terminal()
    if choice == Choice() and not (options.as_json or options.save):
        print_overview(console, options.path, shards)
    with searching() as search:
        records = search.pausing(choose_records(shards, choice, _count(options), search.read))
        if options.as_json:
            _print_json(options.path, shards, records)
        elif options.save:
            _save_all(options, records, shards, console)
        else:
            print_records(console, records, screen_width(), name_layout=shards.manifest is None)


def _count(options: ShowOptions) -> int:
    if options.count is not None:
        return options.count
    if options.save:
        return 1 if options.is_for_one_picture else _SAVED
    is_one = options.id or options.index is not None or options.as_json
    return 1 if is_one else records_side_by_side(screen_width())


def _target_fault(options: ShowOptions) -> str:
    """Return the reason why images cannot be saved at the path; empty without one."""
    if not options.is_for_one_picture:
        return folder_fault(options.save)
    if not is_remote(options.save) and os.path.isdir(options.save):
        return f"{options.save} is a folder; give a name that does not end as a picture's"
    return folder_fault(split_folder(options.save)[0])


def drawn(record: Record, side: int) -> tuple[Image.Image, Overlay]:
    """Return the image of a record with its annotations drawn.

    Raises:
        ConfigError: it holds none, or one that does not decode.
    """
    where = f"record {record.number} of {record.shard.path}"
    raw = next((each.shape for each in record.table.features if each.source == "image.pixels"), ())
    try:
        picture = record.view().picture(tuple(map(int, raw)))
    except UnusableError as fault:
        raise ConfigError(
            f"the picture of {where} cannot be drawn: {fault.detail}; recordmill show without --save "
            "shows what else is in the record"
        ) from fault
    if picture is None:
        raise ConfigError(
            f"{where} holds no picture that is known as one, so there is nothing to draw; without --save its "
            "values are printed"
        )
    overlay = record.overlay(record.view(picture.size))
    return draw_record(picture, overlay, side), overlay


def _save_all(options: ShowOptions, records: Iterable[Record], shards: Shards, console: Console) -> None:
    """Save the images of records. Of several records, those without an image are counted.

    Raises:
        ConfigError: no record has a picture.
    """
    faults: list[ConfigError] = []
    saved = 0
    for record in records:
        try:
            picture, overlay = drawn(record, options.side)
        except ConfigError as fault:
            faults.append(fault)
        else:
            console.print(_save(options, record, shards, picture, overlay))
            saved += 1
    if faults and not saved:
        raise faults[0]
    if faults:
        console.print(f"{number_text(len(faults), 'record')} without a picture to save; the first: {faults[0]}")


def _save(options: ShowOptions, record: Record, shards: Shards, picture: Image.Image, overlay: Overlay) -> str:
    """Save an image, and return a message."""
    path = options.save
    if not options.is_for_one_picture:
        path = join_path(path, picture_name(record, shards.shards.index(record.shard)))
    stream = io.BytesIO()
    picture.save(stream, "PNG" if path.lower().endswith(".png") else "JPEG", quality=92)
    storage_for(path).write(path, stream.getvalue())
    return f"{printable(path)}: {_title(record, overlay)}"


def picture_name(record: Record, shard: int) -> str:
    """Return the file name of a record's image. An id cannot lead out of the folder."""
    id_ = _UNSAFE.sub("_", record.ids[0] if record.ids else "").strip("_")[:_LONGEST_ID]
    parts = (record.shard.split, f"{shard:05d}", f"{record.number:06d}", id_)
    return "-".join(filter(None, parts)) + ".png"


def _title(record: Record, overlay: Overlay) -> str:
    classes = ", ".join(sorted(record.classes)) or "no class"
    notes = "".join(f"; {fault}" for fault in overlay.faults)
    return printable(f"{', '.join(record.ids) or f'record {record.number}'}: {classes}{notes}")


def _print_json(path: str, shards: Shards, records: Iterable[Record]) -> None:
    """Return one JSON document. If a file is damaged, it has the records before the damage."""
    kept: list[Record] = []
    damage: RecordError | None = None
    try:
        kept.extend(records)
    except RecordError as error:
        damage = error
    document = msgspec.json.encode(json_document(path, shards, kept))
    sys.stdout.write(msgspec.json.format(document).decode() + "\n")
    if damage:
        raise damage
