"""Images on their way into records."""

import msgspec

from recordmill.schemas.inputs.annotations import NO_LABELS, Annotation, ImageLabels, PanopticAnnotation
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.schemas.statistics import PixelMeasures

USUAL_IMAGE_BYTES = 133_000
"""The mean of COCO's images, taken for files whose size is not known."""


NO_FILE = "no file"
"""The version of what has a file's name, and is none."""
NOT_A_FILE = "a link that leads nowhere, a pipe or a device"


class ImageRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where an image file is.

    Attributes:
        path: local path or URI.
        size_bytes: as found when the folder was listed.
        version: what changes when the file does (modification time, generation); resume compares it, records do not
            depend on it.
    """

    path: str
    size_bytes: int
    version: str = ""


def panoptic_file(panoptic: PanopticAnnotation) -> ImageRef:
    """The PNG of a panoptic annotation."""
    return ImageRef(panoptic.path, panoptic.size_bytes or 0, panoptic.version)


class ImageTask(msgspec.Struct, frozen=True, array_like=True):
    """One image to write, with all that is known of it but its bytes.

    Attributes:
        width, height: pixels, from the JSON; None where it does not give them.
        annotations: ordered by annotation id.
        is_continuation: True where an image is split into several tasks, with some of its annotations each, and this is
            not the first of them. The image is counted with the first.
    """

    image_id: int
    file_name: str
    width: int | None
    height: int | None
    ref: ImageRef
    split: str
    annotations: tuple[Annotation, ...]
    labels: ImageLabels = NO_LABELS
    is_continuation: bool = False

    @property
    def annotation_rows(self) -> int:
        """How many annotation rows go with the image."""
        return len(self.annotations) + self.labels.rows

    def rejected(self, reason: Reason, fault: str) -> Rejected:
        """Why there is no record of the image."""
        detail = f"{self.file_name!r}: {fault}"
        return self.labels.rejected(self.image_id, reason, detail, self.annotation_rows)

    @property
    def files(self) -> tuple[ImageRef, ...]:
        """All that is read for the image: its file, and its panoptic PNG if it has one."""
        return (self.ref, *map(panoptic_file, self.labels.panoptic))


class PictureRules(msgspec.Struct, frozen=True):
    """What is done with image files.

    Attributes:
        check: how thoroughly they are checked, see `recordmill.transforms.images.load_images`.
        format: `keep`, or the one that all are written in, `jpeg` or `png`.
        max_side: pixels; larger pictures are shrunk to it.
        jpeg_quality: 1..100, of pictures that are transcoded.
        raw_size: height and width of the pixels that are written instead of files; None for files.
    """

    check: str
    format: str = "keep"
    max_side: int | None = None
    jpeg_quality: int = 95
    raw_size: tuple[int, int] | None = None


class Transcoding(msgspec.Struct, frozen=True):
    """Why and from what a picture was transcoded.

    Attributes:
        original: the format of the file, `webp` for example.
        bytes: size of the file.
        turned: whether it was turned upright, as its EXIF orientation says and the JSON's size has it.
        shrunk: whether it was made smaller.
    """

    original: str
    bytes: int
    turned: bool = False
    shrunk: bool = False


class Picture(msgspec.Struct, frozen=True):
    """An image file's bytes, checked.

    Attributes:
        data: the bytes that go into the record.
        format: `jpeg` or `png`: what the bytes are, whatever the file is called; `raw` for uint8 [height, width, 3].
        width, height: of the encoded pixels.
        sha256: hex digest of `data`.
        annotated_size: width and height in the frame of the annotations, where the picture was shrunk; else None.
        transcoding: None where `data` is the file as it was.
        measures: of its pixels, if they were decoded to be checked.
    """

    data: bytes
    format: str
    width: int
    height: int
    sha256: str
    annotated_size: tuple[int, int] | None = None
    transcoding: Transcoding | None = None
    measures: PixelMeasures | None = None

    @property
    def frame(self) -> tuple[int, int]:
        """Width and height of the picture that annotations refer to."""
        return self.annotated_size or (self.width, self.height)
