"""Schemes of paths. Everything that only looks at a path imports this module, and no storage."""

GCS = "gs"
"""Scheme of Google Cloud Storage. Dataflow's staging and temporary files need this scheme."""
SCHEMES = (GCS, "s3")
"""Schemes of buckets."""


def is_remote(path: str) -> bool:
    """Return True if each read of `path` is a request over a network."""
    return "://" in path
