"""Hash of numbers in NumPy."""

import numpy as np


def mix_bits(numbers: np.ndarray) -> np.ndarray:
    """Return SplitMix64's finalizer of uint64 numbers: each input bit affects each output bit.

    >>> mix_bits(np.array([1, 2], np.uint64)).tolist()
    [6238072747940578789, 15839785061582574730]
    """
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
