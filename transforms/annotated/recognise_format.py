"""Recognition of a format by the names and columns in its options."""

from collections.abc import Iterator

from recordmill.transforms.annotated.format_options import FormatOptions
from recordmill.transforms.rows.data_contents import DataContents, Interpretation
from recordmill.transforms.storage.resolve import join_path


def ways(contents: DataContents, options: type[FormatOptions]) -> Iterator[Interpretation]:
    """Yield the Interpretation of a data set of a format, recognised by file names, contents or columns of tables."""
    why = next(filter(None, (options.recognise(contents.names), *_describe_candidates(contents, options))), "")
    if why:
        yield Interpretation(why, {"data": [contents.data]})
        return
    for rank, folder, names in contents.tables:
        if what := options.recognise_columns(contents.columns(join_path(folder, names[0]))):
            yield Interpretation(f"{names[0]} has {what}", {"data": [contents.data]}, rank)


def _describe_candidates(contents: DataContents, options: type[FormatOptions]) -> Iterator[str]:
    """Yield the evidence for the format, or "", for each of the first candidate files."""
    for name, head in contents.heads.items():
        if name.lower().endswith((".json", ".xml")):
            yield name if options.recognise_content(head) else ""
            continue
        what = options.recognise_columns(contents.columns(join_path(contents.folder, name)))
        if not what and name.lower().endswith(".csv"):
            what = options.recognise_rows(head)
        yield f"{name} has {what}" if what else ""
