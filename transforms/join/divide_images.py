"""Split assignment that needs all images: by the rank of positions, or by shares of every label. Also groups of related
images that stay together, for example copies of an image or images of a patient.

A position is the hash that assigns images without these steps, so that images keep their order. The image at a border
between two splits may move when others are added. One worker has all positions in memory, 16 bytes per image.
"""

import itertools
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsIter, AsSingleton, PCollection

from recordmill.schemas.errors import AnnotationFileError, ConfigError
from recordmill.schemas.inputs.splits import Division, SplitShares
from recordmill.schemas.inputs.tables import names_cure
from recordmill.schemas.names import name_key
from recordmill.transforms.blocks.pack_block import Keyed, pack_block, unpack_block
from recordmill.transforms.join.match_blocks import FileState, name_keys
from recordmill.transforms.storage.resolve import check_unchanged, open_unpacked, read_unpacked

Labels = tuple[int, bytes]
"""Number of a range, and int64 [N, 2]: image id, and a label of the image."""


class DivideImages(beam.PTransform):
    """Convert (range, packed Block) of image rows, and optional Labels, to the same rows with new splits.

    Without Labels, each split gets its share of the images, and with them also its share of each label's images. Images
    of one group stay together.

    Args:
        splits: Splits of the job; the column `split` has their indices.
        counted: Rows of the images that count, if others are dropped later; None for all.
    """

    def __init__(
        self, division: Division | AsSingleton, splits: Sequence[str], counted: PCollection[Keyed] | None = None
    ):
        super().__init__()
        self._division, self._splits, self._counted = division, splits, counted

    def expand(self, sides):  # several PCollections: Beam accepts no type hints
        rows, *labels = sides
        counted = rows if self._counted is None else self._counted
        places = counted | "PlaceImages" >> beam.Map(_place_images, self._division).with_output_types(Keyed)
        divided = (
            (places, *labels)
            | "PlacesAndLabels" >> beam.CoGroupByKey()
            | "LocateLabels" >> beam.MapTuple(_locate_labels).with_output_types(tuple[int, tuple[bytes, bytes]])
            | "AllPlaces" >> beam.GroupByKey()
            | "DivideAll" >> beam.Map(_divide_images, self._division).with_output_types(tuple[bytes, bytes])
        )
        assign = beam.Map(assign_splits, AsIter(divided), self._division, self._splits)
        return rows | "AssignSplits" >> assign.with_output_types(Keyed)


def image_positions(names: Iterable[str], division: Division) -> np.ndarray:
    """Return the position of the group of each name: int64."""
    position = division.shares.position
    return np.array([position(division.group_of(name) or name) for name in names], np.int64)


def _place_images(keyed: Keyed, division: Division) -> Keyed:
    """Convert image rows to int64 [N, 2]: image id and position, of images that can be written."""
    block = unpack_block(keyed[1])
    if block.state is not None:
        block = block.take(block.state == FileState.FOUND)
    positions = image_positions(name_keys(block.file_name.texts()), division)
    return keyed[0], np.stack([block.image_id, positions], axis=1).tobytes()


def _locate_labels(_: int, sides: tuple[Iterable[bytes], ...]) -> tuple[int, tuple[bytes, bytes]]:
    """Convert places and labels of a range to positions of its images, and (position, label) of each label."""
    places, *labels = (np.unique(decode_pairs(side), axis=0) for side in sides)
    label_places = np.zeros((0, 2), np.int64)
    if labels and len(places):
        row = np.minimum(np.searchsorted(places[:, 0], labels[0][:, 0]), len(places) - 1)
        is_known = places[row, 0] == labels[0][:, 0]
        label_places = np.stack([places[row, 1], labels[0][:, 1]], axis=1)[is_known]
    return 0, (places[:, 1].tobytes(), label_places.tobytes())


def decode_pairs(parts: Iterable[bytes]) -> np.ndarray:
    """Return int64 [N, 2] of the joined bytes."""
    return np.frombuffer(b"".join(parts), np.int64).reshape(-1, 2)


def _divide_images(keyed: tuple[int, Iterable[tuple[bytes, bytes]]], division: Division) -> tuple[bytes, bytes]:
    """Return the positions of all units, ascending, and the number of the split of each."""
    images, labels = zip(*keyed[1], strict=True)
    positions, image_counts, unit_labels = count_units(np.frombuffer(b"".join(images), np.int64), decode_pairs(labels))
    if len(unit_labels):
        numbers = stratify(image_counts, unit_labels, division.shares)
    else:
        borders = class_borders("", np.stack([positions, image_counts], axis=1), division.shares)
        numbers = np.searchsorted(np.array(borders, np.int64), positions, side="right")
    return positions.tobytes(), numbers.astype(np.int64).tobytes()


def count_units(positions: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Count the images of each unit of split assignment: of an image, or a group of images.

    Args:
        positions: int64 [N], one per image.
        labels: int64 [L, 2], position and label, one for each label of an image.

    Returns:
        positions: int64 [U], ascending.
        image_counts: int64 [U].
        unit_labels: int64 [K, 3]: unit, label, and number of the unit's images that have the label; sorted.
    """
    places, image_counts = np.unique(positions, return_counts=True)
    pairs, numbers = np.unique(labels, axis=0, return_counts=True)
    unit = np.searchsorted(places, pairs[:, 0])
    return places, image_counts, np.stack([unit, pairs[:, 1], numbers], axis=1)


def assign_splits(
    keyed: Keyed, divided: Iterable[tuple[bytes, bytes]], division: Division, splits: Sequence[str]
) -> Keyed:
    """Assign splits to image rows. Unwritable rows keep theirs."""
    block = unpack_block(keyed[1])
    split = block.split.copy()
    split_numbers = np.array([splits.index(name) for name in division.names])
    positions = image_positions(name_keys(block.file_name.texts()), division)
    for places, numbers in (tuple(np.frombuffer(part, np.int64) for part in parts) for parts in divided):
        if not len(places):
            continue
        row = np.minimum(np.searchsorted(places, positions), len(places) - 1)
        is_known = places[row] == positions
        split[is_known] = split_numbers[numbers[row]][is_known]
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


def stratify(image_counts: np.ndarray, unit_labels: np.ndarray, shares: SplitShares) -> np.ndarray:
    """Return each unit's number of split: int64 [U].

    Iterative stratification (Sechidis et al., 2011): the label with the fewest units left is divided first. Each of its
    units goes to the split that lacks the label most, or among equals to the one that lacks most images. Remaining ties
    are resolved by the order of positions. A split with its share of images gets no further units, so each share is
    exact to one image, or to one group.

    Args:
        image_counts, unit_labels: See `count_units`.
    """
    total = int(image_counts.sum())
    ends = (0, *shares.ends(total, ""), total)
    room = [end - start for start, end in itertools.pairwise(ends)]
    labels, label_index = np.unique(unit_labels[:, 1], return_inverse=True)
    images_per_label = np.bincount(label_index, unit_labels[:, 2], len(labels)).tolist()
    lacking = [[float(share) * number for _, share in shares.shares] for number in images_per_label]
    units_left = np.bincount(label_index, minlength=len(labels)).tolist()
    images = image_counts.tolist()
    units_by_label: list[list[int]] = [[] for _ in labels]
    labels_by_unit: list[list[tuple[int, int]]] = [[] for _ in images]
    for unit, label, number in zip(
        unit_labels[:, 0].tolist(), label_index.tolist(), unit_labels[:, 2].tolist(), strict=True
    ):
        units_by_label[label].append(unit)
        labels_by_unit[unit].append((label, number))
    splits = [-1] * len(images)

    def assign(unit: int, wanted: Sequence[float]) -> None:
        split = max((n for n, free in enumerate(room) if free > 0), key=lambda n: (wanted[n], room[n], -n))
        splits[unit] = split
        room[split] -= images[unit]
        for label, number in labels_by_unit[unit]:
            lacking[label][split] -= number
            units_left[label] -= 1

    for label in _rarest_labels(units_left):
        for unit in units_by_label[label]:
            if splits[unit] < 0:
                assign(unit, lacking[label])
    for unit, split in enumerate(splits):
        if split < 0:
            assign(unit, room)
    return np.array(splits, np.int64)


def _rarest_labels(units_left: Sequence[int]) -> Iterator[int]:
    """Yield the label with the fewest units left, again and again. The caller changes the numbers meanwhile."""
    while label := min(((left, label) for label, left in enumerate(units_left) if left), default=None):
        yield label[1]


# Groups

_COLUMNS = ("file_name", "group")
_HEAD = 64
_BOM = b"\xef\xbb\xbf"

Group = tuple[str, list[str]]
"""Name of a group, and names of its images."""


class _GroupImage(msgspec.Struct):
    file_name: str


class _GroupLine(msgspec.Struct):
    """Fields of a line of duplicates.jsonl; other fields are ignored."""

    images: list[_GroupImage]


def with_groups(path: str, division: Division, version: str, prefix: str = "") -> Division:
    """Return the division with a file's groups, see `read_groups`.

    Args:
        prefix: Beginning of the names in the file of the images to divide.
    """
    groups = read_groups(path, version)
    own = {name.removeprefix(prefix): group for name, group in groups.items() if name.startswith(prefix)}
    return msgspec.structs.replace(division, groups=own)


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
        groups = merge_groups(
            _parse_json_groups(read_unpacked(path).removeprefix(_BOM)) if is_json else _read_table_groups(path)
        )
        check_unchanged(path, version)
    except (ValueError, AnnotationFileError) as error:
        raise ConfigError(f"--groups {error if path in str(error) else f'{path} {error}'}") from error
    if not groups:
        raise ConfigError(f"--groups {path} has no groups. Leave the option out if no images are grouped.")
    return groups


def _parse_json_groups(data: bytes) -> Iterator[Group]:
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


def _read_table_groups(path: str) -> Iterator[Group]:
    """Yield the groups of a table. Raise ValueError if a column or value is missing; also errors of `read_texts`."""
    from recordmill.transforms.rows.read_rows import read_texts  # imports pyarrow.compute: 9 MB

    _, rows = read_texts(path, _choose_group_columns)
    for row in rows:
        name, group = row.cells or ("", "")
        if not name or not group:
            missing = "group" if name else "file_name"
            fault = row.fault or f"{missing} is empty. Leave out rows of images without a group"
            raise ValueError(f"row {row.number}: {fault}")
        yield unicodedata.normalize("NFC", group), [name_key(name)]


def _choose_group_columns(names: list[str]) -> list[str]:
    by_text = {name.strip(): name for name in names}
    if missing := [name for name in _COLUMNS if name not in by_text]:
        raise ValueError(
            f"has no column {' and no column '.join(missing)}; its columns are "
            f"{', '.join(map(repr, by_text)) or 'none'}. The file must be duplicates.jsonl of a data set, or a table "
            f"with the columns file_name and group{names_cure(names) or '.'}"
        )
    return [by_text[name] for name in _COLUMNS]


def merge_groups(groups: Iterable[Group]) -> dict[str, str]:
    """Return the group of each name, independent of the order of groups. Groups that share a name are merged, with the
    alphabetically first name.

    >>> merge_groups([("b", ["1", "2"]), ("c", ["3"]), ("a", ["2", "4"])])
    {'1': 'a', '2': 'a', '3': 'c', '4': 'a'}
    """
    parents: dict[str, str] = {}  # parent of each group; a root is its own parent
    group_by_name: dict[str, str] = {}

    def find_root(group: str) -> str:
        while parents[group] != group:
            parents[group] = parents[parents[group]]
            group = parents[group]
        return group

    for group, names in groups:
        parents.setdefault(group, group)
        for name in names:
            first, second = sorted((find_root(group), find_root(group_by_name.setdefault(name, group))))
            parents[second] = first
    return {name: find_root(group) for name, group in group_by_name.items()}
