"""One batch of 32 images with boxes and labels, by one reader, in a process of its own.

    python benchmarks/peers/read_first_batch.py READER WORKERS FOLDER [--bucket]

Prints, as JSON, the seconds from opening to the batch, and the memory (MB) that opening and reading have added to the
process and its workers. Modules are imported before. With `--bucket` the folder is also the bucket of
STORAGE_EMULATOR_HOST. Readers make the same of a record: image uint8, boxes float32 [N, 4], labels int64 [N].
"""

import gc
import importlib
import io
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from measure import descendants

BATCH, SEED, BUFFER = 32, 0, 1000
SIZE = 248, 186
"""Width and height of the drawn images."""
KEYS = ["image", "boxes", "labels"]


class Place(NamedTuple):
    """A drawn data set, also in a bucket if `server` is its URL."""

    folder: Path
    server: str

    def ours(self) -> Any:
        import recordmill

        return recordmill.open("gs://bucket/ours" if self.server else self.folder / "ours")["train"]

    def files(self, name: str) -> list[str]:
        return sorted(str(path) for path in (self.folder / name).iterdir())

    def url(self, name: str) -> str:
        return f"{self.server}/download/storage/v1/b/bucket/o/{quote(name, safe='')}?alt=media"


# PyTorch


def unzipped(batch: list[Any]) -> tuple[Any, ...]:
    return tuple(zip(*batch, strict=True))


def unchanged(batch: Any) -> Any:
    return batch


class Batches:
    """Data set of whole batches: PyTorch 2 asks `__getitems__` for one, Debian's 1.13 would ask for each record."""

    def __init__(self, data: Any, made: Callable[[Any], Any]):
        self._data = data
        self._made = made

    def __getitem__(self, numbers: list[int]) -> Any:
        get = getattr(self._data, "__getitems__", lambda numbers: [self._data[number] for number in numbers])
        return unzipped(list(map(self._made, get(numbers))))


def shuffled(data: Any, workers: int, made: Callable[[Any], Any] = lambda record: record) -> Iterable[Any]:
    """Batches of a map-style data set, at random."""
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler

    sampler = BatchSampler(RandomSampler(data), BATCH, drop_last=False)
    options: dict[str, Any] = {"sampler": sampler, "batch_size": None, "collate_fn": unchanged}
    return DataLoader(Batches(data, made), num_workers=workers, **options)


def streamed(data: Any, workers: int, collate: Callable[[Any], Any] = unzipped) -> Iterable[Any]:
    """Batches of an IterableDataset."""
    from torch.utils.data import DataLoader

    return DataLoader(data, BATCH, num_workers=workers, collate_fn=collate)


def pair(jpeg: bytes, boxes: Any, labels: Any) -> tuple[Any, dict[str, Any]]:
    import torch
    from PIL import Image
    from torchvision.transforms.functional import pil_to_tensor

    image = pil_to_tensor(Image.open(io.BytesIO(jpeg)).convert("RGB"))
    return image, {"boxes": torch.tensor(boxes).reshape(-1, 4), "labels": torch.tensor(labels, dtype=torch.int64)}


# Readers


def nothing(place: Place, workers: int) -> Iterable[Any]:
    """Zeros in place of images: what a DataLoader itself takes."""
    import torch

    zeros = torch.zeros((3, *SIZE[::-1]), dtype=torch.uint8)
    return shuffled(range(118_000), workers, lambda _: (zeros.clone(), {"boxes": torch.zeros(7, 4)}))


def folder(place: Place, workers: int) -> Iterable[Any]:
    """CocoDetection of torchvision; of a bucket, with a GET a file by a connection that is kept."""
    import torch
    from PIL import Image
    from torchvision.datasets import CocoDetection
    from torchvision.transforms.functional import pil_to_tensor

    connections: dict[int, HTTPConnection] = {}

    def get(name: str) -> bytes:
        process = os.getpid()
        if process not in connections:
            connections[process] = HTTPConnection(place.server.removeprefix("http://"))
        connections[process].request("GET", place.url(name).removeprefix(place.server))
        return connections[process].getresponse().read()

    class BucketDetection(CocoDetection):
        def _load_image(self, id: int) -> Image.Image:
            return Image.open(io.BytesIO(get(f"images/{self.coco.loadImgs(id)[0]['file_name']}"))).convert("RGB")

    def target(objects: list[dict[str, Any]]) -> dict[str, Any]:
        boxes = torch.tensor([each["bbox"] for each in objects]).reshape(-1, 4)
        return {"boxes": boxes, "labels": torch.tensor([each["category_id"] for each in objects])}

    transforms = {"transform": pil_to_tensor, "target_transform": target}
    sys.stdout = sys.stderr  # pycocotools prints
    if not place.server:
        return shuffled(CocoDetection(place.folder / "images", place.folder / "instances.json", **transforms), workers)
    with tempfile.NamedTemporaryFile() as file:
        file.write(get("instances.json"))
        file.flush()
        connections.pop(os.getpid()).close()
        return shuffled(BucketDetection("", file.name, **transforms), workers)


def ours_torch(place: Place, workers: int) -> Iterable[Any]:
    return shuffled(place.ours().torch(keys=KEYS), workers)


def ours_iterable(place: Place, workers: int) -> Iterable[Any]:
    return streamed(place.ours().torch(keys=KEYS, iterable=True, seed=SEED), workers)


def ours_numpy(place: Place, workers: int) -> Iterable[Any]:
    examples = place.ours().numpy(keys=KEYS)
    return iter(lambda: list(islice(examples, BATCH)), [])


def ours_grain(place: Place, workers: int) -> Iterable[Any]:
    import grain

    records = grain.MapDataset.source(place.ours().grain(keys=KEYS)).shuffle(seed=SEED)
    return records.to_iter_dataset().batch(BATCH, batch_fn=list)


def ours_tensorflow(place: Place, workers: int) -> Iterable[Any]:
    return place.ours().tensorflow(batch=BATCH, keys=KEYS, shuffle=True, seed=SEED, resize=SIZE[::-1])


def webdataset(place: Place, workers: int) -> Iterable[Any]:
    """Shards at random, then a buffer, which is ready with 100 records (the library's default)."""
    from webdataset import WebDataset

    files = place.files("webdataset")
    urls = [place.url(f"webdataset/{Path(file).name}") for file in files] if place.server else files

    def made(record: dict[str, bytes]) -> Any:
        facts = json.loads(record["json"])
        return pair(record["jpg"], facts["bbox"], facts["label"])

    return streamed(WebDataset(urls, shardshuffle=len(urls), seed=SEED).shuffle(BUFFER).map(made), workers)


def of_parquet(row: dict[str, Any]) -> Any:
    return pair(row["image"]["bytes"], row["objects"]["bbox"], row["objects"]["label"])


def parquet_batch(rows: list[dict[str, Any]]) -> Any:
    return unzipped(list(map(of_parquet, rows)))


def parquet_streamed(place: Place, workers: int) -> Iterable[Any]:
    """Files at random, then a buffer, which is to be full."""
    from datasets import load_dataset

    files = place.files("parquet")
    paths = [f"gs://bucket/parquet/{Path(file).name}" for file in files] if place.server else files
    options = {"token": "anon", "endpoint_url": place.server} if place.server else None
    data = load_dataset("parquet", data_files=paths, split="train", streaming=True, storage_options=options)
    return streamed(data.shuffle(seed=SEED, buffer_size=BUFFER), workers, parquet_batch)


def parquet_cached(place: Place, workers: int) -> Iterable[Any]:
    """From the library's cache in Arrow, which a first call has written."""
    from datasets import load_dataset

    files, cache = place.files("parquet"), str(place.folder / "parquet_cache")
    return shuffled(load_dataset("parquet", data_files=files, split="train", cache_dir=cache), workers, of_parquet)


def array_record(place: Place, workers: int) -> Iterable[Any]:
    from array_record.python.array_record_data_source import ArrayRecordDataSource
    from tfrecord import example_pb2

    def made(record: bytes) -> Any:
        values = example_pb2.Example.FromString(record).features.feature
        edges = [values[f"image/object/bbox/{edge}"].float_list.value for edge in ("xmin", "ymin", "xmax", "ymax")]
        labels = values["image/object/class/label"].int64_list.value
        return pair(values["image/encoded"].bytes_list.value[0], list(zip(*edges, strict=True)), list(labels))

    return shuffled(ArrayRecordDataSource(place.files("array_record")), workers, made)


OURS = ["recordmill._data_set", "recordmill._decode_record", "recordmill.transforms.images.decode_jpeg"]
GCS = ["google.cloud.storage", "google.auth.transport.urllib3", "google.api_core.retry", "requests", "certifi"]
TORCH = ["torch", "torch.utils.data", "torchvision", "PIL.Image", "PIL.JpegImagePlugin"]
IMPORTS = {
    nothing: TORCH,
    folder: [*TORCH, "pycocotools.coco"],
    ours_torch: [*TORCH, *OURS, "recordmill._torch_dataset"],
    ours_iterable: [*TORCH, *OURS, "recordmill._torch_dataset"],
    ours_numpy: OURS,
    ours_grain: [*OURS, "grain"],
    ours_tensorflow: [*OURS, "tensorflow", "recordmill._tensorflow_reader"],
    webdataset: [*TORCH, "webdataset"],
    parquet_streamed: [*TORCH, "datasets", "gcsfs"],
    parquet_cached: [*TORCH, "datasets"],
    array_record: [*TORCH, "array_record.python.array_record_data_source", "tfrecord.example_pb2"],
}


def memory_mb() -> float:
    """Memory of this process and its workers, without pages of files; what they share is counted once."""
    texts = [(Path("/proc") / str(process) / "smaps_rollup") for process in descendants({os.getpid()})]
    sizes = [int(kb) for text in texts for kb in re.findall(r"Pss_(?:Anon|Shmem): +(\d+)", text.read_text())]
    return sum(sizes) / 1000


def main(reader: str, workers: str, place: str, *flags: str) -> None:
    read = next(function for function in IMPORTS if function.__name__ == reader)
    for module in (*IMPORTS[read], *(GCS if flags and reader.startswith("ours") else ())):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # otherwise a collection in a worker, sooner or later, copies the pages of the imported modules
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(SEED)
    before, began, stdout = memory_mb(), time.perf_counter(), sys.stdout
    server = os.environ["STORAGE_EMULATOR_HOST"] if flags else ""
    batches: Iterator[Any] = iter(read(Place(Path(place), server), int(workers)))
    batch = next(batches)
    seconds = time.perf_counter() - began
    mb = memory_mb() - before
    images = batch[0] if isinstance(batch, tuple) else batch["image"] if isinstance(batch, dict) else batch
    assert len(images) == BATCH
    print(json.dumps({"seconds": seconds, "mb": mb}), file=stdout, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
