"""Images: limits, image files and checked images, and rules that derive classes from names."""

from pathlib import PurePosixPath

import msgspec

from recordmill.schemas.inputs.annotations import NO_LABELS, Annotation, ImageLabels
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.schemas.statistics import PixelMeasures

# Larger inputs are rejected before memory is allocated for them.
MAX_FILE_BYTES = 256_000_000
"""Maximum bytes of an image file, or a panoptic PNG."""
MAX_PIXELS = 178_000_000
"""Maximum pixels of an image: TensorFlow does not decode more than 2 ** 29 bytes, at three per pixel. Also the maximum
of all images that a process decodes at the same time."""
MAX_RECORD_BYTES = 512_000_000
"""Maximum bytes of a record: an image file of maximum size, and as much for its annotations. protobuf and gRPC have a
limit of 2 ** 31 bytes, so a message has room for four records."""
USUAL_IMAGE_BYTES = 133_000
"""Mean size of COCO's images in bytes; used for files of unknown size."""


class TileOf(msgspec.Struct, frozen=True, array_like=True):
    """Place of a tile in its whole image.

    Attributes:
        x, y: Left and top, px.
        whole_width, whole_height: Size of the whole image, px.
        whole_name, whole_id: `file_name` and `image_id` of the whole image.
        is_first: True for the first tile of the image, with which the image is counted.
        is_measured: True if the size was read from the file, because the source states none.
    """

    x: int
    y: int
    whole_width: int
    whole_height: int
    whole_name: str
    whole_id: int
    is_first: bool = True
    is_measured: bool = False


class ImageTask(msgspec.Struct, frozen=True, array_like=True):
    """Image to write, without its bytes."""

    image_id: int
    file_name: str
    width: int | None  # pixels, from the JSON; None if the JSON lacks them
    height: int | None
    ref: ImageFile
    split: str
    annotations: tuple[Annotation, ...]  # ordered by annotation id
    labels: ImageLabels = NO_LABELS
    # True for all tasks but the first of an image whose annotations are divided among several tasks. The image is
    # counted with its first task.
    is_continuation: bool = False
    tile: TileOf | None = None  # None if the image is whole
    ignores_exif: bool = False  # True if EXIF does not turn the image, although it turns others of the job

    @property
    def annotation_rows(self) -> int:
        """Number of annotation rows of the image. A panoptic row, or a map, counts in the first tile only."""
        labels = self.labels
        copied = 0 if self.tile is None or self.tile.is_first else len(labels.panoptic) + len(labels.maps)
        return len(self.annotations) + self.labels.rows - copied

    @property
    def counts_image(self) -> bool:
        """True if the image is counted with this task, which is the first of its tasks."""
        return not self.is_continuation and (self.tile is None or self.tile.is_first)

    @property
    def source_id(self) -> int:
        """Id of the image in the source."""
        return self.tile.whole_id if self.tile else self.image_id

    @property
    def source_name(self) -> str:
        """File name of the image in the source."""
        return self.tile.whole_name if self.tile else self.file_name

    def rejected(self, reason: Reason, fault: str) -> Rejected:
        """Return the reject of the image."""
        name = self.source_name
        return self.labels.rejected(self.source_id, reason, f"{name!r}: {fault}", self.annotation_rows, name)


class ImageRules(msgspec.Struct, frozen=True):
    """Rules for image files."""

    check: str  # thoroughness of the check, see `recordmill.transforms.images.load_images`
    format: str = "keep"  # `keep`, or `jpeg` or `png` to convert all images
    max_side: int | None = None  # pixels; larger images are shrunk to it
    jpeg_quality: int = 95  # 1..100, of transcoded images
    # height and width of raw pixels to store instead of image files; None for files.
    raw_size: tuple[int, int] | None = None
    upright: bool = False  # True to apply the EXIF orientation to images whose size no annotation file states

    def of_image(self, task: ImageTask) -> "ImageRules":
        """Return the rules for an image."""
        return msgspec.structs.replace(self, upright=False) if task.ignores_exif else self


class TileRules(msgspec.Struct, frozen=True):
    """Rules for dividing images into tiles.

    Attributes:
        size_px: Width and height of a tile.
        overlap: Share of a tile that the next one of its row or column repeats, 0 to below 1.
        min_visible: Minimum share of an object that a tile shows to have it.
        keep_empty: Share of the tiles without objects that are kept.
    """

    size_px: int
    overlap: float = 0.0
    min_visible: float = 0.0
    keep_empty: float = 1.0


class Transcoding(msgspec.Struct, frozen=True):
    """Source and reason of a transcoded image."""

    original: str  # format of the file, `webp` for example
    bytes: int  # size of the file
    turned: bool = False  # True if it was turned upright by its EXIF orientation
    shrunk: bool = False  # True if it was shrunk


class StoredImage(msgspec.Struct, frozen=True):
    """Checked bytes of an image file."""

    data: bytes  # bytes that the record stores
    format: str  # `jpeg` or `png`: format of the bytes; `raw` for uint8 [height, width, 3]
    width: int  # of the encoded pixels
    height: int
    sha256: str  # hex digest of `data`
    # width and height in the frame of the annotations, if the image was shrunk; otherwise None.
    annotated_size: tuple[int, int] | None = None
    transcoding: Transcoding | None = None  # None if `data` is the unchanged file
    measures: PixelMeasures | None = None  # measures of its pixels, if they were decoded for the check
    whole_sha256: str = ""  # of a tile that was cut from an image: hex digest of the file of that image

    @property
    def frame(self) -> tuple[int, int]:
        """Width and height in the frame of the annotations."""
        return self.annotated_size or (self.width, self.height)


PATH_COLUMNS = ("path", "image", "image_path", "image_uri", "filename", "file_name", "file", "name", "id")
LABEL_COLUMNS = ("label", "class", "class_name", "category", "target")
SPLIT_COLUMNS = ("split", "set", "subset", "ml_use")
"""Usual column names in tables of labels, in lower case, in order of preference."""

_OF_NAS = ("@eaDir", "#recycle", "@Recycle", "#snapshot")
_OF_SYSTEMS = frozenset((*_OF_NAS, "__MACOSX", "lost+found", "$RECYCLE.BIN", "System Volume Information"))
_FORMATS = "jpg jpeg jpe jfif png webp gif bmp dib tif tiff ppm pgm pbm pnm jp2 j2k avif heic heif"
IMAGE_SUFFIXES = frozenset(f".{format_}" for format_ in _FORMATS.split())


def path_class(path: str, separator: str | None) -> str:
    """Return the class of an image by its path; empty if the path has none.

    Args:
        separator: The class is the file name up to the last separator. If None, the class is the first folder.

    >>> path_class("Cat/more/1.jpg", None), path_class("x/big_cat_0.jpg", "_")
    ('Cat', 'big_cat')
    """
    if separator is None:
        folder, slash, _ = path.partition("/")
        return folder if slash else ""
    return PurePosixPath(path).stem.rpartition(separator)[0]


def is_image_name(path: str) -> bool:
    """Return True if a file is named like an image, and is no file of a system.

    >>> is_image_name("Cat/1.JPG"), is_image_name("Cat/Thumbs.db"), is_image_name("Cat/._1.jpg")
    (True, False, False)
    >>> is_image_name("Cat/@eaDir/1.jpg/SYNOPHOTO_THUMB_M.jpg")
    False
    """
    _, dot, suffix = path.rpartition(".")
    return f"{dot}{suffix.lower()}" in IMAGE_SUFFIXES and not is_system_file(path)


def is_system_file(path: str) -> bool:
    """Return True if a file is hidden, as macOS's `._1.jpg` next to `1.jpg`, or in a system folder, such as a NAS's
    thumbnails."""
    parts = path.split("/")  # PurePosixPath takes ten times as long
    return any((part[:1] == "." and part != ".") or part in _OF_SYSTEMS for part in parts)
