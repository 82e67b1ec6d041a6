"""What stops a pipeline is told in one line, as what it is."""

from concurrent.futures.process import BrokenProcessPool

import grpc
import pytest
from google.api_core.exceptions import Conflict, Forbidden, TooManyRequests

from recordmill.launch.runners.explain import explain
from recordmill.schemas.errors import (
    CategoryError,
    ConfigError,
    JobError,
    RecordError,
    TooManyRejectsError,
)

TRACEBACK = """\
Traceback (most recent call last):
  File "apache_beam/runners/common.py", line 1498, in apache_beam.runners.common.DoFnRunner.process
  File "/somewhere/transforms/merge_categories.py", line 30, in merge_categories
    raise CategoryError(
{raised} [while running 'MergeCategories/Merge-ptransform-42']
"""


@pytest.mark.parametrize("error", [CategoryError, ConfigError])
def test_an_error_of_ours_is_found_in_the_text_of_a_traceback(error):
    text = TRACEBACK.format(raised=f"recordmill.schemas.errors.{error.__name__}: it: is [so] and 'so'")
    told = explain(RuntimeError(text))
    assert (type(told), str(told)) == (error, "it: is [so] and 'so'")


def test_a_record_error_is_found_in_the_text_of_a_traceback():
    told = explain(
        RuntimeError(TRACEBACK.format(raised="recordmill.schemas.errors.RecordError: record 3: the checksum is wrong"))
    )
    assert (type(told), str(told)) == (RecordError, "record 3: the checksum is wrong")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            RuntimeError(TRACEBACK.format(raised="OSError: [Errno 28] No space left on device")),
            "no space is left; free some, or give another place, and run the command again",
        ),
        (
            RuntimeError(TRACEBACK.format(raised="RuntimeError: PermissionError: [Errno 13] Permission denied: 'a/b'")),
            "a/b: permission denied; this user needs rights for it and for the folders above it (see ls -ld)",
        ),
        (
            RuntimeError(TRACEBACK.format(raised="KeyError: 'x'")),
            "the job failed in step MergeCategories/Merge-ptransform-42: KeyError: 'x' (--debug shows the traceback)",
        ),
        (KeyError("x"), "the job failed: KeyError: 'x' (--debug shows the traceback)"),
        (ValueError(), "the job failed: ValueError: "),
    ],
)
def test_explain(error, told):
    assert (type(explain(error)), str(explain(error))) == (JobError, told)


class _Ended(grpc.RpcError, grpc.Call):
    """As a stream of gRPC ends; its text has many lines."""

    def code(self):
        return grpc.StatusCode.UNAVAILABLE

    def details(self):
        return "Socket closed"

    def __str__(self):
        return "<_MultiThreadedRendezvous of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n>"

    initial_metadata = trailing_metadata = is_active = time_remaining = cancel = add_callback = None


_Ended.__abstractmethods__ = frozenset()


class DataflowRuntimeException(Exception):  # noqa: N818
    """Called like Beam's."""


class DataflowJobAlreadyExistsError(Exception):
    """Likewise."""


ACTIVE = (
    "such a job is running already: {}. It writes the same splits into the same folder: wait for it, or cancel it "
    "(gcloud dataflow jobs list --status=active); --job_name after -- is for a job of another kind"
)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (_Ended(), "the job server is gone, and perhaps the job with it (UNAVAILABLE: Socket closed)"),
        (grpc.FutureTimeoutError(), "the job server is gone, and perhaps the job with it (FutureTimeoutError)"),
        (
            Forbidden("Current user cannot act as x"),
            "the service refused the job: 403 Current user cannot act as x (docs/dataflow.md has the roles)",
        ),
        (
            Conflict("(a): There is already an active job named x."),
            ACTIVE.format("(a): There is already an active job named x"),
        ),
        (
            DataflowJobAlreadyExistsError("There is already active job x"),
            ACTIVE.format("There is already active job x"),
        ),
        (TooManyRequests("quota"), "the service refused the job: 429 quota"),
        (
            RuntimeError(
                TRACEBACK.format(raised="ModuleNotFoundError: No module named 'recordmill.transforms.examples.boxes'")
            ),
            "the workers do not have Recordmill (No module named 'recordmill.transforms.examples.boxes'): they need it "
            "installed, of this version, or shipped by --setup_file=./setup.py or --extra_package=recordmill-….whl",
        ),
        (
            DataflowRuntimeException("Dataflow pipeline failed. State: CANCELLED, Error:\nNone"),
            "the job was cancelled; finished shards stay, and the same command goes on from there",
        ),
        (
            RuntimeError("Pipeline job-1 failed in state CANCELLED: unknown error"),
            "the job was cancelled; finished shards stay, and the same command goes on from there",
        ),
        *(
            (
                error,
                "a worker process died in the middle of its work, killed perhaps because memory ran out; finished "
                "shards stay, and the same command goes on from there",
            )
            for error in (RuntimeError("Channel closed prematurely."), BrokenProcessPool("A process in the pool …"))
        ),
        (
            RuntimeError("Pipeline job-1 failed in state FAILED: java.net.ConnectException: Connection refused"),
            "Pipeline job-1 failed in state FAILED: java.net.ConnectException: Connection refused: is there a worker "
            "pool at --environment_config, and a cluster where the job server looks for one?",
        ),
        (
            DataflowRuntimeException("Dataflow pipeline failed. State: FAILED, Error:\nWorkflow failed.\nCauses: x"),
            "Dataflow pipeline failed. State: FAILED, Error: Workflow failed. Causes: x",
        ),
    ],
)
def test_what_other_machines_say(error, told):
    assert (type(explain(error)), str(explain(error))) == (JobError, told)


def test_an_error_of_ours_is_found_in_what_dataflow_says():
    raised = TRACEBACK.format(raised="recordmill.schemas.errors.TooManyRejectsError: 9 of 10")
    told = explain(DataflowRuntimeException(f"Dataflow pipeline failed. State: FAILED, Error:\n{raised}"))
    assert (type(told), str(told)) == (TooManyRejectsError, "9 of 10")


def test_options_that_beam_finds_invalid_are_a_wrong_configuration():
    told = explain(ValueError("Pipeline has validations errors: \nMissing required option: x.\nInvalid y"))
    assert (type(told), str(told)) == (ConfigError, "Missing required option: x.; Invalid y")


def test_a_name_of_ours_in_the_middle_of_a_line_is_no_error_of_ours():
    told = explain(ValueError("see recordmill.schemas.errors.ConfigError: for more"))
    assert type(told) is JobError
