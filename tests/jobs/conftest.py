from pathlib import Path

import pytest

from recordmill.launch.cli import main
from tests.conftest import every_kind


@pytest.fixture(scope="session")
def of_every_kind(sample, tmp_path_factory) -> Path:
    """The sample with all kinds in one record, and both forms of masks."""
    folder = tmp_path_factory.mktemp("kinds")
    assert main(["convert", *every_kind(sample), "--masks", "both", "--num-shards", "2", "--output", str(folder)]) == 0
    return folder
