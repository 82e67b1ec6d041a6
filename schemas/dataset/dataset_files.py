"""Names of the files and folders of a data set, besides its shards."""

MANIFEST = "manifest.json"
RECIPE = "recipe.json"
"""In the folder of a split's state: the recipe of a run that is not finished."""
REJECTS = "rejects.jsonl"
"""File in a state folder: rejects of a failed run."""


def split_manifest(split: str) -> str:
    """Name of the manifest of one split alone.

    >>> split_manifest("train")
    'manifest-train.json'
    """
    return f"manifest-{split}.json"


def split_rejects(split: str) -> str:
    """Name of the file of a split's rejects, one JSON object a line."""
    return f"rejects-{split}.jsonl"


def state_folder(split: str) -> str:
    """Folder within the output where an unfinished run of a split keeps its finished shards, and what it needs to go
    on."""
    return f".recordmill-{split}"
