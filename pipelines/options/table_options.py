"""What `recordmill table` is asked to do."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import msgspec

from recordmill.pipelines.options.convert_options import ALL_TRAIN, ConvertOptions, RecipeValue
from recordmill.pipelines.options.option import PICTURES, READ, TEXTS, WRITE, Kind, flag, option, redefined, reworded
from recordmill.pipelines.options.picture_options import SIZE, PictureOptions, size_of
from recordmill.pipelines.options.text_options import TEXT_FORMS, TextOptions
from recordmill.schemas.encoders import TextForm
from recordmill.schemas.images import PictureRules
from recordmill.schemas.names import NameSources
from recordmill.schemas.splits import RowSplits

_OF_PICTURES = ("images", "raw_size", "check", "format", "max_side", "jpeg_quality", "workers", "duplicates")
_OF_FILES = ("check", "format", "max_side", "jpeg_quality")


@dataclass(frozen=True, kw_only=True)
class RowPictureOptions(PictureOptions):
    """What a table is asked to do whose rows name pictures. Names are those of the flags; see docs/tables.md."""

    images: tuple[str, ...] = reworded(PictureOptions, "images", ()).says(
        "folder or .zip of the pictures that --image-column names; repeatable",
        "folder or .zip of the pictures that `--image-column` names, and all folders in it; repeatable. A name "
        "that two folders have is an error",
    )
    image_column: str | None = option(Kind.TEXT, READ, None, metavar="COLUMN").says(
        "column of paths of pictures, which go into the records",
        "column of paths of pictures below `--images`: each record has its row's picture, checked, and the path "
        "only as `image/filename`. Without `--key`, rows are known by their picture",
    )
    raw_size: str = option(Kind.TEXT, PICTURES, "", metavar="HxW", pattern=SIZE.pattern).says(
        "write pixels of this height and width instead of files",
        "write pixels of this height and width, `image/pixels`, instead of files: uint8, three a pixel, so that "
        "224x224 takes 150,528 bytes a picture. Pictures are decoded whole, and made that size without keeping "
        "their shape (bilinear)",
    )

    @property
    def holds_pictures(self) -> bool:
        return bool(self.image_column)

    @property
    def pictures(self) -> PictureRules:
        return msgspec.structs.replace(super().pictures, raw_size=size_of(self.raw_size))

    @property
    def record_options(self) -> dict[str, RecipeValue]:
        names = ("image_column", "raw_size") if self.holds_pictures else ()
        return super().record_options | self._values(*names)

    def _faults(self) -> Iterator[str]:
        yield from super()._faults()
        given = [name for name in _OF_PICTURES if getattr(self, name) != _DEFAULTS[name]]
        if not self.image_column:
            yield from (f"{flag(name)} would do nothing without --image-column" for name in given)
            return
        if not self.images:
            yield f"--image-column {self.image_column} names files: give --images, the folder that they are in"
        if self.raw_size and not SIZE.fullmatch(self.raw_size):
            yield f"--raw-size {self.raw_size!r} is no height and width in pixels: 224x224 for example"
        elif self.raw_size:
            yield from (f"{flag(name)} is of files, and --raw-size writes none" for name in given if name in _OF_FILES)


_DEFAULTS = {name: known.default for name, known in RowPictureOptions.__dataclass_fields__.items()}


@dataclass(frozen=True, kw_only=True)
class TableOptions(TextOptions, RowPictureOptions):
    """What `recordmill table` is asked to do. Names are those of the flags; see docs/cli.md."""

    rows: tuple[str, ...] = option(Kind.PATHS, READ, metavar="FILE|GLOB").says(
        "CSV, TSV, JSON Lines or Parquet, local or gs://; repeatable",
        "CSV, TSV, JSON Lines or Parquet (`.csv .tsv .jsonl .parquet`), the first three also as `.gz`; local or "
        "gs://, `*` and `?` in the file's name; repeatable. Files of one table may be of several formats",
    )
    columns: tuple[str, ...] = option(
        Kind.NAMES, READ, (), metavar="NAME[,NAME…]", usual="all", pattern=".*[^ ,].*"
    ).says("only these columns", "only these columns; members of nested ones are called `a.b`")
    key: str | None = option(Kind.TEXT, READ, None, metavar="COLUMN").says(
        "column that a row is known by, for its split and place",
        "column that a row is known by: its split and its place in the order depend on that alone. Without it they "
        "depend on the whole record, so that equal rows go to one split",
    )
    label: str | None = option(Kind.TEXT, READ, None, metavar="COLUMN").says(
        "column of classes, written as their indices",
        "column of classes, written as class indices; their names are in `label_map.json` and `labels.csv`",
    )
    classes: tuple[str, ...] = option(
        Kind.NAMES, READ, (), metavar="NAME[,NAME…]", usual="all of --label, sorted", pattern=".*[^ ,].*"
    ).says(
        "the classes in the order of their indices",
        "the classes in the order of their indices; rows of others are rejected. All are sorted by number where "
        "all are numbers",
    )
    schema: str | None = option(Kind.PATH, READ, None, metavar="FILE").says(
        "types of columns: schema.json of a data set, or a schema.pbtxt",
        "types of columns, in `schema.json` as a data set has it or in TensorFlow Metadata's `schema.pbtxt`. "
        "Values that are of another type are rejected. Without it types follow from all values",
    )
    default: tuple[str, ...] = option(
        Kind.NAMES, READ, (), metavar="COLUMN=VALUE[,…]", pattern="[^=]+=[^,]*(,[^=]+=[^,]*)*"
    ).says(
        "what a missing value is taken as",
        "what a missing value of a column is taken as. Without it the record lacks the feature",
    )
    encoding: str = option(Kind.TEXT, READ, "utf-8", metavar="NAME", pattern="[A-Za-z0-9_.:-]+").says(
        "of CSV and TSV files"
    )
    name: str = redefined(ConvertOptions, "name", "table")
    layout: str = redefined(ConvertOptions, "layout", "table", choices=("table",))
    rename: tuple[str, ...] = option(
        Kind.NAMES, WRITE, (), metavar="COLUMN=FEATURE[,…]", pattern="[^=]+=[^,]+(,[^=]+=[^,]+)*"
    ).says("names of features that are not those of their columns")
    split: tuple[tuple[str, Fraction], ...] = reworded(ConvertOptions, "split").says(
        "one split, or several with their shares of the rows",
        "one split, or several: `train=0.8,val=0.1,test=0.1`. Shares are decimals or fractions (`1/3`) and sum to "
        "1; which row is in which depends on a hash of its key, or of its record",
    )
    split_column: str | None = option(Kind.TEXT, WRITE, None, metavar="COLUMN").says(
        "column that names each row's split", "column that names each row's split, instead of --split; in lower case"
    )
    group_column: str | None = option(Kind.TEXT, WRITE, None, metavar="COLUMN").says(
        "rows of one value of it go to one split", "rows of one value of it (a patient, a video) go to one split"
    )
    stratify: bool = option(Kind.SWITCH, WRITE, False).says(
        "give each split its share of every class",
        "give each split its share of every class of `--label`, exact to the row. Rows are read once more for it",
    )
    max_rejects: float = reworded(ConvertOptions, "max_rejects").says(
        "fraction of rows that may be rejected",
        "if more of the rows of all splits are rejected, the job fails before a shard is written. The same command "
        "with a larger fraction accepts them",
    )

    text_column: tuple[str, ...] = option(Kind.NAMES, TEXTS, (), metavar="COLUMN[,COLUMN…]", pattern=".*[^ ,].*").says(
        "columns of texts that become numbers",
        "columns of texts that become what `--text` says, in their place; see [text.md](text.md)",
    )
    text: str | None = option(Kind.CHOICE, TEXTS, None, choices=TEXT_FORMS).says(
        "what they become",
        "what they become: `counts` of terms, these as `tfidf`, `tokens` as ids; or, `raw`, bytes as they are",
    )

    @property
    def paths(self) -> tuple[str, ...]:
        return (*self.rows, *filter(None, [self.schema]), *super().paths)

    @property
    def text_form(self) -> TextForm:
        return TextForm(self.text or "raw")

    @property
    def encoded_columns(self) -> tuple[str, ...]:
        """The columns whose texts become numbers."""
        return () if self.text_form is TextForm.RAW else self.text_column

    @property
    def text_names_by_column(self) -> dict[str, dict[str, str]]:
        """Names of features that are asked for, see `TextOptions.text_feature_names`."""
        return {column: self.text_feature_names(self.text_form, column) for column in self.encoded_columns}

    @property
    def name_sources(self) -> NameSources:
        return NameSources(self.images, self.rows)

    @property
    def renamed(self) -> dict[str, str]:
        """Names of features by column."""
        return _pairs(self.rename)

    @property
    def defaults(self) -> dict[str, str]:
        return _pairs(self.default)

    def row_splits(self, names: tuple[str, ...]) -> RowSplits:
        """How rows are divided into the splits `names`."""
        return RowSplits(
            self.shares,
            names,
            self.key or self.image_column or "",
            self.group_column or "",
            self.split_column or "",
            (self.label or "") if self.stratify else "",
            self.images if not self.key else (),
        )

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns that are read; all where empty."""
        if not self.columns:
            return ()
        divided = self.row_splits(()).columns
        return tuple(
            dict.fromkeys((*self.columns, *divided, *filter(None, [self.label, self.image_column]), *self.text_column))
        )

    @property
    def written_columns(self) -> tuple[str, ...]:
        """The columns that are written; all but one that names splits where empty."""
        asked = *self.columns, *filter(None, [self.label]), *self.text_column
        return tuple(dict.fromkeys(asked)) if self.columns else ()

    @property
    def record_options(self) -> dict[str, RecipeValue]:
        return {
            **super().record_options,
            **self.division_options,
            "classes": list(self.classes),
            "columns": list(self.columns),
            "default": list(self.default),
            **self._values("encoding", "group_column", "key", "label"),
            "rename": list(self.rename),
            "split_column": self.split_column,
            **({"stratify": True} if self.stratify else {}),
            **({"text": self.text, "text_column": list(self.text_column)} if self.text_column else {}),
            **(self.text_record_options() if self.text_column else {}),
        }

    def _faults(self) -> Iterator[str]:
        yield from super()._faults()
        for name in ("default", "rename"):
            values = getattr(self, name)
            if wrong := [value for value in values if not value.partition("=")[0] or "=" not in value]:
                yield f"--{name} {wrong[0]!r}: COLUMN=VALUE is expected"
            elif len(_pairs(values)) < len(values):
                yield f"--{name} names a column twice"
        divides = self.split_column or len(self.split) > 1
        if self.split_column and self.split != ALL_TRAIN:
            yield "--split-column says which split a row is of, and so does --split: give one"
        if self.group_column and (self.split_column or not divides):
            yield "--group-column divides rows, but --split names a single split, or --split-column divides them"
        if self.stratify and not self.label:
            yield "--stratify gives each split its share of every class, and there are none without --label"
        if self.stratify and not divides:
            yield "--stratify divides classes, but --split names a single split"
        for column, why in (
            ("group_column", "a group may hold rows of several classes, and is not divided"),
            ("split_column", "it says which split a row is of"),
        ):
            if self.stratify and getattr(self, column):
                yield f"--stratify and {flag(column)} contradict each other: {why}; give one"
        if self.text is None or self.text in TEXT_FORMS:
            yield from self._text_column_faults()
        if self.classes and not self.label:
            yield "--classes are values of --label, and none is given"
        if len(set(self.classes)) < len(self.classes):
            yield "--classes names a class twice"
        try:
            "".encode(self.encoding)
        except LookupError:
            yield f"--encoding {self.encoding} is none that Python knows"

    def _text_column_faults(self) -> Iterator[str]:
        form = self.text_form
        yield from self._text_faults({form}, "--text")
        if form is TextForm.RAW:
            if self.text_column and not self.text:
                yield "--text-column says which columns become numbers, and --text not what: counts, tfidf or tokens"
            return
        if not self.text_column:
            yield f"--text {form.value} is of the columns of --text-column, and none is given"
        if len(set(self.text_column)) < len(self.text_column):
            yield "--text-column names a column twice"
        for name in sorted({self.label or _CLASSES_FILE, _CLASSES_FILE} & set(self.text_column)):
            yield f"--text-column {name}: encoders/ has the classes by that name, or they are its values; rename it"
        divides_by_record = len(self.split) > 1 and not (
            self.key or self.group_column or self.split_column or self.image_column
        )
        if divides_by_record:
            yield "--text-column is learned from one split, before there are records to divide rows by: give --key"
        try:
            names = [name for of in self.text_names_by_column.values() for name in of.values()]
        except ValueError as fault:
            yield f"--text-names {fault}"
            return
        if len(set(names)) < len(names):
            yield "--text-names gives features of two columns one name; {column} in it stands for the column"


_CLASSES_FILE = "classes"


def _pairs(values: tuple[str, ...]) -> dict[str, str]:
    return {name: text for name, _, text in (value.partition("=") for value in values)}
