"""Sizes in words."""


def size_text(count: float) -> str:
    """Bytes for a person, in powers of ten.

    >>> size_text(1_234_567)
    '1.2 MB'
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if round(count, 1) < 1000:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
