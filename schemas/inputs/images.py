"""Images: limits, files on their way into records, and rules by which names give classes."""

from pathlib import PurePosixPath

import msgspec

from recordmill.schemas.inputs.annotations import NO_LABELS, Annotation, ImageLabels
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.schemas.statistics import PixelMeasures

# What is larger is refused before memory is taken for it.
MAX_FILE_BYTES = 256_000_000
"""Maximum bytes of an image file, or a panoptic PNG."""
MAX_PIXELS = 178_000_000
"""Maximum pixels of an image: TensorFlow does not decode more than 2 ** 29 bytes, at three per pixel. Also the maximum
for all images that a process decodes at the same time."""
MAX_RECORD_BYTES = 512_000_000
"""Maximum bytes of a record: an image file of maximum size, and the same for its annotations. protobuf and gRPC end at
2 ** 31 bytes; so readers can hold four records."""
USUAL_IMAGE_BYTES = 133_000
"""The mean of COCO's images, taken for files whose size is not known."""


NO_FILE = "no file"
"""The version of what has a file's name, and is none."""
NOT_A_FILE = "a link that leads nowhere, a pipe or a device"


class ImageRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Path of an image file."""

    path: str  # local path or URI
    size_bytes: int  # as found when the folder was listed
    # what changes when the file does (modification time, generation); resume compares it, records do not depend on it.
    version: str = ""
    data: bytes = b""  # the file's bytes, if they came with the image


class ImageTask(msgspec.Struct, frozen=True, array_like=True):
    """Image to write, without its bytes."""

    image_id: int
    file_name: str
    width: int | None  # pixels, from the JSON; None where it does not give them
    height: int | None
    ref: ImageRef
    split: str
    annotations: tuple[Annotation, ...]  # ordered by annotation id
    labels: ImageLabels = NO_LABELS
    # True where an image is split into several tasks, with some of its annotations each, and this is not the first of
    # them. The image is counted with the first.
    is_continuation: bool = False

    @property
    def annotation_rows(self) -> int:
        """How many annotation rows go with the image."""
        return len(self.annotations) + self.labels.rows

    def rejected(self, reason: Reason, fault: str) -> Rejected:
        """Why there is no record of the image."""
        detail = f"{self.file_name!r}: {fault}"
        return self.labels.rejected(self.image_id, reason, detail, self.annotation_rows)


class PictureRules(msgspec.Struct, frozen=True):
    """Rules for image files."""

    check: str  # how thoroughly they are checked, see `recordmill.transforms.images.load_images`
    format: str = "keep"  # `keep`, or the one that all are written in, `jpeg` or `png`
    max_side: int | None = None  # pixels; larger pictures are shrunk to it
    jpeg_quality: int = 95  # 1..100, of pictures that are transcoded
    # height and width of the pixels that are written instead of files; None for files.
    raw_size: tuple[int, int] | None = None
    upright: bool = False  # True to turn pictures whose size no annotation file states, as their EXIF orientation says


class Transcoding(msgspec.Struct, frozen=True):
    """Why and from what a picture was transcoded."""

    original: str  # the format of the file, `webp` for example
    bytes: int  # size of the file
    turned: bool = False  # whether it was turned upright, as its EXIF orientation says
    shrunk: bool = False  # whether it was made smaller


class Picture(msgspec.Struct, frozen=True):
    """Checked bytes of an image file."""

    data: bytes  # that go into the record
    format: str  # `jpeg` or `png`: format of the bytes; `raw` for uint8 [height, width, 3]
    width: int  # of the encoded pixels
    height: int
    sha256: str  # hex digest of `data`
    # width and height in the frame of the annotations, where the picture was shrunk; else None.
    annotated_size: tuple[int, int] | None = None
    transcoding: Transcoding | None = None  # None where `data` is the file as it was
    measures: PixelMeasures | None = None  # of its pixels, if they were decoded to be checked

    @property
    def frame(self) -> tuple[int, int]:
        """Width and height of the picture that annotations refer to."""
        return self.annotated_size or (self.width, self.height)


PATH_COLUMNS = ("path", "image", "image_path", "image_uri", "filename", "file_name", "file", "name", "id")
LABEL_COLUMNS = ("label", "class", "class_name", "category", "target")
SPLIT_COLUMNS = ("split", "set", "subset", "ml_use")
"""Usual column names in tables of labels, in lower case; the first of them that a table has is used."""

_OF_SYSTEMS = frozenset(("@eaDir", "#recycle", "__MACOSX", "lost+found", "$RECYCLE.BIN", "System Volume Information"))
_FORMATS = "jpg jpeg jpe jfif png webp gif bmp dib tif tiff ppm pgm pbm pnm jp2 j2k avif heic heif"
IMAGE_SUFFIXES = frozenset(f".{format_}" for format_ in _FORMATS.split())


class LabelColumns(msgspec.Struct, frozen=True):
    """Column names in a table of labels; None to look for one of the usual names above."""

    path: str | None = None
    label: str | None = None
    split: str | None = None


class PathLabels(msgspec.Struct, frozen=True):
    """Rule by which an image's path gives its class.

    Attributes:
        separator: the class is the file's name up to the last of these; None: the class is the path's first folder.
    """

    separator: str | None = None

    def class_of(self, path: str) -> str:
        """The class; empty where the path gives none.

        >>> PathLabels().class_of("Cat/more/1.jpg"), PathLabels("_").class_of("x/big_cat_0.jpg")
        ('Cat', 'big_cat')
        """
        if self.separator is None:
            folder, slash, _ = path.partition("/")
            return folder if slash else ""
        return PurePosixPath(path).stem.rpartition(self.separator)[0]


def is_image_name(path: str) -> bool:
    """Whether a file is called as images are. Hidden files are none: macOS puts `._1.jpg` beside `1.jpg`. Nor are those
    in folders that systems keep for themselves, such as a NAS's thumbnails.

    >>> is_image_name("Cat/1.JPG"), is_image_name("Cat/Thumbs.db"), is_image_name("Cat/._1.jpg")
    (True, False, False)
    >>> is_image_name("Cat/@eaDir/1.jpg/SYNOPHOTO_THUMB_M.jpg")
    False
    """
    file = PurePosixPath(path)
    is_hidden = any(part.startswith(".") or part in _OF_SYSTEMS for part in file.parts)
    return file.suffix.lower() in IMAGE_SUFFIXES and not is_hidden
