"""A step whose work threads do."""

from concurrent.futures import ThreadPoolExecutor

import apache_beam as beam

from recordmill.transforms.runtime.cores import usable_cores


class ThreadedDoFn(beam.DoFn):
    """Base of steps that hold threads from their setup on: `self.pool`, with `self.threads` of them.

    Args:
        threads: how many; None for as many as there are cores where the step runs.
    """

    def __init__(self, threads: int | None):
        self._given_threads = threads

    def setup(self):
        self.threads = self._given_threads or usable_cores()
        self.pool = ThreadPoolExecutor(self.threads, type(self).__name__)

    def teardown(self):
        self.pool.shutdown(cancel_futures=True)
