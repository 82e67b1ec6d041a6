"""Whether this process runs one command and nothing else, so that it may do what others would be harmed by."""

_is_own = False


def begin() -> None:
    """It does, from here on."""
    global _is_own
    _is_own = True


def is_own() -> bool:
    return _is_own
