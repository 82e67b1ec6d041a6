"""A split as data sets of PyTorch. This module is imported by `Split.torch` alone, as it imports torch."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from recordmill.global_order import GlobalOrder
from recordmill.split import Split

Transform = Callable[[Any, Any], Any]
_AT_ONCE = 16
"""Records of an IterableDataset that are read at once."""


class TorchDataset(Dataset):
    """Any record by its number: a map-style data set. See `Split.torch`."""

    def __init__(self, split: Split, transform: Transform | None = None):
        self._split = split
        self._transform = transform

    def __len__(self) -> int:
        return len(self._split)

    def __getitem__(self, number: int) -> Any:
        return self._made(self._split[number])

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Several at once, by as few reads as can be; DataLoader calls it for a batch."""
        records = zip(self._split.read(numbers), numbers, strict=True)
        return [self._made(self._split.decode(record, number)) for record, number in records]

    def _made(self, example: dict[str, Any]) -> Any:
        made = torch_example(example)
        return self._transform(*made) if self._transform else made


class Part(NamedTuple):
    """The share of one of several processes that read together.

    Attributes:
        rank, ranks: which, and how many there are; each has workers of its own.
    """

    rank: int
    ranks: int


class TorchIterableDataset(IterableDataset):
    """The records in an order of their own each epoch: each is read by one worker of one rank. See `Split.torch`."""

    def __init__(self, split: Split, order: GlobalOrder, part: Part, transform: Transform | None = None):
        self._records = TorchDataset(split, transform)
        self._order = order
        self._part = part
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next iteration is, of all workers that are started for it."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        id_, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        host, hosts = self._part.rank * workers + id_, self._part.ranks * workers
        start = self._epoch * self._order.records
        mine = self._order.of_host(host, hosts, start=start, epochs=self._epoch + 1)
        while numbers := [number for _, number in zip(range(_AT_ONCE), mine, strict=False)]:
            yield from self._records.__getitems__(numbers)


def torch_dataset(
    split: Split, *, iterable: bool, seed: int | None, part: tuple[int, int] | None, transform: Transform | None
) -> TorchDataset | TorchIterableDataset:
    """See `Split.torch`."""
    if not iterable:
        return TorchDataset(split, transform)
    order = GlobalOrder(len(split), seed or 0, shuffle=seed is not None)
    return TorchIterableDataset(split, order, Part(*(part or _of_process())), transform)


def _of_process() -> tuple[int, int]:
    """Rank and number of ranks, where torch.distributed runs."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def torch_example(example: dict[str, Any]) -> Any:
    """A record as torchvision's models take it: the picture, or feature, and its target; without either, as a dict.

    Of one class, the target is its index, int64 []. Of objects it is a dict, as of torchvision's detection models: see
    `Split.torch`.
    """
    if "image" in example:
        first = torch.from_numpy(np.ascontiguousarray(example["image"].transpose(2, 0, 1)))
    elif "feature" in example:
        first = _tensor(example["feature"])
    else:
        return {name: _tensor(value) for name, value in example.items()}
    others = {name: value for name, value in example.items() if name not in ("image", "feature")}
    if "label" in others:
        return first, _tensor(others["label"])
    height, width = first.shape[-2:]
    return first, target_of(others, height, width)


def target_of(values: dict[str, Any], height: int, width: int) -> dict[str, Any]:
    """The target of a picture of objects, or of a row of a table."""
    target = {name: _tensor(value) for name, value in values.items() if name not in _RENAMED}
    if "boxes" in values:
        ymin, xmin, ymax, xmax = values["boxes"].T
        edges = np.stack([xmin, ymin, xmax, ymax], axis=-1)
        target["boxes"] = torch.from_numpy(edges * np.array([width, height, width, height], np.float32))
    if "labels" in values:
        target["labels"] = _tensor(values["labels"] + 1)
    if "is_crowd" in values:
        target["iscrowd"] = _tensor(values["is_crowd"])
    if "keypoints" in values:
        scale = np.array([width, height, 1], np.float32)
        target["keypoints"] = torch.from_numpy(values["keypoints"] * scale)
    return target


_RENAMED = ("boxes", "labels", "is_crowd", "keypoints")
"""Those that are otherwise in a target."""


def _tensor(value: Any) -> Any:
    """A tensor of numbers; texts stay as they are."""
    array = np.asarray(value)
    if array.dtype.kind in "SUO":
        return value.tolist() if isinstance(value, np.ndarray) else value
    return torch.from_numpy(np.array(array))
