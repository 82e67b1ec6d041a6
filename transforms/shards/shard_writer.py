"""A shard from its plan to its file: records made and framed, and the file made visible when it is whole. What an
earlier run has finished is found and kept."""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import overload

import msgspec

from recordmill.schemas.images import ImageTask
from recordmill.schemas.layouts import has_picture
from recordmill.schemas.rejects import Metric, Reason, Rejected
from recordmill.schemas.shards import ShardKey, ShardResult
from recordmill.schemas.tfrecord import FRAME_BYTES
from recordmill.transforms.duplicates.fingerprint_images import ImageFingerprints
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.coders import pack, unpacker
from recordmill.transforms.runtime.made_by import made_by
from recordmill.transforms.shards.encode_pictures import NO_RECORD
from recordmill.transforms.shards.record_maker import RecordContext
from recordmill.transforms.shards.shard_file import FinishedShards, ShardFile, ShardRecipe
from recordmill.transforms.shards.task_order import task_order
from recordmill.transforms.statistics.count_images import ImageCounter

_LOGGER = logging.getLogger(__name__)

_MAY_PASS = (Reason.IMAGE_MISSING, Reason.IMAGE_INACCESSIBLE, Reason.MASK_MISSING)
"""Reasons of rejects that may have passed since an earlier run, so that the shard is written again."""


class PlannedTasks(Sequence[ImageTask]):
    """The tasks of a shard in order, each unpacked when it is taken: unpacked, they take six times as much memory.

    Args:
        packed: ImageTasks, as `pack` makes them.
        seed: of the order.
    """

    def __init__(self, packed: Iterable[bytes], seed: int):
        self._unpack = unpacker(ImageTask)
        self.packed = sorted(packed, key=lambda task: task_order(seed, self._unpack(task)))

    def __len__(self) -> int:
        return len(self.packed)

    @overload
    def __getitem__(self, index: int) -> ImageTask: ...

    @overload
    def __getitem__(self, index: slice) -> list[ImageTask]: ...

    def __getitem__(self, index: int | slice) -> ImageTask | list[ImageTask]:
        found = self.packed[index]
        return self._unpack(found) if isinstance(found, bytes) else list(map(self._unpack, found))


class ShardWriter:
    """Writes the shards of a job."""

    def __init__(self, recipe: ShardRecipe, of: RecordContext):
        self.recipe = recipe
        self.labels = of.labels
        self.table = of.table
        self._finished = FinishedShards(recipe)
        self._make = recipe.maker.start(of)

    def finish(self, key: ShardKey, packed: Iterable[bytes]) -> ShardResult:
        """Write a shard, or find that an earlier run has: it left a ShardResult of the same plan and versions, and the
        file is there, with the same checksum.

        Args:
            packed: the shard's ImageTasks, in any order.

        Raises:
            OSError: the output cannot be written, or images cannot be read for another reason than that they are gone.
        """
        ordered = PlannedTasks(packed, self.recipe.seed)
        plan = self.plan_digest(key, ordered)
        done = self._finished.find(key, plan)
        if done and not any(reject.reason in _MAY_PASS for reject in done.rejected):
            _LOGGER.info("%s is there already, with %d examples", done.info.file, done.info.examples)
            progress.skipped_images(sum(not task.is_continuation for task in ordered))
        else:
            done = self._write(key, ordered, plan)
            self._finished.note(done)
        progress.finished_shard()
        return done

    def plan_digest(self, key: ShardKey, tasks: PlannedTasks) -> str:
        """What is to be written, as a hex digest: equal plans give equal bytes as long as the image files stay as they
        were listed."""
        digest = hashlib.sha256(pack((key, msgspec.structs.replace(self.recipe, output=""), self.labels, self.table)))
        for task in tasks.packed:
            digest.update(task)
        return digest.hexdigest()

    def _write(self, key: ShardKey, tasks: PlannedTasks, plan: str) -> ShardResult:
        counted: Counter[Metric] = Counter()
        classes: Counter[int] = Counter()
        rejected: list[Rejected] = []
        images, fingerprints = ImageCounter(), ImageFingerprints()
        with ShardFile(self.recipe, key) as shard:
            for task, made in self._make(tasks):
                if isinstance(made, Rejected) and task.is_continuation:
                    counted[Metric.OF_REJECTED_IMAGES] += made.annotations
                    continue
                if isinstance(made, Rejected):
                    rejected.append(made)
                    progress.rejected_image(task.ref.size_bytes)
                    continue
                places = [shard.append(*record) for record in made.records]
                if places:
                    size = sum(place.bytes for place in places)
                    counted[Metric.RECORD_BYTES] += size - len(places) * FRAME_BYTES
                    place = places[0]._replace(bytes=size)
                    images.add(made.facts, place)
                    fingerprints.add(made.facts, place)
                rejected += made.rejected
                counted.update(made.counted)
                classes.update(made.class_counts)
                if not task.is_continuation:
                    progress.wrote_image(0 if made is NO_RECORD else task.ref.size_bytes)
        for reject in rejected:
            progress.rejected(reject)
        return ShardResult(
            key,
            plan,
            made_by(self.recipe.layout),
            shard.info,
            dict(counted),
            tuple(rejected),
            images.statistics(shard.info.file),
            dict(classes),
            fingerprints.of_shard(shard.info.file) if has_picture(self.table) else None,
        )
