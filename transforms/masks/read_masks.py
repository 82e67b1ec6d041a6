"""Images with semantic masks: a folder of images, and a folder of PNGs whose pixels are classes. No label files."""

import posixpath
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.class_tables import ADE20K, CLASS_FILES
from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.inputs.maps import depth_folders, is_depth_map
from recordmill.schemas.inputs.splits import SPLIT_OF_WORD, USUAL_SPLITS
from recordmill.schemas.names import name_key
from recordmill.schemas.paths import relative_path
from recordmill.schemas.sizes import first_texts, number_text, size_text
from recordmill.transforms.annotated.image_sets import SPLITS_BY_NAME, find_image_sets, parse_image_set
from recordmill.transforms.annotated.source import Source, SourceFolder, is_never, yield_nothing
from recordmill.transforms.masks.class_values import ClassTable, known_classes, parse_class_file, parse_names
from recordmill.transforms.masks.masks_options import MasksOptions
from recordmill.transforms.masks.pair_folders import (
    FolderPair,
    find_pairs,
    images_folder,
    list_names,
    pair_names,
    split_of_folder,
)
from recordmill.transforms.masks.pixel_values import resolve_values
from recordmill.transforms.masks.sample_masks import sample_masks
from recordmill.transforms.storage.interface import FileTooLargeError
from recordmill.transforms.storage.resolve import join_path, storage_for

_SHOWN, _MOST_CLASS_BYTES = 3, 1_000_000
_LISTS = ("ImageSets/Segmentation",)
_VOC_IMAGES, _VOC_OBJECTS = "JPEGImages", "SegmentationObject"


def source(options: MasksOptions) -> Source:
    """Return the Source of images with masks.

    Raises:
        ConfigError: DATA has no images with masks, or what their pixels mean is unknown.
    """
    data = options.data.rstrip("/")
    image_root = next(iter(options.images), data).rstrip("/")
    mask_root = next(iter(options.mask_images), data).rstrip("/")
    is_one_root = image_root == mask_root
    below = (relative_path(path, image_root) for path in (*options.mask_images, *options.depth_images))
    apart = tuple(f"{name_key(path)}/" for path in below if path)
    depth_maps = depth_folders(options.depth_images, [image_root])
    names = [name for name in list_names(image_root) if not (_is_map(name, apart) or is_depth_map(name, depth_maps))]
    mask_names = names if is_one_root else list_names(mask_root)
    pairs = find_pairs(names) if is_one_root else [pair_names(names, mask_names)]
    pairs = [pair for pair in pairs if pair.pairs]
    if not pairs and options.depth_images and not options.mask_images:
        images = _image_source(options, image_root, [FolderPair(images_folder(names), "")], names)
        return replace(images, is_map=partial(_is_map, apart=apart))
    if not pairs:
        raise ConfigError(_describe_missing(names, image_root, mask_root))
    paths = [join_path(mask_root, posixpath.join(pair.masks, mask)) for pair in pairs for _, mask in pair.pairs]
    files = {join_path(root, name) for root, own in ((image_root, names), (mask_root, mask_names)) for name in own}
    table = _find_classes(options, pairs, sorted(files))
    classes = resolve_values(table, sample_masks(paths), options.void_values, options.data)
    built = _image_source(options, image_root, pairs, names, mask_root)
    in_images = tuple(pair._replace(pairs=()) for pair in pairs) if is_one_root else ()
    return replace(
        built,
        is_map=partial(_is_map, apart=apart, pairs=in_images),
        parts=(Part.SEMANTIC,),
        inputs=(*built.inputs, *table.inputs),
        warnings=tuple(_unread_images(names, built.folders, in_images)),
        maps=tuple(
            pair.map_folder(mask_root)._replace(changes=classes.changes, colours=classes.colours) for pair in pairs
        ),
        segments=classes.segments,
        notes=(*(_describe_pair(pair, image_root, mask_root) for pair in pairs), *table.notes, *classes.notes),
    )


def stem_name(name: str) -> str:
    """Return the name of an image without its suffix."""
    return posixpath.splitext(name)[0]


def _is_map(name: str, apart: tuple[str, ...] = (), pairs: Sequence[FolderPair] = ()) -> bool:
    """Return True for a file in the folders `apart`, or for a mask of `pairs`."""
    return name_key(name).startswith(apart) or any(pair.is_mask(name) for pair in pairs)


def _image_source(
    options: MasksOptions, root: str, pairs: Sequence[FolderPair], names: Sequence[str], mask_root: str = ""
) -> Source:
    """Return the Source of the images alone: their folders, and the splits that folders or lists name.

    Args:
        mask_root: Folder that `FolderPair.masks` is in; empty without masks.
    """
    folders = [folder for pair in pairs for folder in _image_folders(root, pair, names, mask_root)]
    lists = []
    if len(folders) == 1 and not folders[0].split and posixpath.basename(pairs[0].images) == _VOC_IMAGES:
        lists = find_image_sets(join_path(root, posixpath.dirname(pairs[0].images)).rstrip("/"), _LISTS)
    splits = {*(folder.split for folder in folders), *(list_.split for list_ in lists)} - {""}
    without = next((folder.path for folder in folders if not folder.split), "")
    if splits and without and not lists:
        raise ConfigError(
            f"{root} has folders of the splits {', '.join(sorted(splits))}, and {without}, which is of no split. Move "
            "it elsewhere, or give one of the folders as DATA"
        )
    return Source(
        path=options.data,
        kind="masks",
        folders=tuple(folders),
        parse=yield_nothing,
        is_label=is_never,
        label_name=stem_name,
        categories=(),
        splits=tuple(split for split in dict.fromkeys((*USUAL_SPLITS, *SPLITS_BY_NAME.values())) if split in splits),
        lists=tuple(lists),
        parse_list=partial(parse_image_set, images=f"{pairs[0].images}/"),
        inputs=tuple(list_.path for list_ in lists),
    )


def _image_folders(root: str, pair: FolderPair, names: Iterable[str], mask_root: str) -> Iterator[SourceFolder]:
    """Yield the folder of images of a pair, or the folders of splits in it that have a folder of masks."""
    prefix = f"{pair.images}/" if pair.images else ""
    path = join_path(root, pair.images) if pair.images else root
    if split := split_of_folder(pair.images):
        yield SourceFolder(path, prefix, split)
        return
    below = [name.removeprefix(prefix) for name in names if name.startswith(prefix) and not pair.is_mask(name)]
    tops = sorted({name.partition("/")[0] if "/" in name else "" for name in below if is_image_name(name)})
    if not {top.lower() for top in tops} & SPLIT_OF_WORD.keys():
        yield SourceFolder(path, prefix)
        return
    if other_tops := [top for top in tops if top.lower() not in SPLIT_OF_WORD]:
        raise ConfigError(
            f"{path} has folders of splits, and {other_tops[0] or 'images beside them'} of no split. Move it "
            "elsewhere, or give the folders of one split by themselves"
        )
    mask_folder = join_path(mask_root, pair.masks) if pair.masks else mask_root
    for top in tops:
        if mask_root and not storage_for(mask_folder).is_folder(join_path(mask_folder, top)):
            continue  # test images are often published without masks
        yield SourceFolder(join_path(path, top), f"{prefix}{top}/", SPLIT_OF_WORD[top.lower()])


def _find_classes(options: MasksOptions, pairs: Sequence[FolderPair], files: Sequence[str]) -> ClassTable:
    """Return the classes of `--class-names`, of a file of the data set, or of a known data set.

    Args:
        files: Paths in the folders of images and of masks.
    """
    if options.class_names:
        (first, *more) = options.class_names
        is_file = not more and storage_for(first).size(first) is not None
        if is_file:
            return _read_table(first, f"--class-names {shlex.quote(first)}")
        if not more and first.lower().endswith((".txt", ".csv", ".tsv")):
            raise ConfigError(f"--class-names {shlex.quote(first)}: no such file")
        return ClassTable(parse_names(options.class_names), "--class-names")
    by_name = {name: [path for path in files if posixpath.basename(path) == name] for name in CLASS_FILES}
    for name, paths in by_name.items():
        if paths:
            tables = [_read_table(path, path) for path in paths]
            if other := next((table for table in tables if table.classes != tables[0].classes), None):
                raise ConfigError(f"{tables[0].where} and {other.where} have different classes. Add --class-names FILE")
            about = [f"the names of the classes are those of {tables[0].where}"]
            if name == ADE20K:
                about.append("pixels of the value 0, which ADE20K's benchmark ignores, are written as 255, unknown")
            return tables[0]._replace(notes=tuple(about))
    for pair in pairs:
        is_voc = any(f"{folder}/" in path for folder in _LISTS for path in files)
        if known := known_classes(pair.masks, pair.map_ends.end, is_voc):
            return known
    return ClassTable()


def _read_table(path: str, where: str) -> ClassTable:
    try:
        data = storage_for(path).read(path, most_bytes=_MOST_CLASS_BYTES)
    except FileTooLargeError as error:
        size = size_text(_MOST_CLASS_BYTES)
        raise ConfigError(f"{path} has more than {size}. Give a file of the names of at most 256 classes") from error
    return ClassTable(parse_class_file(path, data), where, (path,))


def _describe_pair(pair: FolderPair, image_root: str, mask_root: str) -> str:
    """Return which file is the mask of an image, for one of each pair."""
    image, mask = min(pair.pairs)
    image_path = join_path(image_root, posixpath.join(pair.images, image))
    return f"the mask of {image_path} is {join_path(mask_root, posixpath.join(pair.masks, mask))}"


def _unread_images(names: Iterable[str], folders: Iterable[SourceFolder], pairs: Iterable[FolderPair]) -> Iterator[str]:
    """Yield a warning of images in folders that have no masks."""
    read = (*(folder.prefix for folder in folders), *(f"{pair.masks}/" for pair in pairs if pair.masks))
    unread = [name for name in names if is_image_name(name) and not name.startswith(read)]
    if unread_folders := sorted({posixpath.dirname(name) or "." for name in unread} - {_VOC_OBJECTS}):
        yield (
            f"folders whose images have no masks are not read: {first_texts(unread_folders, _SHOWN)} "
            f"({number_text(len(unread), 'image')})"
        )


def _describe_missing(names: Sequence[str], image_root: str, mask_root: str) -> str:
    """Return the error of a data set whose images have no masks."""
    if image_root == mask_root:
        return (
            f"{image_root} has no images with masks: a folder images beside a folder masks, for example, whose files "
            "have the same names, or 1_mask.png beside 1.jpg. If the masks are elsewhere, add --mask-images DIR"
        )
    image, mask = (next(filter(is_image_name, listing), "") for listing in (names, list_names(mask_root)))
    if image and mask:
        return f"no mask in {mask_root} is named like an image in {image_root}: {mask!r}, and {image!r}, for example"
    return f"{image_root if mask else mask_root} has no images"
