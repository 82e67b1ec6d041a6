"""Image and map pairs: which PNG of a folder is the semantic mask, or the depth map, of an image."""

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
        return _pair_key(key.removeprefix(self.prefix), self.prefix, self.image_start, self.image_end)

    def map_key(self, name: str) -> str:
        """Return the same of a file of the folder; empty for a file that is no map.

        Args:
            name: Path below the folder, as `name_key` returns it.
        """
        return _pair_key(name, self.prefix, self.map_start, self.map_end)


def _pair_key(name: str, prefix: str, start: str, end: str) -> str:
    folder, slash, file = name.rpartition("/")
    stem, dot, _ = file.rpartition(".")
    stem = stem if dot else file
    if not (stem.startswith(start) and stem.endswith(end) and len(stem) > len(start) + len(end)):
        return ""
    return f"{prefix}{folder}{slash}{stem[len(start) : len(stem) - len(end)]}"
