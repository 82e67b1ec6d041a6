"""Recognition of a format by the names and columns in its options."""

import shlex
from collections.abc import Iterator
from itertools import islice

from recordmill.schemas.dataset.dataset_files import MANIFEST
from recordmill.schemas.errors import ConfigError, RecordmillError
from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.inputs.option import option_fields
from recordmill.schemas.inputs.sample import Sample
from recordmill.transforms.annotated.format_options import FormatOptions
from recordmill.transforms.rows.data_contents import (
    LABEL_ENDINGS,
    LISTED,
    MOST_READ,
    TABLE_ENDINGS,
    DataContents,
    Interpretation,
)
from recordmill.transforms.storage.resolve import join_path, storage_for


def ways(contents: DataContents, options: type[FormatOptions]) -> Iterator[Interpretation]:
    """Yield the Interpretation of a data set of a format, recognised by file names, contents or columns of tables."""
    why = next(filter(None, (options.recognise(contents.names), *_describe_candidates(contents, options))), "")
    if why:
        yield Interpretation(why, {"data": [contents.data]}, fault=source_fault(contents, options))
        return
    for rank, folder, names in contents.tables:
        if what := options.recognise_columns(contents.columns(join_path(folder, names[0]))):
            yield Interpretation(f"{names[0]} has {what}", {"data": [contents.data]}, rank)


def source_fault(contents: DataContents, options: type[FormatOptions]) -> ConfigError | None:
    """Return the error of a data set whose parts do not fit, YOLO's labels without names of classes for example."""
    known = {field.name for field in option_fields(options)} - {"data", "output"}
    given = {name: value for name, value in contents.given.items() if name in known}
    try:
        built = options(data=contents.data, output="out", **given)
    except ConfigError:
        return None  # the job reports wrong options
    try:
        built.source()
    except ConfigError as error:
        return error
    except (RecordmillError, OSError):
        pass  # the job reports a damaged file
    return None


def reads_labels(options: FormatOptions) -> bool:
    """Return True if one of the first label files of a data set has an image that the format can read.

    Raises:
        RecordmillError, OSError: The format finds no label files in the data set.
    """
    source = options.source()
    for folder in (folder for folder in source.folders if folder.has_labels):
        names = islice(storage_for(folder.path).walk_names(folder.path), LISTED)
        labels = (name for name in names if source.is_label(folder.prefix + name))
        for name in islice(labels, MOST_READ):
            with storage_for(folder.path).open(join_path(folder.path, name)) as file:
                contents = file.read() if source.label_name else file
                samples = (image.sample for image in source.parse(contents, folder.prefix + name))
                if any(sample and _is_image(sample, bool(source.label_name)) for sample in samples):
                    return True
    return False


def _is_image(sample: Sample, is_beside: bool) -> bool:
    """Return True if a Sample may be of an image: a table of any texts names no images."""
    return is_beside or sample.data is not None or is_image_name(sample.file_name)


def _describe_candidates(contents: DataContents, options: type[FormatOptions]) -> Iterator[str]:
    """Yield the evidence for the format, or "", for each of the first candidate files."""
    for name, head in contents.heads.items():
        if name.lower().endswith(LABEL_ENDINGS):
            yield name if options.recognise_content(head) else ""
            continue
        what = options.recognise_columns(contents.columns(join_path(contents.folder, name)))
        if not what and name.lower().endswith(".csv"):
            what = options.recognise_rows(head)
        yield f"{name} has {what}" if what else ""
    other_endings = tuple(ending for ending in options.endings if ending not in (*LABEL_ENDINGS, *TABLE_ENDINGS))
    for name, head in contents.heads_with(other_endings).items():
        yield name if options.recognise_content(head) else ""


def own_data_set_error(folder: str, labels: str) -> ConfigError:
    """Return the error of a data set that Recordmill wrote.

    Args:
        labels: Format of `--as`, if only labels are written.
    """
    what = f"{folder} is a data set that Recordmill wrote ({MANIFEST})"
    if labels:
        return ConfigError(
            f"{what}. To write it as {labels}, run: "
            f"{shlex.join(['recordmill', 'extract', folder, 'OUT', '--as', labels])}"
        )
    return ConfigError(
        f"{what}. To write it in other shards, run: {shlex.join(['recordmill', 'repack', folder, 'OUT', '--replan'])}"
    )
