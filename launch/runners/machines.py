"""Machine types of Compute Engine: what their names say of processors and memory.

https://cloud.google.com/compute/docs/machine-resource, general-purpose machines of x86 and of ARM.
"""

import re
from typing import NamedTuple

ARM = ("t2a-", "c4a-", "n4a-")

_GB_A_VCPU = {
    "e2": {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0},
    "n1": {"standard": 3.75, "highmem": 6.5, "highcpu": 0.9},
    "n2": {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0},
    "n2d": {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0},
    "n4": {"standard": 4.0, "highmem": 8.0, "highcpu": 2.0},
    "c3": {"standard": 4.0, "highmem": 8.0, "highcpu": 2.0},
    "c3d": {"standard": 4.0, "highmem": 8.0, "highcpu": 2.0},
    "c2": {"standard": 4.0},
    "c2d": {"standard": 4.0, "highmem": 8.0, "highcpu": 2.0},
    "t2d": {"standard": 4.0},
}
_TYPE = re.compile(r"([a-z]\w*)-([a-z]+)-(\d+)")
_CUSTOM = re.compile(r"(?:[a-z]\w*-)?custom-(\d+)-(\d+)(?:-ext)?")


class Machine(NamedTuple):
    """What a machine has."""

    vcpus: int
    memory_gb: float


def machine_of(name: str) -> Machine | None:
    """The machine of a type; None of types that are not known here.

    >>> machine_of("e2-standard-2"), machine_of("n2-custom-4-10240")
    (Machine(vcpus=2, memory_gb=8.0), Machine(vcpus=4, memory_gb=10.0))
    """
    if match := _CUSTOM.fullmatch(name):
        return Machine(int(match[1]), int(match[2]) / 1024)
    match = _TYPE.fullmatch(name)
    per_vcpu = _GB_A_VCPU.get(match[1], {}).get(match[2]) if match else None
    return Machine(int(match[3]), int(match[3]) * per_vcpu) if match and per_vcpu else None
