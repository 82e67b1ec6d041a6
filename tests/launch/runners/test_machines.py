"""What the names of machine types say."""

import pytest

from recordmill.launch.runners.machines import Machine, machine_of


@pytest.mark.parametrize(
    ("name", "vcpus", "memory_gb"),
    [
        ("e2-standard-2", 2, 8),
        ("e2-highmem-16", 16, 128),
        ("n2-highcpu-96", 96, 96),
        ("n1-standard-1", 1, 3.75),
        ("n1-highmem-4", 4, 26),
        ("n2d-standard-224", 224, 896),
        ("c3-highcpu-22", 22, 44),
        ("custom-2-7680", 2, 7.5),
        ("n2-custom-8-131072-ext", 8, 128),
    ],
)
def test_machines_that_are_known(name, vcpus, memory_gb):
    assert machine_of(name) == Machine(vcpus, memory_gb)


@pytest.mark.parametrize("name", ["", "e2-medium", "z9-standard-2", "c2-highmem-4", "e2-standard", "a2-highgpu-1g"])
def test_machines_that_are_not(name):
    assert machine_of(name) is None
