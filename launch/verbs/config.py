"""`recordmill config`: the configuration of a trainer for a data set. Neither Beam nor TensorFlow is imported."""

import os
import sys

from recordmill.pipelines.options.config_options import ConfigOptions
from recordmill.transforms.config.fill_config import Training, fill_config
from recordmill.transforms.metadata.dataset_folder import require_manifest
from recordmill.transforms.metadata.folder_statistics import read_statistics
from recordmill.transforms.storage.interface import is_remote


def run_config(options: ConfigOptions) -> None:
    """Print the configuration.

    Raises:
        ConfigError: no data set there, or none that the trainer can read.
    """
    folder = options.folder if is_remote(options.folder) else os.path.abspath(options.folder)
    manifest = require_manifest(folder)
    training = Training(options.train, options.validation, options.batch_size, options.epochs)
    statistics = read_statistics(folder, manifest.splits)
    sys.stdout.write(fill_config(options.consumer, folder, manifest, statistics, training))
