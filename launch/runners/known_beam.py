"""Jobs are faster and smaller where Beam's inside is changed a little: of versions whose inside is known."""

NEWEST = 2, 77
"""Of 2.70 to this one, all code that is changed does the same. Compare it before this is raised, with the methods
that call it and what Beam imports as itself is imported. From 2.73 to 2.74 all annotations are others. Besides, 2.71
no longer warns of a bare return beside a yield, of which nobody is warned here; 2.74 asks beartype where 2.73 asks
issubclass; 2.77 looks for a channel in each bundle, from which an output has its stream."""


def is_known() -> bool:
    """Whether the version that is imported, or being imported, is."""
    from apache_beam.version import __version__  # which imports nothing more

    return tuple(int(part) for part in __version__.split(".")[:2]) <= NEWEST
