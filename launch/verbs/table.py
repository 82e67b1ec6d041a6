"""`recordmill table`: what there is to convert, from checked options."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from recordmill.launch.preflight.check_inputs import check_table_inputs
from recordmill.launch.preflight.choose_encoders import choose_encoder, saved_classes
from recordmill.launch.preflight.find_rows import find_rows
from recordmill.launch.preflight.recipe import rows_inputs, table_recipes
from recordmill.launch.verbs.convert import Conversion, of_images
from recordmill.pipelines.options.table_options import TableOptions
from recordmill.schemas.encoders import EncoderSource
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.recipes import Recipe
from recordmill.schemas.tables import RowsFile
from recordmill.transforms.storage.resolve import storage_for


class Rows(NamedTuple):
    """A table that there is to convert: its splits, what gives their recipes, and the job."""

    splits: tuple[str, ...]
    recipes: Callable[[], list[Recipe]]
    job: "_Job"


def conversion(options: TableOptions) -> Conversion:
    """What the options ask for.

    Raises:
        ConfigError, AnnotationFileError: see `rows_of`.
    """
    splits, recipes, job = rows_of(options)
    if options.image_column:
        return of_images(options, splits, recipes, job.gather, job.contents)
    return Conversion(options, splits, recipes, job.write, job.report)


def rows_of(options: TableOptions) -> Rows:
    """The rows that the options name.

    Raises:
        ConfigError: a file that they name is not there.
        AnnotationFileError: a file cannot be read.
    """
    paths = find_rows(options.rows)
    check_table_inputs(options, paths)
    options = _with_saved_classes(options)
    splits = _splits(options, paths)
    texts = tuple(
        choose_encoder(options, options.text_form, column, options.output, splits) for column in options.encoded_columns
    )
    return Rows(
        splits, lambda: table_recipes(options, rows_inputs(paths), splits, texts), _Job(options, paths, splits, texts)
    )


def _with_saved_classes(options: TableOptions) -> TableOptions:
    """The classes of saved encoders are those of the label, so that an index is the same class."""
    saved = saved_classes(options.encoders) if options.label else ()
    if saved and options.classes and options.classes != saved:
        raise ConfigError(
            f"--classes are not those that --encoders has, {', '.join(saved[:8])}{' …' if len(saved) > 8 else ''}: one "
            "index would stand for two classes; leave --classes out"
        )
    return replace(options, classes=saved or options.classes)


def _files(paths: Sequence[str]) -> tuple[RowsFile, ...]:
    found = ((path, storage_for(path).stat(path)) for path in paths)
    return tuple(
        RowsFile(number, path, file.size_bytes, file.version) for number, (path, file) in enumerate(found) if file
    )


def _splits(options: TableOptions, paths: Sequence[str]) -> tuple[str, ...]:
    if not options.split_column:
        return options.splits
    from recordmill.transforms.table.row_splits import named_splits

    return named_splits(_files(paths), options.split_column, options.encoding)


class _Job:
    """Imports Beam where it is called, and not before."""

    def __init__(
        self,
        options: TableOptions,
        paths: Sequence[str],
        splits: tuple[str, ...],
        texts: tuple[EncoderSource, ...],
    ):
        self._options = options
        self._paths = paths
        self._splits = splits
        self._texts = texts

    def _table_job(self) -> Any:
        from recordmill.pipelines.table import TableJob
        from recordmill.transforms.table.read_schema import read_schema

        given = read_schema(self._options.schema) if self._options.schema else None
        return TableJob(self._options, _files(self._paths), given, self._splits, self._texts)

    def write(self, p: Any, recipes: Sequence[Recipe]) -> None:
        from recordmill.pipelines.table import write_table

        write_table(p, self._table_job(), recipes)

    def report(self, p: Any, path: str) -> None:
        from recordmill.pipelines.table import report_table

        report_table(p, self._table_job(), path)

    def gather(self, p: Any) -> Any:
        from recordmill.pipelines import picture_table

        return picture_table.gather(p, self._table_job())

    def contents(self) -> Any:
        from recordmill.pipelines import picture_table

        return picture_table.contents(self._table_job())
