"""Names of the files and folders of a data set other than its shards."""

MANIFEST = "manifest.json"
RECIPE = "recipe.json"
"""File in a state folder: recipe of an unfinished run."""
REJECTS = "rejects.jsonl"
"""File in a state folder: rejects of a failed run."""


def split_manifest(split: str) -> str:
    """Return the name of the manifest of a single split.

    >>> split_manifest("train")
    'manifest-train.json'
    """
    return f"manifest-{split}.json"


def split_rejects(split: str) -> str:
    """Return the name of the file of a split's rejects, one JSON object per line."""
    return f"rejects-{split}.jsonl"


def state_folder(split: str) -> str:
    """Return the folder within the output where an unfinished run keeps a split's finished shards and resume state."""
    return f".recordmill-{split}"
