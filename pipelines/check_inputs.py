"""Are the files and folders that a command names there?"""

import difflib
import os

from pipelines.options import CocoOptions
from schemas.errors import ConfigError
from transforms.storage import storage_for


def check_inputs(options: CocoOptions) -> None:
    """The files and folders that the options name are there.

    Raises:
        ConfigError: with every fault.
    """
    faults = [
        *filter(None, map(_annotation_fault, options.instances)),
        *filter(None, map(_image_fault, options.images)),
    ]
    faults += filter(None, [_output_fault(options.output)])
    # One file under two names would be joined with itself, and every annotation written twice.
    for flag, paths in (("instances", options.instances), ("images", options.images)):
        if len({os.path.realpath(path) for path in paths}) < len(paths):
            faults.append(f"--{flag} {' '.join(paths)}: two of these are the same")
    if faults:
        raise ConfigError("; ".join(faults))


def _annotation_fault(path: str) -> str:
    storage = storage_for(path)
    if storage.is_folder(path):
        return f"--instances {path} is a folder; give the JSON file"
    return f"--instances {path}: no such file{_near(path)}" if storage.size(path) is None else ""


def _image_fault(path: str) -> str:
    storage = storage_for(path)
    if not storage.is_folder(path):
        what = (
            "is a file; give the folder that holds the images" if storage.size(path) is not None else "no such folder"
        )
        return f"--images {path}: {what}{_near(path)}"
    return "" if any(storage.walk(path)) else f"--images {path}: no file in it, nor in any folder below"


def _output_fault(path: str) -> str:
    """A file where the folder, or one above it, should be."""
    above = path
    while not os.path.lexists(above):
        above = os.path.dirname(above) or "."
    if os.path.isdir(above):
        return ""
    what = "is a file" if above == path else f"is below {above}, which is a file"
    return f"--output {path} {what}; give a folder, which is made if need be"


def _near(path: str) -> str:
    """What a mistyped path may have meant."""
    folder, name = os.path.split(path.rstrip("/"))
    if not os.path.isdir(folder or ".") or os.path.exists(path):
        return ""
    near = difflib.get_close_matches(name, os.listdir(folder or "."), 1)
    return f" (did you mean {os.path.join(folder, near[0])}?)" if near else ""
