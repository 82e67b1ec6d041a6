"""Are the files and folders that a command names there?"""

import difflib
import os

from pipelines.options import ANNOTATIONS, CocoOptions, flag
from schemas.coco import AnnotationSource
from schemas.errors import ConfigError
from transforms.decode_coco import decode_coco
from transforms.storage import storage_for


def check_inputs(options: CocoOptions) -> None:
    """The files and folders that the options name are there.

    Raises:
        ConfigError: with every fault.
    """
    faults = [
        *filter(None, map(_annotation_fault, options.sources)),
        *filter(None, map(_image_fault, options.images)),
        *filter(None, map(_masks_fault, options.panoptic_masks)),
    ]
    faults += filter(None, [_output_fault(options.output)])
    # One file under two names would be joined with itself, and every annotation written twice.
    for option in ("images", *ANNOTATIONS):
        paths = getattr(options, option)
        if len({os.path.realpath(path) for path in paths}) < len(paths):
            faults.append(f"{flag(option)} {' '.join(paths)}: two of these are the same")
    if faults:
        raise ConfigError("; ".join(faults))


def check_annotations(options: CocoOptions) -> None:
    """The annotation files are COCO's, before --overwrite deletes what was made of them the last time. (Without it, the
    job finds out itself: a large file takes a second or two.)

    Raises:
        AnnotationFileError: one is not.
    """
    for source in options.sources:
        decode_coco(source.path, storage_for(source.path).read(source.path), source.kind)


def _annotation_fault(source: AnnotationSource) -> str:
    path, name = source.path, flag(source.kind.value)
    storage = storage_for(path)
    if storage.is_folder(path):
        return f"{name} {path} is a folder; give the JSON file"
    if storage.size(path) is not None:
        return ""
    if os.path.exists(path):
        return f"{name} {path} is a pipe or a device, and it has to be read twice; give a file"
    return f"{name} {path}: no such file{_near(path)}"


def _masks_fault(path: str) -> str:
    return "" if storage_for(path).is_folder(path) else f"--panoptic-masks {path}: no such folder or .zip{_near(path)}"


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
