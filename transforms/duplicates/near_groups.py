"""Which of many perceptual hashes are near each other, in memory of some bytes a hash."""

from collections.abc import Iterator

import numpy as np

NEAR_BITS = 8
"""Hashes that differ in so many bits at the most are near: see docs/decisions/0028-duplicates.md."""

_BANDS = range(0, 64, 16)
"""Hashes are cut into four bands. Of two that differ in less than 8 bits, one band differs in one bit at the most. So
it is with 96 % of those that differ in 8."""
_FLIPS = np.array([0, *(1 << bit for bit in range(16))], np.uint64)
_SURE_BITS = 24
"""Hashes with so many bits in common are of pictures full of detail. Those of drawings of a few flat shapes have less:
half of their frequencies are 0."""
_NEAR_FORM = 4
"""Steps of the 256 that every part of a form may be apart by, of pictures without much detail."""
_MOST = 1024
"""Hashes that one is compared with, of the next ones of a band: data of which more are equal there (a million icons)
takes minutes so, not days, and their groups are long anyway. Of one hash, the next ones are those of the next form."""
_PAIRS_AT_ONCE = 1 << 16
_BITS_SET = np.array([number.bit_count() for number in range(1 << 16)], np.uint8)


def near_groups(hashes: np.ndarray, forms: np.ndarray) -> np.ndarray:
    """For each picture the index of the first of its group. Pictures of a group are near another of it, not all of them
    near each other.

    Args:
        hashes: uint64 [n].
        forms: uint8 [n, m], see `recordmill.schemas.duplicates.FINGERPRINT`.

    Returns:
        int64 [n].
    """
    is_sure = bits_set(hashes) >= _SURE_BITS + NEAR_BITS  # so that of all that are near enough bits are common
    earliest, kind = _kinds(hashes, np.where(is_sure[:, None], 0, forms))
    hashes, forms = hashes[earliest], forms[earliest]
    first = np.arange(len(hashes))
    for one, other in _near_pairs(hashes):
        alike = _are_alike(hashes, forms, one, other)
        _join(first, one[alike], other[alike])
    np.minimum.at(earliest, first, earliest.copy())
    return earliest[first[kind]]


def _kinds(hashes: np.ndarray, forms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Those with equal hash and form are one kind: int64 [k], the index of the first of each kind, in the order of hash
    and form; and int64 [n], the kind of each."""
    order = np.lexsort((*forms.T[::-1], hashes))  # stable
    is_new = np.ones(len(order), bool)
    is_new[1:] = hashes[order[1:]] != hashes[order[:-1]]
    is_new[1:] |= (forms[order[1:]] != forms[order[:-1]]).any(axis=1)
    kind = np.empty(len(order), np.int64)
    kind[order] = np.cumsum(is_new) - 1
    return order[is_new], kind


def _are_alike(hashes: np.ndarray, forms: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Whether pictures whose hashes are near are of the same form, too, where their hashes say too little."""
    is_sure = bits_set(hashes[one] & hashes[other]) >= _SURE_BITS
    apart = np.abs(forms[one].astype(np.int16) - forms[other]).max(axis=1, initial=0)
    return is_sure | (apart <= _NEAR_FORM)


def _join(first: np.ndarray, one: np.ndarray, other: np.ndarray) -> None:
    """Let the groups of pairs be the same, in place."""
    while True:
        ends = first[one], first[other]
        low = np.minimum(*ends)
        if all(np.array_equal(end, low) for end in ends):
            break
        for end in ends:
            np.minimum.at(first, end, low)
        while not np.array_equal(first, shorter := first[first]):
            first[:] = shorter


def _near_pairs(hashes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Indices of the one and the other of hashes that are near each other; some pairs more than once."""
    for band in _BANDS:
        values = hashes >> np.uint64(band) & np.uint64(0xFFFF)
        order = np.lexsort((hashes, values))
        ordered, sorted_hashes = values[order], hashes[order]
        for flip in _FLIPS:
            starts, ends = (np.searchsorted(ordered, ordered ^ flip, side) for side in ("left", "right"))
            # Each pair once: of equal bands the later hashes, of others those of the larger value.
            if flip:
                starts = np.where(ordered < ordered ^ flip, starts, ends)
            else:  # and of equal hashes in one band only
                starts = np.arange(1, len(ordered) + 1) if band == _BANDS[0] else _ends_of_runs(sorted_hashes)
            for one, other in _ranges(starts, np.minimum(ends, starts + _MOST)):
                near = bits_set(sorted_hashes[one] ^ sorted_hashes[other]) <= NEAR_BITS
                if near.any():
                    yield order[one[near]], order[other[near]]


def _ends_of_runs(values: np.ndarray) -> np.ndarray:
    """Of each value the index after the last that is equal; they are neighbours.

    >>> _ends_of_runs(np.array([5, 5, 7]))
    array([2, 2, 3])
    """
    ends = np.append(np.flatnonzero(values[1:] != values[:-1]) + 1, len(values))
    return np.repeat(ends, np.diff(ends, prepend=0))


def _ranges(starts: np.ndarray, ends: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Every index with each of its range, some at a time."""
    lengths = ends - starts
    total = np.cumsum(lengths)
    begin = 0
    while begin < len(lengths):
        before = total[begin] - lengths[begin]
        end = max(begin + 1, int(np.searchsorted(total, before + _PAIRS_AT_ONCE, "right")))
        number = lengths[begin:end]
        one = np.repeat(np.arange(begin, end), number)
        within = np.arange(len(one)) - np.repeat(total[begin:end] - number - before, number)
        yield one, starts[one] + within
        begin = end


def bits_set(numbers: np.ndarray) -> np.ndarray:
    """How many bits are set in each uint64."""
    if hasattr(np, "bitwise_count"):  # of numpy 2
        return np.bitwise_count(numbers)
    parts = numbers.astype("<u8").view("<u2").reshape(-1, 4)
    return _BITS_SET[parts].sum(1, dtype=np.uint8)
