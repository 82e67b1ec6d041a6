"""Check the free space of the disk."""

import logging
import os
import shutil
from collections.abc import Mapping

from recordmill.schemas.dataset.dataset_files import state_folder
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.shards import SplitSize
from recordmill.schemas.sizes import size_text
from recordmill.transforms.storage.interface import is_remote
from recordmill.transforms.storage.resolve import storage_for

_LOGGER = logging.getLogger(__name__)

_LEAST = 0.8  # of a plan, which counts images that turn out to be rejects, and bounds of masks


def check_space(output: str, sizes: Mapping[str, SplitSize], is_exact: bool) -> None:
    """Check that the records of a plan fit the free space of the disk, and log a warning if they may not.

    Args:
        output: Folder of the data set. A bucket always has room.
        sizes: Planned size of each split. Finished shards of a run that goes on are subtracted.
        is_exact: False if records may be much smaller than planned: compressed, or with pictures that are encoded
            again.

    Raises:
        ConfigError: they do not fit.
    """
    if is_remote(output):
        return
    states = (os.path.join(output, state_folder(split)) for split in sizes)
    finished = (os.path.join(state, name) for state in states for name in storage_for(output).names(state))
    needed = sum(size.bytes for size in sizes.values()) - sum(map(os.path.getsize, finished))
    there = os.path.abspath(output)
    while not os.path.isdir(there):
        there = os.path.dirname(there)
    free = shutil.disk_usage(there).free
    if needed <= free:
        return
    takes = f"the shards take up to {size_text(needed)}, and the disk of {output} has {size_text(free)} free"
    fault = f"{takes}: free some, or give another --output"
    if is_exact and _LEAST * needed > free:
        raise ConfigError(fault)
    _LOGGER.warning(fault)
