"""Pascal VOC: its folders, or XML files beside images."""

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.boxes import LARGEST
from recordmill.schemas.inputs.fields import leaf_values
from recordmill.schemas.inputs.images import MAX_PIXELS, is_image_name
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.inputs.scalars import read_flag
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.image_sets import SPLITS_BY_NAME, find_image_sets, parse_image_set
from recordmill.transforms.annotated.naming import split_folders
from recordmill.transforms.annotated.read_xml import (
    Element,
    Node,
    child_texts,
    element_values,
    first_children,
    node_text,
    one_line,
    read_file_elements,
)
from recordmill.transforms.annotated.shapes import finite_numbers, mask_text, show_texts, sides_px, with_fields
from recordmill.transforms.annotated.source import (
    ImageParts,
    LabelledImage,
    Source,
    SourceFolder,
    field_notes,
    parser,
)
from recordmill.transforms.images.open_image import open_image
from recordmill.transforms.storage.interface import UnreadableFileError
from recordmill.transforms.storage.resolve import join_path, storage_for
from recordmill.transforms.voc.voc_options import VocOptions

_ANNOTATIONS = ("Annotations", "annotations")
_IMAGES = ("JPEGImages", "images", "Images")
_LISTS = ("ImageSets/Main", "ImageSets/Layout", "ImageSets/Segmentation", "ImageSets")
_OBJECTS, _CLASSES = "SegmentationObject", "SegmentationClass"
_VOID = 255
_YEARS = tuple(f"VOC{year}" for year in range(2005, 2013))
_EDGES = ("xmin", "ymin", "xmax", "ymax")
_READ = frozenset(("name", "pose", "truncated", "difficult", "bndbox"))
_FLAGS = {"": False, "0": False, "1": True}
_PART = "part"
_XMIN_BELOW, _XMIN_1 = "xmin below 1", "xmin 1"
_REACHED, _NOT_REACHED = "right edge reached", "right edge not reached"
_NO_MASK = "images with objects that have no mask in SegmentationObject: {number} ({names})"
_NO_OBJECT = "images with masks in SegmentationObject that no <object> has: {number}; the masks are skipped ({names})"
_NO_PALETTE = "images whose SegmentationObject cannot be read as a PNG with a palette: {number} ({names})"


class VocFolders(NamedTuple):
    """Prefixes of the names of images and of their XML files; both empty if the files are side by side.

    Attributes:
        images: `JPEGImages/`, or `train/images/`.
        labels: `Annotations/`.
    """

    images: str
    labels: str

    @property
    def masks(self) -> str:
        return posixpath.join(posixpath.dirname(self.labels.rstrip("/")), _OBJECTS)


def source(options: VocOptions) -> Source:
    """Return the Source of a VOC data set.

    Raises:
        ConfigError: The data set has no XML files, or `data` has several data sets.
    """
    data, images, root = options.data, options.images, _year_folder(options.data)
    whole = _find_voc_folders(root, "")
    names = () if whole else ("trainval", *split_folders(root))
    pairs = {name: _find_voc_folders(root, f"{name}/") for name in names}
    by_name = {"": whole} if whole else {name: pair for name, pair in pairs.items() if pair}
    if not by_name:
        raise ConfigError(f"{data} has no .xml files: neither in it, nor in Annotations, train, val or test")
    if images and len(by_name) > 1:
        raise ConfigError(f"--images: {data} has images in its folders {' and '.join(sorted(by_name))}. Omit --images")
    folders = []
    for name, pair in by_name.items():
        split = SPLITS_BY_NAME.get(name.lower(), "")
        for path in images or (join_path(root, pair.images),):
            folders.append(SourceFolder(path.rstrip("/"), "" if images else pair.images, split))
        if images or pair.labels != pair.images:
            folders.append(SourceFolder(join_path(root, pair.labels).rstrip("/"), pair.labels, split, False))
    voc_folders = tuple(pair._replace(images="") if images else pair for pair in by_name.values())
    lists = find_image_sets(root, _LISTS) if whole else []
    used = {*(folder.split for folder in folders), *(list_.split for list_ in lists)}
    has_masks, has_fields, origin = options.masks != "none", bool(options.fields), int(options.voc_origin)
    if options.labels_only:  # masks are read if there are any
        has_masks = has_masks and bool(_count_masks(root, voc_folders, _OBJECTS))
    mask_root = root if has_masks else ""
    return Source(
        path=data,
        kind="voc",
        folders=tuple(folders),
        parse=partial(parse_voc, origin=origin, folders=voc_folders, mask_root=mask_root, has_fields=has_fields),
        is_label=_is_xml,
        label_name=partial(xml_name, folders=voc_folders),
        stated_label=_stated_label,
        splits=tuple(split for split in dict.fromkeys(SPLITS_BY_NAME.values()) if split in used),
        lists=tuple(lists),
        parse_list=partial(parse_image_set, images=voc_folders[0].images),
        check=partial(_check_voc_notes, origin=origin),
        parts=(Part.FLAGS,),
        inputs=tuple(list_.path for list_ in lists),
        warnings=tuple(_unread_masks(root, voc_folders, has_masks)),
        text_fields=True,
    )


def xml_name(name: str, folders: tuple[VocFolders, ...]) -> str:
    """Return the name of the XML file of an image.

    >>> xml_name("JPEGImages/a.b.jpg", (VocFolders("JPEGImages/", "Annotations/"),))
    'Annotations/a.b.xml'
    """
    images, labels = next((pair for pair in folders if name.startswith(pair.images)), folders[0])
    return f"{labels}{posixpath.splitext(name.removeprefix(images))[0]}.xml"


def _stated_label(name: str, stated: str) -> str:
    """Return the name of an XML file from its `<filename>`, which may lack folder and suffix."""
    stem = posixpath.basename(stated.replace("\\", "/"))
    stem = posixpath.splitext(stem)[0] if is_image_name(stem) else stem
    return posixpath.join(posixpath.dirname(name), f"{stem}.xml")


def _is_xml(name: str) -> bool:
    return name.lower().endswith(".xml")


def _year_folder(data: str) -> str:
    """Return the folder with Annotations: `data`, or the folder of a year in it.

    Raises:
        ConfigError: `data` is a file, or has the folders of several years.
    """
    storage = storage_for(data)
    if storage.size(data) is not None and not data.endswith(".zip"):
        raise ConfigError(f"{data} is a file. Give the folder that has Annotations")
    candidates = [f"{folder}{year}" for folder in ("", "VOCdevkit/") for year in _YEARS]
    years = [name for name in candidates if storage.is_folder(join_path(data, name))]
    if len(years) > 1:
        raise ConfigError(f"{data} has {', '.join(years)}. Give one of them")
    return join_path(data, years[0]) if years else data.rstrip("/")


def _find_voc_folders(root: str, below: str) -> VocFolders | None:
    """Return the folders of images and XML files in a folder of the data set; None if it has none."""
    folder = join_path(root, below).rstrip("/")
    storage = storage_for(folder)
    images, labels = (
        next((f"{name}/" for name in names if storage.is_folder(join_path(folder, name))), "")
        for names in (_IMAGES, _ANNOTATIONS)
    )
    if labels:
        return VocFolders(below + images, below + labels)
    return VocFolders(below, below) if any(map(_is_xml, storage.names(folder))) else None


def _count_masks(root: str, folders: Iterable[VocFolders], name: str) -> int:
    """Return the number of PNGs in the folders of masks with this name."""
    paths = {join_path(root, posixpath.join(posixpath.dirname(pair.masks), name)) for pair in folders}
    return sum(file.endswith(".png") for path in paths for file in storage_for(path).names(path))


def _unread_masks(root: str, folders: Sequence[VocFolders], has_masks: bool) -> Iterator[str]:
    """Yield warnings of PNG masks that are not read."""
    counts = {name: _count_masks(root, folders, name) for name in (_OBJECTS, _CLASSES)}
    where = f"masks of objects are in {_OBJECTS}" + ", which has none" * (not counts[_OBJECTS])
    advice = {_OBJECTS: "" if has_masks else "--masks rle or --masks png stores masks", _CLASSES: where}
    for name, number in counts.items():
        if number and advice[name]:
            yield f"{name} has {number:,} images with masks, which are not read: {advice[name]}"


def _check_voc_notes(notes: frozenset[str], origin: int) -> Iterator[str]:
    """Yield a warning if the boxes contradict the origin, and one of parts."""
    is_one = _XMIN_1 in notes and _XMIN_BELOW not in notes
    if origin == 0 and is_one and (_REACHED in notes or _NOT_REACHED not in notes):
        edge = ", and a box reaches the right edge of its image" if _REACHED in notes else ""
        yield (
            f"the least xmin is 1{edge}, as if the first pixel were 1: --voc-origin 1 moves the boxes' left and top "
            "edges by a pixel"
        )
    elif origin == 1 and _XMIN_BELOW in notes:
        yield "boxes have an xmin below 1, so the first pixel is 0, and --voc-origin 1 is wrong by a pixel. Omit it"
    if _PART in notes:
        yield "objects have <part>, which records cannot store: not written"


@parser
def parse_voc(
    data: bytes,
    file: str,
    origin: int = 0,
    folders: tuple[VocFolders, ...] = (),
    mask_root: str = "",
    has_fields: bool = False,
) -> Iterator[LabelledImage]:
    """Yield the image of an XML file. The image of a file that ends early is a reject: its other objects are unknown.

    Args:
        origin: Number of the first pixel, 0 or 1.
        folders: Folders of the data set; the file is in the first one whose `labels` begin its name.
        mask_root: Folder of the data set; empty to read no masks.
        has_fields: True if records store open fields.

    >>> xml = b"<annotation><object><name>cat</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>4</xmax>"
    >>> image, = parse_voc(xml + b"<ymax>6</ymax></bndbox></object><object/></annotation>", "a.xml", 1)
    >>> image.sample.objects[0].box, image.faults[0].detail
    ((0.0, 1.0, 4.0, 5.0), 'an object without <name>')
    """
    parts, name, number = ImageParts(), "", 0
    sides: tuple[int | None, int | None] = None, None
    numbers: list[int] = []
    other_elements: list[Element] = []
    for element in read_file_elements(data, "annotation", "object"):
        if element.tag == "size":
            sides = sides_px(element.child_text("width"), element.child_text("height"), parts.warnings)
        elif element.tag == "filename":
            name = element.text
        elif element.tag == "object":
            number += 1
            if object_ := _plain_object(element.node, origin):
                parts.add(object_, line=element.line)
                numbers.append(number)
                continue
            children = first_children(element.node)
            boxes = 1 if len(children) == len(element.node) else len(element.node.findall("bndbox"))
            fields = {} if children.keys() <= _READ else element_values(element.other_children(_READ))
            if fields:
                parts.notes |= {_PART} if fields.pop(_PART, None) else set()
                parts.notes |= field_notes(path for path, value in leaf_values(fields) if value != "0")
            try:
                object_ = _convert_object(children, boxes if "bndbox" in children else 0, origin)
            except UnusableError as error:
                parts.reject(error, line=element.line)
                continue
            parts.add(with_fields(object_, fields) if has_fields else object_, line=element.line)
            numbers.append(number)
        else:
            other_elements.append(element)
    parts.notes |= set(_edge_notes(parts.objects, sides[0], origin))
    if mask_root:
        pair = next((pair for pair in folders if file.startswith(pair.labels)), folders[0])
        stem = posixpath.splitext(file.removeprefix(pair.labels))[0]
        path = join_path(mask_root, posixpath.join(pair.masks, f"{stem}.png"))
        parts.warnings |= _add_masks(parts.objects, numbers, number, path)
    image_fields = element_values(other_elements) if has_fields else {}
    yield parts.image(Sample(name, width=sides[0], height=sides[1], fields=image_fields))


def _add_masks(objects: list[SampleObject], numbers: list[int], last: int, path: str) -> set[str]:
    """Add their masks to the objects, and return warnings.

    Args:
        objects: Usable objects, replaced in the list.
        numbers: Number of each object among the `<object>` elements, from 1: the palette index of its mask.
        last: Number of the last `<object>`, usable or not.
        path: Path of the PNG with the masks.
    """
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
    mask_numbers = {*np.unique(pixels).tolist()} - {0, _VOID}
    height, width = pixels.shape
    for index, number in enumerate(numbers):
        if number in mask_numbers:
            mask = pixels == number
            text = mask_text(mask, 0, 0, width, height)
            objects[index] = msgspec.structs.replace(objects[index], segmentation=text, area_px2=float(mask.sum()))
    warnings = {_NO_MASK} if {*numbers} - mask_numbers else set()
    return warnings | ({_NO_OBJECT} if max(mask_numbers, default=0) > last else set())


@lru_cache(256)
def _plain_positions(tags: tuple[str, ...]) -> tuple[int, ...]:
    """Return the positions of the edges, then of name, difficult, truncated and pose among an object's elements, -1 for
    those without one; () if the object has other elements or an element twice."""
    edges = tags.index("bndbox") + 1 if "bndbox" in tags else len(tags)
    fields = [*tags[1:edges], *tags[edges + len(_EDGES) :]]
    if tags[edges : edges + len(_EDGES)] != _EDGES or len({*fields}) < len(fields) or not _READ.issuperset(fields):
        return ()
    where = [tags.index(tag) if tag in fields else -1 for tag in ("name", "difficult", "truncated", "pose")]
    return (edges, *where) if "name" in fields else ()


def _plain_object(node: Node, origin: int) -> SampleObject | None:
    """Return what `_convert_object` returns of an <object> whose elements and numbers have no peculiarity, in less than
    half the time; None for any other."""
    nodes = list(node.iter())
    positions = _plain_positions(tuple([element.tag for element in nodes]))
    # With these lengths, the four elements after <bndbox> are its children, and the others are those of <object>.
    if not positions or len(node) != len(nodes) - 5 or len(nodes[positions[0] - 1]) != len(_EDGES):
        return None
    texts = [element.text or "" for element in nodes] + [""]  # the last one is that of position -1
    edge, name_at, difficult_at, truncated_at, view_at = positions
    name, edges, view = texts[name_at], texts[edge : edge + 4], texts[view_at].strip()
    difficult, truncated = _FLAGS.get(texts[difficult_at].strip()), _FLAGS.get(texts[truncated_at].strip())
    if difficult is None or truncated is None or not name.strip() or "\n" in name or "_" in "".join(edges):
        return None
    try:
        xmin, ymin, xmax, ymax = map(float, edges)
    except ValueError:
        return None
    width, height = xmax - xmin + origin, ymax - ymin + origin
    is_within = -LARGEST <= xmin <= xmax <= LARGEST and -LARGEST <= ymin <= ymax <= LARGEST
    if not is_within or not width or not height:
        return None
    fields: dict[str, Any] = {"difficult": True} if difficult else {}
    if truncated:
        fields["truncated"] = True
    if view:
        fields["view"] = view
    return SampleObject(name, (xmin - origin, ymin - origin, width, height), fields=fields)


def _convert_object(children: Mapping[str, Node], boxes: int, origin: int) -> SampleObject:
    """Return the object of an <object>.

    Args:
        children: The first child of each tag.
        boxes: Number of its <bndbox>.

    Raises:
        UnusableError: The object has no name or no box, or one of its numbers is not a number.
    """
    name = one_line(children["name"]) if "name" in children else ""
    if not name.strip():
        raise UnusableError(Reason.UNKNOWN_CATEGORY, "an object without <name>")
    if boxes != 1:
        raise UnusableError(Reason.MALFORMED_BOX, f"{name!r} has {boxes or 'no'} <bndbox>")
    texts = child_texts(children["bndbox"], _EDGES)
    xmin, ymin, xmax, ymax = finite_numbers(texts, repr(name))
    if xmax < xmin or ymax < ymin:
        raise UnusableError(Reason.MALFORMED_BOX, f"the edges of {name!r} are swapped: {show_texts(texts)}")
    width, height = xmax - xmin + origin, ymax - ymin + origin
    if not width or not height:
        raise UnusableError(Reason.EMPTY_BOX, f"the box of {name!r} has no area: {show_texts(texts)}")
    fields: dict[str, Any] = {
        tag: True for tag in ("difficult", "truncated") if _read_flag(_child_text(children, tag), tag)
    }
    if view := _child_text(children, "pose"):
        fields["view"] = view
    box = xmin - origin, ymin - origin, width, height
    return SampleObject(name, box, fields=fields)


def _child_text(children: Mapping[str, Node], tag: str) -> str:
    return node_text(children[tag]).strip() if tag in children else ""


def _read_flag(text: str, tag: str) -> bool:
    if text in _FLAGS:
        return _FLAGS[text]
    if text.lower() == "unspecified":
        return False
    try:
        return read_flag(text)
    except ValueError as error:
        raise UnusableError(Reason.MALFORMED_ANNOTATION, f"<{tag}> must be 0 or 1 (got {text[:20]!r})") from error


def _edge_notes(objects: list[SampleObject], width: int | None, origin: int) -> Iterator[str]:
    """Yield notes of what the least xmin and the greatest xmax say about the number of the first pixel."""
    if not objects:
        return
    xmin = min(object_.box[0] for object_ in objects) + origin
    yield from [_XMIN_BELOW] if xmin < 1 else [_XMIN_1] if xmin == 1 else []
    if width:
        yield _REACHED if max(object_.box[0] + object_.box[2] for object_ in objects) >= width else _NOT_REACHED
