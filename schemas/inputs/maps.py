"""Image and map pairs: which PNG of a folder is the semantic mask, or the depth map, of an image."""

from typing import NamedTuple

from recordmill.schemas.features import Part


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
    """

    part: Part
    path: str
    prefix: str = ""
    image_start: str = ""
    image_end: str = ""
    map_start: str = ""
    map_end: str = ""
