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

    @property
    def annotation_rows(self) -> int:
        """Number of annotation rows of the image."""
        return len(self.annotations) + self.labels.rows

    def rejected(self, reason: Reason, fault: str) -> Rejected:
        """Return the reject of the image."""
        detail = f"{self.file_name!r}: {fault}"
        return self.labels.rejected(self.image_id, reason, detail, self.annotation_rows, self.file_name)


class ImageRules(msgspec.Struct, frozen=True):
    """Rules for image files."""

    check: str  # thoroughness of the check, see `recordmill.transforms.images.load_images`
    format: str = "keep"  # `keep`, or `jpeg` or `png` to convert all images
    max_side: int | None = None  # pixels; larger images are shrunk to it
    jpeg_quality: int = 95  # 1..100, of transcoded images
    # height and width of raw pixels to store instead of image files; None for files.
    raw_size: tuple[int, int] | None = None
    upright: bool = False  # True to apply the EXIF orientation to images whose size no annotation file states


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
