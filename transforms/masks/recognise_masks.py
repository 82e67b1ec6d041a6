"""Recognition of images with semantic masks, by the names of folders and files."""

import posixpath
import shlex
from collections.abc import Iterator

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.splits import SPLIT_OF_WORD
from recordmill.schemas.sizes import first_texts, number_text
from recordmill.transforms.annotated.recognise_format import source_fault
from recordmill.transforms.masks.masks_options import MasksOptions
from recordmill.transforms.masks.pair_folders import FolderPair, find_pairs, is_images_folder, list_names
from recordmill.transforms.rows.data_contents import CLASS_FOLDERS, LISTED, DataContents, Interpretation

_RANK = CLASS_FOLDERS - 1
"""Rank after label files, and tables beside images."""
_SHOWN = 3


def ways(contents: DataContents, options: type[MasksOptions]) -> Iterator[Interpretation]:
    """Yield the Interpretation of images with masks. If the folders may be classes instead, its error has a command for
    each."""
    inputs = {"data": [contents.data]}
    if contents.folder != contents.data.rstrip("/"):
        return
    if "mask_images" in contents.given:
        yield Interpretation("--mask-images", inputs, fault=source_fault(contents, options))
        return
    pairs = find_pairs(contents.names if len(contents.names) < LISTED else list_names(contents.folder))
    likely = [pair for pair in pairs if pair.is_likely]
    if likely:
        fault = _class_fault(contents, likely) or source_fault(contents, options)
        if fault and _may_be_classes(contents, likely):
            fault = ConfigError(f"{fault}. {_class_command(contents, likely[0])}")
        yield Interpretation(", ".join(map(_describe, likely[:_SHOWN])), inputs, _RANK, fault)
    elif pairs and _has_only(contents, pairs):
        yield Interpretation("folders of images and masks", inputs, _RANK, _names_fault(contents, pairs[0]))
    elif "depth_images" in contents.given and contents.images:
        unread = f" alone, without labels (not read: {first_texts(contents.heads, _SHOWN)})" if contents.heads else ""
        yield Interpretation(f"--depth-images{unread}", inputs, _RANK, source_fault(contents, options))


def _describe(pair: FolderPair) -> str:
    number = f"{len(pair.pairs):,} of {number_text(pair.image_count, 'image')}"
    if pair.images == pair.masks:
        return f"{number} have a mask in the same folder, named …{pair.map_ends.end}"
    return f"{number} in {pair.images or 'it'} have a mask in {pair.masks}"


def _class_fault(contents: DataContents, pairs: list[FolderPair]) -> ConfigError | None:
    """Return the error of class folders that have masks beside their images."""
    pair = pairs[0]
    folders = sorted({posixpath.dirname(image) for image, _ in pair.pairs} - {""})
    tops = {folder.partition("/")[0] for folder in folders}
    if pair.images != pair.masks or len(tops) < 2:
        return None
    if all(top.lower() in SPLIT_OF_WORD for top in tops):
        return None
    return ConfigError(
        f"{contents.data} has class folders ({first_texts(folders, _SHOWN)}) and masks beside their images "
        f"({pair.pairs[0][1]}). To write masks: {_command(contents.data, 'masks')}. To write a class for each image, "
        f"move the masks elsewhere, and run: {_command(contents.data, 'folder')}"
    )


def _may_be_classes(contents: DataContents, pairs: list[FolderPair]) -> bool:
    """Return True if the two folders of a pair may be classes: masks are JPEGs, or names are like `cat`, `cat_mask`."""
    are_jpegs = all(mask.lower().endswith((".jpg", ".jpeg")) for pair in pairs for _, mask in pair.pairs)
    is_known = is_images_folder(pairs[0].images) or pairs[0].images.lower() in SPLIT_OF_WORD
    return _has_only(contents, pairs) and "/" not in pairs[0].images and (are_jpegs or not is_known)


def _class_command(contents: DataContents, pair: FolderPair) -> str:
    command = _command(contents.data, "folder")
    return f"If {pair.images} and {pair.masks} are classes of images instead, run: {command}"


def _has_only(contents: DataContents, pairs: list[FolderPair]) -> bool:
    """Return True if all images are in one pair of folders, which may then be two classes."""
    folders = tuple(f"{folder}/" for pair in pairs for folder in (pair.images, pair.masks))
    return len(pairs) == 1 and all(name.startswith(folders) for name in contents.images)


def _names_fault(contents: DataContents, pair: FolderPair) -> ConfigError:
    return ConfigError(
        f"{contents.data} has a folder {pair.images} and a folder {pair.masks}, but only {len(pair.pairs)} of "
        f"{number_text(pair.mask_count, 'file')} in {pair.masks} have the name of an image. If they are masks, give "
        f"them the names of their images. {_class_command(contents, pair)}"
    )


def _command(data: str, format_: str) -> str:
    return shlex.join(["recordmill", "convert", data, "--format", format_, "-o", "OUT"])
