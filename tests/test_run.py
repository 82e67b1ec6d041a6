"""What stops a pipeline is told in one line, as what it is."""

import apache_beam as beam
import pytest

from launch.run import explain, run
from schemas.errors import (
    AnnotationFileError,
    CategoryError,
    CollidingImagesError,
    ConfigError,
    EmptyDatasetError,
    JobError,
    LostImagesError,
    RecordError,
    RecordmillError,
    TooManyRejectsError,
)

OURS = [
    AnnotationFileError,
    CategoryError,
    CollidingImagesError,
    ConfigError,
    EmptyDatasetError,
    LostImagesError,
    TooManyRejectsError,
]

TRACEBACK = """\
Traceback (most recent call last):
  File "apache_beam/runners/common.py", line 1498, in apache_beam.runners.common.DoFnRunner.process
  File "/somewhere/transforms/merge_categories.py", line 30, in merge_categories
    raise CategoryError(
{raised} [while running 'MergeCategories/Merge-ptransform-42']
"""


def _raise(error: Exception) -> None:
    raise error


def failure(error: Exception) -> Exception:
    """What `run` raises when a step raises `error`."""
    with pytest.raises(RecordmillError) as caught:
        run(lambda p: p | "Once" >> beam.Create([error]) | "Some" >> beam.ParDo(_raise), [])
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        CategoryError("category id 1 is 'cat' in a.json and 'dog' in b.json: renumber one"),
        ConfigError("out: is it there?"),
        RecordError("the checksum is wrong", 3, "data_crc"),
    ],
)
def test_an_error_of_ours_comes_out_of_a_step_as_it_went_in(error):
    told = failure(error)
    assert (type(told), str(told)) == (type(error), str(error))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("one: two"), "ValueError: one: two"),
        (PermissionError(13, "Permission denied", "out/x"), "PermissionError: [Errno 13] Permission denied: 'out/x'"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_another_error_is_told_with_its_step(error, told):
    message = str(failure(error))
    assert message.startswith("the job failed in step Some: ")
    assert message.endswith(f"{told} (--debug shows the traceback)")


def test_a_pipeline_that_cannot_be_built_is_told():
    with pytest.raises(JobError, match="the job failed: KeyError: "):
        run(lambda p: {}[p], [])


@pytest.mark.parametrize("error", OURS)
def test_an_error_of_ours_is_found_in_the_text_of_a_traceback(error):
    text = TRACEBACK.format(raised=f"schemas.errors.{error.__name__}: it: is [so] and 'so'")
    told = explain(RuntimeError(text))
    assert (type(told), str(told)) == (error, "it: is [so] and 'so'")


def test_a_record_error_is_found_in_the_text_of_a_traceback():
    told = explain(RuntimeError(TRACEBACK.format(raised="schemas.errors.RecordError: record 3: the checksum is wrong")))
    assert (type(told), str(told)) == (RecordError, "record 3: the checksum is wrong")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            RuntimeError(TRACEBACK.format(raised="OSError: [Errno 28] No space left on device")),
            "the job failed in step MergeCategories/Merge-ptransform-42: OSError: [Errno 28] No space left on device "
            "(--debug shows the traceback)",
        ),
        (KeyError("x"), "the job failed: KeyError: 'x' (--debug shows the traceback)"),
        (ValueError(), "the job failed: ValueError: "),
        (MemoryError(), "the job failed: MemoryError: "),
    ],
)
def test_explain(error, told):
    assert (type(explain(error)), str(explain(error))) == (JobError, told)


def test_a_name_of_ours_in_the_middle_of_a_line_is_no_error_of_ours():
    told = explain(ValueError("see schemas.errors.ConfigError: for more"))
    assert type(told) is JobError


@pytest.mark.parametrize(
    ("error", "code"), [(ConfigError, 2), (EmptyDatasetError, 2), (JobError, 1), (TooManyRejectsError, 1)]
)
def test_exit_codes(error, code):
    assert error("x").exit_code == code
