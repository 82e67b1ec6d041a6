"""Elements of XML: their texts and lines, encodings, and the limits of defusedxml."""

import io

import pytest

from recordmill.transforms.annotated.read_xml import read_elements, read_file_elements
from recordmill.transforms.annotated.source import XmlError


def read(data: bytes) -> list[tuple[str, int]]:
    return [(element.text, element.line) for element in read_elements(io.BytesIO(data), "r")]


def document(label: str, codec: str, text: str) -> bytes:
    return f'<?xml version="1.0"\n encoding="{label}"?>\n<r><a>{text}</a></r>'.encode(codec)


@pytest.mark.parametrize(
    ("label", "codec", "text"),
    [
        *((label, "gb18030", "椅子") for label in ("gb2312", "GBK", "gb18030", "gb_2312-80")),
        ("big5", "big5", "椅子"),
        ("Shift_JIS", "cp932", "椅子①"),
        ("euc-jp", "euc_jp", "椅子"),
        ("iso-2022-jp", "iso2022_jp", "椅子"),
        ("euc-kr", "cp949", "의자똠"),
        ("utf-7", "utf-7", "椅子"),
        ("x-mac-cyrillic", "mac-cyrillic", "стул"),
        ("windows-1251", "cp1251", "стул"),
        ("iso_8859-1:1987", "latin-1", "é"),
        ("utf-16", "utf-16", "椅子"),
        ("gb2312", "utf-8-sig", "椅子"),  # the byte order mark is right
    ],
)
def test_encodings(label, codec, text):
    assert read(document(label, codec, text)) == [(text, 3)]


def test_a_character_may_be_cut_between_two_reads():
    text = "椅" * 100_001
    assert read(document("gb2312", "gb18030", text)) == [(text, 3)]


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        *(
            (document(label, "utf-8", "é"), f"in the encoding {label}, which is not read. Save it as UTF-8")
            for label in ("foo", "unicode", "johab", "idna", "undefined", "hex")
        ),
        (document("big5", "latin-1", "é"), "it is not in big5. Save it as UTF-8"),
        (document("gb2312", "gb18030", "椅")[:-9], "it is not in gb2312"),
        (document("utf-7", "utf-8", "a").replace(b"<r>", b'<!DOCTYPE r [<!ENTITY a "x">]><r>'), "it declares entities"),
    ],
)
def test_encodings_that_are_not_read(data, detail):
    with pytest.raises(XmlError, match=detail):
        read(data)


@pytest.mark.parametrize(
    ("xml", "texts"),
    [
        (b"<r><a> x </a></r>", ["x"]),
        (b"<r><a>x<b>inner</b>y<!-- comment -->z</a><a/></r>", ["xyz", ""]),
        (b"<r><a><![CDATA[<x>]]>&amp;</a>text of the root</r>", ["<x>&"]),
    ],
)
def test_text_of_an_element_without_that_of_its_children(xml, texts):
    assert [element.text for element in read_elements(io.BytesIO(xml), "r")] == texts


def test_lines_of_elements_and_of_their_children():
    xml = b"<r>\n<a>\n<b/><b\n/>\n<c><d/></c></a>\n<a/></r>"
    elements = list(read_elements(io.BytesIO(xml), "r"))
    assert [(element.line, [child.line for child in element.children]) for element in elements] == [
        (2, [3, 3, 5]),
        (6, []),
    ]


def test_children_by_tag():
    (element,) = read_elements(io.BytesIO(b"<r><a><b>1</b><c/><b>2</b></a></r>"), "r")
    assert [child.text for child in element.children if child.tag == "b"] == ["1", "2"]
    assert [child.tag for child in element.other_children({"b"})] == ["c"]


@pytest.mark.parametrize(
    ("xml", "read", "detail", "line"),
    [
        (b"<r>\n<a/><b></r>", 0, "it is not valid XML from here on (mismatched tag)", 2),
        (b"<r><a/>" + b" " * (1 << 16) + b"<b>", 1, "it is not valid XML from here on (no element found)", 1),
        (b'<!DOCTYPE r [<!ENTITY x "y">]><r><a>&x;</a></r>', 0, "it declares entities, which are not read", 1),
        (b'<!DOCTYPE r SYSTEM "r.dtd"><r/>', 0, "it declares entities, which are not read", 1),
        (b"\n<s/>", 0, "the root is <s>, not <r>", 2),
    ],
)
def test_elements_before_an_error(xml, read, detail, line):
    elements = []
    with pytest.raises(XmlError) as error:
        elements.extend(read_elements(io.BytesIO(xml), "r"))
    assert (len(elements), error.value.detail, error.value.line) == (read, detail, line)


@pytest.mark.parametrize(
    ("xml", "lines"),
    [
        (b"<r>\n<a>x</a><b/>\r\n<a\n/></r>", [2, 0, 3]),
        (b"<r>\n<a>x<a/></a></r>", [2]),  # an element in another one has the tag
        (b"<r>\r<a/></r>", [2]),
        (b"<r><!-- <a> -->\n<a/></r>", [2]),
        (b"<r><?x <a> ?>\n<a/></r>", [2]),
        (b"<r><![CDATA[<a>]]>\n<a><![CDATA[&]]></a></r>", [2]),
        (b'<r xmlns="u" xmlns:p="v">\n<a/><p:a/></r>', [2, 2]),
        (b"<r>\n<p:a/><a/></r>", [2, 2]),
        (b'<!DOCTYPE r>\n<r><a p="&lt;a>"/></r>', [2]),
        ('<?xml version="1.0" encoding="utf-16"?>\n<r><a>椅</a></r>'.encode("utf-16"), [2]),
        ('<?xml version="1.0" encoding="gb2312"?>\n<r><a>椅</a></r>'.encode("gb18030"), [2]),
        ("\ufeff<r>\n<a>é</a></r>".encode(), [2]),
    ],
)
def test_a_small_file_is_read_as_a_stream(xml, lines):
    elements = list(read_file_elements(xml, "r", "a"))
    streamed = [(element.tag, element.text) for element in read_elements(io.BytesIO(xml), "r")]
    assert [(element.tag, element.text) for element in elements] == streamed
    assert [element.line for element in elements] == lines


@pytest.mark.parametrize(
    ("xml", "detail"),
    [
        (b'<!DOCTYPE r [<!ENTITY x "y">]><r><a>&x;</a></r>', "it declares entities"),
        (
            '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE r [<!ENTITY x "y">]><r>&x;</r>'.encode("utf-16"),
            "entities",
        ),
        (b'<?xml version="1.0" encoding="cp037"?>' + '<!DOCTYPE r [<!ENTITY x "y">]><r/>'.encode("cp037"), "it is"),
        (b"<r><a/>", "no element found"),
        (b"<s/>", "the root is <s>"),
        (b"", "it is empty"),
    ],
)
def test_faults_of_a_small_file(xml, detail):
    with pytest.raises(XmlError, match=detail):
        list(read_file_elements(xml, "r", "a"))
