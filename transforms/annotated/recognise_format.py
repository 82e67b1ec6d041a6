"""Recognition of a format, by what its options say."""

import re
from collections.abc import Iterator

from recordmill.transforms.annotated.format_options import FormatOptions
from recordmill.transforms.rows.data_contents import DataContents, Interpretation
from recordmill.transforms.storage.resolve import join_path

_READS_IT = re.compile(r"recordmill (\w+) reads")
"""Format in a text of `describe_content`."""


def ways(contents: DataContents, options: type[FormatOptions]) -> Iterator[Interpretation]:
    """Yield the way to read the files of a format: by their names, their contents, or the columns of tables."""
    why = next((each for each in (options.recognise(contents.names), *_by_content(contents, options)) if each), "")
    if why:
        yield Interpretation(why, (("--data", contents.data),))
        return
    for rank, folder, names in contents.tables:
        if what := options.recognise_columns(contents.columns(join_path(folder, names[0]))):
            yield Interpretation(f"{names[0]} has {what}", (("--data", contents.data),), rank)


def _by_content(contents: DataContents, options: type[FormatOptions]) -> Iterator[str]:
    """Yield what shows the format, or an empty text, for each of the first candidate files."""
    for name, head in contents.heads.items():
        if name.lower().endswith((".json", ".xml")):
            found = _READS_IT.search(contents.kinds[name])
            yield name if found and found[1] == options.model_fields["name"].default else ""
            continue
        what = options.recognise_columns(contents.columns(join_path(contents.folder, name)))
        if not what and name.lower().endswith(".csv"):
            what = options.recognise_rows(head)
        yield f"{name} has {what}" if what else ""
