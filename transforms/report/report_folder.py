"""The page about a folder, when a job has completed it."""

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.schemas.manifest import Manifest
from recordmill.transforms.report.write_report import try_to_report


class ReportFolder(beam.PTransform):
    """A PCollection of one Manifest, of a folder that is complete, becomes a PCollection of none."""

    def __init__(self, output: str):
        super().__init__()
        self._output = output

    def expand(self, manifests: PCollection[Manifest]):
        return manifests | "Report" >> beam.Map(_report, self._output)


def _report(_: Manifest, output: str) -> None:
    try_to_report(output)
