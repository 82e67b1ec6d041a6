"""Find folders of splits that hold class folders: pets/train/cat, pets/val/cat."""

from itertools import islice

from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.inputs.splits import SPLIT_OF_WORD, USUAL_SPLITS
from recordmill.schemas.sizes import number_text
from recordmill.transforms.storage.resolve import join_path, storage_for

_LOOKED_AT = 20_000
"""Number of files of a folder that are looked at."""


def find_split_folders(data: str) -> tuple[dict[str, str], list[str]]:
    """Return the folders of splits that have class folders, by split, and warnings about those that have none.

    A folder has splits if at least one of its folders train, val, test, … has class folders, and no other folder in it
    has images.
    """
    storage, by_split, flat = storage_for(data), dict[str, str](), list[str]()
    names = [name for word in SPLIT_OF_WORD for name in (word, word.title(), word.upper())]
    tops = [name for name in names if storage.is_folder(join_path(data, name))]
    for name in tops:
        path = join_path(data, name)
        files = [file.name for file in islice(storage.walk(path), _LOOKED_AT) if is_image_name(file.name)]
        if any("/" in file for file in files):
            by_split.setdefault(SPLIT_OF_WORD[name.lower()], path)
        elif files:
            flat.append(
                f"{path} has {number_text(len(files), 'image')} and no class folders, so it is left out; move them to "
                "class folders, or convert them with --labels"
            )
    if not by_split or _has_other_images(data, {*tops}):
        return {}, []
    return {split: by_split[split] for split in USUAL_SPLITS if split in by_split}, flat


def _has_other_images(data: str, tops: set[str]) -> bool:
    walked = islice(storage_for(data).walk(data), _LOOKED_AT)
    return any(is_image_name(file.name) and file.name.partition("/")[0] not in tops for file in walked)
