"""`recordmill report`: write report.html again, without Beam and TensorFlow."""

from recordmill.launch.terminal.console import terminal
from recordmill.pipelines.dataset_options import DataSetOptions
from recordmill.transforms.insight.write_report import write_report


def run(options: DataSetOptions) -> None:
    """Write report.html.

    Raises:
        ConfigError: The folder has no manifest.
        OSError: Storage fails.
    """
    terminal().print(f"The page about the data set is {write_report(options.folder)}")
