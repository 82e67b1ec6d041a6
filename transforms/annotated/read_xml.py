"""Stream of XML elements with their lines. Entities are refused: a few lines of them make gigabytes."""

import codecs
import itertools
from collections.abc import Container, Iterable, Iterator, Sequence
from io import BytesIO
from typing import IO, Any
from xml.etree.ElementTree import Element as Node
from xml.etree.ElementTree import ParseError, TreeBuilder, fromstring
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler

from defusedxml.common import DefusedXmlException
from defusedxml.expatreader import DefusedExpatParser

from recordmill.schemas.inputs.file_kinds import describe_content
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.source import XmlError
from recordmill.transforms.annotated.xml_encodings import declared_encoding, decoder_of, without_declaration

_CHUNK = 1 << 16
_MAX_PLAIN_BYTES = 1 << 20
"""Maximum size of a file that is parsed as a whole."""


class Element:
    """An XML element: a node of ElementTree, made by its C code for speed, and its line.

    Attributes:
        line: Line of its start tag, from 1; 0 if unknown, see `read_elements`.
    """

    __slots__ = ("_child_lines", "line", "node")

    def __init__(self, node: Node, line: int = 0, child_lines: Sequence[int] = ()):
        self.node, self.line, self._child_lines = node, line, child_lines

    @property
    def tag(self) -> str:
        return self.node.tag

    @property
    def attributes(self) -> dict[str, str]:
        return self.node.attrib

    @property
    def children(self) -> list["Element"]:
        return list(map(Element, self.node, self._child_lines or [0] * len(self.node)))

    def other_children(self, tags: Container[str]) -> list["Element"]:
        """Return the children with other tags than these."""
        return [Element(node) for node in self.node if node.tag not in tags]

    @property
    def text(self) -> str:
        return node_text(self.node).strip()

    @property
    def one_line(self) -> str:
        """See `one_line`."""
        return one_line(self.node)

    def find(self, tag: str) -> "Element | None":
        """Return the first child with a tag."""
        node = self.node.find(tag)
        return None if node is None else Element(node)

    def child_text(self, tag: str) -> str:
        """Return the text of the first child with a tag; "" without one."""
        node = self.node.find(tag)
        return "" if node is None else node_text(node).strip()


def node_text(node: Node) -> str:
    """Return the text of a node without the texts of its children, unstripped."""
    text = node.text or ""
    return text + "".join(child.tail or "" for child in node) if len(node) else text


def one_line(node: Node) -> str:
    """Return the text of a name: unstripped, as in other readers, unless it has several lines."""
    text = node_text(node)
    return text.strip() if "\n" in text else text


def child_texts(node: Node, tags: Sequence[str]) -> dict[str, str]:
    """Return the text of the first child with each of the tags, in their order; "" without one."""
    texts = {child.tag: (node_text(child) if len(child) else child.text or "").strip() for child in node}
    if len(texts) < len(node):
        texts = {tag: node_text(child).strip() for tag, child in first_children(node).items()}
    return {tag: texts.get(tag, "") for tag in tags}


def first_children(node: Node) -> dict[str, Node]:
    """Return the first child of each tag."""
    children = {child.tag: child for child in node}
    if len(children) < len(node):
        for child in reversed(list(node)):
            children[child.tag] = child
    return children


def element_values(elements: Iterable[Element]) -> dict[str, Any]:
    """Return elements as values by tag: texts, mappings of children, and lists of elements with the same tag.

    Children of `<attributes>` with `<name>` and `<value>` are a mapping of these. Empty elements are left out.

    Raises:
        UnusableError: Elements are nested beyond Python's limit of recursion.

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
            try:
                value = element_values(element.children) if element.children else element.text
            except RecursionError as error:
                raise UnusableError(Reason.MALFORMED_LABELS, "its elements are nested too deeply") from error
        if value:
            lists.setdefault(element.tag, []).append(value)
    return {tag: values[0] if len(values) == 1 else values for tag, values in lists.items()}


class _Reader(DefusedExpatParser):
    """Reader of the children of the root, with their descendants. Expat passes texts to the C code of ElementTree."""

    def __init__(self, root: str):
        super().__init__()
        self._root, self._tree = root, TreeBuilder()
        self._depth, self._lines = 0, list[int]()
        self._root_node = Node("")
        self.done: list[Element] = []
        content = ContentHandler()
        content.characters = self._tree.data  # type: ignore[method-assign, assignment]
        self.setContentHandler(content)

    def start_element(self, name: str, attrs: dict[str, str]) -> None:
        self._depth += 1
        node = self._tree.start(name, attrs)
        if self._depth == 1:
            self._root_node = node
            if name != self._root:
                raise XmlError(f"the root is <{name[:40]}>, not <{self._root}>", self.getLineNumber())
        elif self._depth == 2:
            self._lines = [self.getLineNumber()]
        elif self._depth == 3:
            self._lines.append(self.getLineNumber())

    def end_element(self, name: str) -> None:
        self._depth -= 1
        node = self._tree.end(name)
        if self._depth == 1:
            self.done.append(Element(node, self._lines[0], self._lines[1:]))
            self._root_node.remove(node)


def read_elements(stream: IO[bytes], root: str) -> Iterator[Element]:
    """Yield the children of the root, with one in memory at a time. They and their children have lines.

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
    reader, head, decoder = _Reader(root), b"", None
    try:
        while data := stream.read(_CHUNK):
            if not head:
                head, decoder = data, decoder_of(data)
                reader.feed(without_declaration(decoder.decode(data)) if decoder else data)
            else:
                reader.feed(decoder.decode(data) if decoder else data)
            yield from _pop_elements(reader)
        if not head:
            raise XmlError("it is empty", 1)
        if decoder:
            reader.feed(decoder.decode(b"", True))
        reader.close()
    except SAXParseException as error:
        kind = describe_content(head) if head.lstrip()[:1] != b"<" else ""
        fix = (
            ""
            if _is_utf8(data)
            else "; it is not UTF-8. Save it as UTF-8, or name its encoding in <?xml … encoding=…?>"
        )
        what = f"it is {kind}" if kind else f"it is not valid XML from here on ({error.getMessage()}){fix}"
        raise XmlError(what, error.getLineNumber() or 1) from error
    except DefusedXmlException as error:
        raise XmlError("it declares entities, which are not read", reader.getLineNumber()) from error
    except XmlError:
        raise
    except (LookupError, ValueError) as error:  # of the encoding
        name = declared_encoding(head)[:40] or "UTF-8"
        what = (
            f"not in {name}" if isinstance(error, UnicodeDecodeError) else f"in the encoding {name}, which is not read"
        )
        raise XmlError(f"it is {what}. Save it as UTF-8", reader.getLineNumber() or 1) from error
    yield from _pop_elements(reader)


def read_file_elements(data: bytes, root: str, lined: str) -> Iterator[Element]:
    """Yield what `read_elements` yields of a file, in less than half the time if it is small and plain. Lines of other
    children than those with the tag `lined` are unknown.

    >>> [(element.tag, element.line) for element in read_file_elements(b"<r><b/>\\n<a/></r>", "r", "a")]
    [('b', 0), ('a', 2)]
    """
    nodes = _plain_children(data, root)
    # The bytes before each start tag.
    before = [] if nodes is None else data.split(b"<%b" % lined.encode())[:-1]
    if nodes is None or len(before) != [node.tag for node in nodes].count(lined):
        yield from read_elements(BytesIO(data), root)
        return
    lines = itertools.accumulate([part.count(b"\n") for part in before], initial=1)
    next(lines)
    for node in nodes:
        yield Element(node, next(lines) if node.tag == lined else 0)


def _plain_children(data: bytes, root: str) -> list[Node] | None:
    """Return the children of the root of an XML file, parsed by the C code of ElementTree, which has no limits.

    None for a file that could need limits, has a fault, or is not read as by `read_elements`. A file of UTF-8 without
    declarations declares no entities.
    """
    is_plain = len(data) <= _MAX_PLAIN_BYTES and declared_encoding(data).lower() in ("", "utf-8")
    has_plain_lines = data.count(b"\r") == data.count(b"\r\n")
    if not is_plain or not has_plain_lines or any(part in data for part in (b"<!", b"\0", b"xmlns", b"xml:")):
        return None
    try:
        tree = fromstring(data)
    except (ParseError, LookupError, ValueError):  # `read_elements` says what the fault is
        return None
    return list(tree) if tree.tag == root else None


def _is_utf8(data: bytes) -> bool:
    """Return True if a part of a file is UTF-8. Characters at its ends may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data.lstrip(bytes(range(0x80, 0xC0))))
    except UnicodeDecodeError:
        return False
    return True


def _pop_elements(reader: _Reader) -> Iterator[Element]:
    elements, reader.done = reader.done, []
    yield from elements
