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
from recordmill.schemas.inputs.maps import MapFolder, NameEnds
from recordmill.schemas.inputs.splits import SPLIT_OF_WORD
from recordmill.schemas.names import name_key
from recordmill.transforms.rows.data_contents import LISTED
from recordmill.transforms.storage.resolve import join_path, storage_for

_IMAGE_WORDS = (
    *("images", "image", "imgs", "img", "jpegimages", "leftimg8bit", "image_2", "images_png", "original_images"),
    *("rgb", "701_stillsraw_full", "img_dir"),
)
_MASK_WORDS = (
    *("masks", "mask", "segmentationclass", "gtfine", "gtcoarse", "semantic", "masks_png", "masks_machine"),
    *("1st_manual", "groundtruth", "ground_truth", "gt", "segmentations", "segmentation"),
    *("annotations", "annotation", "annot", "ann_dir", "stuffthingmaps"),
    *("labels", "label", "label_images_semantic", "labeledapproved_full"),
)
"""Names of folders in lower case, also as beginnings and ends of longer names. Those of masks: best first."""
_SPELLINGS = (
    *(spelling for word in (*_IMAGE_WORDS, *_MASK_WORDS) for spelling in (word, word.title(), word.upper())),
    *("JPEGImages", "SegmentationClass", "leftImg8bit", "gtFine", "gtCoarse"),
)
_Folder = tuple[str, list[str]]
"""A folder, and the names of its files, relative to it."""
_Ends = tuple[NameEnds, NameEnds]
"""NameEnds of images, and of their masks."""
_ENDS: tuple[_Ends, ...] = tuple(
    (NameEnds("", image_end), NameEnds("", mask_end))
    for image_end, mask_end in (
        ("", ""),
        *(("_leftImg8bit", f"_gt{kind}_label{ids}") for kind in ("Fine", "Coarse") for ids in ("TrainIds", "Ids")),
        *(("", end) for end in ("_mask", "_masks", "-mask", "_L", "_label", "_labels", "_segmentation", "_seg", "_gt")),
        ("_sat", "_mask"),
    )
)
"""Usual ends, in order of preference."""
_MOST_FOLDERS = 10
"""Maximum number of folders with unusual names that are compared."""
_COMPARED, _COMPARED_MASKS = 8, 500
"""Maximum number of images, and of masks per folder, whose names are compared to find unusual ends."""
_MANY, _ENOUGH = LISTED // 4, 50
"""Two folders of at least `_MANY` files are likely a pair if `_ENOUGH` images have a mask."""


class FolderPair(NamedTuple):
    """A folder of images, and the folder of their masks. Both names are relative to the data set.

    Attributes:
        images, masks: Folders: `train/images`; empty for the data set itself.
        image_ends, map_ends: See MapFolder.
        pairs: Names of images and of their masks below their folders, among the first files.
        image_count, mask_count: Number of files of the folders, among the first ones.
    """

    images: str
    masks: str
    image_ends: NameEnds = NameEnds()
    map_ends: NameEnds = NameEnds()
    pairs: tuple[tuple[str, str], ...] = ()
    image_count: int = 0
    mask_count: int = 0

    @property
    def is_likely(self) -> bool:
        """True if at least half of the images, or of the masks, have a partner. Of large folders, fewer are enough:
        only the first files are listed, and may be of different images."""
        fewest = min(self.image_count, self.mask_count)
        return 0 < fewest <= 2 * len(self.pairs) or (fewest >= _MANY and len(self.pairs) >= _ENOUGH)

    def is_mask(self, name: str) -> bool:
        """Return True for a file of the data set that is a mask of the pair."""
        if self.images == self.masks:
            return bool(self.map_ends.end and self.map_ends.key(name))
        return name_key(name).startswith(f"{name_key(self.masks)}/")

    def map_folder(self, mask_root: str) -> MapFolder:
        """Return the MapFolder of the pair. `mask_root` is the folder that `masks` is in."""
        prefix = f"{name_key(self.images)}/" if self.images else ""
        path = join_path(mask_root, self.masks) if self.masks else mask_root
        return MapFolder(Part.SEMANTIC, path, prefix, self.image_ends, self.map_ends)


def find_pairs(names: Iterable[str]) -> list[FolderPair]:
    """Return the folders of images that have a folder of masks, or masks beside them; [] without any.

    Args:
        names: Names of the files of a data set.

    >>> pair, = find_pairs(["train/img/1.jpg", "train/mask/1_m.png", "train/img/2.jpg", "train/mask/2_m.png"])
    >>> pair.images, pair.masks, pair.map_ends.end, len(pair.pairs)
    ('train/img', 'train/mask', '_m', 2)
    """
    images = [name for name in names if is_image_name(name)]
    pairs = [_pair_folders(folders, masks) for folders, masks in _candidate_folders(images)]
    if not any(pair.pairs for pair in pairs):
        likely = [pair for pair in (*_pairs_beside(images), *_pairs_apart(images)) if pair.is_likely]
        pairs = [_best(likely)] if likely else pairs
    return pairs


def _pair_folders(folders: Sequence[_Folder], masks: Sequence[_Folder]) -> FolderPair:
    """Return the best pair of folders of images and of masks, or else of the only folders in them."""
    best = _best(_pair(one, other) for other in masks for one in folders)
    if best.pairs:
        return best
    inner_images, inner_masks = [*folders, *map(_inner_folder, folders)], [*masks, *map(_inner_folder, masks)]
    return _best(_pair(one, other) for other in inner_masks for one in inner_images)


def _inner_folder(folder: _Folder) -> _Folder:
    """Return the deepest folder that has all files of a folder.

    >>> _inner_folder(("annotations", ["trimaps/a/1.png", "trimaps/b/2.png"]))
    ('annotations/trimaps', ['a/1.png', 'b/2.png'])
    """
    inner = posixpath.commonpath(map(posixpath.dirname, folder[1]))
    return posixpath.join(folder[0], inner).rstrip("/"), [posixpath.relpath(name, inner or ".") for name in folder[1]]


def _best(pairs: Iterable[FolderPair]) -> FolderPair:
    return max(pairs, key=lambda pair: len(pair.pairs))


def _pairs_beside(images: Sequence[str]) -> Iterator[FolderPair]:
    """Yield the pairs of images and masks in the same folders, one for each usual end of masks."""
    for ends in _ENDS:
        masks = [name for name in images if ends[1].key(name)]
        if masks:
            yield _pair(("", [name for name in images if not ends[1].key(name)]), ("", masks), [ends])


def _pairs_apart(images: Sequence[str]) -> Iterator[FolderPair]:
    """Yield pairs of other folders with each folder SegmentationClass, which tools export without the images."""
    by_folder: dict[str, list[str]] = defaultdict(list)
    for name in images:
        folder, base = posixpath.split(name)
        by_folder[folder].append(base)
    masks = [folder for folder in by_folder if posixpath.basename(folder) == "SegmentationClass"]
    for one in masks[:_MOST_FOLDERS]:
        for other in sorted(by_folder.keys() - {*masks})[:_MOST_FOLDERS]:
            yield _pair((other, by_folder[other]), (one, by_folder[one]))


def list_names(folder: str) -> list[str]:
    """Return the first `LISTED` names of a folder. If it has more, add the first names of each of its folders of images
    and of masks, because the first names alone may all be images."""
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
    """Yield the parent of each folder in the path of a file whose name is a word for images or masks."""
    parts = name.split("/")
    yield from ("/".join(parts[:depth]) for depth, part in enumerate(parts[:-1]) if _describe_folder(part)[1] == "")


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
            direct = [posixpath.basename(name) for name in images if posixpath.dirname(name) == above]
            folders = {above: direct} if direct else {}
        if group["mask"] and folders:
            masks = sorted(group["mask"].items(), key=lambda item: _rank_mask_folder(item[0]))
            yield [*folders.items()], masks


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


def _pair(images: _Folder, masks: _Folder, candidates: Iterable[_Ends] = ()) -> FolderPair:
    """Return the pair of two folders, with the ends of names by which most images have a mask.

    Args:
        candidates: Possible ends; by default the usual ones, and those by which the names differ.
    """
    names = sorted(masks[1], key=lambda name: name.lower().endswith(".png"))  # a PNG of two files with one name
    image_names, mask_names = ({name_key(name): name for name in some} for some in (images[1], names))
    best, pairs = (NameEnds(), NameEnds()), list[tuple[str, str]]()
    for ends in candidates or dict.fromkeys((*_ENDS, *_differences(list(image_names), list(mask_names)))):
        by_key = {key: name for composed, name in mask_names.items() if (key := ends[1].key(composed))}
        some = [
            (name, by_key[key]) for composed, name in image_names.items() if (key := ends[0].key(composed)) in by_key
        ]
        if len(some) > len(pairs):
            best, pairs = ends, some
    return FolderPair(images[0], masks[0], *best, tuple(pairs), len(images[1]), len(masks[1]))


def pair_names(image_names: Sequence[str], mask_names: Sequence[str]) -> FolderPair:
    """Return the pair of a folder of images and another of masks, each of which may have the files in a folder
    `images` or `masks`."""
    images, masks = _subfolders(image_names, "image"), _subfolders(mask_names, "mask")
    return _best(_pair(one, other) for one in images for other in masks)


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


def _differences(image_names: Sequence[str], mask_names: Sequence[str]) -> Iterator[_Ends]:
    """Yield the ends by which the names of the first images differ from the most similar name of a mask."""
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
            yield NameEnds("", image[common:]), NameEnds("", mask[common:])
        mask, common = _most_similar(image[::-1], [mask[::-1] for mask in masks])
        if common:
            yield NameEnds(image[: len(image) - common]), NameEnds(mask[: common - 1 : -1])


def _most_similar(name: str, candidates: Iterable[str]) -> tuple[str, int]:
    """Return the candidate with the longest common prefix, and the length of the prefix."""
    lengths = {
        candidate: next(
            (place for place, (a, b) in enumerate(zip(name, candidate, strict=False)) if a != b),
            min(len(name), len(candidate)),
        )
        for candidate in candidates
    }
    return max(lengths.items(), key=lambda item: item[1])


def split_of_folder(folder: str) -> str:
    """Return the split that a folder names; "" if it names none.

    >>> split_of_folder("train/images"), split_of_folder("val_images"), split_of_folder("leftImg8bit")
    ('train', 'val', '')
    """
    words = [word for part in folder.split("/") for word in re.split("[_-]", part.lower())]
    return next((SPLIT_OF_WORD[word] for word in words if word in SPLIT_OF_WORD), "")
