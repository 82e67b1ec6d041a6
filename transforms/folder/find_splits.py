"""Find folders of splits that hold class folders: pets/train/cat, pets/val/cat."""

from itertools import islice

from recordmill.schemas.errors import ConfigError
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

    Raises:
        ConfigError: Two folders are the same split, or images beside several splits are of none.
    """
    storage, by_split, flat = storage_for(data), dict[str, str](), list[str]()
    names = [name for word in SPLIT_OF_WORD for name in (word, word.title(), word.upper())]
    tops = [name for name in names if storage.is_folder(join_path(data, name))]
    for name in tops:
        path = join_path(data, name)
        files = [file.name for file in islice(storage.walk(path), _LOOKED_AT) if is_image_name(file.name)]
        split = SPLIT_OF_WORD[name.lower()]
        if any("/" in file for file in files):
            if split in by_split:
                raise ConfigError(f"{by_split[split]} and {path} are both the split {split}. Merge them, or move one")
            by_split[split] = path
        elif files:
            flat.append(
                f"{path} has {number_text(len(files), 'image')} and no class folders, so it is left out. Move them to "
                "class folders, or convert them with --labels"
            )
    other = _folder_of_other_images(data, {*tops}) if by_split else ""
    if other and len(by_split) > 1:
        raise ConfigError(
            f"{data} has the splits {', '.join(by_split)} with class folders, and {other}, which is of no split. "
            "Move it elsewhere, or give one of the folders as DATA"
        )
    if not by_split or other:
        return {}, []
    return {split: by_split[split] for split in USUAL_SPLITS if split in by_split}, flat


def _folder_of_other_images(data: str, tops: set[str]) -> str:
    """Return a folder, or an image, that is in none of the folders `tops`; "" if there is none."""
    names = (file.name for file in islice(storage_for(data).walk(data), _LOOKED_AT) if is_image_name(file.name))
    return next((top for top in (name.partition("/")[0] for name in names) if top not in tops), "")
