"""Pascal VOC: its folders, or XML files beside images."""

import posixpath
from collections.abc import Iterable, Iterator
from functools import partial
from io import BytesIO
from math import ceil, floor
from typing import NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.images import MAX_PIXELS, is_image_name
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.inputs.splits import SPLIT_OF_FOLDER
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.naming import split_folders
from recordmill.transforms.annotated.read_xml import Element, read_elements
from recordmill.transforms.annotated.shapes import finite_numbers, mask_text, sides_px
from recordmill.transforms.annotated.source import ImageParts, LabelledImage, Source, SourceFolder, SplitList, parser
from recordmill.transforms.images.open_image import open_image
from recordmill.transforms.storage.interface import UnreadableFileError
from recordmill.transforms.storage.resolve import join_path, storage_for
from recordmill.transforms.voc.voc_options import VocOptions

_ANNOTATIONS = ("Annotations", "annotations")
_IMAGES = ("JPEGImages", "images", "Images")
_LISTS = ("ImageSets/Main", "ImageSets/Layout", "ImageSets/Segmentation", "ImageSets")
_LAYOUT = "ImageSets/Layout"
_OBJECTS, _CLASSES = "SegmentationObject", "SegmentationClass"
_VOID = 255
_SPLIT_OF = {"trainval": "trainval"} | SPLIT_OF_FOLDER
_YEARS = tuple(f"VOC{year}" for year in range(2005, 2013))
_EDGES = ("xmin", "ymin", "xmax", "ymax")
_READ = frozenset(("name", "pose", "truncated", "difficult", "bndbox"))
_FLAGS = {"": False, "0": False, "1": True, "false": False, "true": True, "unspecified": False}
_FARTHEST = 3
"""The least xmin and the greatest xmax are noted to so many pixels, so that a data set has few different notes."""
_NO_MASK = "images with objects that have no mask in SegmentationObject: {number} ({names})"
_NO_OBJECT = "images with masks in SegmentationObject that no <object> has: {number}; they are left out ({names})"
_NO_PALETTE = "images whose SegmentationObject cannot be read as a PNG with a palette: {number} ({names})"


class Folders(NamedTuple):
    """Beginnings of the names of images, and of their XML files; both empty if the files are side by side.

    Attributes:
        images: `JPEGImages/`, or `train/images/`.
        labels: `Annotations/`.
    """

    images: str
    labels: str

    @property
    def masks(self) -> str:
        return posixpath.join(posixpath.dirname(self.labels.rstrip("/")), _OBJECTS)


class VocRules(NamedTuple):
    """How an XML file is read.

    Attributes:
        origin: what the first pixel is called, 0 or 1.
        folders: the first whose `labels` begin the file's name counts.
        root: folder of the data set; empty if masks are not wanted.
    """

    origin: int
    folders: tuple[Folders, ...] = ()
    root: str = ""


def source(options: VocOptions) -> Source:
    """Return what is read.

    Raises:
        ConfigError: the data set has no XML files, or there are several data sets.
    """
    data, images, root = options.data, options.images, _root(options.data)
    whole = _folders_of(root, "")
    names = () if whole else ("trainval", *split_folders(root))
    places = {"": whole} if whole else {name: each for name in names if (each := _folders_of(root, f"{name}/"))}
    if not places:
        raise ConfigError(f"--data {data} has no .xml files: neither in it, nor in Annotations, train, val or test")
    if images and len(places) > 1:
        raise ConfigError(f"--images: {data} has images in its folders {' and '.join(sorted(places))}; leave it out")
    folders = []
    for name, place in places.items():
        for path in images or (join_path(root, place.images),):
            folders.append(
                SourceFolder(path.rstrip("/"), "" if images else place.images, _SPLIT_OF.get(name.lower(), ""))
            )
        if images or place.labels != place.images:
            folders.append(SourceFolder(join_path(root, place.labels).rstrip("/"), place.labels, has_images=False))
    all_folders = tuple(place._replace(images="") if images else place for place in places.values())
    lists = _lists(root) if whole else []
    used = {*(folder.split for folder in folders), *(list_.split for list_ in lists)}
    has_masks = options.masks != "none"
    rules = VocRules(int(options.voc_origin), all_folders, root if has_masks else "")
    return Source(
        path=data,
        kind="voc",
        folders=tuple(folders),
        parse=partial(parse_voc, rules=rules),
        is_label=_is_xml,
        label_of=partial(label_of, folders=all_folders),
        stated_label=_stated_label,
        splits=tuple(split for split in dict.fromkeys(_SPLIT_OF.values()) if split in used),
        lists=tuple(lists),
        names_of=partial(_listed_names, images=all_folders[0].images),
        check=partial(_check, origin=rules.origin),
        parts=(Part.FLAGS,),
        inputs=tuple(list_.path for list_ in lists),
        warnings=tuple(_unread_masks(root, all_folders, has_masks)),
    )


def label_of(name: str, folders: tuple[Folders, ...]) -> str:
    """Return the name of the XML file of an image.

    >>> label_of("JPEGImages/a.b.jpg", (Folders("JPEGImages/", "Annotations/"),))
    'Annotations/a.b.xml'
    """
    images, labels = next((each for each in folders if name.startswith(each.images)), folders[0])
    return f"{labels}{posixpath.splitext(name.removeprefix(images))[0]}.xml"


def _stated_label(name: str, stated: str) -> str:
    """Return the name that an XML file would have by its `<filename>`, which may lack folder and suffix."""
    stem = posixpath.basename(stated.replace("\\", "/"))
    stem = posixpath.splitext(stem)[0] if is_image_name(stem) else stem
    return posixpath.join(posixpath.dirname(name), f"{stem}.xml")


def _is_xml(name: str) -> bool:
    return name.lower().endswith(".xml")


def _root(data: str) -> str:
    """Return the folder that has Annotations: `data`, or the folder of a year in it.

    Raises:
        ConfigError: `data` is a file, or there are several.
    """
    storage = storage_for(data)
    if storage.size(data) is not None and not data.endswith(".zip"):
        raise ConfigError(f"--data {data} is a file: give the folder that has Annotations")
    tried = [f"{folder}{year}" for folder in ("", "VOCdevkit/") for year in _YEARS]
    found = [name for name in tried if storage.is_folder(join_path(data, name))]
    if len(found) > 1:
        raise ConfigError(f"--data {data} has {', '.join(found)}: give one of them")
    return join_path(data, found[0]) if found else data.rstrip("/")


def _folders_of(root: str, below: str) -> Folders | None:
    """Return the folders of images and XML files in a folder of the data set; None if it has none."""
    folder = join_path(root, below).rstrip("/")
    storage = storage_for(folder)
    images, labels = (
        next((f"{name}/" for name in names if storage.is_folder(join_path(folder, name))), "")
        for names in (_IMAGES, _ANNOTATIONS)
    )
    if labels:
        return Folders(below + images, below + labels)
    return Folders(below, below) if any(map(_is_xml, storage.names(folder))) else None


def _lists(root: str) -> list[SplitList]:
    """Return the lists of splits in the first folder that has some. Lists of one class, `cat_train.txt`, are skipped;
    `trainval` is skipped if both of its parts are there."""
    for folder in (join_path(root, name) for name in _LISTS):
        names = [name for name in storage_for(folder).names(folder) if name.endswith(".txt")]
        splits = {name: _SPLIT_OF[name[:-4]] for name in names if name[:-4] in _SPLIT_OF}
        if {"train", "val"} <= {*splits.values()}:
            splits.pop("trainval.txt", None)
        elif "trainval.txt" in splits:
            splits = {name: split for name, split in splits.items() if split not in ("train", "val")}
        if not splits and len(names) == 1:
            splits = {names[0]: "train"}
        if splits:
            return [SplitList(join_path(folder, name), split) for name, split in splits.items()]
    return []


def _listed_names(path: str, lines: Iterable[str], images: str) -> Iterator[str]:
    """Yield the names of images in a list, with a suffix: the list has none. In ImageSets/Layout, the number of an
    object follows."""
    for name in (line.split()[0] for line in lines) if _LAYOUT in path else lines:
        yield f"{images}{name}" if name.lower().endswith((".jpg", ".jpeg", ".png")) else f"{images}{name}.jpg"


def _unread_masks(root: str, folders: Iterable[Folders], has_masks: bool) -> Iterator[str]:
    """Yield warnings of PNGs that are not read."""
    counts = {}
    for name in (_OBJECTS, _CLASSES):
        paths = {join_path(root, posixpath.join(posixpath.dirname(each.masks), name)) for each in folders}
        counts[name] = sum(each.endswith(".png") for path in paths for each in storage_for(path).names(path))
    where = f"masks of objects are in {_OBJECTS}" + ", which has none" * (not counts[_OBJECTS])
    cures = {_OBJECTS: "" if has_masks else "--masks rle or --masks png stores masks", _CLASSES: where}
    for name, number in counts.items():
        if number and cures[name]:
            yield f"{name} has {number:,} images with masks, which are not read: {cures[name]}"


def _check(notes: frozenset[str], origin: int) -> Iterator[str]:
    """Yield what the boxes say of the first pixel, and fields that are not written."""
    xmin, beyond = (
        [int(note.split()[1]) for note in notes if note.startswith(f"{name} ")] for name in ("xmin", "xmax")
    )
    least, greatest = min(xmin, default=None), max(beyond, default=None)
    found = f"the least xmin is {least}" + ("" if greatest is None else f" and the greatest xmax - width {greatest}")
    if origin == 0 and least is not None and least >= 1 and (greatest is None or greatest >= 0):
        yield f"{found}, as where the first pixel is 1: --voc-origin 1 moves the boxes' left and top edges by a pixel"
    elif origin == 1 and least is not None and least < 1:
        yield f"{found}, so the first pixel is 0, and --voc-origin 1 is wrong by a pixel: leave it out"
    if fields := sorted(note for note in notes if note.startswith("<")):
        yield f"objects have {', '.join(fields)}, which records have no key for: not written"


@parser
def parse_voc(data: bytes, file: str, rules: VocRules) -> Iterator[LabelledImage]:
    """Yield the image of an XML file. A file that ends early spoils its image: which objects are missing is not known.

    >>> xml = b"<annotation><object><name>cat</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>4</xmax>"
    >>> image, = parse_voc(xml + b"<ymax>6</ymax></bndbox></object><object/></annotation>", "a.xml", VocRules(1))
    >>> image.sample.objects[0].box, image.faults[0].detail
    ((0.0, 1.0, 4.0, 5.0), 'an object without <name>')
    """
    found, name, number = ImageParts(), "", 0
    sides: tuple[int | None, int | None] = None, None
    numbers: list[int] = []
    for element in read_elements(BytesIO(data), "annotation"):
        if element.tag == "size":
            sides = sides_px(element.text_of("width"), element.text_of("height"), found.warnings)
        elif element.tag == "filename":
            name = element.text
        elif element.tag == "object":
            number += 1
            others = (child for child in element.children if child.tag not in _READ)
            found.notes |= {f"<{child.tag[:40]}>" for child in others if child.children or child.text not in ("", "0")}
            with found.rejecting(line=element.line):
                found.objects.append(parse_object(element, rules.origin))
                numbers.append(number)
    found.notes |= set(_notes(found.objects, sides[0], rules.origin))
    found.warnings |= _add_masks(found.objects, numbers, number, file, rules) if rules.root else set()
    yield found.image(Sample(name, width=sides[0], height=sides[1]))


def _add_masks(objects: list[SampleObject], numbers: list[int], last: int, file: str, rules: VocRules) -> set[str]:
    """Give objects their masks: pixels of index i of the palette are the i-th `<object>`. Return warnings.

    Args:
        numbers: i of each object; `last` is the greatest of all, usable or not.
    """
    place = next((each for each in rules.folders if file.startswith(each.labels)), rules.folders[0])
    stem = posixpath.splitext(file.removeprefix(place.labels))[0]
    path = join_path(rules.root, posixpath.join(place.masks, f"{stem}.png"))
    try:
        data = storage_for(path).read(path)
    except FileNotFoundError:
        return {_NO_MASK} if objects else set()
    except UnreadableFileError:
        return {_NO_PALETTE}
    try:
        with open_image(data, "png") as image:
            if image.mode not in ("P", "L") or image.width * image.height > MAX_PIXELS:
                return {_NO_PALETTE}
            pixels = np.asarray(image)
    except Exception:  # Pillow's decoders raise nearly anything on damaged bytes
        return {_NO_PALETTE}
    there = {*np.unique(pixels).tolist()} - {0, _VOID}
    height, width = pixels.shape
    for at, number in enumerate(numbers):
        if number in there:
            mask = pixels == number
            text = mask_text(mask, 0, 0, width, height)
            objects[at] = msgspec.structs.replace(objects[at], segmentation=text, area_px2=float(mask.sum()))
    warnings = {_NO_MASK} if {*numbers} - there else set()
    return warnings | ({_NO_OBJECT} if max(there, default=0) > last else set())


def parse_object(element: Element, origin: int) -> SampleObject:
    """Return the object of an <object>.

    Raises:
        UnusableError: The object has no name or no box, or one of its numbers is not a number.
    """
    named, boxes = element.find("name"), [child for child in element.children if child.tag == "bndbox"]
    name = named.one_line if named else ""
    if not name.strip():
        raise UnusableError(Reason.UNKNOWN_CATEGORY, "an object without <name>")
    if len(boxes) != 1:
        raise UnusableError(Reason.MALFORMED_BOX, f"{name!r} has {len(boxes) or 'no'} <bndbox>")
    texts = {edge: boxes[0].text_of(edge) for edge in _EDGES}
    xmin, ymin, xmax, ymax = finite_numbers(texts, f"of {name!r}")
    shown = ", ".join(f"{edge} {text[:20]!r}" for edge, text in texts.items())
    if xmax < xmin or ymax < ymin:
        raise UnusableError(Reason.MALFORMED_BOX, f"edges of {name!r} are exchanged: {shown}")
    width, height = xmax - xmin + origin, ymax - ymin + origin
    if not width or not height:
        raise UnusableError(Reason.EMPTY_BOX, f"the box of {name!r} has no area: {shown}")
    difficult, truncated = (_flag(element, tag) for tag in ("difficult", "truncated"))
    box = xmin - origin, ymin - origin, width, height
    return SampleObject(name, box, difficult=difficult, truncated=truncated, view=element.text_of("pose"))


def _flag(element: Element, tag: str) -> bool:
    text = element.text_of(tag)
    if text.lower() not in _FLAGS:
        raise UnusableError(Reason.MALFORMED_ANNOTATION, f"<{tag}> is {text[:20]!r}, and neither 0 nor 1")
    return _FLAGS[text.lower()]


def _notes(objects: list[SampleObject], width: int | None, origin: int) -> Iterator[str]:
    """Yield the least xmin and the greatest xmax - width."""
    if objects:
        yield f"xmin {_near(floor(min(each.box[0] for each in objects) + origin))}"
    if objects and width:
        yield f"xmax {_near(ceil(max(each.box[0] + each.box[2] for each in objects) - width))}"


def _near(pixels: int) -> int:
    return max(-_FARTHEST, min(_FARTHEST, pixels))
