"""Decide what the pixels of masks mean, from the classes and the pixels of some masks."""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import SEMANTIC_IGNORE
from recordmill.schemas.inputs.option import join_names
from recordmill.schemas.sizes import first_texts, number_text
from recordmill.transforms.annotated.class_names import check_distinct
from recordmill.transforms.insight.charts import format_percent
from recordmill.transforms.masks.class_values import ClassTable, MaskClass, colour_text
from recordmill.transforms.masks.sample_masks import GREY, MaskSample

_MOST_NAMED, _MOST_COLOURS, _SHOWN = 40, 64, 10


class PixelClasses(NamedTuple):
    """Classes of masks as records have them.

    Attributes:
        segments: Classes; an id is a value in records.
        changes, colours: See MapFolder.
        notes: Sentences about pixels whose value changes.
    """

    segments: tuple[Category, ...]
    changes: tuple[tuple[int, int], ...] = ()
    colours: bytes = b""
    notes: tuple[str, ...] = ()


def resolve_values(table: ClassTable, sample: MaskSample, void: frozenset[int], data: str) -> PixelClasses:
    """Return the classes of masks as records have them.

    Args:
        void: Values of `--void`.
        data: DATA, for messages.

    Raises:
        ConfigError: Nothing names the classes, or most of the masks have pixels that they do not explain.
    """
    if not table.classes:
        raise ConfigError(f"{data}: {_missing_names(sample)}")
    _check_distinct(table)
    rows, notes, changes = [*table.classes], list[str](), dict[int, int]()
    if _has_colours(rows, sample):
        colours = [one.colour or 0 for one in rows]
        rows = [one._replace(value=row) for row, one in enumerate(rows)]
    else:
        if not (sample.has_numbers or _is_grey(sample)):
            raise ConfigError(f"{data}: {table.where} has no colours, and {_missing_names(sample)}")
        _check_binary(table, sample, void, data)
        colours = [] if sample.has_numbers else [number * GREY for number in range(SEMANTIC_IGNORE + 1)]
        if any(one.value == SEMANTIC_IGNORE and one.name for one in rows) and SEMANTIC_IGNORE not in void:
            rows += [MaskClass("", number) for number in sorted(void - {one.value for one in rows})]
            if sample.has_numbers and not _is_grey(sample):  # indices of a palette
                changes = _rank_values([one.value for one in rows])
            else:
                colours = [one.value * GREY for one in rows]
            notes = [*_describe_changes(rows)]
            void = frozenset(row for row, one in enumerate(rows) if one.value in void)
            rows = [one._replace(value=row) for row, one in enumerate(rows)]
    void |= {one.value for one in rows if not one.name}
    segments = [Category(one.value, one.name) for one in rows if one.value not in void]
    _check_values(table, segments)
    changes = {number: number for number in void if not changes} | changes
    changes = {value: SEMANTIC_IGNORE if number in void else number for value, number in changes.items()}
    packed = b"".join(colour.to_bytes(3, "big") for colour in colours)
    ordered = tuple(sorted(segments, key=lambda one: one.id))
    classes = PixelClasses(ordered, tuple(sorted(changes.items())), packed, tuple(notes))
    _check_unnamed(table, sample, classes)
    return classes


def _describe_changes(rows: Sequence[MaskClass]) -> Iterator[str]:
    """Yield a sentence for each class whose pixels get its row as value, because a class has the value 255."""
    for row, one in enumerate(rows):
        if one.name and row != one.value:
            why = f", because {SEMANTIC_IGNORE} is unknown in records" * (one.value == SEMANTIC_IGNORE)
            yield f"pixels of the value {one.value}, {one.name!r}, are written as {row}{why}"


def _check_distinct(table: ClassTable) -> None:
    numbers = [one.value for one in table.classes if one.colour is None]
    colours = [colour_text(one.colour) for one in table.classes if one.colour is not None]
    names = [one.name for one in table.classes if one.name]
    check_distinct(table.where, {"name": names, "value": numbers, "colour": colours})


def _rank_values(values: Sequence[int]) -> dict[int, int]:
    """Map each value to its row, and each row that is not a value to a number without a class.

    >>> _rank_values([0, 7, 255])
    {0: 0, 7: 1, 255: 2, 1: 256, 2: 256}
    """
    rows = {value: row for row, value in enumerate(values)}
    return rows | {row: SEMANTIC_IGNORE + 1 for row in rows.values() if row not in rows}


def _check_values(table: ClassTable, segments: Sequence[Category]) -> None:
    """Raise ConfigError if all classes are unknown, or a class has a value outside 0..254."""
    if not segments:
        raise ConfigError(f"{table.where}: all classes are unknown. Name one that is not")
    if large := next((one for one in segments if not 0 <= one.id < SEMANTIC_IGNORE), None):
        raise ConfigError(
            f"{table.where}: {large.id} is the value of {large.name!r}. Values are 0 to {SEMANTIC_IGNORE - 1}"
        )


def _has_colours(classes: Sequence[MaskClass], sample: MaskSample) -> bool:
    """Return True if pixels are colours of the classes, False if they are their numbers. A palette has both: the better
    match counts."""
    colours = {one.colour for one in classes}
    if colours == {None}:
        return False
    if not sample.has_numbers:
        return True
    numbers = {one.value for one in classes}
    known_colours, known_numbers = (
        len(pixels.keys() & known) for pixels, known in ((sample.colours, colours), (sample.numbers, numbers))
    )
    return known_colours > known_numbers or (known_colours == known_numbers > 1)


def _is_grey(sample: MaskSample) -> bool:
    return all(colour % GREY == 0 for colour in sample.colours)


def _count_numbers(sample: MaskSample) -> Counter[int]:
    """Return the number of pixels by value, also of grey pixels that are stored as RGB."""
    if sample.has_numbers:
        return sample.numbers
    return Counter({colour // GREY: number for colour, number in sample.colours.items() if colour % GREY == 0})


def _check_binary(table: ClassTable, sample: MaskSample, void: frozenset[int], data: str) -> None:
    """Raise ConfigError if masks have only 0 and 255, and 255 has no name: the class would have no pixel."""
    numbers, known = _count_numbers(sample), {*void, *(one.value for one in table.classes)}
    if SEMANTIC_IGNORE in known or SEMANTIC_IGNORE not in numbers or not numbers.keys() <= {0, SEMANTIC_IGNORE}:
        return
    names = [one.name for one in table.classes if one.name][:2]
    first, second = names if len(names) == 2 else ("background", *names, "foreground")[:2]
    raise ConfigError(
        f"{data}: the masks have only the values 0 and 255 (in {_number_of(sample)}), and 255 is unknown, so that no "
        f"pixel would be {second!r}. If 255 is {second!r}, give {_names_flag([f'{first}=0', f'{second}=255'])}. "
        "If it is unknown, give --void 255"
    )


def _check_unnamed(table: ClassTable, sample: MaskSample, classes: PixelClasses) -> None:
    """Raise ConfigError if at least half of the masks have pixels that no class has."""
    written, changes = {*(one.id for one in classes.segments), SEMANTIC_IGNORE}, dict(classes.changes)
    values = {value for value in range(SEMANTIC_IGNORE + 1) if changes.get(value, value) in written}
    triples = [classes.colours[start : start + 3] for start in range(0, len(classes.colours), 3)]
    known = (
        {int.from_bytes(colour, "big") for row, colour in enumerate(triples) if row in values} if triples else values
    )
    faulty, unnamed = 0, Counter[int]()
    for mask in sample.masks.values():
        pixels = mask.colours if triples else mask.numbers or Counter()
        own = {pixel: number for pixel, number in pixels.items() if pixel not in known}
        faulty += bool(own)
        unnamed.update(own)
    if faulty * 2 < max(1, len(sample.masks)):
        return
    are_colours = bool(triples) and any(one.colour is not None for one in table.classes)
    if triples and not are_colours:  # grey, stored as RGB
        unnamed = Counter({colour // GREY: number for colour, number in unnamed.items()})
    what = "colours" if are_colours else "values"
    cure = "Name them too" if are_colours else f"Name them too, or write them as unknown: --void {_join_first(unnamed)}"
    raise ConfigError(
        f"{table.where} does not name the {what} {_describe_pixels(unnamed, sample, are_colours)} in {faulty} of "
        f"{len(sample.masks):,} sampled masks. {cure}"
    )


def _join_first(pixels: Iterable[int]) -> str:
    return ",".join(map(str, sorted(pixels)[:_MOST_NAMED]))


def _describe_pixels(pixels: Counter[int], sample: MaskSample, are_colours: bool) -> str:
    """Return pixels with their shares, the most frequent ones first."""
    total = sample.colours.total()
    texts = (
        f"{colour_text(pixel) if are_colours else pixel} ({format_percent(number / total)})"
        for pixel, number in sorted(pixels.items(), key=lambda item: -item[1])
    )
    return first_texts(texts, _SHOWN)


def _number_of(sample: MaskSample) -> str:
    return number_text(len(sample.masks), "sampled mask")


def _names_flag(names: Iterable[str]) -> str:
    return f"--class-names {shlex.quote(join_names(names))}"


def _missing_names(sample: MaskSample) -> str:
    """Return the error of masks whose classes have no names, with the names to give."""
    if sample.has_numbers or _is_grey(sample):
        seen = _count_numbers(sample)
        described = _describe_pixels(seen, sample, False)
        values = sorted(seen)
        if seen.keys() == {0, SEMANTIC_IGNORE}:
            names = ["background=0", f"foreground={SEMANTIC_IGNORE}"]
        else:
            known = [value for value in values if value != SEMANTIC_IGNORE] or [0]
            is_dense = known[-1] < 2 * len(known)
            names = (
                [f"class_{value}" for value in range(known[-1] + 1)] if is_dense else [f"class_{v}={v}" for v in known]
            )
        return (
            f"nothing names the values of the masks, {described} of the pixels in {_number_of(sample)}. {_offer(names)}"
        )
    colours = sample.colours
    described = f"{_describe_pixels(colours, sample, True)} of the pixels in {_number_of(sample)}"
    if len(colours) > _MOST_COLOURS:
        return (
            f"the masks have {len(colours):,} colours, {described}, as smooth edges and lossy compression make them. "
            "Classes are few colours: get the masks without these"
        )
    names = [f"class_{row}={colour_text(colour)}" for row, colour in enumerate(sorted(colours))]
    return f"nothing names the colours of the masks, {described}. {_offer(names)}"


def _offer(names: Sequence[str]) -> str:
    """Return the flag that names classes, to be edited."""
    more = " and so on," if len(names) > _MOST_NAMED else ""
    return f"Add {_names_flag(names[:_MOST_NAMED])}{more} with your names, or a file that has them"
