"""Where the class of an image comes from, where images are of one class each."""

from pathlib import PurePosixPath

import msgspec

PATH_COLUMNS = ("path", "image", "image_path", "image_uri", "filename", "file_name", "file", "name", "id")
LABEL_COLUMNS = ("label", "class", "class_name", "category", "target")
SPLIT_COLUMNS = ("split", "set", "subset", "ml_use")
"""Usual column names in tables of labels, in lower case; the first of them that a table has is used."""

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
    """Whether a file is called as images are. Hidden files are none: macOS puts `._1.jpg` beside `1.jpg`.

    >>> is_image_name("Cat/1.JPG"), is_image_name("Cat/Thumbs.db"), is_image_name("Cat/._1.jpg")
    (True, False, False)
    """
    file = PurePosixPath(path)
    return file.suffix.lower() in IMAGE_SUFFIXES and not any(part.startswith(".") for part in file.parts)
