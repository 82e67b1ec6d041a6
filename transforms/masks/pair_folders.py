"""Pair folders of images with folders of their masks, by the names of folders and files alone."""

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from recordmill.schemas.features import Part
from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.inputs.maps import MapFolder
from recordmill.schemas.inputs.splits import SPLIT_OF_WORD
from recordmill.transforms.storage.resolve import join_path, storage_for

_IMAGE_WORDS = (
    *("images", "image", "imgs", "img", "jpegimages", "leftimg8bit", "image_2", "images_png", "original_images"),
    *("rgb", "701_stillsraw_full"),
)
_MASK_WORDS = (
    *("masks", "mask", "segmentationclass", "gtfine", "gtcoarse", "semantic", "masks_png", "1st_manual"),
    *("groundtruth", "ground_truth", "gt", "segmentations", "segmentation", "annotations", "annotation", "annot"),
    *("labels", "label", "label_images_semantic", "labeledapproved_full"),
)
"""Names, and ends and beginnings of names, of folders, in lower case; of masks in order of preference."""
_SPELLINGS = (
    *(spelling for word in (*_IMAGE_WORDS, *_MASK_WORDS) for spelling in (word, word.title(), word.upper())),
    *("JPEGImages", "SegmentationClass", "leftImg8bit", "gtFine", "gtCoarse"),
)
_ENDS = (
    ("", ""),
    *(("_leftImg8bit", f"_gt{kind}_label{ids}") for kind in ("Fine", "Coarse") for ids in ("TrainIds", "Ids")),
    *(("", end) for end in ("_mask", "_masks", "-mask", "_L", "_label", "_labels", "_segmentation", "_seg", "_gt")),
    ("_sat", "_mask"),
)
"""Ends of the names of images and of their masks, in order of preference."""
_MOST_FOLDERS = 10
"""Number of folders with other names that are compared."""
_COMPARED, _COMPARED_MASKS = 8, 500
"""Number of images, and masks of their folder, whose names show other ends."""


LISTED = 20_000
"""Number of files of a folder that are looked at."""
_MANY, _ENOUGH = LISTED // 4, 50


class FolderPair(NamedTuple):
    """A folder of images, and the folder of their masks. Both names are relative to the data set.

    Attributes:
        images, masks: Folders: `train/images`; empty for the data set itself.
        image_start, image_end, map_start, map_end: See MapFolder.
        pairs: Names of images and of their masks below their folders, among the first files.
        image_count, mask_count: Number of files of the folders, among the first ones.
    """

    images: str
    masks: str
    image_start: str = ""
    image_end: str = ""
    map_start: str = ""
    map_end: str = ""
    pairs: tuple[tuple[str, str], ...] = ()
    image_count: int = 0
    mask_count: int = 0

    @property
    def is_likely(self) -> bool:
        """True if at least half of the images, or of the masks, have a partner. Of many, the first ones of both folders
        may be different ones."""
        fewest = min(self.image_count, self.mask_count)
        return 0 < fewest <= 2 * len(self.pairs) or (fewest >= _MANY and len(self.pairs) >= _ENOUGH)

    def is_mask(self, name: str) -> bool:
        """Return True for a file of the data set that is a mask of the pair."""
        if self.images == self.masks:
            return bool(self.map_end) and map_key(name, self.map_start, self.map_end) is not None
        return name.startswith(f"{self.masks}/")

    def map_folder(self, mask_root: str) -> MapFolder:
        """Return the MapFolder of the pair. `mask_root` is the folder that `masks` is in."""
        prefix = f"{self.images}/" if self.images else ""
        path = join_path(mask_root, self.masks) if self.masks else mask_root
        ends = self.image_start, self.image_end, self.map_start, self.map_end
        return MapFolder(Part.SEMANTIC, path, prefix, *ends)


def find_pairs(names: Iterable[str]) -> list[FolderPair]:
    """Return the folders of images that have a folder of masks, or masks beside them; [] without any.

    Args:
        names: Names of the files of a data set.

    >>> pair, = find_pairs(["train/img/1.jpg", "train/mask/1_m.png", "train/img/2.jpg", "train/mask/2_m.png"])
    >>> pair.images, pair.masks, pair.map_end, len(pair.pairs)
    ('train/img', 'train/mask', '_m', 2)
    """
    images = [name for name in names if is_image_name(name)]
    pairs = [
        max((_pair(*one, *other) for other in masks for one in folders), key=lambda pair: len(pair.pairs))
        for folders, masks in _candidate_folders(images)
    ]
    if not any(pair.pairs for pair in pairs):
        stems = [posixpath.splitext(name)[0] for name in images]
        ends = [pair for pair in _ENDS if pair[1] and any(stem.endswith(pair[1]) for stem in stems)]
        others = [_pair_beside(images, *pair) for pair in ends] + [*_pairs_apart(images)]
        likely = [pair for pair in others if pair.is_likely]
        pairs = [max(likely, key=lambda pair: len(pair.pairs))] if likely else pairs
    return pairs


def _pairs_apart(images: Sequence[str]) -> Iterator[FolderPair]:
    """Yield the pairs of a folder SegmentationClass, which tools export without the images, and other folders."""
    by_folder: dict[str, list[str]] = defaultdict(list)
    for name in images:
        folder, base = posixpath.split(name)
        by_folder[folder].append(base)
    masks = [folder for folder in by_folder if posixpath.basename(folder) == "SegmentationClass"]
    for one in masks[:_MOST_FOLDERS]:
        for other in sorted(by_folder.keys() - {*masks})[:_MOST_FOLDERS]:
            yield _pair(other, by_folder[other], one, by_folder[one])


def list_names(folder: str) -> list[str]:
    """Return the names of the first files of a folder, and of the folders in it for images or masks: of a large data
    set, the first files may be images alone."""
    storage = storage_for(folder)
    names = dict.fromkeys(islice(storage.walk_names(folder), LISTED))
    if len(names) == LISTED:
        for place in sorted({above for name in names for above in _places(name)}):
            path = join_path(folder, place) if place else folder
            names |= {
                posixpath.join(place, word, name): None
                for word in _SPELLINGS
                if storage.is_folder(join_path(path, word))
                for name in islice(storage.walk_names(join_path(path, word)), LISTED)
            }
    return [*names]


def _places(name: str) -> Iterator[str]:
    """Yield the folder that has the folder of images or masks of a file, if there is one."""
    parts = name.split("/")
    yield from ("/".join(parts[:depth]) for depth, part in enumerate(parts[:-1]) if _describe_folder(part)[1] == "")


_Folder = tuple[str, list[str]]
"""Name of a folder, and the names of its files below it."""


def _candidate_folders(images: Sequence[str]) -> Iterator[tuple[list[_Folder], list[_Folder]]]:
    """Yield folders of images, and folders of masks in order of preference, that are in one folder and whose names
    differ by the words for images and masks: `images` and `masks`, `train` and `train_masks`."""
    groups: dict[tuple[str, str], dict[str, dict[str, list[str]]]] = defaultdict(lambda: defaultdict(dict))
    for name in images:
        parts = name.split("/")
        for depth, part in enumerate(parts[:-1]):
            kind, rest = _describe_folder(part)
            group = groups["/".join(parts[:depth]), rest]
            group[kind].setdefault("/".join(parts[: depth + 1]), []).append("/".join(parts[depth + 1 :]))
            if kind:
                break
    for (above, rest), group in sorted(groups.items()):
        folders = group["image"] or group[""]
        if not folders and not rest:
            folders = {above: direct} if (direct := _files_of(above, images)) else {}
        if group["mask"] and folders:
            masks = sorted(group["mask"].items(), key=lambda item: _rank_mask_folder(item[0]))
            yield [*folders.items()], masks


def _files_of(folder: str, names: Iterable[str]) -> list[str]:
    """Return the names of the files directly in a folder."""
    return [posixpath.basename(name) for name in names if posixpath.dirname(name) == folder]


@lru_cache(1024)
def _describe_folder(name: str) -> tuple[str, str]:
    """Return `image`, `mask` or "", and the name in lower case without the word that shows it.

    >>> _describe_folder("Images"), _describe_folder("trainannot"), _describe_folder("a_labels"), _describe_folder("b")
    (('image', ''), ('mask', 'train'), ('mask', 'a'), ('', 'b'))
    """
    lower = name.lower()
    for kind, words in (("image", _IMAGE_WORDS), ("mask", _MASK_WORDS)):
        if lower in words:
            return kind, ""
        for word in words:
            if match := re.fullmatch(rf"{word}[_-](.+)|(.+)[_-]{word}", lower):
                return kind, match[1] or match[2]
    return ("mask", lower.removesuffix("annot")) if lower.endswith("annot") else ("", lower)


def _rank_mask_folder(name: str) -> int:
    last = posixpath.basename(name).lower()
    return next((rank for rank, word in enumerate(_MASK_WORDS) if last.startswith(word) or last.endswith(word)), 0)


def _pair(images: str, image_names: Sequence[str], masks: str, mask_names: Sequence[str]) -> FolderPair:
    """Return the pair of two folders, with the ends of names by which most images have a mask."""
    known = [("", image_end, "", mask_end) for image_end, mask_end in _ENDS]
    candidates = dict.fromkeys((*known, *_differences(image_names, mask_names)))
    ordered = sorted(mask_names, key=lambda name: name.lower().endswith(".png"))  # a PNG of two files with one name
    best: tuple[tuple[str, str, str, str], list[tuple[str, str]]] = ("", "", "", ""), []
    for ends in candidates:
        by_key = {key: name for name in ordered if (key := map_key(name, ends[2], ends[3])) is not None}
        pairs = [
            (name, by_key[key])
            for name in image_names
            if (key := map_key(name, ends[0], ends[1])) is not None and key in by_key
        ]
        if len(pairs) > len(best[1]):
            best = ends, pairs
    return FolderPair(images, masks, *best[0], tuple(best[1]), len(image_names), len(mask_names))


def pair_names(image_names: Sequence[str], mask_names: Sequence[str]) -> FolderPair:
    """Return the pair of a folder of images and another of masks, each of which may have the files in a folder
    `images` or `masks`."""
    images, masks = _subfolders(image_names, "image"), _subfolders(mask_names, "mask")
    return max((_pair(*one, *other) for one in images for other in masks), key=lambda pair: len(pair.pairs))


def is_images_folder(name: str) -> bool:
    """Return True for a folder with a usual name for images: `images`, `train_images`."""
    return _describe_folder(posixpath.basename(name))[0] == "image"


def images_folder(names: Sequence[str]) -> str:
    """Return the folder `images` that has all images; "" if they are elsewhere, too."""
    folders = _subfolders(names, "image")
    return next((folder for folder, files in folders[1:] if len(files) == len(folders[0][1])), "")


def _subfolders(names: Sequence[str], kind: str) -> list[_Folder]:
    """Return all files, and the files of the folder of a kind, if there is one."""
    names = [name for name in names if is_image_name(name)]
    tops = sorted({name.partition("/")[0] for name in names if "/" in name})
    folders = [top for top in tops if _describe_folder(top) == (kind, "")]
    return [("", names)] + [
        (top, [name.removeprefix(f"{top}/") for name in names if name.startswith(f"{top}/")]) for top in folders
    ]


def map_key(name: str, start: str, end: str) -> str | None:
    """Return what the names of an image and of its mask have in common; None if a name lacks the start or the end."""
    folder, base = posixpath.split(posixpath.splitext(name)[0])
    if not (base.startswith(start) and base.endswith(end) and len(base) > len(start) + len(end)):
        return None
    return posixpath.join(folder, base[len(start) : len(base) - len(end)])


def _differences(image_names: Sequence[str], mask_names: Sequence[str]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the ends, and the starts, by which the first images differ from the mask with the most similar name."""
    by_folder: dict[str, list[str]] = defaultdict(list)
    for name in mask_names:
        folder, base = posixpath.split(posixpath.splitext(name)[0])
        if len(by_folder[folder]) < _COMPARED_MASKS:
            by_folder[folder].append(base)
    for name in sorted(image_names)[:_COMPARED]:
        folder, image = posixpath.split(posixpath.splitext(name)[0])
        masks = by_folder.get(folder)
        if not masks:
            continue
        mask, common = _most_similar(image, masks)
        if common:
            yield "", image[common:], "", mask[common:]
        mask, common = _most_similar(image[::-1], [mask[::-1] for mask in masks])
        if common:
            yield image[: len(image) - common], "", mask[: common - 1 : -1], ""


def _most_similar(name: str, others: Iterable[str]) -> tuple[str, int]:
    """Return the name with the longest beginning in common, and its length."""
    lengths = {
        other: next(
            (place for place, (a, b) in enumerate(zip(name, other, strict=False)) if a != b), min(len(name), len(other))
        )
        for other in others
    }
    return max(lengths.items(), key=lambda item: item[1])


def _pair_beside(images: Sequence[str], image_end: str, map_end: str) -> FolderPair:
    """Return the pair of images and masks in the same folders."""
    masks = {key: name for name in images if (key := map_key(name, "", map_end)) is not None}
    own = [name for name in images if map_key(name, "", map_end) is None]
    pairs = tuple((name, masks[key]) for name in own if (key := map_key(name, "", image_end)) in masks)
    return FolderPair("", "", "", image_end, "", map_end, pairs, len(own), len(masks))


def split_of_folder(folder: str) -> str:
    """Return the split that a folder names; "" if it names none.

    >>> split_of_folder("train/images"), split_of_folder("val_images"), split_of_folder("leftImg8bit")
    ('train', 'val', '')
    """
    words = [word for part in folder.split("/") for word in re.split("[_-]", part.lower())]
    return next((SPLIT_OF_WORD[word] for word in words if word in SPLIT_OF_WORD), "")
