"""Split assignment that needs all images: by the rank of positions, or by shares of every label. Also groups of related
images that stay together, for example copies of an image or images of a patient.

A position is the hash that assigns images without these steps, so that images keep their order. The image at a border
between two splits may move when others are added. One worker has all positions in memory, 16 bytes per image.
"""

import itertools
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsIter, AsSingleton

from recordmill.schemas.errors import AnnotationFileError, ConfigError
from recordmill.schemas.inputs.splits import Division, SplitShares
from recordmill.schemas.names import name_key
from recordmill.transforms.blocks.pack_block import Keyed, pack_block, unpack_block
from recordmill.transforms.join.match_blocks import FileState, name_keys
from recordmill.transforms.storage.resolve import check_unchanged, open_unpacked, read_unpacked

Labels = tuple[int, bytes]
"""Number of a range, and int64 [N, 2]: image id, and a label of the image."""


@dataclass(eq=False, repr=False)
class DivideImages(beam.PTransform):
    """Convert (range, packed Block) of image rows, and optional Labels, to the same rows with new splits.

    Without Labels, each split gets its share of the images, and with them also its share of each label's images. Images
    of one group stay together.

    Args:
        splits: Splits of the job; the column `split` has their indices.
    """

    division: Division | AsSingleton
    splits: Sequence[str]

    def expand(self, sides):  # several PCollections: Beam accepts no type hints
        rows, *labels = sides
        places = rows | "PlaceImages" >> beam.Map(_placed, self.division).with_output_types(Keyed)
        divided = (
            (places, *labels)
            | "PlacesAndLabels" >> beam.CoGroupByKey()
            | "CountPlaces" >> beam.MapTuple(_counted).with_output_types(tuple[int, tuple[bytes, bytes]])
            | "AllPlaces" >> beam.GroupByKey()
            | "DividePlaces" >> beam.Map(_divided, self.division).with_output_types(tuple[bytes, bytes])
        )
        assign = beam.Map(assign_splits, AsIter(divided), self.division, self.splits)
        return rows | "AssignSplits" >> assign.with_output_types(Keyed)


def positions_of(names: Iterable[str], division: Division) -> np.ndarray:
    """Return the position of the group of each name: int64."""
    position = division.shares.position
    return np.array([position(division.group_of(name) or name) for name in names], np.int64)


def _placed(keyed: Keyed, division: Division) -> Keyed:
    """Convert image rows to int64 [N, 2]: image id and position, of images that can be written."""
    block = unpack_block(keyed[1])
    if block.state is not None:
        block = block.take(block.state == FileState.FOUND)
    positions = positions_of(name_keys(block.file_name.texts()), division)
    return keyed[0], np.stack([block.image_id, positions], axis=1).tobytes()


class Units(NamedTuple):
    """Units of split assignment: U images, or groups of images.

    Attributes:
        positions: int64 [U], ascending.
        images: int64 [U], number of images of each.
        labels: int64 [L, 3]: unit, label, and number of the unit's images that have the label; sorted.
    """

    positions: np.ndarray
    images: np.ndarray
    labels: np.ndarray


def _counted(_: int, sides: tuple[Iterable[bytes], ...]) -> tuple[int, tuple[bytes, bytes]]:
    """Convert places and labels of a range to positions of its images, and (position, label) of each label."""
    places, *labels = (np.unique(pairs_of(side), axis=0) for side in sides)
    found = np.zeros((0, 2), np.int64)
    if labels and len(places):
        row = np.minimum(np.searchsorted(places[:, 0], labels[0][:, 0]), len(places) - 1)
        is_known = places[row, 0] == labels[0][:, 0]
        found = np.stack([places[row, 1], labels[0][:, 1]], axis=1)[is_known]
    return 0, (places[:, 1].tobytes(), found.tobytes())


def pairs_of(parts: Iterable[bytes]) -> np.ndarray:
    """Return int64 [N, 2] of its bytes."""
    return np.frombuffer(b"".join(parts), np.int64).reshape(-1, 2)


def _divided(keyed: tuple[int, Iterable[tuple[bytes, bytes]]], division: Division) -> tuple[bytes, bytes]:
    """Return the positions of all units, ascending, and the number of the split of each."""
    images, labels = zip(*keyed[1], strict=True)
    units = units_of(np.frombuffer(b"".join(images), np.int64), pairs_of(labels))
    if len(units.labels):
        numbers = stratify(units, division.shares)
    else:
        places = np.stack([units.positions, units.images], axis=1)
        borders = class_borders("", places, division.shares)
        numbers = np.searchsorted(np.array(borders, np.int64), units.positions, side="right")
    return units.positions.tobytes(), numbers.astype(np.int64).tobytes()


def units_of(positions: np.ndarray, labels: np.ndarray) -> Units:
    """Return the Units of images.

    Args:
        positions: int64 [N], one per image.
        labels: int64 [L, 2], position and label, one for each label of an image.
    """
    places, images = np.unique(positions, return_counts=True)
    pairs, numbers = np.unique(labels, axis=0, return_counts=True)
    unit = np.searchsorted(places, pairs[:, 0])
    return Units(places, images, np.stack([unit, pairs[:, 1], numbers], axis=1))


def assign_splits(
    keyed: Keyed, divided: Iterable[tuple[bytes, bytes]], division: Division, splits: Sequence[str]
) -> Keyed:
    """Assign splits to image rows. Unwritable rows keep theirs."""
    block = unpack_block(keyed[1])
    split = block.split.copy()
    number_of = np.array([splits.index(name) for name in division.names])
    positions = positions_of(name_keys(block.file_name.texts()), division)
    for places, numbers in (tuple(np.frombuffer(part, np.int64) for part in parts) for parts in divided):
        if not len(places):
            continue
        row = np.minimum(np.searchsorted(places, positions), len(places) - 1)
        is_known = places[row] == positions
        split[is_known] = number_of[numbers[row]][is_known]
    return keyed[0], pack_block(block.replace(split=split))


def class_borders(class_name: str, units: np.ndarray, shares: SplitShares) -> tuple[int, ...]:
    """Return the position at which each split but the last ends, among the images of one class. An indivisible unit
    goes to the split with its middle.

    Args:
        units: int64 [N, 2], `SplitShares.position` and number of images of each indivisible unit, in any order.
    """
    units = units.reshape(-1, 2)
    ordered = units[np.lexsort((units[:, 1], units[:, 0]))]  # equal positions are sorted, too
    after = np.cumsum(ordered[:, 1])
    twice_middle = 2 * after - ordered[:, 1]
    positions = np.append(ordered[:, 0], np.iinfo(np.int64).max)
    ends = shares.ends(int(ordered[:, 1].sum()), class_name)
    return tuple(int(positions[np.searchsorted(twice_middle, 2 * end, side="right")]) for end in ends)


def stratify(units: Units, shares: SplitShares) -> np.ndarray:
    """Return each unit's number of split: int64 [U].

    Iterative stratification (Sechidis et al., 2011): the label with the fewest units left is divided first. Each of its
    units goes to the split that lacks the label most, or among equals to the one that lacks most images. Remaining ties
    are resolved by the order of positions. A split with its share of images gets no further units, so each share is
    exact to one image, or to one group.
    """
    total = int(units.images.sum())
    ends = (0, *shares.ends(total, ""), total)
    room = [end - start for start, end in itertools.pairwise(ends)]
    labels, label_of = np.unique(units.labels[:, 1], return_inverse=True)
    images_of_label = np.bincount(label_of, units.labels[:, 2], len(labels)).tolist()
    lacking = [[float(share) * number for _, share in shares.shares] for number in images_of_label]
    units_left = np.bincount(label_of, minlength=len(labels)).tolist()
    of_label: list[list[int]] = [[] for _ in labels]
    of_unit: list[list[tuple[int, int]]] = [[] for _ in units.positions]
    for unit, label, number in zip(
        units.labels[:, 0].tolist(), label_of.tolist(), units.labels[:, 2].tolist(), strict=True
    ):
        of_label[label].append(unit)
        of_unit[unit].append((label, number))
    images = units.images.tolist()
    found = [-1] * len(images)

    def assign(unit: int, wanted: Sequence[float]) -> None:
        split = max((n for n, free in enumerate(room) if free > 0), key=lambda n: (wanted[n], room[n], -n))
        found[unit] = split
        room[split] -= images[unit]
        for label, number in of_unit[unit]:
            lacking[label][split] -= number
            units_left[label] -= 1

    for label in _rarest(units_left):
        for unit in of_label[label]:
            if found[unit] < 0:
                assign(unit, lacking[label])
    for unit, split in enumerate(found):
        if split < 0:
            assign(unit, room)
    return np.array(found, np.int64)


def _rarest(units_left: Sequence[int]) -> Iterator[int]:
    """Yield the label with the fewest units left, again and again. The caller changes the numbers meanwhile."""
    while label := min(((left, label) for label, left in enumerate(units_left) if left), default=None):
        yield label[1]


# Groups

_COLUMNS = ("file_name", "group")
_HEAD = 64
_BOM = b"\xef\xbb\xbf"

Group = tuple[str, list[str]]
"""Name of a group, and names of its images."""


class _Image(msgspec.Struct):
    file_name: str


class _GroupLine(msgspec.Struct):
    """Fields of a line of duplicates.jsonl; others are ignored."""

    images: list[_Image]


def with_groups(path: str, division: Division, version: str) -> Division:
    """Return the division with a file's groups, see `read_groups`."""
    return msgspec.structs.replace(division, groups=read_groups(path, version))


def read_groups(path: str, version: str = "") -> dict[str, str]:
    """Return the group of each name, see `merge_groups`. The file is JSON Lines of objects whose `images` is a list of
    objects with a `file_name`, as duplicates.jsonl; or a table with the columns `file_name` and `group`.

    Args:
        version: Of the file when the job began; empty for any.

    Raises:
        ConfigError: The file is neither, and the message names the row; it has no group; or it has changed.
        OSError: Storage fails.
    """
    try:
        start = next(open_unpacked(path)[1], b"")[:_HEAD].removeprefix(_BOM).lstrip()
        is_json = start.startswith((b"{", b"["))
        groups = merge_groups(_of_json(read_unpacked(path).removeprefix(_BOM)) if is_json else _of_table(path))
        check_unchanged(path, version)
    except (ValueError, AnnotationFileError) as error:
        raise ConfigError(f"--groups {error if path in str(error) else f'{path} {error}'}") from error
    if not groups:
        raise ConfigError(f"--groups {path} has no group in it: leave the option out, if there are none")
    return groups


def _of_json(data: bytes) -> Iterator[Group]:
    """Yield the groups of JSON Lines. Raise ValueError if a line is not a group."""
    decoder = msgspec.json.Decoder(_GroupLine)
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            names = [name_key(image.file_name) for image in decoder.decode(line).images]
        except msgspec.DecodeError as error:
            raise ValueError(
                f'line {number} is not a group ({error}); each line must be {{"images": [{{"file_name": …}}, …]}}'
            ) from error
        if names:
            yield min(names), names


def _of_table(path: str) -> Iterator[Group]:
    """Yield the groups of a table. Raise ValueError if a column or value is missing; also errors of `read_texts`."""
    from recordmill.transforms.rows.read_rows import read_texts  # imports pyarrow.compute: 9 MB

    _, rows = read_texts(path, _choose)
    for row in rows:
        name, group = row.cells or ("", "")
        if not name or not group:
            what = row.fault or f"no {'group' if name else 'file_name'}; leave out images that are in no group"
            raise ValueError(f"row {row.number}: {what}")
        yield unicodedata.normalize("NFC", group), [name_key(name)]


def _choose(names: list[str]) -> list[str]:
    by_text = {name.strip(): name for name in names}
    if missing := [name for name in _COLUMNS if name not in by_text]:
        raise ValueError(
            f"has no column {' and no column '.join(missing)}: there are {', '.join(map(repr, by_text)) or 'none'}; it "
            "is to be duplicates.jsonl of a data set, or a table with the columns file_name and group"
        )
    return [by_text[name] for name in _COLUMNS]


def merge_groups(groups: Iterable[Group]) -> dict[str, str]:
    """Return the group of each name, independent of the order of groups. Groups that share a name are merged, with the
    alphabetically first name.

    >>> merge_groups([("b", ["1", "2"]), ("c", ["3"]), ("a", ["2", "4"])])
    {'1': 'a', '2': 'a', '3': 'c', '4': 'a'}
    """
    above: dict[str, str] = {}  # parent of each group; a root is its own parent
    group_of: dict[str, str] = {}

    def root_of(group: str) -> str:
        while above[group] != group:
            above[group] = above[above[group]]
            group = above[group]
        return group

    for group, names in groups:
        above.setdefault(group, group)
        for name in names:
            first, other = sorted((root_of(group), root_of(group_of.setdefault(name, group))))
            above[other] = first
    return {name: root_of(group) for name, group in group_of.items()}
