"""Join images with their semantic masks and depth maps, by name. The files are read when records are encoded."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.dataset.manifest import InputRows
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import MapFile
from recordmill.schemas.inputs.files import NO_FILE, NOT_A_FILE, File
from recordmill.schemas.inputs.images import MAX_FILE_BYTES, is_image_name
from recordmill.schemas.inputs.maps import MAP_NAMES, MapFolder
from recordmill.schemas.rejects import Reason
from recordmill.schemas.sizes import number_text
from recordmill.transforms.blocks.cut_range import BlockKey
from recordmill.transforms.blocks.image_tasks import label_column, labels_of
from recordmill.transforms.blocks.pack_block import Keyed, pack_block, unpack_block
from recordmill.transforms.blocks.run_step import run_step
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.join.drop_images import reject_images
from recordmill.transforms.join.list_images import Files, ListFolders
from recordmill.transforms.join.match_blocks import assign_buckets
from recordmill.transforms.runtime.beam_steps import pack, unpacker

_BUCKETS = 64
"""Number of buckets of names. Of a million maps, each has some 3 MB."""
_SHOWN = 5
_UNPAIRED = "unpaired"
_MapOfRow = tuple[int, MapFile]
"""Row of an image in its Block, and a map of the image."""
_UNPACK_FILES = unpacker(list[tuple[str, MapFile]])
_UNPACK_MAPS = unpacker(list[_MapOfRow])


class JoinMaps(beam.PTransform):
    """Add maps to the images of (BlockKey, packed Block), in `ImageLabels.maps`. An image that lacks a map is a reject.
    Facts get the number of maps, the listings of their folders, and a warning of maps without an image.

    Args:
        folders: Folders of the maps. Each image has a map of each part that they have.
        output: Folder of the data set. Its files are not maps.
    """

    def __init__(self, folders: Sequence[MapFolder], splits: Sequence[str], output: str):
        super().__init__()
        self._folders, self._splits, self._output = tuple(folders), tuple(splits), output

    def expand(self, blocks: PCollection[tuple[BlockKey, bytes]]) -> PCollection[tuple[BlockKey, bytes]]:
        listed = [
            blocks.pipeline
            | f"MapFolder{number}" >> beam.Create([folder.path])
            | f"ListMaps{number}" >> ListFolders(self._output, list_maps, folder)
            for number, folder in enumerate(self._folders)
        ]
        files = listed | "AllMaps" >> beam.Flatten()
        pairs = blocks | "ListPairs" >> beam.FlatMap(_list_pairs, self._folders).with_output_types(tuple[int, Any])
        maps, unpaired = (
            (pairs, files)
            | "ByName" >> beam.CoGroupByKey()
            | "Match"
            >> beam.FlatMap(_match_maps).with_outputs(_UNPAIRED, main="maps").with_output_types(tuple[BlockKey, bytes])
        )
        number = unpaired | "CountUnpaired" >> beam.combiners.Count.Globally()
        first = unpaired | "FirstUnpaired" >> beam.combiners.Top.Smallest(_SHOWN)
        number | "WarnUnpaired" >> WithFacts(_warn_unpaired, AsSingleton(first), self._splits[0])
        add = WithFacts(_add_maps, self._folders, self._splits, types=tuple[BlockKey, bytes])
        return (blocks, maps) | "MapsOfBlocks" >> beam.CoGroupByKey() | "AddMaps" >> add


def list_maps(files: Files, _: FactsBuilder, folder: MapFolder) -> Iterator[Keyed]:
    """Yield the maps of each bucket of pairs, packed."""
    keys = [folder.map_key(name) if is_image_name(name) else "" for name, _ in files]
    buckets = defaultdict[int, list[tuple[str, MapFile]]](list)
    for (name, file), key, bucket in zip(files, keys, assign_buckets(keys, "path", _BUCKETS).tolist(), strict=True):
        if key:
            stored = File(file.path, file.size_bytes, file.version)
            buckets[bucket].append((key, MapFile(folder.part, stored, name, folder.changes, folder.colours)))
    yield from ((bucket, pack(maps)) for bucket, maps in buckets.items())


def _list_pairs(
    keyed: tuple[BlockKey, bytes], folders: Sequence[MapFolder]
) -> Iterator[tuple[int, tuple[BlockKey, list[tuple[str, Part, int]]]]]:
    """Yield, for each bucket, the maps that the images of a Block should have: key of the name, part, row."""
    pairs = [
        (key, part, row)
        for row, name in enumerate(unpack_block(keyed[1]).file_name.texts())
        for part in dict.fromkeys(folder.part for folder in folders)
        if (key := _image_key(name, [folder for folder in folders if folder.part is part]))
    ]
    buckets = defaultdict[int, list[tuple[str, Part, int]]](list)
    for pair, bucket in zip(pairs, assign_buckets([pair[0] for pair in pairs], "path", _BUCKETS), strict=True):
        buckets[int(bucket)].append(pair)
    yield from ((bucket, (keyed[0], own)) for bucket, own in buckets.items())


def _image_key(name: str, folders: Sequence[MapFolder]) -> str:
    """Return the key of an image by the folder nearest to it, the one with the longest prefix; "" without."""
    ordered = sorted(folders, key=lambda folder: -len(folder.prefix))
    return next(filter(None, (folder.image_key(name) for folder in ordered)), "")


def _match_maps(group: tuple[int, tuple[Iterable, Iterable[bytes]]]) -> Iterator[Any]:
    """Yield the maps of each Block; with a tag the names of maps without an image.

    Raises:
        CollidingImagesError: See `choose_file`.
    """
    pairs_of_blocks, packed = group[1]
    files = defaultdict[tuple[str, Part], list[MapFile]](list)
    for data in packed:
        for key, file in _UNPACK_FILES(data):
            files[key, file.part].append(file)
    used = set()
    for block_key, pairs in pairs_of_blocks:
        maps: list[_MapOfRow] = []
        for key, part, row in pairs:
            if candidates := files.get((key, Part(part))):
                maps.append((row, choose_file(candidates)))
                used.add((key, Part(part)))
        if maps:
            yield block_key, pack(maps)
    for pair, candidates in files.items():
        if pair not in used:
            name = min(file.file_name for file in candidates)
            yield TaggedOutput(_UNPAIRED, f"{MAP_NAMES[pair[1]]} {name!r}")


def choose_file(candidates: Sequence[MapFile]) -> MapFile:
    """Return the PNG among the files with the name of a map, or the only file. One file may be listed several times.

    Raises:
        CollidingImagesError: Several files are PNGs, or none of several is.
    """
    # Nested folders list a file several times. It counts in the innermost, where its name is the shortest.
    ordered = sorted(candidates, key=lambda file: (-len(file.file_name), file.file_name))
    by_path = {file.file.path: file for file in ordered}
    pngs = {path: file for path, file in by_path.items() if path.lower().endswith(".png")}
    chosen = pngs if len(by_path) > 1 and pngs else by_path
    if len(chosen) > 1:
        paths = " and ".join(sorted(chosen)[:_SHOWN])
        raise CollidingImagesError(f"an image has several {MAP_NAMES[candidates[0].part]}s: {paths}. Delete one")
    return next(iter(chosen.values()))


def _warn_unpaired(number: int, facts: FactsBuilder, first: list[str], split: str) -> None:
    if number:
        shown = ", ".join(first) + " …" * (number > len(first))
        facts.warn(split, f"{number_text(number, 'map')} without an image: {shown}")


def _add_maps(
    keyed: tuple[BlockKey, tuple[Iterable[bytes], Iterable[bytes]]],
    facts: FactsBuilder,
    folders: Sequence[MapFolder],
    splits: Sequence[str],
) -> Iterator[tuple[BlockKey, bytes]]:
    key, (blocks, packed_maps) = keyed
    maps = defaultdict[int, list[MapFile]](list)
    for row, file in (pair for data in packed_maps for pair in _UNPACK_MAPS(data)):
        maps[row].append(file)

    def add(blocks: list) -> Any:
        (block,) = blocks
        rows = (tuple(sorted(maps[row], key=lambda file: file.part)) for row in range(len(block)))
        labels = [msgspec.structs.replace(one, maps=own) for one, own in zip(labels_of(block), rows, strict=True)]
        block = block.replace(labels=label_column(labels))
        _count_maps(block.split.tolist(), labels, folders, splits, facts)
        parts = {folder.part: folder for folder in folders}
        for reason in (Reason.MASK_MISSING, Reason.MASK_UNREADABLE):
            faults = (_map_fault(one.maps, parts, reason) for one in labels_of(block))
            texts = {row: fault for row, fault in enumerate(faults) if fault}
            block = reject_images(block, splits, reason, texts, facts)
        return block

    for packed in blocks:
        block = run_step("join maps", add, [unpack_block(packed)])
        if len(block):
            yield key, pack_block(block)


def _count_maps(
    image_splits: list[int], labels: Sequence, folders: Sequence[MapFolder], splits: Sequence[str], facts: FactsBuilder
) -> None:
    """Add the number of maps of each part to `facts`, as rows of the first folder of the part."""
    first = {folder.part: folder for folder in reversed(folders)}
    numbers = Counter(
        (splits[split], file.part) for split, one in zip(image_splits, labels, strict=True) for file in one.maps
    )
    for (split, part), number in numbers.items():
        facts.add_rows(split, InputRows(first[part].path, part.value, 0, number))


def _map_fault(maps: Sequence[MapFile], parts: dict[Part, MapFolder], reason: Reason) -> str:
    """Return the text of a reject, if the maps of an image have a fault of `reason`; "" without."""
    if reason is Reason.MASK_MISSING:
        by_part = {file.part: file for file in maps}
        for part, folder in parts.items():
            if part not in by_part:
                return f"no {MAP_NAMES[part]} of its name in {folder.path}"
            if by_part[part].file.version == NO_FILE:
                return f"its {MAP_NAMES[part]} {by_part[part].file_name!r} is {NOT_A_FILE}"
        return ""
    large = next((file for file in maps if file.file.size_bytes > MAX_FILE_BYTES), None)
    if large is None:
        return ""
    size = f"{large.file.size_bytes:,} bytes; the limit is {MAX_FILE_BYTES:,}"
    return f"its {MAP_NAMES[large.part]} {large.file_name!r} has {size}"
