"""Image and map pairs: which PNG of a folder is the semantic mask, or the depth map, of an image."""

import re
from typing import NamedTuple

from recordmill.schemas.features import Part
from recordmill.schemas.names import name_key

MAP_NAMES = {Part.SEMANTIC: "mask", Part.DEPTH: "depth map"}
"""Name of a map in messages."""


class MapFolder(NamedTuple):
    """A folder of PNGs with a value per pixel, one for each image.

    An image and its PNG have the same path below their folders, without suffix, once these texts are removed: the image
    `a/1_leftImg8bit.png` and the mask `a/1_gtFine_labelIds.png` are `a/1`.

    Attributes:
        part: SEMANTIC or DEPTH.
        path: Folder, .zip, or URI of the PNGs.
        prefix: Beginning of the names of its images in the data set: `train/images/`; empty for the root.
        image_start, image_end: Texts that the names of images begin and end with, before the suffix.
        map_start, map_end: The same of the PNGs. Other files of the folder are no maps.
        void: Values of pixels that are written as 255, unknown.
        colours: Red, green and blue of the values from 0 on, three bytes each, for masks with colours; empty without.
        image_words, map_words: Words that say what an image and a map are. Folders with such a name do not count in
            paths, and neither do words at an end of a name: `rgb/1.jpg` and `depth/1_depth.png` are `1`.
    """

    part: Part
    path: str
    prefix: str = ""
    image_start: str = ""
    image_end: str = ""
    map_start: str = ""
    map_end: str = ""
    void: tuple[int, ...] = ()
    colours: bytes = b""
    image_words: tuple[str, ...] = ()
    map_words: tuple[str, ...] = ()

    def image_key(self, name: str) -> str:
        """Return the text that the name of an image has in common with its map; empty for no image of the folder.

        >>> folder = MapFolder(Part.SEMANTIC, "gtFine", "left/", "", "_leftImg8bit", "", "_gtFine_labelIds")
        >>> folder.image_key("left/a/1_leftImg8bit.png"), folder.map_key("a/1_gtFine_labelIds.png")
        ('left/a/1', 'left/a/1')
        >>> folder.image_key("right/a/1_leftImg8bit.png"), folder.map_key("a/1_gtFine_color.png")
        ('', '')
        """
        key = name_key(name)
        if not key.startswith(self.prefix):
            return ""
        return self._pair_key(key.removeprefix(self.prefix), self.image_start, self.image_end, self.image_words)

    def map_key(self, name: str) -> str:
        """Return the same of a file of the folder; empty for a file that is no map.

        Args:
            name: Path below the folder, as `name_key` returns it.
        """
        return self._pair_key(name, self.map_start, self.map_end, self.map_words)

    def _pair_key(self, name: str, start: str, end: str, words: tuple[str, ...]) -> str:
        *folders, file = name.split("/")
        stem = file.rpartition(".")[0] or file
        if not (stem.startswith(start) and stem.endswith(end) and len(stem) > len(start) + len(end)):
            return ""
        stem = stem[len(start) : len(stem) - len(end)]
        if words:
            folders = [folder for folder in folders if folder.lower() not in (*self.image_words, *self.map_words)]
            stem = _without_words(stem, words)
        return self.prefix + "/".join((*folders, stem))


def _without_words(stem: str, words: tuple[str, ...]) -> str:
    """
    >>> [_without_words(stem, ("color", "rgb")) for stem in ("frame-1.color", "RGB_1", "rgb", "rgba_1")]
    ['frame-1', '1', 'rgb', 'rgba_1']
    """
    either = "|".join(map(re.escape, words))
    return re.sub(f"^(?:{either})[._-](?=.)|(?<=.)[._-](?:{either})$", "", stem, count=1, flags=re.IGNORECASE)


DEPTH_WORDS = (
    ("image", "images", "img", "imgs", "rgb", "color", "colors", "colour"),
    ("depth", "depths", "depth_map", "depth_maps", "depthmap", "depthmaps", "depth_images"),
)
"""`image_words` and `map_words` of depth maps."""
