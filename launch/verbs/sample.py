"""`recordmill sample`: write the generated data set."""

import os
import shlex

from recordmill.launch.preflight.check_folder import folder_fault
from recordmill.launch.terminal.console import terminal
from recordmill.pipelines.dataset_options import SampleOptions
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.paths import is_remote
from recordmill.transforms.sample.write_sample import write_sample

_FEW = 200
"""Below this number of images, the missing and the broken one exceed the default of `--max-rejects`."""


def run(options: SampleOptions) -> None:
    """Write the data set and print how to convert it.

    Raises:
        ConfigError: The folder is not empty, or not on this machine.
    """
    folder, count = options.folder, options.count
    if not folder or is_remote(folder):
        raise ConfigError(f"DIR must be a local folder (got {folder!r})")
    if fault := folder_fault(folder):
        raise ConfigError(fault)
    if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        raise ConfigError(f"{folder} exists and is not empty. Choose a new or empty DIR")
    files = write_sample(folder, count, options.seed, options.odd)
    console = terminal()
    console.print(
        f"{count} images{' and the odd ones' if options.odd else ''}, one of them missing and one broken, and their "
        f"annotations are in {folder}. Convert them with:"
    )
    console.print(
        f"  {shlex.join(['recordmill', 'convert', files.images, '--instances', files.instances, '-o', 'OUT'])}"
        + (" --max-rejects 1" if options.odd or count < _FEW else "")
    )
