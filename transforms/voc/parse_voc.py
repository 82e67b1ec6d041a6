"""XML files of Pascal VOC become objects."""

from collections.abc import Iterator
from io import BytesIO
from math import ceil, floor, isfinite

from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.read_xml import Element, XmlError, read_elements, sides_px
from recordmill.transforms.annotated.source import LabelFault, LabelledImage

_EDGES = ("xmin", "ymin", "xmax", "ymax")
_READ = frozenset(("name", "pose", "truncated", "difficult", "bndbox"))
_FLAGS = {"": False, "0": False, "1": True, "false": False, "true": True, "unspecified": False}
_FARTHEST = 3
"""The least xmin and the greatest xmax are noted to so many pixels, so that a data set has few different notes."""


def parse_voc(data: bytes, file: str, origin: int) -> Iterator[LabelledImage]:
    """Yield the image of an XML file. A file that ends early spoils its image: which objects are missing is not known.

    Args:
        origin: what the first pixel is called, 0 or 1.

    >>> xml = b"<annotation><object><name>cat</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>4</xmax>"
    >>> image, = parse_voc(xml + b"<ymax>6</ymax></bndbox></object><object/></annotation>", "a.xml", origin=1)
    >>> image.sample.objects[0].box, image.faults[0].detail
    ((0.0, 1.0, 4.0, 5.0), 'an object without <name>')
    """
    sides: tuple[int | None, int | None] = (None, None)
    objects, faults, notes = [], [], set()
    name = ""
    try:
        for element in read_elements(BytesIO(data), "annotation"):
            if element.tag == "size":
                sides = sides_px(element.text_of("width"), element.text_of("height"))
            elif element.tag == "filename":
                name = element.text
            elif element.tag == "object":
                others = (child for child in element.children if child.tag not in _READ)
                notes |= {f"<{child.tag[:40]}>" for child in others if child.children or child.text not in ("", "0")}
                try:
                    objects.append(parse_object(element, origin))
                except UnusableError as fault:
                    faults.append(LabelFault(fault.reason, fault.detail, element.line))
    except XmlError as error:
        yield LabelledImage(None, (LabelFault(Reason.MALFORMED_LABELS, error.detail, error.line),))
        return
    notes |= set(_notes(objects, sides[0], origin))
    sample = Sample(name, width=sides[0], height=sides[1], objects=tuple(objects))
    yield LabelledImage(sample, tuple(faults), tuple(sorted(notes)))


def parse_object(element: Element, origin: int) -> SampleObject:
    """
    Raises:
        UnusableError: it has no name or no box, or a number of it is none.
    """
    name = element.text_of("name")
    if not name:
        raise UnusableError(Reason.MALFORMED_ANNOTATION, "an object without <name>")
    box = element.find("bndbox")
    if box is None:
        raise UnusableError(Reason.MALFORMED_BOX, f"{name!r} has no <bndbox>")
    texts = [box.text_of(edge) for edge in _EDGES]
    shown = ", ".join(f"{edge} {text[:20]!r}" for edge, text in zip(_EDGES, texts, strict=True))
    try:
        xmin, ymin, xmax, ymax = map(float, texts)
    except ValueError as error:
        raise UnusableError(Reason.MALFORMED_BOX, f"a number of {name!r} is none: {shown}") from error
    if not all(map(isfinite, (xmin, ymin, xmax, ymax))) or xmax < xmin or ymax < ymin:
        raise UnusableError(Reason.MALFORMED_BOX, f"edges of {name!r} are exchanged or not finite: {shown}")
    width, height = xmax - xmin + origin, ymax - ymin + origin
    if not width or not height:
        raise UnusableError(Reason.EMPTY_BOX, f"the box of {name!r} has no area: {shown}")
    return SampleObject(
        name,
        (xmin - origin, ymin - origin, width, height),
        difficult=_flag(element, "difficult"),
        truncated=_flag(element, "truncated"),
        view=element.text_of("pose"),
    )


def _flag(element: Element, tag: str) -> bool:
    text = element.text_of(tag)
    if text.lower() not in _FLAGS:
        raise UnusableError(Reason.MALFORMED_ANNOTATION, f"<{tag}> is {text[:20]!r}, and neither 0 nor 1")
    return _FLAGS[text.lower()]


def _notes(objects: list[SampleObject], width: int | None, origin: int) -> Iterator[str]:
    """Yield the least xmin and the greatest xmax - width, and whether all numbers are in 0..1."""
    if not objects:
        return
    edges = [(each.box[0] + origin, each.box[0] + each.box[2], each.box[1] + each.box[3]) for each in objects]
    xmax = max(edge[1] for edge in edges)
    yield f"xmin {_near(floor(min(edge[0] for edge in edges)))}"
    if width:
        yield f"xmax {_near(ceil(xmax - width))}"
    yield "fractions" if 0 < max(xmax, *(edge[2] for edge in edges)) <= 1 else "pixels"


def _near(pixels: int) -> int:
    return max(-_FARTHEST, min(_FARTHEST, pixels))
