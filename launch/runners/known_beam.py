"""Jobs are faster and smaller where Beam's inside is changed a little: of versions whose inside is known."""

NEWEST = 2, 77
"""Of 2.70 to this one, all code that is changed is the same. Compare it before this is raised."""


def is_known() -> bool:
    """Whether the version that is imported, or being imported, is."""
    from apache_beam.version import __version__  # which imports nothing more

    return tuple(int(part) for part in __version__.split(".")[:2]) <= NEWEST
