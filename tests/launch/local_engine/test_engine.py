"""`main`, called in somebody's process, leaves the process as it was; the process of a command has one thread."""

import subprocess
import sys

PROGRAM = """
import gc, logging, os, signal, sys, time
import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner, execution, fn_runner
from apache_beam.runners.worker import bundle_processor, data_plane, statesampler
from recordmill.launch.cli import main

def state():
    root = logging.getLogger()
    return {
        "Beam": [{name: each for name, each in vars(owner).items() if callable(each)} for owner in (
            execution.GroupingBuffer, fn_runner.BundleManager, data_plane.InMemoryDataChannel,
            bundle_processor.DataOutputOperation, statesampler.StateSampler)],
        "imports": [*sys.meta_path],
        "signals": [signal.getsignal(each) for each in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}],
        "logging": (root.level, [*root.handlers]),
        "gc": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()),
        "stderr": (os.fstat(2).st_ino, sys.stderr, sys.stderr.errors, sys.stdout.errors),
    }

before = state()
_, images, instances, out = sys.argv
code = main(["convert", "--images", images, "--instances", instances, "--output", out, "--max-rejects", "0.2"])
after = state()
print([name for name in before if before[name] != after[name]], code)

class Slow(beam.DoFn):
    def process(self, element):
        time.sleep(0.5)
        yield element

pipeline = beam.Pipeline(FnApiRunner())
pipeline | beam.Create([1]) | "Slow" >> beam.ParDo(Slow())
times = [
    info.payload
    for infos in pipeline.run()._monitoring_infos_by_stage.values()
    for info in infos
    if info.urn == "beam:metric:pardo_execution_time:process_bundle_msecs:v1" and info.labels["PTRANSFORM"] == "Slow"
]
print(len(times), times != [bytes(1)])
"""


def test_caller_s_process_is_left_unchanged(sample, tmp_path):
    command = [sys.executable, "-c", PROGRAM, sample.images, sample.instances, str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines()[-2:] == ["[] 0", "1 True"], done.stdout + done.stderr


ONE_THREAD = """
import os
from recordmill.launch.local_engine.engine import local_engine

with local_engine():
    import numpy
print(len(os.listdir("/proc/self/task")))
"""


def test_numpy_starts_no_threads(monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    done = subprocess.run([sys.executable, "-c", ONE_THREAD], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "1\n"
