"""Recognition of tables that hold images."""

from collections.abc import Iterator

import pyarrow as pa

from recordmill.schemas.inputs.images import LABEL_COLUMNS
from recordmill.schemas.inputs.splits import USUAL_SPLITS, split_of_file
from recordmill.transforms.rows.data_contents import DataContents, Interpretation
from recordmill.transforms.storage.resolve import join_path
from recordmill.transforms.table.table_options import TableOptions


def ways(contents: DataContents, _: type[TableOptions]) -> Iterator[Interpretation]:
    """Yield the way to read tables that hold images, a command for each split that their names say."""
    for rank, folder, names in contents.tables:
        columns = contents.columns(join_path(folder, names[0]))
        files = [name.removesuffix(".bytes") for name, array in columns.items() if pa.types.is_large_binary(array.type)]
        if not files:
            continue
        label = next((name for name in columns if name.lower() in LABEL_COLUMNS), "")
        flags = ("--image-column", files[0], *(("--label", label) if label else ()))
        by_split: dict[str, list[str]] = {}
        for name in names:
            by_split.setdefault(split_of_file(name), []).append(name)
        by_split = {"": [*names]} if "" in by_split else by_split
        commands = tuple(
            (
                *(word for name in by_split[split] for word in ("--rows", join_path(folder, name))),
                *flags,
                *(("--split", split) if split else ()),
            )
            for split in sorted(by_split, key=("", *USUAL_SPLITS).index)
        )
        yield Interpretation(f"column {files[0]} of {names[0]} has images", commands, rank + 1)
