"""Recognition of class folders, and of images with a table of labels."""

from collections.abc import Iterator

from recordmill.schemas.inputs.images import LABEL_COLUMNS, PATH_COLUMNS, is_image_name
from recordmill.schemas.inputs.splits import SPLIT_OF_WORD, USUAL_SPLITS
from recordmill.transforms.folder.folder_options import FolderOptions
from recordmill.transforms.rows.data_contents import CLASS_FOLDERS, DataContents, Interpretation
from recordmill.transforms.storage.resolve import join_path


def ways(contents: DataContents, _: type[FolderOptions]) -> Iterator[Interpretation]:
    """Yield the ways to read class folders, also below splits, and a table that names images and their classes."""
    for rank, folder, names in contents.tables:
        path = join_path(folder, names[0])
        columns = {name.lower() for name in contents.columns(path)}
        if len(names) == 1 and columns & {*LABEL_COLUMNS} and columns & {*PATH_COLUMNS}:
            flags = ("--images", folder, "--labels", path)
            yield Interpretation(f"{names[0]} names images and their classes", (flags,), rank + 1)
    images = [name.split("/") for name in contents.names if is_image_name(name)]
    tops = sorted({folders[0] for folders in images if len(folders) > 1})
    within = sorted({folders[1] for folders in images if len(folders) > 2})
    splits = {split: top for top in tops if (split := SPLIT_OF_WORD.get(top.lower()))}
    if tops and len(splits) == len(tops):
        ordered = [(split, splits[split]) for split in USUAL_SPLITS if split in splits]
        commands = tuple(("--images", join_path(contents.data, top), "--split", split) for split, top in ordered)
        if len(within) > 1:
            below = ", ".join(top for _, top in ordered)
            yield Interpretation(f"{len(within)} class folders below {below}", commands, CLASS_FOLDERS)
    elif len(tops) > 1:
        yield Interpretation(f"{len(tops)} class folders", (("--images", contents.data),), CLASS_FOLDERS)
