"""Lists of the images of splits, as Pascal VOC has them: ImageSets/Main/train.txt."""

from collections.abc import Iterable, Iterator, Sequence

from recordmill.schemas.inputs.splits import SPLIT_OF_FOLDER
from recordmill.transforms.annotated.source import SplitList
from recordmill.transforms.storage.resolve import join_path, storage_for

_LAYOUT = "ImageSets/Layout"
SPLITS_BY_NAME = {"trainval": "trainval"} | SPLIT_OF_FOLDER


def find_image_sets(root: str, folders: Sequence[str]) -> list[SplitList]:
    """Return the lists of splits in the first of `folders` with such lists.

    Lists of one class, `cat_train.txt`, are skipped; so is `trainval`, if train and val have lists.
    """
    for folder in (join_path(root, name) for name in folders):
        names = [name for name in storage_for(folder).names(folder) if name.endswith(".txt")]
        splits = {name: SPLITS_BY_NAME[name[:-4]] for name in names if name[:-4] in SPLITS_BY_NAME}
        if {"train", "val"} <= {*splits.values()}:
            splits.pop("trainval.txt", None)
        elif "trainval.txt" in splits:
            splits = {name: split for name, split in splits.items() if split not in ("train", "val")}
        if not splits and len(names) == 1:
            splits = {names[0]: "train"}
        if splits:
            return [SplitList(join_path(folder, name), split) for name, split in splits.items()]
    return []


def parse_image_set(path: str, lines: Iterable[str], images: str) -> Iterator[str]:
    """Yield the names of the images in a list, and add the suffix that lists omit.

    In ImageSets/Layout, the number of an object follows the name.

    Args:
        images: Beginning of the names of images in the data set: `JPEGImages/`.
    """
    for name in (line.split()[0] for line in lines) if _LAYOUT in path else lines:
        yield f"{images}{name}" if name.lower().endswith((".jpg", ".jpeg", ".png")) else f"{images}{name}.jpg"
