"""Errors that Recordmill raises on purpose.

    RecordmillError
    ├── ConfigError              the command or its configuration is wrong     (exit code 2)
    └── JobError                 the job ran and failed                        (exit code 1)
        ├── AnnotationFileError  a file is not valid COCO JSON
        │   └── WrongFlagError   … of the kind that its flag names    (exit code 2)
        ├── CategoryError        categories that contradict each other or the command
        │   └── NoSuchClassError … the command names an unknown category (exit code 2)
        ├── CollidingImagesError one image id or file name for two images
        ├── EmptyDatasetError    nothing to write                  (exit code 2)
        ├── NoImageFoundError    no image has its file             (exit code 2)
        ├── VocabularyError      texts without terms, or with other terms than a folder's  (exit code 2)
        ├── SlowPatternError     a regular expression takes too long (exit code 2)
        ├── LostImagesError      images in != examples out + rejected
        ├── TooManyRejectsError  more rejected than --max-rejects allows
        ├── EndedElsewhereError  another run of the job ended and deleted its state (exit code 2)
        ├── DuplicatesError      duplicate images that --duplicates forbids
        ├── FaultyDatasetError   verify found faults
        ├── IndexMismatchError   an index does not match its shard
        ├── StepError            a bug of Recordmill in a step; names the image
        └── RecordError          a TFRecord file cannot be read to its end

Bad data is not an error: it becomes a `recordmill.schemas.rejects.Rejected`. A message is one line (it crosses process
borders as the last line of a traceback). It says what happened, where, and what to do.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class RecordmillError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 1


class ConfigError(RecordmillError):
    """Error of the options, or of files that options name. The message lists every error."""

    exit_code = 2


def missing_extra(what: str, extra: str) -> ConfigError:
    """Return the error for an extra of the distribution that is not installed.

    >>> missing_extra("gs://", "gs")
    ConfigError('gs:// needs the extra gs. Run: pip install "recordmill[gs]"')
    """
    return ConfigError(f'{what} needs the extra {extra}. Run: pip install "recordmill[{extra}]"')


@contextmanager
def translated_errors(translate: Callable[[str], str]) -> Iterator[None]:
    """Raise errors with translated messages."""
    try:
        yield
    except RecordmillError as error:
        error.args = (translate(str(error)), *error.args[1:])
        raise


class JobError(RecordmillError):
    """Error of a job after its start. Finished shards stay."""


class AnnotationFileError(JobError):
    pass


class WrongFlagError(AnnotationFileError):
    exit_code = 2


class CategoryError(JobError):
    pass


class NoSuchClassError(CategoryError):
    exit_code = 2


class CollidingImagesError(JobError):
    pass


class EmptyDatasetError(JobError):
    exit_code = 2  # the command names the wrong inputs, even if that shows late


class NoImageFoundError(JobError):
    """No image has its file. Nothing was written."""

    exit_code = 2


class VocabularyError(JobError):
    """Error of a vocabulary. Nothing was written, because texts are read before images."""

    exit_code = 2


class SlowPatternError(JobError):
    exit_code = 2


class LostImagesError(JobError):
    pass


class TooManyRejectsError(JobError):
    pass


class EndedElsewhereError(JobError):
    exit_code = 2  # the other run wrote the data set, or the state folder was deleted


class StepError(JobError):
    pass


class DuplicatesError(JobError):
    pass


class FaultyDatasetError(JobError):
    pass


class IndexMismatchError(JobError):
    pass


class RecordError(JobError):
    """Error of a shard, or of a TFRecord file, that is damaged or truncated.

    Attributes:
        detail: Description of the damage.
        record: Zero-based number of the damaged record; None if unknown.
        reason: `truncated`, `length_crc` or `data_crc` of a TFRecord file; `truncated`, `header` or `data` of a tar;
            `unreadable` if the container of the records is damaged.
        offset: Start of the record in bytes from the start of the file, after decompression.
    """

    def __init__(self, detail: str, record: int | None = None, reason: str = "", offset: int = 0):
        super().__init__(detail if record is None else f"record {record}: {detail}")
        self.detail = detail
        self.record = record
        self.reason = reason
        self.offset = offset

    def __reduce__(self):
        return RecordError, (self.detail, self.record, self.reason, self.offset)
