"""Pictures as they are, or transcoded, with their annotations: fetched ahead and checked by threads."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

import msgspec

from recordmill.schemas.features import FeatureTable
from recordmill.schemas.images import ImageTask, PictureRules
from recordmill.schemas.rejects import Metric, Rejected
from recordmill.transforms.examples.encode_examples import Encoded
from recordmill.transforms.examples.estimate_records import RecordEstimate
from recordmill.transforms.examples.image_encoder import ImageEncoder, encoder_of
from recordmill.transforms.images.fetch_images import Fetch, fetch_file, fetch_for
from recordmill.transforms.images.load_picture import load_picture
from recordmill.transforms.runtime.look_ahead import look_ahead
from recordmill.transforms.shards.record_maker import Made, RecordContext
from recordmill.transforms.storage.interface import is_remote

_BATCH_IMAGES = 8
_BATCH_BYTES = 2_000_000

NO_RECORD = Encoded((), {Metric.IMAGES_WITHOUT_RECORD: 1}, [])
"""Of an image that is not read, as no record can come of it."""


class EncodePictures(msgspec.Struct, frozen=True, tag=True):
    """A RecordMaker.

    Attributes:
        boxes: policy, see `recordmill.transforms.examples.boxes.fit_box`.
        pictures: what is done with image files.
    """

    boxes: str
    pictures: PictureRules

    def estimate(self, table: FeatureTable) -> RecordEstimate:
        height, width = self.pictures.raw_size or (0, 0)
        return RecordEstimate(table, self.pictures.max_side, same_bytes=3 * height * width)

    def start(self, of: RecordContext) -> Callable[[Sequence[ImageTask]], Iterator[Made]]:
        return partial(
            _encoded_ahead,
            of=of,
            encoder=encoder_of(of.labels, of.table, self.boxes),
            size_of=self.estimate(of.table).bytes,
            rules=self.pictures,
        )


def _encoded_ahead(
    tasks: Sequence[ImageTask],
    of: RecordContext,
    encoder: ImageEncoder,
    size_of: Callable[[ImageTask], int],
    rules: PictureRules,
) -> Iterator[Made]:
    files = (file for task in tasks if encoder.wants_image(task) for file in task.files)
    encode = partial(encode_batch, encoder=encoder, rules=rules, fetch=fetch_for(files))
    return chain.from_iterable(
        look_ahead(encode, batches(tasks, size_of), of.pool, of.threads, lambda batch: sum(map(size_of, batch)))
    )


def encode_batch(
    tasks: list[ImageTask], encoder: ImageEncoder, rules: PictureRules, fetch: Fetch = fetch_file
) -> list[Made]:
    """Each task with its record, or with why there is none. Runs in a thread, so it counts nothing in Beam."""
    made: list[Made] = []
    for task in tasks:
        if not encoder.wants_image(task):
            made.append((task, NO_RECORD))
            continue
        loaded = load_picture(task, rules, fetch)
        made.append((task, loaded if isinstance(loaded, Rejected) else encoder.encode(task, loaded, fetch)))
    return made


def batches(tasks: Iterable[ImageTask], size_of: Callable[[ImageTask], int]) -> Iterator[list[ImageTask]]:
    """Batches of neighbours, up to _BATCH_IMAGES and _BATCH_BYTES: with single local images, threads would spend a
    fifth of their time on taking tasks. An image in a bucket is a batch of its own, so that each thread has one."""
    batch: list[ImageTask] = []
    size = 0
    for task in tasks:
        task_size = size_of(task)
        full = len(batch) == _BATCH_IMAGES or size + task_size > _BATCH_BYTES or is_remote(task.ref.path)
        if batch and full:
            yield batch
            batch, size = [], 0
        batch.append(task)
        size += task_size
    if batch:
        yield batch
