"""CRC-32C, as Cloud Storage keeps it with every object."""

import base64

import google_crc32c


def crc32c_text(checksum: google_crc32c.Checksum) -> str:
    """A checksum as Cloud Storage writes it: big-endian, in base64.

    >>> crc32c_text(google_crc32c.Checksum(b"123456789"))
    '4waSgw=='
    """
    return base64.b64encode(checksum.digest()).decode()
