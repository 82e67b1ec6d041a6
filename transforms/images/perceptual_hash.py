"""Numbers of 64 bits of which few differ between pictures that look the same, whatever their size and compression.

As pHash: the lowest frequencies of a small grey picture, each a bit: whether it is above their median; but by more than
noise makes of it, as half of a drawing's frequencies are 0.
"""

import numpy as np

HASH_SIDE = 32
"""Rows and columns of the grey picture that is hashed, whatever the picture's shape."""
HASH_BITS = 64
_FREQUENCIES = 9
_SCALE = 1 << 12
_NOISE = 100 * _SCALE**2
"""What a coefficient has to be above the median by: that of a cosine of a tenth of a level. See
docs/decisions/0028-duplicates.md."""


def _cosines() -> np.ndarray:
    """Whole numbers: products and sums of them are exact, so that no processor gives another hash."""
    positions, frequencies = np.arange(HASH_SIDE), np.arange(_FREQUENCIES)
    return np.rint(_SCALE * np.cos(np.pi * np.outer(frequencies, 2 * positions + 1) / (2 * HASH_SIDE)))


def _lowest_frequencies() -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the coefficients of the lowest frequencies, without that of the mean."""
    pairs = [(row, column) for row in range(_FREQUENCIES) for column in range(_FREQUENCIES)][1:]
    rows, columns = zip(*sorted(pairs, key=lambda pair: (sum(pair), pair))[:HASH_BITS], strict=True)
    return np.array(rows), np.array(columns)


_COSINES = _cosines()
_ROWS, _COLUMNS = _lowest_frequencies()


def perceptual_hashes(grey: np.ndarray) -> np.ndarray:
    """
    Args:
        grey: uint8 [n, HASH_SIDE, HASH_SIDE].

    Returns:
        uint64 [n]; 0 where no frequency is above noise.
    """
    found = (_COSINES @ grey.astype(np.float64) @ _COSINES.T)[:, _ROWS, _COLUMNS]
    median = np.partition(found, HASH_BITS // 2 - 1, axis=1)[:, HASH_BITS // 2 - 1]
    bits = np.packbits(found > median[:, None] + _NOISE, axis=1)
    return np.frombuffer(bits.tobytes(), ">u8").astype(np.uint64)
