"""Batches of a PyTorch DataLoader. It needs no PyTorch, because it changes no tensor."""

from collections.abc import Sequence
from typing import Any


def collate(batch: Sequence[Any]) -> Any:
    """Return a batch of records of different sizes: `collate_fn` of a DataLoader of `Split.torch`.

        DataLoader(data["train"].torch(), batch_size=8, num_workers=4, collate_fn=recordmill.collate)

    Args:
        batch: Pairs of image and target; or dicts of columns, of a table without images.

    Returns:
        The images and the targets, a tuple of each, as torchvision's detectors take them as lists; or a dict with a
        tuple of the values of each column.
    """
    if isinstance(batch[0], dict):
        return {name: tuple(row[name] for row in batch) for name in batch[0]}
    return tuple(zip(*batch, strict=True))
