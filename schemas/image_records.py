"""Images of a data set with digests of their records, for `convert --add` and `repack --replan`."""

import zlib
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import numpy as np

IMAGE_ROW = [
    ("image", "<u8", 2),
    ("labels", "<u8", 2),
    ("id", "<i8"),
    ("size", "<u8"),
    ("records", "<u4"),
    ("objects", "<u4"),
    ("planned", "<u4"),
    ("continues", "u1"),
]
"""NumPy dtype of an image of a shard: first 16 bytes of the SHA-256 of the stored image, 0 without one; sum of the
digests of its records in the shard, without the image and without ids; id of the image, of a tile that of its whole
image; planned size of its records in the shard in bytes, before compression; their number; number of its annotations'
ids in `ShardImages.object_ids`; planned number of its records in the shard, 0 if the row was made by a read of the
shard, whose size is an estimate; 1 if the image began in another shard.

An image that was planned for the shard and has no record there, rejected or without objects, has 0 records."""

IMAGES_VERSION = 1
"""Version of the digests. With another version, they are computed from the shards again."""


IMAGES = "images.jsonl"
"""File in a state folder that becomes `split_images`."""


def split_images(split: str) -> str:
    """Return the name of the file of a split's images. Each line is a ShardImages.

    >>> split_images("train")
    'images-train.jsonl'
    """
    return f"images-{split}.jsonl"


class ShardImages(msgspec.Struct, frozen=True, omit_defaults=True):
    """Images, or tiles, of a shard, in its order.

    Attributes:
        shard: File of the shard.
        names: JSON list of the file names in records; decoded only if needed.
        rows: Array of IMAGE_ROW, as long as names; base64 in JSON.
        version: IMAGES_VERSION.
        object_ids: int64, ids of the annotations in records, image by image, compressed by zlib; empty if records have
            no such ids.
        sources: JSON list of the names of whole images; UNSET without tiles.
    """

    shard: str
    names: msgspec.Raw
    rows: bytes
    version: int
    object_ids: bytes = b""
    sources: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    @property
    def array(self) -> "np.ndarray":
        import numpy as np  # slow to import; manifests do not need it

        return np.frombuffer(self.rows, IMAGE_ROW)

    def image_names(self) -> tuple[list[str], list[str]]:
        """Return the file names in records, and those of the whole images; the same list without tiles."""
        names = msgspec.json.decode(self.names, type=list[str])
        return names, names if self.sources is msgspec.UNSET else msgspec.json.decode(self.sources, type=list[str])

    @property
    def ids(self) -> "np.ndarray":
        """Ids of the annotations of all images: int64."""
        import numpy as np

        return np.frombuffer(zlib.decompress(self.object_ids) if self.object_ids else b"", "<i8")
