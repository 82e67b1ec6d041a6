"""PyTorch data sets of a split. Only `Split.torch` imports this module, because it imports torch."""

import operator
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from recordmill._global_order import GlobalOrder
from recordmill._split_records import SplitRecords
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Form, RecordOf
from recordmill.schemas.field_features import is_field
from recordmill.schemas.layouts import BOX_CODINGS

Transform = Callable[..., Any]
_AT_ONCE = 16
"""Number of records that an IterableDataset reads together."""


class TorchDataset(Dataset):
    """Map-style data set: records by number. See `Split.torch`."""

    def __init__(self, split: SplitRecords, transform: Transform | None = None):
        split._check_random_access()
        self._split = split
        self._transform = transform
        self._has_rows = split._contents.table.record_of is RecordOf.ROW
        label = split.features.get("label")
        self._label = "label" if label and not is_field(label.source) else ""
        image_names = (name for name, reading in split.features.items() if reading.form in (Form.IMAGE, Form.PIXELS))
        self._picture = next(image_names, None)
        if not (self._has_rows or {"image", "feature"} & split.features.keys()):
            raise ConfigError(f"{split.folder}, split {split.name}: keys must have image, the first item of a pair")

    def __len__(self) -> int:
        return len(self._split)

    def __getitem__(self, number: int) -> Any:
        return self.__getitems__([operator.index(number)])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Return several records by few reads; DataLoader calls it."""
        return list(map(self._make_item, self._split._examples(numbers)))

    def in_order(self, numbers: Iterator[int]) -> Iterator[Any]:
        """Yield records in the order of `numbers`. `_AT_ONCE` are read together."""
        runs = iter(lambda: list(islice(numbers, _AT_ONCE)), [])
        records = (record for run in runs for record in zip(self._split.read(run), run, strict=True))
        return map(self._make_item, self._split._decode_in_order(records))

    def _make_item(self, example: dict[str, Any]) -> Any:
        made = self._row_example(example) if self._has_rows else torch_example(example, self._label)
        if self._transform:
            made = self._transform(*made) if isinstance(made, tuple) else self._transform(made)
        is_sent = get_worker_info() and isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], dict)
        return (made[0], pack_tensors(made[1])) if is_sent else made

    def _row_example(self, row: dict[str, Any]) -> Any:
        """Return the image, if there is one, and a dict of the other columns, unchanged."""
        target = {name: _tensor(value) for name, value in row.items() if name != self._picture}
        return (_channels_first(row[self._picture]), target) if self._picture else target


class TorchIterableDataset(IterableDataset):
    """Records in another order for each epoch. One worker of one rank reads each. See `Split.torch`."""

    def __init__(
        self,
        split: SplitRecords,
        seed: int | None,
        part: tuple[int, int] | None,
        even: bool,
        transform: Transform | None,
    ):
        self._records = TorchDataset(split, transform)
        self._order = GlobalOrder(len(split), seed or 0, shuffle=seed is not None)
        self._part = part
        self._even = even
        self._epoch = 0

    def __getstate__(self) -> dict[str, Any]:
        """Pass the rank of the parent to spawned workers, where torch.distributed is not initialised."""
        return self.__dict__ | {"_part": self._part or _process_rank()}

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, for workers that are started for it."""
        if operator.index(epoch) < 0:
            raise ConfigError(f"epoch {epoch}: epochs are counted from 0")
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        id_, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        rank, ranks = self._part or _process_rank() or (0, 1)  # each rank has its own workers
        host, hosts = rank * workers + id_, ranks * workers
        start = self._epoch * self._order.records
        mine: Iterator[int] = self._order.of_host(host, hosts, start=start, epochs=self._epoch + 1)
        if self._even:
            mine = islice(mine, self._order.records // hosts)
        yield from self._records.in_order(mine)


def _process_rank() -> tuple[int, int] | None:
    """Return rank and number of ranks of torch.distributed, or of torchrun's environment variables; else None."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        rank, ranks = os.environ["RANK"], os.environ["WORLD_SIZE"]
        if not (rank.isdecimal() and ranks.isdecimal() and int(rank) < int(ranks)):
            raise ConfigError(
                f"the variables RANK {rank!r} and WORLD_SIZE {ranks!r} must be numbers with RANK < WORLD_SIZE"
            )
        return int(rank), int(ranks)
    return None


def torch_example(example: dict[str, Any], label: str = "") -> Any:
    """Return a record as torchvision's models expect it: image or feature, and target, see `Split.torch`.

    Args:
        label: Name of the class index of an image with one class; empty for objects.
    """
    first = _channels_first(example["image"]) if "image" in example else _tensor(example["feature"])
    values = {name: value for name, value in example.items() if name not in ("image", "feature")}
    if label:
        return first, _tensor(values[label])
    height, width = first.shape[-2:]
    return first, detection_target(values, height, width)


def pack_tensors(target: dict[str, Any]) -> dict[str, Any]:
    """Return a target whose small tensors are parts of one storage. A DataLoader's worker sends storages. Each takes
    the main process 0.15 ms, so with eight tensors per image that process would be slower than a few workers."""
    small = [
        name for name, value in target.items() if type(value) is torch.Tensor and _tensor_bytes(value) <= _PACKED_BYTES
    ]
    ends = list(accumulate(-(-_tensor_bytes(target[name]) // 8) * 8 for name in small))
    storage = torch.empty(ends[-1] if ends else 0, dtype=torch.uint8)
    packed = dict(target)
    for name, start in zip(small, (0, *ends), strict=False):
        value = target[name]
        part = storage[start : start + _tensor_bytes(value)].view(value.dtype).view(value.shape)
        packed[name] = part.copy_(value)
    return packed


_PACKED_BYTES = 1 << 16
"""Maximum bytes of a tensor that is packed. Masks are not: to copy them costs more than to send them."""


def _tensor_bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def detection_target(values: dict[str, Any], height: int, width: int) -> dict[str, Any]:
    """Return the target of one or more objects."""
    target = {name: _tensor(value) for name, value in values.items() if name not in _RENAMED}
    for coding in BOX_CODINGS:
        if coding.reading in values:
            ymin, xmin, ymax, xmax = coding.fractions(values[coding.reading].reshape(-1, 4), 1, 1).T
            factors = (1, 1, 1, 1) if coding.axes else (width, height, width, height)  # pixels, or fractions
            edges = np.stack([xmin, ymin, xmax, ymax], axis=-1) * np.array(factors, np.float32)
            target["boxes"] = torch.from_numpy(edges)
    if "labels" in values:
        target["labels"] = torch.atleast_1d(_tensor(values["labels"] + 1))  # [1] in the layout keras, like boxes [1, 4]
    if "is_crowd" in values:
        target["iscrowd"] = _tensor(values["is_crowd"])
    if "keypoints" in values:
        scale = np.array([width, height, 1], np.float32)
        target["keypoints"] = torch.from_numpy(values["keypoints"] * scale)
    return target


_RENAMED = (*(coding.reading for coding in BOX_CODINGS), "labels", "is_crowd", "keypoints")
"""Values with another name or form in a target."""


def _channels_first(image: np.ndarray) -> torch.Tensor:
    """Return a view of an image with channels first, like torchvision's pil_to_tensor."""
    return torch.from_numpy(image).permute(2, 0, 1)


def _tensor(value: Any) -> Any:
    """Return numbers as a tensor, texts unchanged, and lists of different lengths as a list of these."""
    array = np.asarray(value)
    if array.dtype == object and any(isinstance(item, np.ndarray) for item in array.flat):
        return list(map(_tensor, value))  # lists of different lengths
    if array.dtype.kind in "SUO":
        return value.tolist() if isinstance(value, np.ndarray) else value
    return torch.from_numpy(np.array(array))
