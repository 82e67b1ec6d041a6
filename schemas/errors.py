"""Every error Recordmill raises on purpose.

    RecordmillError
    ├── ConfigError              the command or its configuration is wrong     (exit code 2)
    └── JobError                 the job ran and failed                        (exit code 1)
        ├── AnnotationFileError  a file is not the COCO JSON it should be
        │   └── WrongFlagError   … of the kind that its flags say         (exit code 2)
        ├── CategoryError        categories that contradict each other or the command
        │   └── NoSuchClassError … the command names one that there is not (exit code 2)
        ├── CollidingImagesError one image id or file name that stands for two pictures
        ├── EmptyDatasetError    nothing to write                  (exit code 2)
        ├── NoImageFoundError    no image has its file             (exit code 2)
        ├── VocabularyError      texts without a term to keep, or of other terms than a folder's  (exit code 2)
        ├── SlowPatternError     a regular expression takes too long (exit code 2)
        ├── LostImagesError      images in != examples out + rejected
        ├── TooManyRejectsError  more rejected than --max-rejects allows
        ├── EndedElsewhereError  another run of the job has ended, and deleted its state (exit code 2)
        ├── DuplicatesError      pictures are there more than once, which --duplicates forbids
        ├── FaultyDatasetError   a job that verifies has found faults
        ├── IndexMismatchError   an index that is not of its shard
        ├── StepError            a fault of ours in a step, with the image that it failed on
        └── RecordError          a TFRecord file that cannot be read to its end

Bad data is no error: it becomes a `recordmill.schemas.rejects.Rejected`. A message is one line (it crosses process
borders as the last line of a traceback) and says what was found, what it would do, and what to do about it.
"""


class RecordmillError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 1


class ConfigError(RecordmillError):
    """The options, or what they name, are wrong. The message has every fault."""

    exit_code = 2


def missing_extra(what: str, extra: str) -> ConfigError:
    """Return the error for an extra of the distribution that is not installed.

    >>> missing_extra("gs://", "gs")
    ConfigError('gs:// needs pip install "recordmill[gs]"')
    """
    return ConfigError(f'{what} needs pip install "recordmill[{extra}]"')


class JobError(RecordmillError):
    """A job failed after it had started; finished shards stay."""


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
    exit_code = 2  # the inputs that were named are the fault, if one that shows late


class NoImageFoundError(JobError):
    """Nothing was written, not even what goes on from an interrupted run."""

    exit_code = 2


class VocabularyError(JobError):
    """Nothing was written: texts are read before pictures are."""

    exit_code = 2


class SlowPatternError(JobError):
    exit_code = 2


class LostImagesError(JobError):
    pass


class TooManyRejectsError(JobError):
    pass


class EndedElsewhereError(JobError):
    exit_code = 2  # what was asked for is done, or the folder of its state was deleted


class StepError(JobError):
    pass


class DuplicatesError(JobError):
    pass


class FaultyDatasetError(JobError):
    pass


class IndexMismatchError(JobError):
    pass


class RecordError(JobError):
    """A TFRecord file that cannot be read to its end.

    Attributes:
        detail: what is wrong.
        record: zero-based number of the record that is damaged, where it is known.
        reason: `truncated`, `length_crc` or `data_crc`; `unreadable` where what holds the records is damaged.
        offset: where the record begins, in bytes from the beginning of the file, or of what it unpacks to.
    """

    def __init__(self, detail: str, record: int | None = None, reason: str = "", offset: int = 0):
        super().__init__(detail if record is None else f"record {record}: {detail}")
        self.detail = detail
        self.record = record
        self.reason = reason
        self.offset = offset

    def __reduce__(self):
        return RecordError, (self.detail, self.record, self.reason, self.offset)
