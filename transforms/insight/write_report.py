"""Write report.html to the folder of a complete data set."""

import logging
import shlex

from recordmill.schemas.statistics import REPORT
from recordmill.transforms.dataset.dataset_folder import read_statistics, require_manifest
from recordmill.transforms.storage.resolve import join_path, storage_for

_LOGGER = logging.getLogger(__name__)


def has_report(output: str) -> bool:
    return storage_for(output).size(join_path(output, REPORT)) is not None


def try_to_report(output: str) -> None:
    """Write report.html, or log a warning: a job with complete shards must not fail because of its page."""
    try:
        write_report(output)
    except Exception as error:  # errors of storage or libraries, and our bugs
        _LOGGER.debug("no report", exc_info=True)
        _LOGGER.warning(
            "%s was not written (%s: %s). The shards are complete. To write the report, run recordmill report %s",
            *(REPORT, type(error).__name__, error, shlex.quote(output)),
        )


def write_report(output: str) -> str:
    """Write the page of a folder from its manifest, statistics and shards. Return its path.

    Raises:
        ConfigError: The folder has no manifest.
        OSError: Storage fails.
    """
    # Imported here, because jobs without a report do not need the drawing libraries.
    from recordmill.transforms.insight.page import render_page
    from recordmill.transforms.insight.read_examples import (
        GROUPS_SHOWN,
        choose_duplicates,
        choose_examples,
        read_examples,
        read_first_groups,
    )

    storage = storage_for(output)
    path = join_path(output, REPORT)
    manifest = require_manifest(output)
    while True:
        statistics = read_statistics(output, manifest.splits)
        duplicates = read_first_groups(output, GROUPS_SHOWN)
        chosen = [*choose_examples(statistics), *choose_duplicates(duplicates)]
        thumbnails = read_examples(output, manifest, chosen)
        storage.write(path, render_page(manifest, statistics, thumbnails, duplicates))
        rendered, manifest = manifest, require_manifest(output)
        if manifest == rendered:  # else another job has added a split
            return path
