"""The data sets that the consumers read."""

import pytest

from tests.consumers.coco_truth import Truth, awkward, coco_mini, needs_shared_data


@pytest.fixture(
    params=[
        "sample",
        "awkward",
        pytest.param("coco_mini train", marks=needs_shared_data),
        pytest.param("coco_mini val", marks=needs_shared_data),
    ]
)
def truth(request, sample, tmp_path_factory) -> Truth:
    """Drawn data sets, and real ones where the machine has them."""
    if request.param == "sample":
        return Truth(sample.images, sample.instances)
    if request.param == "awkward":
        return awkward(tmp_path_factory.mktemp("awkward"))
    return coco_mini(request.param.split()[1])
