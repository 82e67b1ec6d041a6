"""Find the COCO files, splits and image folders of an exported folder by their names.

The names of Roboflow, CVAT, FiftyOne, Label Studio, Datumaro and COCO are known.
"""

import posixpath
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, groupby, islice
from typing import Any, NamedTuple

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.coco import AnnotationKind, AnnotationSource, ExportPart, Given
from recordmill.schemas.inputs.option import option_fields
from recordmill.schemas.inputs.splits import SPLIT_OF_FOLDER, USUAL_SPLITS
from recordmill.schemas.names import Match, name_fault
from recordmill.schemas.paths import is_remote
from recordmill.transforms.coco.coco_options import CocoOptions
from recordmill.transforms.coco.read_coco import cut_file, read_block
from recordmill.transforms.join.label_versions import describe_versions
from recordmill.transforms.storage.resolve import find_archive, join_path, list_existing, split_folder, storage_for

_KINDS = {kind.value: kind for kind in AnnotationKind} | {"person_keypoints": AnnotationKind.KEYPOINTS}
_NAMED = re.compile(rf"({'|'.join(sorted(_KINDS, reverse=True))})(?:_(.+))?\.json(?:\.gz)?")
_ROBOFLOW = "_annotations.coco.json"
_USUAL = (_ROBOFLOW, "labels.json", "annotations.json", "result.json", "instances.json")
"""Names that Roboflow, FiftyOne, labelme2coco, Label Studio and others use, next to the images or their folder."""
_ANNOTATIONS = "annotations"
_SUBSET = re.compile(rf"(?:.*[_.-])?({'|'.join(SPLIT_OF_FOLDER)})(?:\d{{4}})?", re.IGNORECASE)
_KEYS = {"captions": b'"caption"', "panoptic": b'"segments_info"', "keypoints": b'"num_keypoints"'}
"""Keys of annotations, which show the kind of a file whose name does not."""
_CURE = "Name the files by flags, --instances for example, and the folder of the images as DATA"
_IMAGES_TRIED = 3


class ExportFile(NamedTuple):
    """An annotation file.

    Attributes:
        name: Path relative to the folder of the export.
        subset: Name of the split in the export; empty if the export has none.
        masks: Folder of the PNGs of a panoptic file.
    """

    name: str
    kind: AnnotationKind
    subset: str
    masks: str = ""

    @property
    def split(self) -> str:
        return split_of_subset(self.subset)


def split_of_subset(subset: str) -> str:
    """Return the split that a subset is written as.

    >>> [split_of_subset(name) for name in ("train2017", "valid", "custom_val", "default", "test-dev2017")]
    ['train', 'val', 'val', '', 'test_dev']
    """
    if match := _SUBSET.fullmatch(subset):
        return SPLIT_OF_FOLDER[match[1].lower()]
    return "" if subset.lower() == "default" else re.sub(r"\W", "_", re.sub(r"(?<=\D)\d{4}$", "", subset))


def find_exports(options: CocoOptions) -> tuple[CocoOptions, Given]:
    """Return options that name all files and folders, and the input files. Find the files in `options.data`, if set.

    Raises:
        ConfigError: `data` has no annotation file, or two of one kind for a split; or no folder has the images; or
            options do not fit the files found.
    """
    data = options.data
    if not data:
        return options, Given((ExportPart("", options.sources, options.images),), options.splits)
    if not storage_for(data).is_folder(data):
        if find_archive(data):
            raise ConfigError(f"{data}: files inside an archive are not read. Unpack {find_archive(data)}")
        raise ConfigError(f"{data} is not a folder or .zip. {_CURE}")
    annotation_files = list(_find_annotation_files(data))
    copies = _find_copies(data, annotation_files)
    annotation_files = [file for file in annotation_files if file.name not in copies]
    candidates = [file._replace(masks=_find_masks(data, file)) for file in annotation_files]
    export_files = [file for file in candidates if file.masks or file.kind is not AnnotationKind.PANOPTIC]
    subsets = {file.subset for file in export_files if file.kind is AnnotationKind.PANOPTIC}
    stuff = [file for file in export_files if file.kind is AnnotationKind.STUFF and file.subset in subsets]
    lists = _lists_beside_annotations(export_files)
    export_files = [file for file in export_files if file not in (*stuff, *lists)]
    unread = dict.fromkeys(_json_names(data, _ANNOTATIONS), "its name does not say the kind of its annotations")
    unread |= {file.name: f"the folder {_stem(file.name)} of its PNGs is missing" for file in candidates}
    unread |= {file.name: "it has no annotations" for file in lists}
    unread |= {file.name: "the panoptic file of the split makes the semantic mask, too" for file in stuff}
    unread |= {name: f"it has the same bytes as {original}" for name, original in copies.items()}
    read = {file.name for file in export_files}
    warnings = (f"{join_path(data, name)} is not read: {why}" for name, why in unread.items() if name not in read)
    by_split = _group_by_split(options, export_files)
    match = options.match
    folders = {
        split: options.images or (_find_image_folder(data, files[0], match),) for split, files in by_split.items()
    }
    options = _name_files(options, export_files, folders)
    sources = {source.path: source for source in options.sources}
    parts = []
    for split, files in by_split.items():
        split_sources = tuple(sources[join_path(data, file.name)] for file in files)
        is_shared = list(folders.values()).count(folders[split]) > 1
        parts.append(ExportPart(split, split_sources, folders[split], is_shared))
    if options.is_split_given and len(parts) > 1:
        raise ConfigError(f"DATA has a file for each of the splits {', '.join(by_split)}, and so does --split")
    if options.is_split_given or not parts[0].split:
        parts, names = [ExportPart("", options.sources, options.images)], options.splits
    else:
        names = tuple(by_split)
    return options, Given(tuple(parts), names, data, tuple(warnings))


def find_images_of_file(
    path: str, head: bytes, match: Match = "path"
) -> tuple[AnnotationKind, str, str, ConfigError | None]:
    """Return the kind of an annotation file, the folders of its images and of its PNGs, "" if they are not found, and
    the error that says where images were looked for.

    Args:
        head: Beginning of the file.
        match: Rule of --match.
    """
    folder, name = split_folder(path)
    named = _NAMED.fullmatch(name)
    kind = (
        _KINDS[named[1]] if named else next((_KINDS[k] for k, key in _KEYS.items() if key in head), _KINDS["instances"])
    )
    above = posixpath.dirname(folder) if posixpath.basename(folder) == _ANNOTATIONS else folder
    data = above or "."
    within = posixpath.relpath(path, data) if not is_remote(path) else path[len(above) + 1 :]
    file = ExportFile(within, kind, (named[2] or "") if named else "")
    try:
        return kind, _find_image_folder(data, file, match), _find_masks(data, file), None
    except ConfigError as error:
        return kind, "", _find_masks(data, file), error


def _lists_beside_annotations(files: Sequence[ExportFile]) -> list[ExportFile]:
    """Return files of images without annotations whose split has annotations in an unnamed file."""
    annotated = {file.split for file in files if file.kind is not AnnotationKind.IMAGE_INFO}
    return [
        file
        for file in files
        if file.kind is AnnotationKind.IMAGE_INFO
        and not _NAMED.fullmatch(posixpath.basename(file.name))
        and file.split in annotated
    ]


def is_export_name(name: str) -> bool:
    """Return True if a file within a folder is named like the annotation files of COCO, or of Roboflow's exports.

    >>> is_export_name("annotations/instances_val2017.json"), is_export_name("notes/instances.json")
    (True, False)
    """
    folder, base = posixpath.split(name)
    return base == _ROBOFLOW or (folder in ("", _ANNOTATIONS) and bool(_NAMED.fullmatch(base)))


def _find_copies(data: str, files: Sequence[ExportFile]) -> dict[str, str]:
    """Return the name of the file that each copy is equal to. Files of two known splits are no copies, whose images may
    be in other folders."""
    by_size = defaultdict[Any, list[ExportFile]](list)
    for file in sorted(files, key=lambda file: (not _SUBSET.fullmatch(file.subset), len(file.name), file.name)):
        size = storage_for(join_path(data, file.name)).size(join_path(data, file.name))
        by_size[file.kind, posixpath.dirname(file.name), size].append(file)
    originals: dict[Any, ExportFile] = {}
    copies = {}
    for key, same_size in by_size.items():
        for file in same_size if len(same_size) > 1 else ():
            path = join_path(data, file.name)
            split = file.split if _SUBSET.fullmatch(file.subset) else None
            first = originals.setdefault((*key, storage_for(path).checksum(path)), file)
            if first is not file and split in (None, first.split):
                copies[file.name] = first.name
    return copies


def _group_by_split(options: CocoOptions, export_files: Sequence[ExportFile]) -> dict[str, list[ExportFile]]:
    """Return each split's files, by split and kind."""
    data = options.data or ""
    if not export_files:
        raise ConfigError(
            f"{data} has no annotation file of a COCO export: neither {_ANNOTATIONS}/*.json nor one of "
            f"{', '.join(_USUAL)}, in it or in {', '.join(SPLIT_OF_FOLDER)}. {_CURE}"
        )
    usual, kinds = USUAL_SPLITS, list(_KINDS.values())
    ordered = sorted(export_files, key=lambda file: (kinds.index(file.kind), file.name))
    ordered.sort(key=lambda file: (usual.index(file.split) if file.split in usual else len(usual), file.split))
    by_split = {split: list(files) for split, files in groupby(ordered, key=lambda file: file.split)}
    for (split, kind), files in groupby(ordered, key=lambda file: (file.split, file.kind)):
        if len(versions := list(files)) > 1:
            what = f"{kind.value} of the split {split}" if split else kind.value
            raise ConfigError(
                f"{data}: several files are {what}: {_describe_versions(options, versions)}, or n{_CURE[1:]}"
            )
    if "" in by_split and len(by_split) > 1:
        names = ", ".join(file.name for file in by_split[""])
        raise ConfigError(f"{data}: the name of {names} has no split, but the names of other files have one. {_CURE}")
    return by_split


def _describe_versions(options: CocoOptions, files: Sequence[ExportFile]) -> str:
    """Return several files of a split with their numbers of images, and the command that reads one."""
    data = options.data or ""
    text, largest = describe_versions({file.name: partial(_image_names, data, file) for file in files})
    images = [word for folder in options.images for word in ("--images", folder)]
    command = ["recordmill", "convert", join_path(data, largest), *images, "-o", "OUT", "--format", "coco"]
    return f"{text}. Convert one: {shlex.join(command)}"


def _image_names(data: str, file: ExportFile) -> Iterator[str]:
    blocks = cut_file(AnnotationSource(file.kind, join_path(data, file.name)))
    yield from (row.file_name for block in blocks if block.list == "images" for row in read_block(block).images)


def _name_files(
    options: CocoOptions, export_files: Sequence[ExportFile], folders: dict[str, tuple[str, ...]]
) -> CocoOptions:
    """Return options with the files in place of `data`.

    Raises:
        ConfigError: Other options do not fit the files.
    """
    data = options.data or ""
    named: dict[str, Any] = {"data": None, "images": [*dict.fromkeys(chain.from_iterable(folders.values()))]}
    for file in export_files:
        named.setdefault(file.kind.value, []).append(join_path(data, file.name))
    named["panoptic_masks"] = [file.masks for file in export_files if file.masks]
    given = [option for option in option_fields(CocoOptions) if option.attribute in options.model_fields_set]
    values = {option.name: getattr(options, option.attribute) for option in given}
    try:
        named_options = CocoOptions(**values | named)
    except ConfigError as error:
        names = ", ".join(file.name for file in export_files)
        raise ConfigError(f"{data} is read as {names}: {error}. {_CURE}") from error
    return named_options.as_part(options.groups_prefix) if options.is_part else named_options


def _find_annotation_files(data: str) -> Iterator[ExportFile]:
    """Yield files with known names. Without any, yield all JSON files of the folder `annotations`, or of the export."""
    names = _json_names(data, _ANNOTATIONS)
    matches = {name: match for name in names if (match := _NAMED.fullmatch(posixpath.basename(name)))}
    usual = list_existing(data, (posixpath.join(folder, name) for folder in ("", *SPLIT_OF_FOLDER) for name in _USUAL))
    yield from (ExportFile(name, _KINDS[match[1]], match[2] or "") for name, match in matches.items())
    yield from (ExportFile(name, AnnotationKind.INSTANCES, posixpath.dirname(name)) for name in usual)
    if not matches and not usual:
        unnamed = names or _json_names(data, "")
        stems = ((name, _stem(name)) for name in unnamed)
        files = [
            ExportFile(name, AnnotationKind.INSTANCES, stem if _SUBSET.fullmatch(stem) else "") for name, stem in stems
        ]
        yield from _observe_kinds(data, files)


def _observe_kinds(data: str, files: Sequence[ExportFile]) -> list[ExportFile]:
    """Return the files, each with the kind that its content shows if names give several files of a split one kind."""
    counts = Counter((file.kind, file.split) for file in files)
    return [
        file if counts[file.kind, file.split] == 1 else file._replace(kind=_observe_kind(data, file)) for file in files
    ]


def _observe_kind(data: str, file: ExportFile) -> AnnotationKind:
    for block in cut_file(AnnotationSource(file.kind, join_path(data, file.name))):
        if block.list == "annotations":
            is_panoptic = "segments_info" in read_block(block).fields
            return AnnotationKind.PANOPTIC if is_panoptic else file.kind
        if not block.list and read_block(block).has_annotations:  # an empty list
            return file.kind
    return AnnotationKind.IMAGE_INFO


def _json_names(data: str, folder: str) -> list[str]:
    path = join_path(data, folder) if folder else data
    names = storage_for(path).names(path)
    return [posixpath.join(folder, name) for name in names if name.endswith((".json", ".json.gz"))]


def _stem(name: str) -> str:
    return posixpath.basename(name).partition(".json")[0]


def _find_masks(data: str, file: ExportFile) -> str:
    """Return the folder, or .zip, of the PNGs of a panoptic file; empty if not found, or for other kinds of files."""
    if file.kind is not AnnotationKind.PANOPTIC:
        return ""
    stem = _stem(file.name)
    names = (posixpath.join(posixpath.dirname(file.name), stem), stem)
    places = [join_path(data, name + suffix) for name in names for suffix in ("", ".zip")]
    return next((path for path in places if storage_for(path).is_folder(path)), "")


def _find_image_folder(data: str, file: ExportFile, match: Match) -> str:
    """Return the folder that has one of the first images that a file names. With --match suffix or name, it is `data`
    if no usual folder has one.

    Raises:
        ConfigError: No folder has one of the images.
    """
    beside = posixpath.dirname(file.name)
    source = AnnotationSource(file.kind, join_path(data, file.name))
    blocks = (block for block in cut_file(source) if block.list == "images")
    names = [row.file_name for block in islice(blocks, 1) for row in read_block(block).images[:_IMAGES_TRIED]]
    subsets = [file.subset, file.split, *(name for name, split in SPLIT_OF_FOLDER.items() if split == file.split)]
    if usual := _SUBSET.search(file.subset):
        subsets += [file.subset[usual.start(1) :], f"{usual[1]}2017"]
    near = [posixpath.join(beside, folder) for folder in ("data", "images")]
    subset_folders = [f"{folder}{subset}" for subset in filter(None, subsets) for folder in ("", "images/")]
    places = [*dict.fromkeys((beside, *subset_folders, *near, "images", "data", ""))]
    known = [name for name in names if not name_fault(name)]
    for place in places:
        path = join_path(data, place) if place else data
        if not names:
            return path
        for name in known:
            stored = storage_for(path).stat(join_path(path, name))
            if stored is not None:  # of a .zip, perhaps in its only folder, which the path lacks
                return stored.path.removesuffix(f"/{name}") if find_archive(path) else path
    if match != "path":
        return data
    raise ConfigError(
        f"{data}: {file.name} names the image {names[0]!r}, which is not in any of "
        f"{', '.join(place or 'the folder itself' for place in places)}. Give the folder of all images by --images, or "
        "find them by the ends of their names with --match name"
    )
