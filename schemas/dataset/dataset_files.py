"""Names of the files and folders of a data set other than its shards."""

from recordmill.schemas.shards import JobPart

MANIFEST = "manifest.json"
RECIPE = "recipe.json"
"""File in a state folder: recipe of an unfinished run."""
PART_FILES = r"part-(\d{5})-of-(\d{5})"
"""Regular expression of the names of `part_file`."""
CHANGES = "changes.jsonl"
"""File in a state folder: changes that a run of `convert --add` found, which becomes `split_changes`."""
COMMIT = "commit.json"
"""File in a state folder: the commit of `convert --add`, until it is complete."""
FAILED = "failed"
"""File in a state folder: the run of --add has failed, so that another one may take its place."""
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


def split_changes(split: str) -> str:
    """Return the name of the file of a split's changes, which the last run of `convert --add` found. Each line has the
    keys `split`, `file_name` and `change`: `labels`, `image` or `gone`."""
    return f"changes-{split}.jsonl"


def part_file(part: JobPart) -> str:
    """Return the name of a file in a state folder: what a part of a job has written, for `recordmill seal`.

    >>> part_file(JobPart(3, 16))
    'part-00003-of-00016'
    """
    return f"part-{part.index:05}-of-{part.count:05}"


def state_folder(split: str) -> str:
    """Return the folder within the output where an unfinished run keeps a split's finished shards and resume state."""
    return f".recordmill-{split}"
