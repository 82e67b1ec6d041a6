"""Stream of XML elements with their lines. Entities are refused: a few lines of them make gigabytes."""

import codecs
from collections.abc import Iterable, Iterator
from typing import IO, Any
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler

from defusedxml.common import DefusedXmlException
from defusedxml.expatreader import create_parser

from recordmill.schemas.inputs.file_kinds import describe_content
from recordmill.transforms.annotated.source import XmlError
from recordmill.transforms.annotated.xml_encodings import declared_encoding, decoder_of, without_declaration

_CHUNK = 1 << 16


class Element:
    """An element of XML.

    Attributes:
        line: Line of its start tag, from 1.
    """

    __slots__ = ("attributes", "children", "line", "tag", "texts")

    def __init__(self, tag: str, attributes: dict[str, str], line: int):
        self.tag, self.attributes, self.line = tag, attributes, line
        self.texts: list[str] = []
        self.children: list[Element] = []

    @property
    def text(self) -> str:
        return "".join(self.texts).strip()

    @property
    def one_line(self) -> str:
        """Text of a name: unstripped, as in other readers, unless it has several lines."""
        text = "".join(self.texts)
        return text.strip() if "\n" in text else text

    def find(self, tag: str) -> "Element | None":
        """Return the first child with a tag."""
        return next((child for child in self.children if child.tag == tag), None)

    def child_text(self, tag: str) -> str:
        """Return the text of the first child with a tag; "" without one."""
        child = self.find(tag)
        return child.text if child else ""


def element_values(elements: Iterable[Element]) -> dict[str, Any]:
    """Return elements as values by tag: texts, mappings of children, and lists of elements with the same tag.

    Children of `<attributes>` with `<name>` and `<value>` are a mapping of these. Empty elements are left out.

    >>> from io import BytesIO
    >>> xml = b"<r><a>1</a><b><c>2</c></b><b/><a>3</a></r>"
    >>> element_values(read_elements(BytesIO(xml), "r"))
    {'a': ['1', '3'], 'b': {'c': '2'}}
    """
    lists: dict[str, list[Any]] = {}
    for element in elements:
        if element.tag == "attributes":
            value: Any = {child.child_text("name"): child.child_text("value") for child in element.children}
        else:
            value = element_values(element.children) if element.children else element.text
        if value:
            lists.setdefault(element.tag, []).append(value)
    return {tag: values[0] if len(values) == 1 else values for tag, values in lists.items()}


class _Builder(ContentHandler):
    """Builder of the children of the root, with their descendants."""

    def __init__(self, root: str, parser: Any):
        super().__init__()
        self._root = root
        self._parser = parser
        self._open: list[Element] = []
        self.done: list[Element] = []

    def startElement(self, name: str, attrs: Any) -> None:  # noqa: N802
        line = self._parser.getLineNumber()
        if not self._open and name != self._root:
            raise XmlError(f"the root is <{name[:40]}>, not <{self._root}>", line)
        self._open.append(Element(name, dict(attrs.items()), line))

    def characters(self, content: str) -> None:
        if len(self._open) > 1:
            self._open[-1].texts.append(content)

    def endElement(self, name: str) -> None:  # noqa: N802
        element = self._open.pop()
        if len(self._open) > 1:
            self._open[-1].children.append(element)
        elif self._open:
            self.done.append(element)


def read_elements(stream: IO[bytes], root: str) -> Iterator[Element]:
    """Yield the children of the root, with one in memory at a time.

    Args:
        root: Tag of the root.

    Raises:
        XmlError: The file ends early, is not XML, is not in its encoding or in one that is not read, has another root,
            or declares entities.
        OSError: The storage fails.

    >>> from io import BytesIO
    >>> xml = BytesIO(b"<r><a/>\\n<a><b>1</b></a></r>")
    >>> [(element.tag, element.child_text("b"), element.line) for element in read_elements(xml, "r")]
    [('a', '', 1), ('a', '1', 2)]
    """
    parser, head, decoder = create_parser(), b"", None
    builder = _Builder(root, parser)
    parser.setContentHandler(builder)
    try:
        while data := stream.read(_CHUNK):
            if not head:
                head, decoder = data, decoder_of(data)
                parser.feed(without_declaration(decoder.decode(data)) if decoder else data)
            else:
                parser.feed(decoder.decode(data) if decoder else data)
            yield from _pop_elements(builder)
        if not head:
            raise XmlError("it is empty", 1)
        if decoder:
            parser.feed(decoder.decode(b"", True))
        parser.close()
    except SAXParseException as error:
        kind = describe_content(head) if head.lstrip()[:1] != b"<" else ""
        fix = (
            ""
            if _is_utf8(data)
            else "; it is not UTF-8: save it as UTF-8, or name its encoding in <?xml … encoding=…?>"
        )
        what = f"it is {kind}" if kind else f"it is not valid XML from here on ({error.getMessage()}){fix}"
        raise XmlError(what, error.getLineNumber() or 1) from error
    except DefusedXmlException as error:
        raise XmlError("it declares entities, which are not read", parser.getLineNumber()) from error
    except XmlError:
        raise
    except (LookupError, ValueError) as error:  # of the encoding
        name = declared_encoding(head)[:40] or "UTF-8"
        what = (
            f"not in {name}" if isinstance(error, UnicodeDecodeError) else f"in the encoding {name}, which is not read"
        )
        raise XmlError(f"it is {what}: save it as UTF-8", parser.getLineNumber() or 1) from error
    yield from _pop_elements(builder)


def _is_utf8(data: bytes) -> bool:
    """Return True if a part of a file is UTF-8. Characters at its ends may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data.lstrip(bytes(range(0x80, 0xC0))))
    except UnicodeDecodeError:
        return False
    return True


def _pop_elements(builder: _Builder) -> Iterator[Element]:
    elements, builder.done = builder.done, []
    yield from elements
