"""Images on their way into records."""

import msgspec

from schemas.coco import NO_LABELS, AnnotatedImage, Annotation, ImageLabels


class ImageRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where an image file is.

    Attributes:
        path: local path or URI.
        size_bytes: as listed.
        version: what changes when the file does (modification time, generation); resume compares it, records do not
            depend on it.
    """

    path: str
    size_bytes: int
    version: str = ""


class NameMatch(msgspec.Struct, frozen=True, array_like=True):
    """One side of the join by file name: an image row that gives the name, or a file that has it."""

    image: AnnotatedImage | None = None
    file: ImageRef | None = None


class ImageTask(msgspec.Struct, frozen=True, array_like=True):
    """One image to write, with all that is known of it but its bytes.

    Attributes:
        width, height: pixels, by the JSON; None where it does not say.
        annotations: ordered by annotation id.
        is_rest: whether this is not the first of several tasks of the image, with some of its annotations each; the
            image is counted by the first.
    """

    image_id: int
    file_name: str
    width: int | None
    height: int | None
    ref: ImageRef
    split: str
    annotations: tuple[Annotation, ...]
    labels: ImageLabels = NO_LABELS
    is_rest: bool = False

    @property
    def annotation_rows(self) -> int:
        """How many annotation rows go with the image."""
        return len(self.annotations) + self.labels.rows


class UnlistedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file below the image folders that no image row names."""

    name: str


class Picture(msgspec.Struct, frozen=True):
    """An image file's bytes, checked.

    Attributes:
        data: the bytes that go into the record.
        format: `jpeg` or `png`: what the bytes are, whatever the file is called.
        width, height: of the encoded pixels.
        sha256: hex digest of `data`.
    """

    data: bytes
    format: str
    width: int
    height: int
    sha256: str
