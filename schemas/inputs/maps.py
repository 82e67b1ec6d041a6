"""Image and map pairs: which PNG of a folder is the semantic mask, or the depth map, of an image."""

import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from recordmill.schemas.features import Part
from recordmill.schemas.inputs.splits import SPLIT_OF_WORD
from recordmill.schemas.names import name_key
from recordmill.schemas.paths import relative_path

MAP_NAMES = {Part.SEMANTIC: "mask", Part.DEPTH: "depth map"}
"""Name of a map in messages."""
_IMAGE_WORDS = ("image", "images", "img", "imgs", "rgb", "color", "colors", "colour")
_DEPTH_WORDS = ("depth", "depths", "depth_map", "depth_maps", "depthmap", "depthmaps", "depth_images")
_FOLDER_WORDS = (*_IMAGE_WORDS, *_DEPTH_WORDS)


class NameEnds(NamedTuple):
    """Texts that the names of all images, or of all their maps, begin and end with, before the suffix."""

    start: str = ""
    end: str = ""

    def key(self, name: str) -> str:
        """Return the path of a file without the texts and its suffix; empty if its name lacks one of them.

        >>> NameEnds("", "_L").key("a/1_L.png"), NameEnds("", "_L").key("a/1.png")
        ('a/1', '')
        """
        folder, stem = posixpath.split(posixpath.splitext(name)[0])
        own = stem.removeprefix(self.start).removesuffix(self.end)
        return posixpath.join(folder, own) if own and stem == f"{self.start}{own}{self.end}" else ""


class MapFolder(NamedTuple):
    """A folder of PNGs with a value per pixel, one for each image.

    An image and its PNG have the same path below their folders, without the texts of `NameEnds`: the image
    `a/1_leftImg8bit.png` and the mask `a/1_gtFine_labelIds.png` are `a/1`. The paths of depth maps and their images
    lack folders like `rgb` and `depth` too, and such a word at an end of the name: `rgb/1.jpg` and
    `depth/1_depth.png` are `1`.

    Attributes:
        part: SEMANTIC or DEPTH.
        path: Folder, .zip, or URI of the PNGs.
        prefix: Beginning of the names of its images in the data set: `train/images/`; empty for the root. For depth
            maps, of the paths that an image and its map have in common: `train/`.
        image_ends, map_ends: Ends of the names of images, and of the PNGs. Other files of the folder are no maps.
        changes: Values of pixels, and the values that are written instead: 255 for unknown pixels, 256 for a reject.
        colours: Red, green and blue of the values from 0 on, three bytes each, for masks with colours; empty without.
        inner: Folders below `path` that are no part of those paths: those of the data set, if it is in `path`.
        has_others: True if the folder has images, too, so that only files with a word for depth in their path are maps.
    """

    part: Part
    path: str
    prefix: str = ""
    image_ends: NameEnds = NameEnds()
    map_ends: NameEnds = NameEnds()
    changes: tuple[tuple[int, int], ...] = ()
    colours: bytes = b""
    inner: str = ""
    has_others: bool = False

    def image_key(self, name: str) -> str:
        """Return the text that the names of an image and of its map have in common; empty for other images.

        >>> ends = NameEnds("", "_leftImg8bit"), NameEnds("", "_labelIds")
        >>> folder = MapFolder(Part.SEMANTIC, "gtFine", "left/", *ends)
        >>> folder.image_key("left/a/1_leftImg8bit.png"), folder.map_key("a/1_labelIds.png")
        ('left/a/1', 'left/a/1')
        >>> folder.image_key("right/a/1_leftImg8bit.png"), folder.map_key("a/1_color.png")
        ('', '')
        """
        key = name_key(name)
        if self.part is Part.DEPTH:
            shared = _without_words(posixpath.splitext(key)[0], _IMAGE_WORDS, _FOLDER_WORDS)
            return shared if shared.startswith(self.prefix) else ""
        own = self.image_ends.key(key.removeprefix(self.prefix)) if key.startswith(self.prefix) else ""
        return own and self.prefix + own

    def map_key(self, name: str) -> str:
        """Return the same of a file of the folder; empty for a file that is no map.

        Args:
            name: Path below the folder, as `name_key` returns it.
        """
        path = posixpath.splitext(name)[0]
        if self.has_others and _without_words(path, _DEPTH_WORDS, _DEPTH_WORDS) == path:
            return ""
        is_depth = self.part is Part.DEPTH
        key = _without_words(path, _DEPTH_WORDS, _FOLDER_WORDS) if is_depth else self.map_ends.key(name)
        key = key.removeprefix(self.inner)
        return key and self.prefix + key


def depth_folders(paths: Iterable[str], images: Sequence[str], root: str = "") -> tuple[MapFolder, ...]:
    """Return the folders of `--depth-images`.

    Args:
        images: Folders of images.
        root: Folder that the names of images begin at, if it is one. A folder of a split below it has the maps of that
            split.

    >>> folders = depth_folders(["a/./train/depth", "a/maps"], ["a/train/rgb"], "a")
    >>> [(folder.prefix, folder.has_others) for folder in folders]
    [('train/', False), ('', False)]
    """
    return tuple(
        MapFolder(
            Part.DEPTH,
            path,
            _split_prefix(_shared_folders(relative_path(path, root))) if root else "",
            inner=_shared_folders(relative_path(root, path)) if root else "",
            has_others=any(relative_path(image_folder, path) is not None for image_folder in images),
        )
        for path in paths
    )


def is_depth_map(name: str, folders: Iterable[MapFolder]) -> bool:
    """Return True for a file of a data set that is a depth map beside its image, in one of some folders with images."""
    return any(folder.has_others and folder.part is Part.DEPTH and folder.map_key(name) for folder in folders)


def _shared_folders(path: str | None) -> str:
    """Return a path without the folders whose names do not count: `train/` of `train/depth`."""
    return "".join(
        f"{one}/" for one in name_key(path or ".").split("/") if one != "." and one.lower() not in _FOLDER_WORDS
    )


def _split_prefix(path: str) -> str:
    return path if all(one.lower() in SPLIT_OF_WORD for one in path.split("/")[:-1]) else ""


def _without_words(key: str, words: tuple[str, ...], folder_words: tuple[str, ...]) -> str:
    """Return a path without folders of some names, and its name without a word at one end.

    >>> words = ("color", "rgb")
    >>> [_without_words(key, words, words) for key in ("rgb/a/frame-1.color", "RGB_1", "rgb", "rgba_1")]
    ['a/frame-1', '1', 'rgb', 'rgba_1']
    """
    *folders, stem = key.split("/")
    either = "|".join(words)
    plain = re.sub(f"^(?:{either})[._-](?=.)|(?<=.)[._-](?:{either})$", "", stem, count=1, flags=re.IGNORECASE)
    return "/".join((*(one for one in folders if one.lower() not in folder_words), plain))
