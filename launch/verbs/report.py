"""`recordmill report`: the page about a data set, made again. Neither Beam nor TensorFlow runs."""

from recordmill.launch.terminal.searching import searching
from recordmill.launch.terminal.summary import terminal
from recordmill.pipelines.options.report_options import ReportOptions
from recordmill.transforms.metadata.dataset_folder import require_manifest
from recordmill.transforms.report.complete_statistics import complete_statistics
from recordmill.transforms.report.write_report import write_report


def run_report(options: ReportOptions) -> None:
    """Write report.html; before that the statistics of splits that have none, for which their records are read.

    Raises:
        ConfigError: no data set there.
        JobError: a shard is damaged.
        OSError: a shard is gone; nothing can be written there.
    """
    manifest = require_manifest(options.folder)
    with searching() as search:
        counted = complete_statistics(options.folder, manifest, search.read)
    console = terminal()
    if counted:
        console.print(f"Statistics of {', '.join(counted)} were counted from the records")
    console.print(f"The page about the data set is {write_report(options.folder)}")
