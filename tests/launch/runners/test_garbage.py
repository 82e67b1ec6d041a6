"""A command of its own process begins to look for garbage with its job, other processes are left as they are."""

import gc
import subprocess
import sys

import apache_beam as beam
import pytest

from recordmill.launch.runners.run import run

COMMAND = """
import atexit, gc
@atexit.register  # so it is called after what is registered later
def ends():
    gc.callbacks.clear()
    print("ends", len(gc.get_objects()) < 1000)  # which are those that would be looked through
from recordmill.launch import cli
from recordmill.launch.runners import own_process
def job(command, arguments):
    print("begins", gc.isenabled(), gc.get_freeze_count() > 0, own_process.is_own())
    if command.verb == "verify":
        import apache_beam as beam
        from recordmill.launch.runners import run, watch
        def submit(*_):
            print("runs", gc.isenabled(), gc.get_freeze_count() > 0, gc.get_threshold()[0])
        watch.submit, watch.wait = submit, lambda *_: None
        run.run(lambda p: p | beam.Create([1]), [])
    global new
    new = [[] for _ in range(2000)]
    return 0
cli._COMMANDS = dict.fromkeys(cli._COMMANDS, job)
gc.callbacks.append(lambda phase, info: print("looked"))
cli.command()
"""


@pytest.mark.parametrize(
    ("verb", "seen"),
    [
        ("verify", ["begins False False True", "runs True True 50000", "ends True"]),
        ("report", ["begins True True True", "ends True"]),
    ],
)
def test_garbage_is_looked_for_when_the_work_begins(verb, seen):
    ended = subprocess.run([sys.executable, "-c", COMMAND, verb, "/nothing"], capture_output=True, text=True)
    assert (ended.stdout.splitlines(), ended.stderr) == (seen, "")


def test_a_job_of_another_process_leaves_its_collector_alone():
    gc.disable()
    try:
        run(lambda p: p | beam.Create([1]), [])
        assert (gc.isenabled(), gc.get_freeze_count()) == (False, 0)
    finally:
        gc.enable()
