"""Choose the encoder of a column of texts: a saved one, or one that is fitted on a split."""

import shlex
from collections.abc import Iterator, Sequence

from recordmill.pipelines.convert import input_file
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.dataset.recipes import InputFile
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.encoders import (
    CLASSES,
    ENCODERS,
    EncoderInfo,
    EncoderSource,
    TextEncoder,
    TextForm,
    TextSettings,
    decode_classes,
    decode_encoder,
    encoder_file,
)
from recordmill.schemas.inputs.text_options import TextOptions
from recordmill.transforms.dataset.dataset_folder import read_manifest, unfinished_splits
from recordmill.transforms.storage.resolve import join_path, storage_for

_TRAIN = "train"
_MOST_BYTES = 1 << 30  # maximum size of an encoder's file, which every worker has in memory


def choose_encoder(
    options: TextOptions, form: TextForm, column: str, output: str, splits: Sequence[str]
) -> EncoderSource:
    """Return the source of a column's encoder, for a job that writes `splits` into the folder `output`. All splits of a
    folder have the same encoder.

    Raises:
        ConfigError: Saved encoders are unusable, or the split to fit on is not clear.
    """
    manifest = read_manifest(output)
    _check_replaceable(output, column, manifest)
    known = next((info for info in manifest.encoders if info.column == column), None) if manifest else None
    adds = getattr(options, "add", False)
    other_splits = sorted(set(manifest.splits) - set(() if adds else splits)) if manifest else []
    if options.encoders:
        path = _saved_path(options.encoders, column)
        saved = _read(path, column, form)
        if known and known.sha256 != saved.info.sha256 and other_splits:
            raise ConfigError(
                f"{output} holds the split {', '.join(other_splits)}, encoded by another vocabulary than {path}. Give "
                f"--encoders {shlex.quote(output)} in its place, or another --output"
            )
        return EncoderSource(column, saved.settings, saved=saved, path=path)
    if known and adds:
        return _known_encoder(options, form, known, output)
    settings = options.settings(form, read_stop_words(options.stop_words))
    split = _fit_split(options.fit_split, splits, known, output)
    if split in splits and not (known and other_splits):
        return EncoderSource(column, settings, split)
    path = join_path(output, encoder_file(column))
    saved = _read(path, column, form)
    if split in splits and (saved.split, saved.settings) != (split, settings):
        raise ConfigError(
            f"{output} holds the split {', '.join(other_splits)}, encoded by the vocabulary of {saved.split}, and "
            f"{split} would get another ({_difference(saved.settings, settings) or 'of its own'}). Write all splits in "
            f"one command, keep that vocabulary by --encoders {shlex.quote(output)}, or give another --output"
        )
    if split in splits:
        return EncoderSource(column, settings, split, known=known)
    if saved.settings != settings:
        raise ConfigError(
            f"{path}, which the split {split} was encoded by, has {_difference(saved.settings, settings)}. Give the "
            f"same, or --encoders {shlex.quote(output)} in their place"
        )
    return EncoderSource(column, settings, saved=saved, path=path)


def _known_encoder(options: TextOptions, form: TextForm, known: EncoderInfo, output: str) -> EncoderSource:
    """Return the encoder of the data set that gets more images. Options of fitting it need not be given again; the
    recipe compares those that are.

    Raises:
        ConfigError: It has another form, or other stop words than those given.
    """
    if known.form is not form:
        raise ConfigError(
            f"{output} stores {known.column} as {known.form.value}, not as {form.value}, and all records of a data set "
            "have the same. Give the same form, or another --output"
        )
    path = join_path(output, encoder_file(known.column))
    saved = _read(path, known.column, form)
    words = tuple(sorted({*read_stop_words(options.stop_words)}))
    if words and words != saved.settings.stop_words:
        raise ConfigError(
            f"{path} has {len(saved.settings.stop_words):,} stop words, not these {len(words):,}, and new texts are "
            "encoded by it as they are. Leave --stop-words out, or give another --output"
        )
    return EncoderSource(known.column, saved.settings, saved=saved, path=path)


def _check_replaceable(output: str, column: str, manifest: Manifest | None) -> None:
    """Refuse to replace files that are named like encoders, and do not belong to a data set."""
    storage = storage_for(output)
    names = [name for name in (encoder_file(column), CLASSES) if storage.size(join_path(output, name)) is not None]
    if names and not unfinished_splits(output) and not (manifest and manifest.encoders):
        raise ConfigError(
            f"--output {output} has {', '.join(names)}, which would be replaced, and no manifest lists them. Give "
            "another --output, or move them"
        )


def text_files(options: TextOptions, text: EncoderSource | None) -> Iterator[InputFile]:
    """Yield further files that determine how texts are encoded."""
    if text and text.path:
        yield input_file("encoders", text.path)
    elif text:
        yield from (input_file("stop_words", path) for path in sorted(options.stop_words))


def saved_classes(folders: Sequence[str]) -> tuple[str, ...]:
    """Return the classes of saved encoders, in the order of their indices; empty if they have none.

    Raises:
        ConfigError: They are unusable, or differ between two folders.
    """
    classes_by_file = {
        path: decode_classes(storage_for(path).read(path), path) for path in _saved_files(folders, CLASSES)
    }
    known = {path: classes for path, classes in classes_by_file.items() if classes}
    if len(set(known.values())) > 1:
        raise ConfigError(f"--encoders: {' and '.join(known)} have different classes. Give one of them")
    return next(iter(known.values()), ())


def read_stop_words(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the words of several files, one per line.

    Raises:
        ConfigError: A file is not UTF-8, or has no word.
    """
    all_words: list[str] = []
    for path in paths:
        try:
            words = storage_for(path).read(path).decode("utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            raise ConfigError(f"--stop-words {path} is not UTF-8 ({error}). Write it again as UTF-8") from error
        stripped = [word.strip() for word in words if word.strip()]
        if not stripped:
            raise ConfigError(f"--stop-words {path} has no word. Give one a line, or leave it out")
        all_words += stripped
    return tuple(all_words)


def _fit_split(asked: str | None, splits: Sequence[str], known: EncoderInfo | None, output: str) -> str:
    """Return the split to fit the vocabulary on: one of the job's, or that of the folder's encoder."""
    if asked:
        if asked in splits or (known and known.split == asked):
            return asked
        raise ConfigError(
            f"--fit-split {asked}: this command writes {', '.join(splits)}, and {output} has no vocabulary of {asked}. "
            f"Write {asked} first, or give --encoders"
        )
    if known and (known.split in splits or _TRAIN not in splits):
        return known.split
    if known:
        raise ConfigError(
            f"{output} has the vocabulary of split {known.split}, and {_TRAIN} would be encoded by it. Give "
            f"--fit-split {known.split} if that is meant, or another --output, {_TRAIN} first"
        )
    if _TRAIN in splits or len(splits) == 1:
        return _TRAIN if _TRAIN in splits else splits[0]
    raise ConfigError(f"no split of {', '.join(splits)} is called {_TRAIN}. Give --fit-split, the one to learn from")


def _saved_path(folders: Sequence[str], column: str) -> str:
    """Return the file of a column's encoder in one of the folders, each a data set or its encoders/.

    Raises:
        ConfigError: No folder, or more than one, has an encoder of the column.
    """
    file = encoder_file(column)
    files = _saved_files(folders, file)
    if len(files) > 1:
        raise ConfigError(f"--encoders: {' and '.join(files)} both encode {column}. Give one of them")
    if not files:
        raise ConfigError(f"--encoders {' '.join(folders)}: no {file}, which would encode {column}")
    return files[0]


def _saved_files(folders: Sequence[str], file: str) -> list[str]:
    """Return the files of this name in data sets' folders, or in their encoders/."""
    candidates = [join_path(folder, name) for folder in folders for name in (file, file.removeprefix(f"{ENCODERS}/"))]
    return [path for path in candidates if storage_for(path).size(path) is not None]


def _read(path: str, column: str, form: TextForm) -> TextEncoder:
    encoder = decode_encoder(storage_for(path).read(path, most_bytes=_MOST_BYTES), path)
    if encoder.column != column:
        raise ConfigError(f"{path} is the encoder of {encoder.column!r}, not of {column!r}; was it renamed?")
    if encoder.settings.form is not form:
        raise ConfigError(f"{path} makes {encoder.settings.form.value} of {column}, and {form.value} are asked for")
    return encoder


def _difference(known: TextSettings, wanted: TextSettings) -> str:
    """Return the differences: `features 5000, not None`."""
    names = ("ngrams", "lower", "min_df", "features")
    differences = [
        f"{name} {getattr(known, name)}, not {getattr(wanted, name)}"
        for name in names
        if getattr(known, name) != getattr(wanted, name)
    ]
    if known.stop_words != wanted.stop_words:
        differences.append(f"{len(known.stop_words):,} stop words, not these {len(wanted.stop_words):,}")
    return " and ".join(differences)
