"""Options of readers of rows."""

from recordmill.schemas.inputs.option import (
    ARGUMENT,
    COMMON,
    RARE,
    READ,
    WRITE,
    File,
    Images,
    Names,
    Rows,
    redefine_option,
)
from recordmill.schemas.inputs.options import (
    ChoiceOptions,
)


class RowsOptions(ChoiceOptions):
    """Options of all readers of rows, whose records may hold what their columns name."""

    rows: Rows = ARGUMENT.opt(
        "CSV, TSV, JSON Lines or Parquet (`.csv .tsv .jsonl .parquet`); repeatable. The first three also as `.gz`, "
        "`.bz2` or `.zst`; local or in a bucket, also with `*` and `?` in the file name. Files of one table may have "
        "different formats.",
        ...,
        "DATA",
        alias="data",
    )
    images: Images = READ.opt(
        "Folder or .zip of the images that `--image-column` names; repeatable. Subfolders are included. The same path "
        "in two folders is an error.",
        (),
        "DIR|ZIP",
    )
    image_column: str | None = READ.opt(
        "Column of image paths below `--images`, or without `--images` of the image files themselves. Image files are "
        "bytes, or Hugging Face's `image` with `bytes` and `path`. The image is checked and stored in the record of "
        "its row, and the path only as `image/filename`. Without `--key`, the image is the key of its row.",
        metavar="COLUMN",
    )
    key: str | None = READ.opt(
        "Column that determines a row's split and position. Without it, the complete record determines them, so that "
        "equal rows go to one split.",
        metavar="COLUMN",
    )
    label: str | None = READ.opt(
        "Column of classes, stored as class indices. Names are in `label_map.json` and `labels.csv`.",
        metavar="COLUMN",
        rank=COMMON,
    )
    classes: Names = READ.opt(
        "Classes in the order of their indices; repeatable. Rows of other classes are rejected. Without it, all "
        "classes are sorted, by number if all are numbers.",
        (),
        "NAME[,NAME…]",
        "all of --label, sorted",
        needs="label",
    )
    class_map: File | None = redefine_option(ChoiceOptions, "class_map", needs="label")
    max_per_class: int | None = redefine_option(ChoiceOptions, "max_per_class", needs="label")
    schema_file: File | None = READ.opt(
        "Types of columns: `schema.json` of a data set, or TensorFlow Metadata's `schema.pbtxt`. A value of another "
        "type is rejected. Without it, types are inferred from all values.",
        metavar="FILE",
        alias="schema",
    )
    encoding: str = READ.opt("Encoding of CSV and TSV files.", "utf-8", "NAME", rank=RARE)
    delimiter: str = READ.opt(
        "Separator of the cells of CSV and TSV files. One character, or `tab`. Without it, the most frequent of `,` "
        "`;` tab `|` in the first line, or the one in a line `sep=;` before it.",
        "",
        "CHAR",
        rank=RARE,
    )
    split_column: str | None = WRITE.opt(
        "Column of each row's split, instead of `--split`. Its values are lower-cased.",
        metavar="COLUMN",
    )
    group_column: str | None = WRITE.opt(
        "Keep rows with the same value in this column in one split. For example a patient or a video.",
        metavar="COLUMN",
    )
    stratify: bool = WRITE.opt(
        "Give each split its share of every class. The classes are those of `--label`. The shares are exact to one "
        "row. The rows are read once more.",
        False,
        needs="label",
        rank=COMMON,
    )

    @property
    def has_classes_in_blocks(self) -> bool:
        return False
