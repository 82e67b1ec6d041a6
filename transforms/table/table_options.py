"""Options of the format `table`."""

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import ColumnType, FeatureKind, FeatureTable
from recordmill.schemas.inputs.encoders import TextForm
from recordmill.schemas.inputs.image_options import StoredImageOptions
from recordmill.schemas.inputs.images import ImageRules
from recordmill.schemas.inputs.option import (
    IMAGES,
    READ,
    TEXTS,
    Names,
    Pairs,
    Shares,
    flag,
    redefine_option,
)
from recordmill.schemas.inputs.options import (
    ConvertOptions,
    pair_faults,
    parse_image_size,
    parse_pairs,
)
from recordmill.schemas.inputs.rows_options import RowsOptions
from recordmill.schemas.inputs.tables import Column, RowsReading
from recordmill.schemas.inputs.text_options import TextChoice, TextOptions
from recordmill.schemas.layouts import DECODED_IMAGE, TABLE, change_keys_and_types, row_image_features
from recordmill.schemas.names import NameSources

_FILE_OPTIONS = ("check", "image_format", "max_side", "jpeg_quality")
_CLASSES_FILE = "classes"
_TYPE_BY_KIND = {FeatureKind.INT64: ColumnType.INT64, FeatureKind.FLOAT: ColumnType.FLOAT}


class TableOptions(RowsOptions, TextOptions, StoredImageOptions):
    """Options of the format `table`, see docs/tables.md."""

    columns: Names = READ.opt(
        "Only these columns; repeatable. Members of nested columns are named `a.b`.", (), "NAME[,NAME…]", "all"
    )
    default: Pairs = READ.opt(
        "Values that replace missing ones. Without it, the record lacks the feature.", (), "COLUMN=VALUE[,…]"
    )
    name: str = redefine_option(ConvertOptions, "name", "table")
    layout: Literal["table"] = redefine_option(ConvertOptions, "layout", "table")
    rename: Pairs = redefine_option(
        ConvertOptions,
        "rename",
        text="Keys of records that differ from the names of their columns. `--rename image/encoded=image` renames a "
        "feature of the image of a row. For encoded texts, use `--text-names`.",
    )
    label_as: Literal["index", "text"] = redefine_option(ConvertOptions, "label_as", needs="label")
    split: Shares = redefine_option(
        ConvertOptions,
        "split",
        text="One split, or several with their shares of the rows. `train=0.8,val=0.1,test=0.1`: shares are decimals "
        "or fractions (`1/3`) and sum to 1. The split of a row depends on a hash of its key, or of its record.",
        usual="train",
    )
    max_rejects: float = redefine_option(
        ConvertOptions,
        "max_rejects",
        text="Fraction of rows that may be rejected. If more rows of all splits are rejected, the job fails before a "
        "shard is written. The same command with a larger fraction accepts them.",
    )
    raw_size: str = IMAGES.opt(
        "Store pixels of this height and width, `image/pixels`, instead of files. uint8, three per pixel: 224x224 has "
        "150,528 bytes. Images are decoded completely and resized without keeping their aspect ratio (bilinear).",
        "",
        "HxW",
    )
    text_column: Names = TEXTS.opt(
        "Columns of texts to encode as numbers; repeatable. See [text.md](text.md).", (), "COLUMN[,COLUMN…]"
    )
    text: TextChoice | None = TEXTS.opt(
        "How to encode these texts. `counts`: the count of each term. `tfidf`: these counts weighted by tf-idf. "
        "`tokens`: ids of the tokens. `raw`: bytes.",
        needs="text_column",
    )

    @property
    def image_rules(self) -> ImageRules:
        return msgspec.structs.replace(super().image_rules, raw_size=parse_image_size(self.raw_size))

    @property
    def text_form(self) -> TextForm:
        return TextForm(self.text or "raw")

    @property
    def encoded_columns(self) -> tuple[str, ...]:
        """Columns whose texts become numbers."""
        return () if self.text_form is TextForm.RAW else self.text_column

    @property
    def text_names_by_column(self) -> dict[str, dict[str, str]]:
        """Names for features, see `TextOptions.text_feature_names`."""
        return {column: self.text_feature_names(self.text_form, column) for column in self.encoded_columns}

    @property
    def name_sources(self) -> NameSources:
        return NameSources(self.images, self.rows)

    @property
    def table(self) -> FeatureTable:
        """Features of the image that a row names. Those of columns follow from the rows."""
        features = row_image_features(parse_image_size(self.raw_size)) if self.image_column else ()
        known = {feature.name for feature in features}
        names = {key: name for key, name in parse_pairs(self.rename).items() if key in known}
        held = known - names.keys() | {*names.values()}
        kinds = {key: kind for key, kind in self.kinds.items() if key in held}
        return change_keys_and_types(msgspec.structs.replace(TABLE, features=features), names, kinds)

    @property
    def image_keys(self) -> tuple[str, ...]:
        """Keys that columns cannot have, because they are features of the image."""
        names = tuple(feature.name for feature in self.table.features)
        return (DECODED_IMAGE, *names) if names else ()

    @property
    def renamed(self) -> dict[str, str]:
        """Keys of records by column."""
        known = (
            {feature.name for feature in row_image_features(parse_image_size(self.raw_size))}
            if self.image_column
            else set()
        )
        return {column: key for column, key in parse_pairs(self.rename).items() if column not in known}

    @property
    def column_types(self) -> dict[str, ColumnType]:
        """Types of `--dtype` by column."""
        other_keys = {*self.count_features, *(feature.name for feature in self.table.features)}
        column_by_key = {key: column for column, key in self.renamed.items()}
        return {
            column_by_key.get(key, key): _TYPE_BY_KIND[kind]
            for key, kind in self.kinds.items()
            if key not in other_keys
        }

    @property
    def label_type(self) -> ColumnType:
        """Type of the label in records."""
        return ColumnType.CLASS_NAME if self.label_as == "text" else ColumnType.CLASS

    @property
    def count_features(self) -> tuple[str, ...]:
        """Features of encoded texts whose type `--dtype` gives."""
        texts = {
            names.get("value", f"{self.renamed.get(column, column)}/value")
            for column, names in self.text_names_by_column.items()
        }
        return tuple(key for key in self.kinds if key in texts)

    @property
    def defaults(self) -> dict[str, str]:
        return parse_pairs(self.default)

    @property
    def share_cure(self) -> str:
        if self.stratify or self.given("split_by"):
            return ""
        return (
            "--split-by rank is exact to one row, and --stratify to one row of each class of --label; rows may move "
            "when others are added"
        )

    @property
    def row_key(self) -> str:
        """Column that identifies a row, so that it keeps its split if other columns change; empty to use the record, or
        the bytes of its image."""
        return self.key or (self.image_column if self.images else "") or ""

    @property
    def required_columns(self) -> tuple[str, ...]:
        """Columns that need a value in every row, because the split of the row depends on it."""
        return tuple(dict.fromkeys(filter(None, (self.row_key, self.group_column, self.split_column))))

    @property
    def has_image_bytes(self) -> bool:
        """True if rows have the bytes of their images."""
        return bool(self.image_column) and not self.images

    @property
    def written_folder(self) -> str:
        """Output folder; empty in a dry run, which writes nothing."""
        return "" if self.dry_run else self.output

    @property
    def reading(self) -> RowsReading:
        """Options for reading files."""
        names = *filter(None, [self.label]), *self.required_columns
        delimiter = "\t" if self.delimiter == "tab" else self.delimiter
        return RowsReading(self.read_columns, self.encoding, delimiter, tuple(dict.fromkeys(names)))

    def reading_with(self, known: Mapping[str, Column]) -> RowsReading:
        """Return the options for reading files whose columns have the types of --schema, `known` by name."""
        texts = (name for name, column in known.items() if column.type is ColumnType.BYTES and not column.is_list)
        return self.reading._replace(texts=(*self.text_column, *texts))

    @property
    def divides_ranked(self) -> bool:
        """True if the split of a row depends on the other rows."""
        return self.stratify or self.split_by == "rank"

    @property
    def read_columns(self) -> tuple[str, ...]:
        """Columns that are read; empty for all."""
        if not self.columns:
            return ()
        label = filter(None, [self.label])
        names = (*self.columns, *self.required_columns, *label, *self.image_columns, *self.text_column)
        return tuple(dict.fromkeys(names))

    @property
    def image_columns(self) -> tuple[str, ...]:
        """Columns that may have the paths of images, or their bytes: the column, or members of a struct. They are only
        written on request."""
        column = self.image_column
        if not column:
            return ()
        return (column,) if self.images else (column, f"{column}.bytes", f"{column}.path")

    def writes(self, column: str) -> bool:
        """Return True if records have the values of the column."""
        requested = (*self.columns, self.label, *self.text_column)
        return column in requested if self.columns or column in self.image_columns else True

    def _faults(self) -> Iterator[str]:
        yield from super()._faults()
        yield from self._image_faults()
        yield from pair_faults("default", self.default, "COLUMN=VALUE")
        divides = self.split_column or len(self.split) > 1
        if self.split_column and self.is_split_given:
            yield "--split-column says which split a row is of, and so does --split. Give one"
        if self.group_column and (self.split_column or not divides) and self.limit is None:
            yield "--group-column divides rows, but --split names a single split, or --split-column divides them"
        if self.stratify and not divides:
            yield "--stratify divides classes, but --split names a single split"
        if self.given("split_by") and len(self.split) < 2:
            yield "--split-by divides rows, but --split names a single split. Leave --split-by out"
        elif self.given("split_by") and self.stratify:
            yield "--split-by and --stratify both divide rows. Give one"
        for column, why in (
            ("group_column", "a group may have rows of different classes, and is not divided"),
            ("split_column", "it says which split a row is of"),
        ):
            if self.stratify and getattr(self, column):
                yield f"--stratify and {flag(column)} contradict each other: {why}. Give one"
        yield from self._text_column_faults()
        if len(set(self.classes)) < len(self.classes):
            yield "--classes names a class twice"
        try:
            "".encode(self.encoding)
        except LookupError:
            yield f"--encoding {self.encoding} is not an encoding that Python knows"
        if self.delimiter not in ("", "tab") and not (len(self.delimiter) == 1 and self.delimiter.isascii()):
            yield f"--delimiter {self.delimiter!r} is not one ASCII character, or tab"
        elif self.delimiter and self.delimiter in '"\r\n':
            yield f"--delimiter {self.delimiter!r} ends a line, or quotes a cell"

    def _check_keys(self) -> None:
        if self.text_form is TextForm.TFIDF and self.count_features:
            raise ConfigError(f"--dtype {self.count_features[0]}: weights of tf-idf are not whole numbers")
        _ = self.table

    def _image_faults(self) -> Iterator[str]:
        if not self.image_column:
            given = self.given("images", "raw_size", *_FILE_OPTIONS, "workers", "duplicates", "exclude")
            yield from (f"{option} has no effect without --image-column" for option in given)
            if self.part:
                yield "--part writes images, and rows without --image-column are written by one job. Leave --part out"
            return
        if self.raw_size and not parse_image_size(self.raw_size):
            yield f"--raw-size {self.raw_size!r} is not a height and width in pixels: 224x224 for example"
        elif self.raw_size:
            yield from (f"{option} is for files, and --raw-size writes none" for option in self.given(*_FILE_OPTIONS))

    def _text_column_faults(self) -> Iterator[str]:
        form = self.text_form
        yield from self._text_faults(form, "--text")
        if form is TextForm.RAW:
            if self.text_column and not self.text:
                yield "--text-column names columns to encode, but --text is missing. Add --text counts, tfidf or tokens"
            return
        if len(set(self.text_column)) < len(self.text_column):
            yield "--text-column names a column twice"
        for name in sorted({self.label or _CLASSES_FILE, _CLASSES_FILE} & set(self.text_column)):
            yield f"--text-column {name}: encoders/ has the classes by that name, or they are its values. Rename it"
        divides_by_record = len(self.split) > 1 and not (
            self.key or self.group_column or self.split_column or (self.image_column and self.images)
        )
        if divides_by_record:
            yield (
                "--text-column fits its vocabulary to one split before records exist, so rows need a key that assigns "
                "splits. Add --key"
            )
        try:
            names = [name for parts in self.text_names_by_column.values() for name in parts.values()]
        except ValueError as fault:
            yield f"--text-names {fault}"
            return
        if len(set(names)) < len(names):
            yield "--text-names gives features of two columns one name; {column} in it stands for the column"
