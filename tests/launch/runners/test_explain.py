"""What stops a pipeline is told in one line, as what it is."""

import re
from concurrent.futures.process import BrokenProcessPool

import grpc
import pytest
from google.api_core.exceptions import Conflict, Forbidden, TooManyRequests

from recordmill.launch.runners.run import explain
from recordmill.schemas.errors import CategoryError, ConfigError, JobError, RecordError, TooManyRejectsError

TRACEBACK = """\
Traceback (most recent call last):
  File "apache_beam/runners/common.py", line 1498, in apache_beam.runners.common.DoFnRunner.process
  File "/somewhere/transforms/merge_categories.py", line 30, in merge_categories
    raise CategoryError(
{raised} [while running 'MergeCategories/Merge-ptransform-42']
"""


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


NOT_OURS = ValueError("see recordmill.schemas.errors.ConfigError: for more")
TRACED = [f"recordmill.schemas.errors.{name}: it: is [so] and 'so'" for name in ("CategoryError", "ConfigError")]
FAILED = "Dataflow pipeline failed. State: FAILED, Error:\n"


def traced(raised: str) -> RuntimeError:
    return RuntimeError(TRACEBACK.format(raised=raised))


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (traced(TRACED[0]), CategoryError, "^it: is \\[so\\] and 'so'$"),
        (traced(TRACED[1]), ConfigError, "^it: is \\[so\\] and 'so'$"),
        (traced("recordmill.schemas.errors.RecordError: record 3: x"), RecordError, "^record 3: x$"),
        (traced("OSError: [Errno 28] No space left on device"), JobError, "^no space is left"),
        (traced("RuntimeError: PermissionError: [Errno 13] Permission denied: 'a/b'"), JobError, "^a/b: permission"),
        (traced("KeyError: 'x'"), JobError, "in step MergeCategories/Merge-ptransform-42: KeyError: 'x'.*--debug"),
        (KeyError("x"), JobError, "KeyError: 'x'.*--debug"),
        (ValueError(), JobError, "ValueError: $"),
        (NOT_OURS, JobError, "ValueError: see"),
        # what other machines say
        (_Ended(), JobError, "job server is gone.*UNAVAILABLE: Socket closed"),
        (grpc.FutureTimeoutError(), JobError, "job server is gone.*FutureTimeoutError"),
        (Forbidden("Current user cannot act as x"), JobError, "refused .*403.* act as x.*docs/dataflow.md"),
        (Conflict("(a): There is already an active job named x."), JobError, "running already: .*named x\\. It"),
        (DataflowJobAlreadyExistsError("There is already active job x"), JobError, "running already: .*job x\\. It"),
        (TooManyRequests("quota"), JobError, "refused the job: 429 quota$"),
        (traced("ModuleNotFoundError: No module named 'recordmill.a'"), JobError, "workers do not have.*recordmill.a'"),
        (DataflowRuntimeException("State: CANCELLED, Error:\nNone"), JobError, "was cancelled"),
        (RuntimeError("Pipeline job-1 failed in state CANCELLED: unknown error"), JobError, "was cancelled"),
        (RuntimeError("Channel closed prematurely."), JobError, "worker process died"),
        (BrokenProcessPool("A process in the pool …"), JobError, "worker process died"),
        (RuntimeError("failed: java.net.ConnectException: refused"), JobError, "refused: .*--environment_config"),
        (DataflowRuntimeException(f"{FAILED}Workflow failed.\nCauses: x"), JobError, "Workflow failed. Causes: x$"),
        (
            DataflowRuntimeException(
                FAILED + TRACEBACK.format(raised="recordmill.schemas.errors.TooManyRejectsError: 9 of 10")
            ),
            TooManyRejectsError,
            "^9 of 10$",
        ),
        (
            ValueError("Pipeline has validations errors: \nMissing required option: x.\nInvalid y"),
            ConfigError,
            "^Missing required option: x.; Invalid y$",
        ),
    ],
)
def test_what_stops_a_pipeline(error, kind, words):
    told = explain(error)
    assert type(told) is kind
    assert re.search(words, str(told)), told
    assert "\n" not in str(told)
