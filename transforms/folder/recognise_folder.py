"""Recognition of class folders, and of images with a table of labels."""

import posixpath
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.box_columns import boxes_fault
from recordmill.schemas.inputs.class_tables import is_class_table
from recordmill.schemas.inputs.images import LABEL_COLUMNS, PATH_COLUMNS, is_image_name
from recordmill.schemas.inputs.splits import SPLIT_OF_WORD, USUAL_SPLITS
from recordmill.schemas.sizes import quote_blanks
from recordmill.transforms.folder.folder_options import FolderOptions
from recordmill.transforms.rows.data_contents import CLASS_FOLDERS, UNCLEAR, DataContents, Interpretation
from recordmill.transforms.storage.resolve import join_path

_LOOKED_AT = 100
"""Number of rows whose values are looked at."""


def ways(contents: DataContents, _: type[FolderOptions]) -> Iterator[Interpretation]:
    """Yield the ways to read class folders, also below splits, and a table that names images and their classes."""
    yield from _label_tables(contents)
    images = [name.split("/") for name in contents.names if is_image_name(name)]
    tops = sorted({folders[0] for folders in images if len(folders) > 1})
    within = sorted({folders[1] for folders in images if len(folders) > 2})
    with_classes = {folders[0] for folders in images if len(folders) > 2}
    splits = {split: top for top in tops if (split := SPLIT_OF_WORD.get(top.lower()))}
    if tops and all(top.lower() in SPLIT_OF_WORD for top in tops):
        if len(within) > 1:
            below = ", ".join(splits[split] for split in USUAL_SPLITS if splits.get(split) in with_classes)
            yield Interpretation(f"{len(within)} class folders below {below}", {"data": [contents.data]}, CLASS_FOLDERS)
    elif len(tops) > 1:
        yield Interpretation(f"{len(tops)} class folders", {"data": [contents.data]}, CLASS_FOLDERS)


def _label_tables(contents: DataContents) -> Iterator[Interpretation]:
    """Yield the way to read a table beside images, a column of which names them. With --images, the table has rows."""
    if "images" in contents.given:
        return
    for rank, folder, names in contents.tables:
        if len(names) > 1:
            continue
        path, (name,) = join_path(folder, names[0]), names
        columns = contents.columns(path)
        if is_class_table(name, {column: values.to_pylist() for column, values in columns.items()}):
            continue
        by_lower = {column.lower(): column for column in columns}
        usual_label, usual_image = (
            next((by_lower[column] for column in usual if column in by_lower), "")
            for usual in (LABEL_COLUMNS, PATH_COLUMNS)
        )
        label = contents.given.get("label") or usual_label
        column, images = _column_of_images(contents, columns)
        image = contents.given.get("image_column") or column
        if not image:
            continue
        given: dict[str, Any] = {"data": [join_path(folder, images) if images else folder or "."], "labels": [path]}
        if image != usual_image:
            given["image_column"] = image
        fault = None
        if text := boxes_fault(path, columns, given["data"], contents.given.get("label")):
            fault = ConfigError(text)
        elif label not in columns:
            named = ["--image-column", image] if "image_column" in given else []
            command = shlex.join(["recordmill", "convert", folder, "--labels", path, *named, "--label"])
            fault = ConfigError(
                f"{path} names images, but not which of its columns has their classes: "
                f"{', '.join(quote_blanks(columns))}. Choose one: {command} COLUMN -o OUT. "
                "To convert its rows without the images, add --format table"
            )
        yield Interpretation(f"{name} names images and their classes", given, UNCLEAR if fault else rank + 1, fault)


def _column_of_images(contents: DataContents, columns: Mapping[str, pa.Array]) -> tuple[str, str]:
    """Return the column that names images of the folder, most of them in one row, and the folder within it at which the
    names begin; "" if there is none. A table with a row for each object has several rows for an image."""
    by_name: dict[str, list[str]] = {}
    for path in contents.images:
        for known in {path, posixpath.splitext(path)[0]}:
            by_name.setdefault(posixpath.basename(known), []).append(known)
    for column, values in columns.items():
        texts = [str(value) for value in values.to_pylist()[:_LOOKED_AT] if value is not None] if by_name else []
        named = {text: by_name[name] for text in texts if (name := posixpath.basename(text)) in by_name}
        if len(named) * 2 > len(texts):
            starts = {
                path.removesuffix(text) for text, paths in named.items() for path in paths if path.endswith(f"/{text}")
            }
            is_at_top = any(text in paths for text, paths in named.items()) or len(starts) != 1
            return column, "" if is_at_top else starts.pop().rstrip("/")
    return "", ""
