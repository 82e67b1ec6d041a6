"""Jobs are faster and smaller where Beam's inside is changed a little: of versions whose inside is known."""

NEWEST = 2, 77
"""Of 2.70 to this one, all code that is changed is the same. Compare it before this is raised."""


def is_known() -> bool:
    """Whether the installed version is."""
    from importlib.metadata import version  # a hundredth of a second, which --help need not take

    return tuple(int(part) for part in version("apache-beam").split(".")[:2]) <= NEWEST
