"""Beam's local runner counts as before, without a thread for each bundle."""

import threading

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.worker import statesampler

from recordmill.launch.runners import unsampled

SAMPLERS: set[str] = set()


def _count(number: int) -> tuple[int, int]:
    Metrics.counter("test", "numbers").inc(number)
    SAMPLERS.update(thread.name for thread in threading.enumerate() if thread.name.endswith("(run)"))
    return number % 3, number


def test_bundles_have_no_thread_and_their_steps_are_known(monkeypatch):
    for name in ("start", "stop"):
        monkeypatch.setattr(statesampler.StateSampler, name, getattr(statesampler.StateSampler, name))
    unsampled.install()
    SAMPLERS.clear()
    pipeline = beam.Pipeline(FnApiRunner(), PipelineOptions([]))
    grouped = pipeline | beam.Create(range(10)) | "First" >> beam.Map(_count) | beam.GroupByKey()
    _ = grouped | beam.Values() | beam.Map(sum) | "Second" >> beam.Map(_count)
    result = pipeline.run()
    result.wait_until_finish()
    counted = {metric.key.step: metric.committed for metric in result.metrics().query()["counters"]}
    assert counted == {"First": 45, "Second": 45}
    assert not SAMPLERS
    assert statesampler.get_current_tracker() is None
