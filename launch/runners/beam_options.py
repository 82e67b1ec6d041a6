"""Beam's flags, after `--`."""

import argparse
import difflib
import os
import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from enum import Enum
from typing import Any, Literal, NoReturn
from uuid import uuid4

from apache_beam.options.pipeline_options import (
    DebugOptions,
    DirectOptions,
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
    PrismRunnerOptions,
    SetupOptions,
    StandardOptions,
    TestOptions,
    WorkerOptions,
)

from recordmill.pipelines.verbs import verb_fields
from recordmill.schemas.errors import ConfigError, missing_extra

_FN_API_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"

DATAFLOW_MACHINE = "e2-standard-2"
DATAFLOW_THREADS = 2
"""Number of bundles (shards) per worker process, so that one is written while another is uploaded. docs/dataflow.md has
the memory."""
DATAFLOW_MIN_RAM = "4GB"
"""Minimum memory of a machine that the service chooses (Dataflow Prime)."""

_MAX_JOB_NAME = 1024
_FOREVER_S = 30 * 24 * 3600


Purpose = Literal["run", "template", "dry run"]
"""Purpose of a job: to run, to be a template that Dataflow's launcher starts, or only to be built."""


class Runner(Enum):
    """Location of a job."""

    LOCAL = "this machine"
    DATAFLOW = "Dataflow"
    PORTABLE = "a job server: Flink's, Spark's, Prism's"


_RUNNERS = {
    "direct": Runner.LOCAL,
    "fnapi": Runner.LOCAL,
    "dataflow": Runner.DATAFLOW,
    "flink": Runner.PORTABLE,
    "portable": Runner.PORTABLE,
    "prism": Runner.PORTABLE,
    "spark": Runner.PORTABLE,
}


class _Options(PipelineOptions):
    """PipelineOptions that caches its views. Beam requests the same views hundreds of times while it builds a pipeline,
    and parses the flags again each time: 0.17 of 0.27 s. Views share their values."""

    def view_as(self, cls):
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


def beam_options(beam_arguments: Sequence[str], job_name: str = "") -> PipelineOptions:
    """Return Beam's options with our defaults: the local runner, if no other is named.

    Args:
        job_name: Default name for Dataflow; empty for a new one each time.

    Raises:
        ConfigError: Beam does not accept a flag or a value, or the runner is not in `Runner` or not installed.
    """
    _check_flags(beam_arguments)
    options = _Options(list(beam_arguments))
    runner = chosen_runner(options)
    if runner is Runner.LOCAL:
        # The DirectRunner first tries to download and start another runner, Prism.
        options.view_as(StandardOptions).runner = _FN_API_RUNNER
    # Workers have all packages, so Dataflow's runner need not ship the state of this program.
    setup = options.view_as(SetupOptions)
    setup.save_main_session = False
    if setup.setup_file:
        setup.setup_file = os.path.abspath(setup.setup_file)  # Beam requires a folder in the path
    if runner is Runner.DATAFLOW:
        try:
            import apache_beam.runners.dataflow.internal.apiclient  # noqa: F401
        except ImportError as error:
            raise missing_extra("DataflowRunner", "gcp") from error
        _add_dataflow_defaults(options, job_name)
    elif runner is Runner.PORTABLE:
        portable = options.view_as(PortableOptions)
        if portable.job_server_timeout == PortableOptions([]).job_server_timeout:
            # The timeout also limits the stream of a job's states, and so the job.
            portable.job_server_timeout = _FOREVER_S
        prism = options.view_as(PrismRunnerOptions)
        if prism.prism_location and os.path.isfile(prism.prism_location):
            prism.prism_location = os.path.abspath(prism.prism_location)  # Beam cannot start it by a relative path
    return options


def chosen_runner(options: PipelineOptions) -> Runner:
    """Return the kind of runner of the options.

    Raises:
        ConfigError: The runner is not known to give the same records as the others.
    """
    return _find_runner(options.view_as(StandardOptions).runner)


def local_mode(options: PipelineOptions) -> str:
    """Return the mode of Beam's local runner, `in_memory` by default; empty for another runner."""
    return str(options.view_as(DirectOptions).direct_running_mode) if chosen_runner(options) is Runner.LOCAL else ""


def _find_runner(name: str | None) -> Runner:
    short = (name or "DirectRunner").rpartition(".")[2].lower().removesuffix("runner")
    if short not in _RUNNERS or not re.match(r"apache_beam\.|[^.]*$", name or ""):
        known = ", ".join(sorted(name.capitalize() + "Runner" for name in _RUNNERS))
        raise ConfigError(f"--runner must be one of {known.replace('Fnapi', 'FnApi')} (got {name!r})")
    return _RUNNERS[short]


def job_purpose(options: PipelineOptions) -> Purpose:
    """Return the purpose of a job."""
    if chosen_runner(options) is Runner.DATAFLOW:
        if options.view_as(TestOptions).dry_run:
            return "dry run"
        if options.view_as(GoogleCloudOptions).template_location:
            return "template"
    return "run"


def run_job_name(output: str, splits: Iterable[str]) -> str:
    """Return the name of jobs that write these splits there. Dataflow runs one job per name at a time.

    >>> run_job_name("gs://my-bucket/a_b/Coco/", ["train", "val"])
    'recordmill-my-bucket-a-b-coco-train-val'
    """
    text = "-".join(("recordmill", output.partition("://")[2] or output, *splits))
    return re.sub(rb"[^a-z0-9]+", b"-", text.encode(errors="surrogatepass").lower()).decode()[:_MAX_JOB_NAME].strip("-")


def _add_dataflow_defaults(options: PipelineOptions, job_name: str) -> None:
    workers, debug, cloud = map(options.view_as, (WorkerOptions, DebugOptions, GoogleCloudOptions))
    asked = cloud.dataflow_service_options or []
    is_prime = "enable_prime" in asked or debug.lookup_experiment("enable_prime", False)
    if not is_prime:  # Dataflow Prime chooses the machine
        workers.machine_type = workers.machine_type or DATAFLOW_MACHINE
    standard = options.view_as(StandardOptions)
    standard.resource_hints = standard.resource_hints or [f"min_ram={DATAFLOW_MIN_RAM}"]
    if debug.number_of_worker_harness_threads is None:
        debug.number_of_worker_harness_threads = DATAFLOW_THREADS
    begun = datetime.now(timezone.utc)
    cloud.job_name = cloud.job_name or job_name or f"recordmill-{begun:%Y%m%d-%H%M%S}-{uuid4().hex[:4]}"
    cloud.labels = [*(cloud.labels or ()), "made-by=recordmill"]


class _BeamFlags(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"after --, {message}")


_LIKE = 0.75
"""Minimum similarity of a flag that an error suggests."""


def _check_flags(beam_arguments: Sequence[str]) -> None:
    """Refuse unknown flags and values. Beam ignores unknown flags silently, and exits on a wrong value.

    Raises:
        ConfigError: A flag is in no class of Beam's options, or does not accept its value.
    """
    if not beam_arguments:
        return  # to define Beam's flags takes 8 ms
    parser: Any = _BeamFlags(allow_abbrev=False, conflict_handler="resolve", add_help=False)
    for options_class in PipelineOptions.__subclasses__():
        options_class._add_argparse_args(parser)
    known, unknown = parser.parse_known_args(list(beam_arguments))
    runner = _find_runner(known.runner)
    if known.template_location and runner is Runner.DATAFLOW:
        return  # a launcher of templates may add flags that this Beam does not know
    ours = {field.flag for field in verb_fields("convert")} if unknown else set()  # slow to import
    for argument in unknown:
        flag = argument.partition("=")[0]
        if flag in ours:
            raise ConfigError(f"{argument} must come before the lone --; flags after it go to Beam")
        with_underscores = "--" + flag[2:].replace("-", "_")
        if runner is Runner.PORTABLE and with_underscores not in parser._option_string_actions:
            continue  # a job server has its own flags
        near = difflib.get_close_matches(flag, parser._option_string_actions, 1, _LIKE)
        hint = f". Did you mean {near[0]}?" if near else ""
        raise ConfigError(f"after --, {argument} is not a flag of Beam{hint}")
