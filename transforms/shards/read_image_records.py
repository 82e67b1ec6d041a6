"""Read finished shards for the digests of their records, and add these to a data set that has none."""

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from hashlib import sha256
from typing import NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.block import Block, ragged_bytes, starts_of
from recordmill.schemas.dataset.checks import Fault
from recordmill.schemas.dataset.dataset_files import split_manifest
from recordmill.schemas.dataset.manifest import Manifest, SplitManifest, encode_manifest
from recordmill.schemas.errors import FaultyDatasetError, JobError
from recordmill.schemas.features import FeatureTable, Part, RecordOf
from recordmill.schemas.image_records import IMAGE_ROW, IMAGES_VERSION, ShardImages, split_images
from recordmill.schemas.layouts import has_image
from recordmill.schemas.values import VALUE_OF
from recordmill.transforms.containers.read_shards import ManifestShard, readable_records
from recordmill.transforms.dataset.dataset_folder import file_sha256, read_split_manifests, require_manifest
from recordmill.transforms.encoders.estimate_records import RecordEstimate
from recordmill.transforms.records.digest_record import RecordDigests
from recordmill.transforms.records.parse_record import RecordParseError, RecordParser, RecordValues
from recordmill.transforms.records.tfrecord import framed_size
from recordmill.transforms.runtime.processes import ListedShardDoFn
from recordmill.transforms.shards.commit_splits import publish
from recordmill.transforms.shards.image_records import (
    image_digests,
    images_line,
    read_images,
    shard_images,
    sum_digests,
)
from recordmill.transforms.shards.line_file import LineFile
from recordmill.transforms.storage.interface import UnreadableFileError
from recordmill.transforms.storage.resolve import join_path, storage_for


class ShardToDigest(ManifestShard, frozen=True):
    """A finished shard whose records are digested.

    Attributes:
        requested: Optional parts of records that the options of its job requested.
    """

    requested: tuple[Part, ...] = ()


def splits_without_images(output: str) -> dict[str, Manifest]:
    """Return the manifests of the splits whose records have images, but no current file of their digests in the
    manifest of the folder, which is written last."""
    whole = require_manifest(output)
    return {
        split: manifest
        for split, manifest in read_split_manifests(output).items()
        if split in whole.splits and has_image(manifest.table) and not has_images(output, whole.splits[split])
    }


def has_images(output: str, entry: SplitManifest) -> bool:
    """Return True if a split has an undamaged file of digests, of IMAGES_VERSION."""
    path = join_path(output, split_images(entry.recipe.split))
    try:
        if file_sha256(path) != entry.images_sha256:
            return False
    except (FileNotFoundError, UnreadableFileError):
        return False
    return all(images.version == IMAGES_VERSION for images in read_images(path))


def shards_to_digest(output: str, manifests: Iterable[Manifest]) -> list[ShardToDigest]:
    """Return the shards of manifests of splits."""
    return [
        ShardToDigest(
            join_path(output, shard.file),
            split,
            shard,
            manifest.table,
            manifest.labels,
            manifest.container,
            entry.recipe.parts,
        )
        for manifest in manifests
        for split, entry in manifest.splits.items()
        for shard in entry.shards
    ]


class DigestShard(ListedShardDoFn):
    """Convert each ShardToDigest to its split, its file and its ShardImages."""

    def process(self, shard: ShardToDigest) -> Iterator[tuple[str, str, ShardImages]]:
        yield from self.do(digest_shard, shard, shards=self._shards)


def digest_shard(shard: ShardToDigest, pool: Executor, threads: int) -> tuple[str, str, ShardImages]:
    """Return split, file and images of a shard.

    Raises:
        FaultyDatasetError: The shard is damaged, or is not that of the manifest.
        OSError: The file cannot be read.
    """
    return shard.split, shard.info.file, read_shard_images(shard)


class _Image(NamedTuple):
    """An image of a shard, with its first record."""

    name: bytes
    source: bytes
    id: int
    sha256: str
    bytes: int


def read_shard_images(shard: ShardToDigest) -> ShardImages:
    """Return the images of a finished shard as its job has noted them, but for images without a record. Sizes are
    about those of the plan. Errors as for `digest_shard`."""
    damage: list[Fault] = []
    parse, digests = RecordParser(shard.table), RecordDigests(shard.table)
    is_divided = shard.table.record_of is RecordOf.ANNOTATION
    images, records, sizes = list[_Image](), list[int](), list[int]()
    for number, record in enumerate(readable_records(shard, shard.reader(), damage)):
        try:
            values = parse.lazy(record)
            key = values["image.file_name"], _read_id(values)
            if not (is_divided and images and (images[-1].name, images[-1].id) == key):
                images.append(_read_image(*key, values))
                records.append(0)
                sizes.append(0)
        except (RecordParseError, ValueError) as error:
            damage.append(Fault(shard.info.file, number, "parse", str(error)))
            break
        digests.add(record)
        records[-1] += 1
        sizes[-1] += framed_size(len(record))
    if damage:
        raise FaultyDatasetError(
            f"{shard.path.removesuffix(shard.info.file)}{damage[0]}. Images were not compared with those of the data "
            "set, and nothing was written. recordmill verify lists all damage, and the command of the data set with "
            "--overwrite writes it again"
        )
    rows = np.zeros(len(images), IMAGE_ROW)
    labels, objects, ids = sum_digests(digests, np.array(records, np.int64))
    rows["image"] = image_digests([image.sha256 for image in images])
    rows["labels"], rows["records"], rows["objects"] = labels, records, objects
    rows["id"] = [image.id for image in images]
    rows["size"] = _estimate_sizes(shard, images, objects) or sizes
    has_tiles = Part.TILES in shard.table.parts
    return shard_images(
        shard.info.file,
        [image.name.decode() for image in images],
        rows,
        ids,
        [image.source.decode() for image in images] if has_tiles else None,
    )


_IDS = ("tile.image_number", "tile.image_id", "image.number", "image.id")


def _read_id(values: RecordValues) -> int:
    """Return the id of a whole image, 0 without one. Raises ValueError if it is not an integer."""
    id_ = next((values[source] for source in _IDS if source in values), 0)
    return int(np.ravel(id_)[0])


def _read_image(name: bytes, id_: int, values: RecordValues) -> _Image:
    data = values.buffer("image.encoded" if "image.encoded" in values else "image.pixels")
    return _Image(name, values.get("tile.file_name", name), id_, sha256(data).hexdigest(), len(data))


def _estimate_sizes(shard: ShardToDigest, images: list[_Image], objects: np.ndarray) -> list[int] | None:
    """Return the sizes that the plan had if the records have the bytes of image files; None if sizes depend on more
    than records have."""
    table = shard.table
    if table.record_of is RecordOf.ROW or shard.requested or Part.TILES in table.parts:
        return None
    features = tuple(feature for feature in table.with_parts(()).features if feature.source in VALUE_OF)
    block = Block(
        file_name=ragged_bytes([image.name for image in images]),
        file_bytes=np.array([image.bytes for image in images], np.int64),
        image_size_px=np.zeros((len(images), 2), np.int64),
        first_object_of_image=starts_of(objects),
    )
    known: FeatureTable = msgspec.structs.replace(table, features=features)
    return RecordEstimate(known).estimate_block(block)[0].tolist()


def commit_images(
    output: str, manifests: dict[str, Manifest], digested: Iterable[tuple[str, str, ShardImages]]
) -> None:
    """Write the files of images of splits, their manifests, and the manifest of the folder.

    Args:
        manifests: Manifest of each split, as it was when the shards were read.
        digested: Split, file and images of all shards.

    Raises:
        JobError: Another job has written a split meanwhile.
    """
    images = {(split, file): shard_images for split, file, shard_images in digested}
    storage = storage_for(output)
    for split, manifest in manifests.items():
        entry = manifest.splits[split]
        last = ""
        with LineFile(output, join_path(output, split_images(split))) as file:
            for shard in entry.numbered_shards:
                own = images[split, shard.file]
                file_names = msgspec.json.decode(own.names, type=list[str])
                if manifest.table.record_of is RecordOf.ANNOTATION and file_names and file_names[0] == last:
                    own = _continued(own)
                file.write(images_line(own))
                last = file_names[-1] if file_names else last
        if read_split_manifests(output).get(split) != manifest:
            raise JobError(f"{output}: another job has written {split} while its shards were read. Run again")
        entry = msgspec.structs.replace(entry, images_sha256=file.sha256)
        grown = msgspec.structs.replace(manifest, splits={split: entry})
        storage.write(join_path(output, split_manifest(split)), encode_manifest(grown))
    publish(output)


def _continued(images: ShardImages) -> ShardImages:
    """Return the images of a shard whose first one began in an earlier shard."""
    rows = images.array.copy()
    rows["continues"][0] = 1
    return msgspec.structs.replace(images, rows=rows.tobytes())
