"""Encodings that XML files declare, beyond those that expat reads: https://encoding.spec.whatwg.org, and UTF-7."""

import codecs
import re

_DECLARED = re.compile(rb"""\s*<\?xml\s[^>]*?\bencoding\s*=\s*["']\s*([^"'\s>]+)""")
_LABELS = {
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 x-unicode20utf8",
    "utf-7": "utf-7 utf7 unicode-1-1-utf-7",
    "iso8859-1": "iso88591 iso_8859-1:1987",
    "iso8859-2": "iso88592 iso_8859-2:1987",
    "iso8859-3": "iso88593 iso_8859-3:1988",
    "iso8859-4": "iso88594 iso_8859-4:1988",
    "iso8859-5": "iso88595 iso_8859-5:1988",
    "iso8859-6": "iso88596 iso_8859-6:1987 csiso88596e csiso88596i iso-8859-6-e iso-8859-6-i",
    "iso8859-7": "iso88597 iso_8859-7:1987 sun_eu_greek",
    "iso8859-8": "iso88598 iso_8859-8:1988 csiso88598e csiso88598i iso-8859-8-e iso-8859-8-i logical visual",
    "iso8859-10": "iso885910",
    "iso8859-13": "iso885913",
    "iso8859-14": "iso885914",
    "iso8859-15": "csisolatin9 iso885915",
    "koi8-r": "koi koi8",
    "koi8-u": "koi8-ru",
    "mac-roman": "csmacintosh mac x-mac-roman",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "cp874": "dos-874 iso885911 windows-874",
    "cp1250": "x-cp1250",
    "cp1251": "x-cp1251",
    "cp1252": "x-cp1252",
    "cp1253": "x-cp1253",
    "cp1254": "iso88599 iso_8859-9:1989 x-cp1254",
    "cp1255": "x-cp1255",
    "cp1256": "x-cp1256",
    "cp1257": "x-cp1257",
    "cp1258": "x-cp1258",
    "gb18030": "chinese csgb2312 csiso58gb231280 gb18030 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk",
    "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc_jp": "cseucpkdfmtjapanese euc-jp x-euc-jp",
    "iso2022_jp": "csiso2022jp iso-2022-jp",
    "cp932": "csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis",
    "cp949": "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 "
    "windows-949",
}
_CODECS = {label: codec for codec, labels in _LABELS.items() for label in labels.split()}
"""Codecs of Python by label. Single-byte encodings that Python knows are omitted: expat asks Python for them."""


def declared_encoding(head: bytes) -> str:
    """Return the encoding that the first bytes of an XML file declare; empty without a declaration.

    >>> declared_encoding(b"<?xml version='1.0' encoding='GB2312'?><a/>")
    'GB2312'
    """
    match = _DECLARED.match(head.removeprefix(codecs.BOM_UTF8))
    return match[1].decode("ascii", "replace") if match else ""


def decoder_of(head: bytes) -> codecs.IncrementalDecoder | None:
    """Return the decoder of an XML file, by its first bytes; None for one that expat reads by itself."""
    is_utf8 = head.startswith(codecs.BOM_UTF8)
    codec = "utf-8-sig" if is_utf8 else _CODECS.get(declared_encoding(head).lower(), "")
    return codecs.getincrementaldecoder(codec)() if codec else None


def without_declaration(text: str) -> str:
    """Return the beginning of a decoded XML file with spaces for its declaration, whose label expat may refuse."""
    return re.sub(r"<\?xml[^>]*\?>", lambda match: re.sub(r"[^\n]", " ", match[0]), text, count=1)
