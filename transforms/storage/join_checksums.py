"""The CRC-32C of bytes from those of their parts, which may be read at the same time; as zlib's `crc32_combine`."""

_POLYNOMIAL = 0x82F63B78
"""Castagnoli's, the lowest power in the highest bit, as in all numbers here."""
_ONE = 1 << 31


def join_checksums(first: int, second: int, second_bytes: int) -> int:
    """Of two parts, the second of so many bytes.

    >>> import google_crc32c
    >>> first, second = google_crc32c.value(b"1234"), google_crc32c.value(b"56789")
    >>> join_checksums(first, second, 5) == google_crc32c.value(b"123456789")
    True
    """
    return _product(_power(8 * second_bytes), first) ^ second


def _power(bits: int) -> int:
    """x to the power of `bits`."""
    result, square = _ONE, _ONE >> 1
    while bits:
        if bits & 1:
            result = _product(square, result)
        square = _product(square, square)
        bits >>= 1
    return result


def _product(a: int, b: int) -> int:
    """Of two polynomials, modulo Castagnoli's."""
    product = 0
    for place in range(32):
        if a & (_ONE >> place):
            product ^= b
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
    return product
